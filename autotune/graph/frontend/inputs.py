"""Graph inputs: their static shapes from the model's declarations and the dimensions that the user gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Union

import onnx

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.source import MAX_ELEMENTS, dtype_of
from autotune.graph.ir import Value

Dim = Union[int, str, None]  # static extent, symbol, or unknown


def declared_inputs(graph: onnx.GraphProto, initialised: set[str], shapes: Mapping[str, Sequence[int]]) -> list[Value]:
    """The run-time inputs with static shapes; inputs with an initializer are constants and left out.

    A symbol (`N`) bound by one given shape is bound for all inputs.

    Raises:
        ModelError: unknown names in `shapes`, contradictions, impossible or unknown dimensions.
    """
    infos = [info for info in graph.input if info.name not in initialised]
    names = [info.name for info in infos]
    for name in shapes:
        if name not in names:
            raise ModelError(f"--shape names '{name}', which is no input; inputs: {', '.join(names) or 'none'}")
    declared = {info.name: _declared_dims(info) for info in infos}
    symbols: dict[str, int] = {}
    for name, given in shapes.items():
        _bind(name, declared[name], tuple(int(extent) for extent in given), symbols)
    return [
        Value(info.name, dtype_of(info.type.tensor_type.elem_type, f"input '{info.name}'").value,
              _static_shape(info.name, declared[info.name], shapes.get(info.name), symbols))
        for info in infos
    ]  # fmt: skip


def _declared_dims(info: onnx.ValueInfoProto) -> tuple[Dim, ...] | None:
    """Declared dimensions, None if even the rank is unknown."""
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value")
        raise UnsupportedError(f"input '{info.name}' is no tensor ({kind or 'no type'})")
    if not info.type.tensor_type.HasField("shape"):
        return None
    dims: list[Dim] = []
    for dim in info.type.tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param or None)
    return tuple(dims)


def _bind(name: str, declared: tuple[Dim, ...] | None, given: tuple[int, ...], symbols: dict[str, int]) -> None:
    if declared is None:
        return
    if len(declared) != len(given):
        raise ModelError(
            f"--shape {name}={_text(given)}: the model declares {len(declared)} dimensions ({_text(declared)})"
        )
    for dim, extent in zip(declared, given):
        fixed = symbols.setdefault(dim, extent) if isinstance(dim, str) else dim
        if fixed is not None and fixed != extent:
            raise ModelError(f"--shape {name}={_text(given)}: {extent} contradicts the model's {_text(declared)}")


def _static_shape(
    name: str, declared: tuple[Dim, ...] | None, given: Sequence[int] | None, symbols: Mapping[str, int]
) -> tuple[int, ...]:
    if given is not None:
        dims: tuple[Dim, ...] = tuple(int(extent) for extent in given)
    elif declared is None:
        raise ModelError(f"input '{name}' has no declared shape: pass --shape {name}=1,3,224,224 (its real dimensions)")
    else:
        dims = tuple(symbols.get(dim) if isinstance(dim, str) else dim for dim in declared)
        if None in dims:
            example = ",".join("1" if dim is None else str(dim) for dim in dims)
            raise ModelError(
                f"input '{name}' has dynamic dimensions ({_text(declared)}): pass --shape {name}={example}"
            )
    shape = tuple(dim for dim in dims if isinstance(dim, int))
    if min(shape, default=0) < 0 or math.prod(shape) > MAX_ELEMENTS:
        raise ModelError(f"input '{name}' has impossible dimensions {_text(shape)}")
    return shape


def _text(dims: Sequence[Dim]) -> str:
    return ",".join("?" if dim is None else str(dim) for dim in dims)
