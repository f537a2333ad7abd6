"""Graph inputs: what the model declares, the dimensions that the user gives, and the feeds of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union

import onnx

from autotune.errors import InputError, ModelError, UnsupportedError
from autotune.graph.frontend.source import dtype_of, is_possible
from autotune.graph.ir import Array, Value
from autotune.tensor.dtype import DType

Dim = Union[int, str, None]  # static extent, symbol, or unknown


@dataclass(frozen=True, slots=True)
class ModelInput:
    """A run-time input: its dtype and its dimensions, some of which may be open; None if even the rank is."""

    name: str
    dtype: str
    dims: tuple[Dim, ...] | None

    @property
    def value(self) -> Value | None:
        """Its type when every dimension is known."""
        if self.dims is None or not all(isinstance(dim, int) for dim in self.dims):
            return None
        return Value(self.name, self.dtype, tuple(int(dim or 0) for dim in self.dims))


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What the model declares of an output; it need not declare anything, and what is computed decides."""

    name: str
    dtype: str | None
    dims: tuple[Dim, ...] | None


def declared_inputs(graph: onnx.GraphProto, initialised: set[str]) -> tuple[ModelInput, ...]:
    """The run-time inputs; those with an initializer are constants and left out.

    Raises:
        ModelError: impossible dimensions. UnsupportedError: no tensor, or an element type without a DType.
    """
    found = []
    for info in graph.input:
        if info.name in initialised:
            continue
        dims = _declared_dims(info)
        _check_possible(info.name, dims)
        dtype = dtype_of(info.type.tensor_type.elem_type, f"input '{info.name}'")
        found.append(ModelInput(info.name, dtype.value, dims))
    return tuple(found)


def declared_outputs(graph: onnx.GraphProto) -> dict[str, ModelOutput]:
    """The outputs by name, in order. Raises ModelError for none at all, or one that is listed twice."""
    outputs: dict[str, ModelOutput] = {}
    if not graph.output:
        raise ModelError("the model has no outputs")
    for info in graph.output:
        if info.name in outputs:
            raise ModelError(f"output '{info.name}' is listed twice")
        tensor = info.type.HasField("tensor_type")
        elem_type = info.type.tensor_type.elem_type if tensor else 0
        dtype = dtype_of(elem_type, f"output '{info.name}'").value if elem_type else None
        outputs[info.name] = ModelOutput(info.name, dtype, _declared_dims(info) if tensor else None)
    return outputs


def bind_shapes(inputs: Sequence[ModelInput], shapes: Mapping[str, Sequence[int]]) -> tuple[ModelInput, ...]:
    """The inputs with the dimensions that the user gives; a symbol (`N`) bound by one is bound for all.

    Raises:
        ModelError: unknown names in `shapes`, contradictions, impossible dimensions.
    """
    names = [declared.name for declared in inputs]
    for name in shapes:
        if name not in names:
            raise ModelError(f"there is no input '{name}'; inputs: {', '.join(names) or 'none'}")
    symbols: dict[str, int] = {}
    for declared in inputs:
        if declared.name in shapes:
            _bind(declared, tuple(int(extent) for extent in shapes[declared.name]), symbols)
    bound = []
    for declared in inputs:
        dims: tuple[Dim, ...] | None = tuple(shapes[declared.name]) if declared.name in shapes else declared.dims
        if dims is not None:
            dims = tuple(symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
        _check_possible(declared.name, dims)
        bound.append(replace(declared, dims=dims))
    return tuple(bound)


def fix_inputs(inputs: Sequence[ModelInput], fixed: Mapping[str, Array]) -> tuple[ModelInput, ...]:
    """The inputs that remain when those in `fixed`, whose shapes are bound, are constants.

    Raises:
        ModelError: a value has another dtype than its input.
    """
    for declared in inputs:
        array = fixed.get(declared.name)
        if array is not None and DType(declared.dtype).numpy != array.dtype:
            raise ModelError(
                f"input '{declared.name}' is {declared.dtype}, and the value to fix it to {array.dtype}: convert it"
            )
    return tuple(declared for declared in inputs if declared.name not in fixed)


def require_static(inputs: Sequence[ModelInput]) -> None:
    """Raises ModelError for the first input with an open dimension, saying what to pass."""
    for declared in inputs:
        name, dims = declared.name, declared.dims
        if dims is None:
            raise ModelError(
                f"input '{name}' has no declared shape: pass --shape {name}=1,3,224,224 (its real dimensions)"
            )
        if declared.value is None:
            example = ",".join(str(dim) if isinstance(dim, int) else "1" for dim in dims)
            raise ModelError(f"input '{name}' has dynamic dimensions ({_text(dims)}): pass --shape {name}={example}")


def check_feeds(inputs: Sequence[ModelInput], given: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """Whether (dtype, shape) of every feed is what the model declares, equal symbols being equal extents.

    Raises:
        InputError: a feed is missing, unknown, or of another dtype or shape.
    """
    if given.keys() != {declared.name for declared in inputs}:
        wanted = ", ".join(f"{declared.name}: {declared.dtype}[{_text(declared.dims)}]" for declared in inputs)
        raise InputError(f"the model takes {wanted or 'no inputs'}; got {', '.join(map(str, given)) or 'nothing'}")
    symbols: dict[str, int] = {}
    for declared in inputs:
        dtype, shape = given[declared.name]
        dims = declared.dims if declared.dims is not None else shape
        extents = [symbols.setdefault(d, e) if isinstance(d, str) else d for d, e in zip(dims, shape)]
        fits = len(dims) == len(shape) and all(d is None or d == e for d, e in zip(extents, shape))
        if dtype != declared.dtype or not fits:
            raise InputError(
                f"input {declared.name!r} must be {declared.dtype}[{_text(declared.dims)}], got {dtype}{list(shape)}"
                + (f" where {', '.join(f'{s} = {e}' for s, e in symbols.items())}" if symbols else "")
            )


def _declared_dims(info: onnx.ValueInfoProto) -> tuple[Dim, ...] | None:
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value")
        raise UnsupportedError(f"input '{info.name}' is no tensor ({kind or 'no type'})")
    if not info.type.tensor_type.HasField("shape"):
        return None
    dims: list[Dim] = []
    for dim in info.type.tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(None if dim.dim_value == -1 else dim.dim_value)  # Paddle's exporter: an open one is -1
        else:
            dims.append(dim.dim_param or None)
    return tuple(dims)


def _bind(declared: ModelInput, given: tuple[int, ...], symbols: dict[str, int]) -> None:
    name, dims = declared.name, declared.dims
    if dims is None:
        return
    if len(dims) != len(given):
        raise ModelError(
            f"input '{name}' of shape {_text(given)}: the model declares {len(dims)} dimensions ({_text(dims)})"
        )
    for dim, extent in zip(dims, given):
        fixed = symbols.setdefault(dim, extent) if isinstance(dim, str) else dim
        if fixed is not None and fixed != extent:
            raise ModelError(f"input '{name}' of shape {_text(given)}: {extent} contradicts the model's {_text(dims)}")


def _check_possible(name: str, dims: Sequence[Dim] | None) -> None:
    known = [dim for dim in dims or () if isinstance(dim, int)]
    if not is_possible(known):
        raise ModelError(f"input '{name}' has impossible dimensions {_text(known)}")


def _text(dims: Sequence[Dim] | None) -> str:
    return "any shape" if dims is None else ",".join("?" if dim is None else str(dim) for dim in dims)
