"""autotune as an ONNX backend (`onnx.backend.base`): how ONNX's own test suite runs against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from autotune.api.load import Runnable, load
from autotune.compiler.staged import StagedModel
from autotune.errors import UnsupportedError
from autotune.graph.frontend import ModelSource


class AutotuneRep(BackendRep):
    """A model ready to run; takes its inputs by position or by name.

    Attributes:
        host_nodes: the nodes that run on the host, between programs.
        segments: programs that one run is made of.
    """

    def __init__(self, model: Runnable) -> None:
        self._model = model

    @property
    def host_nodes(self) -> tuple[str, ...]:
        return self._model.host_nodes if isinstance(self._model, StagedModel) else ()

    @property
    def segments(self) -> int:
        return self._model.segments if isinstance(self._model, StagedModel) else 1

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order."""
        if not isinstance(inputs, dict):
            given: Sequence[Any] = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = {name: _value(a) for name, a in zip(self._model.input_names, given)}
        try:
            return tuple(self._model.run(inputs))
        except UnsupportedError as error:  # of a shape or value that only the run has shown
            raise BackendIsNotSupposedToImplementIt(str(error)) from error


def _value(given: Any) -> Any:
    """A sequence is a list of arrays, an empty optional None."""
    return given if given is None or isinstance(given, list) else np.asarray(given)


class AutotuneBackend(Backend):
    """Untuned kernels, one thread: the suite asks for answers, not for speed."""

    @classmethod
    def prepare(cls, model: ModelSource, device: str = "CPU", **kwargs: Any) -> AutotuneRep:
        """
        Args:
            model: as ONNX Runtime's backend takes it, too: a path, or bytes.

        Raises:
            BackendIsNotSupposedToImplementIt: the model uses operators that autotune has not.
        """
        try:
            return AutotuneRep(load(model, "native -num-cores=1", False))
        except UnsupportedError as error:
            raise BackendIsNotSupposedToImplementIt(str(error)) from error

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of one node, of the newest opset or of `opset_version`; `inputs` by position, or by name.

        Raises:
            BackendIsNotSupposedToImplementIt: as for `prepare`.
        """
        names = [name for name in node.input if name]
        given = dict(inputs) if isinstance(inputs, dict) else dict(zip(names, inputs, strict=True))
        arrays = {name: np.asarray(given[name]) for name in names}
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in arrays.items()
            ],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        opset = kwargs.get("opset_version") or onnx.defs.onnx_opset_version()
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", int(opset))])
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.upper().startswith("CPU")


prepare = AutotuneBackend.prepare
run_model = AutotuneBackend.run_model
run_node = AutotuneBackend.run_node
supports_device = AutotuneBackend.supports_device
