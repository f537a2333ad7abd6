"""Graph inputs: what the model declares, the dimensions that the user gives, and the feeds of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union

import onnx

from autotune.errors import InputError, ModelError, UnsupportedError
from autotune.graph.frontend.source import STRING, is_possible, tensor_dtype
from autotune.graph.ir import Array, Value
from autotune.tensor.dtype import DType

Dim = Union[int, str, None]  # static extent, symbol, or unknown


@dataclass(frozen=True, slots=True)
class ModelInput:
    """A run-time input: its dtype and its dimensions, some of which may be open; None if even the rank is.

    Attributes:
        dtype: a `DType` string, or STRING.
        wraps: what it is of such tensors, outermost first: "seq", "optional"; nothing for a tensor.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...] | None
    wraps: tuple[str, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor of numbers: what programs take."""
        return not self.wraps and self.dtype != STRING

    @property
    def form(self) -> str:
        """Its type as messages write it."""
        text = f"{self.dtype}[{_text(self.dims)}]"
        for wrap in reversed(self.wraps):
            text = f"{wrap}({text})"
        return text

    @property
    def value(self) -> Value | None:
        """Its type when every dimension is known."""
        if not self.is_tensor or self.dims is None or not all(isinstance(dim, int) for dim in self.dims):
            return None
        return Value(self.name, self.dtype, tuple(int(dim or 0) for dim in self.dims))


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What the model declares of an output; it need not declare anything, and what is computed decides."""

    name: str
    dtype: str | None
    dims: tuple[Dim, ...] | None
    wraps: tuple[str, ...] = ()


def declared_inputs(graph: onnx.GraphProto, initialised: set[str]) -> tuple[ModelInput, ...]:
    """The run-time inputs; those with an initializer are constants and left out.

    Raises:
        ModelError: impossible dimensions. UnsupportedError: a map, or an element type without a DType.
    """
    found = []
    for info in graph.input:
        if info.name in initialised:
            continue
        where = f"input '{info.name}'"
        tensor, wraps = _tensor_in(info.type, where)
        dims = _declared_dims(tensor)
        _check_possible(info.name, dims)
        found.append(ModelInput(info.name, tensor_dtype(tensor.elem_type, where), dims, wraps))
    return tuple(found)


def declared_outputs(graph: onnx.GraphProto) -> dict[str, ModelOutput]:
    """The outputs by name, in order. Raises ModelError for none at all, or one that is listed twice."""
    outputs: dict[str, ModelOutput] = {}
    if not graph.output:
        raise ModelError("the model has no outputs")
    for info in graph.output:
        if info.name in outputs:
            raise ModelError(f"output '{info.name}' is listed twice")
        if info.type.WhichOneof("value") is None or info.type.sequence_type.elem_type.HasField("map_type"):
            outputs[info.name] = ModelOutput(info.name, None, None)  # of classes' scores: what ZipMap makes
            continue
        where = f"output '{info.name}'"
        tensor, wraps = _tensor_in(info.type, where)
        dtype = tensor_dtype(tensor.elem_type, where) if tensor.elem_type else None
        outputs[info.name] = ModelOutput(info.name, dtype, _declared_dims(tensor), wraps)
    return outputs


def declared_type(info: onnx.ValueInfoProto) -> tuple[str | None, tuple[Dim, ...] | None]:
    """dtype and dimensions of a tensor of numbers that a subgraph declares; None where it does not."""
    tensor = info.type.tensor_type
    known = info.type.HasField("tensor_type") and tensor.elem_type and tensor.elem_type != onnx.TensorProto.STRING
    return (tensor_dtype(tensor.elem_type, f"'{info.name}'"), _declared_dims(tensor)) if known else (None, None)


def _tensor_in(declared: onnx.TypeProto, where: str) -> tuple[onnx.TypeProto.Tensor, tuple[str, ...]]:
    """The tensors that a type is made of, and what is around them. Raises UnsupportedError where there are none."""
    wraps: list[str] = []
    kind = declared.WhichOneof("value")
    while kind in ("sequence_type", "optional_type") and len(wraps) < 3:
        wraps.append("seq" if kind == "sequence_type" else "optional")
        declared = getattr(declared, kind).elem_type
        kind = declared.WhichOneof("value")
    if kind != "tensor_type" or tuple(wraps) not in ((), ("seq",), ("optional",), ("optional", "seq")):
        raise UnsupportedError(f"{where} is no tensor, and no sequence of tensors ({kind or 'no type'})")
    return declared.tensor_type, tuple(wraps)


def bind_shapes(inputs: Sequence[ModelInput], shapes: Mapping[str, Sequence[int]]) -> tuple[ModelInput, ...]:
    """The inputs with the dimensions that the user gives; a symbol (`N`) bound by one is bound for all.

    Args:
        shapes: dimensions by name of an input, or one extent by name of a symbol.

    Raises:
        ModelError: unknown names in `shapes`, contradictions, impossible dimensions.
    """
    names = [declared.name for declared in inputs]
    open_dims = list(dict.fromkeys(dim for declared in inputs for dim in declared.dims or () if isinstance(dim, str)))
    symbols: dict[str, int] = {}
    for name, extents in shapes.items():
        if name in names:
            continue
        if name not in open_dims:
            known = f"inputs: {', '.join(names) or 'none'}" + (f"; open: {', '.join(open_dims)}" if open_dims else "")
            raise ModelError(f"there is no input '{name}'; {known}")
        if len(extents) != 1:
            raise ModelError(f"'{name}' is one dimension, and {len(extents)} are given")
        symbols[name] = int(extents[0])
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


def bind_symbols(inputs: Sequence[ModelInput], extents: Mapping[str, int]) -> tuple[ModelInput, ...]:
    """The inputs with open dimensions bound by the names of their symbols; names that no input has are passed over.

    Raises:
        ModelError: impossible dimensions.
    """
    known = {dim for declared in inputs for dim in declared.dims or ()}
    return bind_shapes(inputs, {name: (extent,) for name, extent in extents.items() if name in known})


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
        if not declared.is_tensor:
            raise UnsupportedError(
                f"input '{name}' is no tensor of numbers, which one program takes: run the model by InferenceSession"
            )
        if dims is None:
            raise ModelError(
                f"input '{name}' has no declared shape: pass --shape {name}=1,3,224,224 (its real dimensions)"
            )
        if declared.value is None:
            example = ",".join(str(dim) if isinstance(dim, int) else "1" for dim in dims)
            raise ModelError(f"input '{name}' has dynamic dimensions ({_text(dims)}): pass --shape {name}={example}")


def check_feeds(
    inputs: Sequence[ModelInput], given: Mapping[str, tuple[str, tuple[int, ...]]], others: Sequence[str] = ()
) -> None:
    """Whether (dtype, shape) of every feed is what the model declares, equal symbols being equal extents.

    Args:
        others: names of feeds that are no tensors of numbers, and fit.

    Raises:
        InputError: a feed is missing, unknown, or of another dtype or shape.
    """
    names = dict.fromkeys((*given, *others))
    if names.keys() != {declared.name for declared in inputs}:
        wanted = ", ".join(f"{declared.name}: {declared.form}" for declared in inputs)
        raise InputError(f"the model takes {wanted or 'no inputs'}; got {', '.join(map(str, names)) or 'nothing'}")
    symbols: dict[str, int] = {}
    for declared in inputs:
        if not declared.is_tensor:
            continue
        dtype, shape = given[declared.name]
        dims = declared.dims if declared.dims is not None else shape
        extents = [symbols.setdefault(d, e) if isinstance(d, str) else d for d, e in zip(dims, shape)]
        fits = len(dims) == len(shape) and all(d is None or d == e for d, e in zip(extents, shape))
        if dtype != declared.dtype or not fits:
            raise InputError(
                f"input {declared.name!r} must be {declared.dtype}[{_text(declared.dims)}], got {dtype}{list(shape)}"
                + (f" where {', '.join(f'{s} = {e}' for s, e in symbols.items())}" if symbols else "")
            )


def _declared_dims(tensor: onnx.TypeProto.Tensor) -> tuple[Dim, ...] | None:
    if not tensor.HasField("shape"):
        return None
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
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
