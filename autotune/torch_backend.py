"""`torch.compile(model, backend="autotune")`: a PyTorch model as programs of ours, on the CPU and without gradients.

Dynamo hands over a graph whose parameters are inputs. Each shape that it is called with is exported to ONNX with the
parameters as constants, so that weights are packed once, and becomes a session. What cannot become one runs as it did
before, with a `TorchWarning` that says why.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch

from autotune.api.optimize import optimize
from autotune.api.session import InferenceSession
from autotune.errors import AutotuneError, InputError
from autotune.machine import allowed_cores
from autotune.runtime.executor import Array
from autotune.target import Target

_log = logging.getLogger(__name__)
_OPTIONS = ("target", "database", "budget", "precision", "max_error", "strict_fp")
Shape: TypeAlias = tuple[object, ...]


class TorchWarning(UserWarning):
    """PyTorch runs a part of a model, since it cannot become a program of ours."""


def autotune_backend(
    module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., tuple[Any, ...]]:
    """What `torch.compile` calls; PyTorch finds it by its entry point.

    Args:
        module: an FX GraphModule of PyTorch operators; its inputs are tensors, and integers where shapes are open.
        inputs: examples of its inputs.
        options: of `torch.compile`. target, database, precision, max_error, strict_fp: as for `autotune.compile`;
            budget: as for `autotune.tune`, for each program; nothing is tuned without one.

    Raises:
        InputError: an option is unknown.
    """
    unknown = set(options or {}) - set(_OPTIONS)
    if unknown:
        raise InputError(f"no option {', '.join(sorted(unknown))} of backend autotune; known: {', '.join(_OPTIONS)}")
    if torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in inputs):
        return _eager(module, "gradients are wanted: call the model under torch.no_grad() or torch.inference_mode()")
    if any(torch.is_tensor(one) and one.device.type != "cpu" for one in inputs):
        return _eager(module, "some tensors are not on the CPU")
    return _Specialised(module, inputs, dict(options or {}))


@dataclass(frozen=True)
class _Session:
    """A program and how its outputs are put together.

    Attributes:
        outputs: for each output of the graph, the number of the program's output; or the constant that it is.
        folder: where the ONNX model lies for as long as the session may read it.
    """

    session: InferenceSession
    outputs: tuple[tuple[int | None, Any], ...]
    folder: tempfile.TemporaryDirectory[str]

    def run(self, arrays: Mapping[str, Array]) -> tuple[Any, ...]:
        found = [_tensor(array) for array in self.session.run(None, arrays)]
        return tuple(constant if number is None else found[number] for number, constant in self.outputs)


class _Specialised:
    """A graph, and a session for each shape that it was called with."""

    def __init__(self, module: Any, inputs: Sequence[Any], options: dict[str, Any]) -> None:
        self._module, self._options = module, options
        self._constant = [n for n, one in enumerate(inputs) if _is_static(one)]
        self._inputs = [n for n, one in enumerate(inputs) if n not in set(self._constant)]
        self._known: list[tuple[Any, int]] = []
        self._sessions: dict[Shape, Callable[[Mapping[str, Array]], tuple[Any, ...]] | None] = {}

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if len(self._known) != len(self._constant) or any(
            args[n] is not tensor or _version(tensor) != version
            for n, (tensor, version) in zip(self._constant, self._known)
        ):  # the first call, or the weights have changed since
            self._known = [(args[n], _version(args[n])) for n in self._constant]
            self._sessions.clear()
        given = [args[n] for n in self._inputs]
        shape = tuple((tuple(one.shape), one.dtype) if torch.is_tensor(one) else one for one in given)
        if shape not in self._sessions:
            self._sessions[shape] = self._specialise(args)
        run = self._sessions[shape]
        if run is None:
            return tuple(self._module(*args))
        return run({f"x{n}": _array(one) for n, one in zip(self._inputs, given) if torch.is_tensor(one)})

    def _specialise(self, args: Sequence[Any]) -> Callable[[Mapping[str, Array]], tuple[Any, ...]] | None:
        """The program for inputs of these shapes; None, with a warning, where there is none."""
        copies = [one.clone() if torch.is_tensor(one) else one for one in args]
        versions = [_version(one) for one in copies if torch.is_tensor(one)]
        with torch.no_grad():
            results = self._module(*copies)
        if versions != [_version(one) for one in copies if torch.is_tensor(one)]:
            _tell("it changes its inputs or its weights in place")
            return None
        try:
            return self._session(args, results).run
        except AutotuneError as error:
            _tell(str(error))
        except Exception as error:  # noqa: BLE001 - the exporter's own, and whatever operators without a rule raise in it
            _tell(f"torch.onnx cannot export it: {type(error).__name__}: {error}")
        return None

    def _session(self, args: Sequence[Any], results: Sequence[Any]) -> _Session:
        varying = [n for n in self._inputs if torch.is_tensor(args[n])]
        graph = _with_constants(self._module, {n: one for n, one in enumerate(args) if n not in varying})
        kept = [n for n, one in enumerate(results) if torch.is_tensor(one)]
        (output,) = [node for node in graph.graph.nodes if node.op == "output"]
        output.args = (tuple(output.args[0][n] for n in kept),)
        graph.recompile()
        folder = tempfile.TemporaryDirectory(prefix="autotune-torch-")
        path = Path(folder.name) / "model.onnx"
        with torch.no_grad():
            exported = torch.onnx.export(
                graph,
                tuple(args[n] for n in varying),
                input_names=[f"x{n}" for n in varying],
                dynamo=True,
                verbose=False,
            )
            exported.save(str(path), external_data=True)
        session = self._made(path)
        _log.info("a graph of %d nodes is a program: %s", len(graph.graph.nodes), session)
        places = {n: place for place, n in enumerate(kept)}
        return _Session(session, tuple((places.get(n), one) for n, one in enumerate(results)), folder)

    def _made(self, path: Path) -> InferenceSession:
        options = dict(self._options)
        budget, target = options.pop("budget", None), options.pop("target", None)
        if target is None:
            target = Target.parse(None).with_threads(min(torch.get_num_threads(), allowed_cores()))
        if budget is not None:
            return optimize(path, target, budget=budget, **options)
        return InferenceSession(path, target=target, **options)


def _with_constants(module: Any, values: Mapping[int, Any]) -> Any:
    """A copy of the graph in which some inputs, by number, have a value."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    made = torch.fx.GraphModule(module, graph)
    made.training = False  # of the graph alone, which has no mode: what it calls says so itself
    for number, value in values.items():
        node = placeholders[number]
        if torch.is_tensor(value):
            name = f"constant{number}"
            made.register_buffer(name, value.detach(), persistent=False)
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(name))
        else:
            for user in list(node.users):
                user.args, user.kwargs = torch.fx.node.map_arg(
                    (user.args, user.kwargs), lambda one, node=node, value=value: value if one is node else one
                )
        graph.erase_node(node)
    return made


def _is_static(one: Any) -> bool:
    """Whether an input is a parameter or a buffer of the model."""
    return isinstance(one, torch.nn.Parameter) or getattr(one, "_dynamo_static_input_type", None) is not None


def _version(tensor: Any) -> int:
    """How often it was written to; not counted of tensors made in inference mode."""
    return 0 if tensor.is_inference() else int(tensor._version)


def _array(tensor: Any) -> Array:
    """The same memory; NumPy has no bf16 of its own."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype == torch.bfloat16:
        return np.asarray(plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(plain.numpy())


def _tensor(array: Array) -> Any:
    """The inverse of `_array`."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _eager(module: Any, reason: str) -> Callable[..., tuple[Any, ...]]:
    _tell(reason)
    run: Callable[..., tuple[Any, ...]] = module.forward
    return run


def _tell(reason: str) -> None:
    warnings.warn(f"PyTorch runs a part of the model: {' '.join(reason.split())[:400]}", TorchWarning, stacklevel=3)
