"""autotune as an ONNX backend (`onnx.backend.base`): how ONNX's own test suite runs against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from autotune.api.compile import compile as compile_onnx
from autotune.compiler.compile import CompiledModel
from autotune.errors import UnsupportedError


class AutotuneRep(BackendRep):
    """A compiled model that takes its inputs by position or by name."""

    def __init__(self, compiled: CompiledModel) -> None:
        self._compiled = compiled

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order."""
        if not isinstance(inputs, dict):
            given: Sequence[Any] = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = {spec.name: np.asarray(a) for spec, a in zip(self._compiled.program.inputs, given)}
        return tuple(self._compiled.run(inputs))


class AutotuneBackend(Backend):
    """Untuned kernels, one thread: the suite asks for answers, not for speed."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> AutotuneRep:
        """
        Raises:
            BackendIsNotSupposedToImplementIt: the model uses operators that autotune has not.
        """
        try:
            return AutotuneRep(compile_onnx(model.SerializeToString(), "native -num-cores=1", False))
        except UnsupportedError as error:
            raise BackendIsNotSupposedToImplementIt(str(error)) from error

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.upper().startswith("CPU")


prepare = AutotuneBackend.prepare
supports_device = AutotuneBackend.supports_device
