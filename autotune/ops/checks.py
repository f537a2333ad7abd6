"""Checks that operators share: one clear line when an attribute or a shape is impossible."""

from __future__ import annotations

import operator as op_
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import WorkloadError
from autotune.tensor.dtype import DType
from autotune.tensor.stage import Tensor

MAX_LISTED = 2**26


def require(condition: bool, message: str) -> None:
    """Raise WorkloadError with `message` unless the condition holds."""
    if not condition:
        raise WorkloadError(message)


def integers(
    op: str, attrs: Mapping[str, Any], name: str, count: int | None, low: int | None = None
) -> tuple[int, ...]:
    """An attribute of `count` integers, each at least `low`."""
    value = attrs[name]
    items = value if isinstance(value, tuple) else (value,)
    ok = all(isinstance(v, int) and not isinstance(v, bool) for v in items)
    wanted = f"{'some' if count is None else count} integers"
    require(ok and count in (None, len(items)), f"{op}: {name}={_text(value)} must be {wanted}")
    require(low is None or all(v >= low for v in items), f"{op}: {name}={_text(value)} must be at least {low}")
    return tuple(op_.index(v) for v in items)


def listed(op: str, extent: int) -> None:
    """Raise WorkloadError for an axis that is too long to work out a place for each of its elements."""
    require(extent <= MAX_LISTED, f"{op}: an axis of {extent} elements, more than {MAX_LISTED}")


def integer(op: str, attrs: Mapping[str, Any], name: str, low: int | None = None) -> int:
    """An integer attribute, at least `low`."""
    value = attrs[name]
    require(isinstance(value, int) and not isinstance(value, bool), f"{op}: {name}={_text(value)} must be an integer")
    require(low is None or value >= low, f"{op}: {name}={value} must be at least {low}")
    return op_.index(value)


def flag(op: str, attrs: Mapping[str, Any], name: str) -> bool:
    """A true or false attribute."""
    value = attrs[name]
    require(isinstance(value, (bool, int)) and value in (0, 1), f"{op}: {name}={_text(value)} must be true or false")
    return bool(value)


def number(op: str, attrs: Mapping[str, Any], name: str) -> float:
    """A real attribute."""
    value = attrs[name]
    ok = isinstance(value, (int, float)) and not isinstance(value, bool)
    require(ok, f"{op}: {name}={_text(value)} must be a number")
    return float(value)


def word(op: str, attrs: Mapping[str, Any], name: str, known: Sequence[str]) -> str:
    """One of some known words."""
    value = attrs[name]
    require(value in known, f"{op}: {name}={_text(value)} must be one of {', '.join(known)}")
    return str(value)


def axis_of(op: str, axis: int, rank: int) -> int:
    """The axis counted from the front; negative ones count from the back."""
    require(-rank <= axis < rank, f"{op}: axis={axis} is outside of a tensor of {rank} dimensions")
    return axis % rank


def axes_of(op: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Distinct axes counted from the front, sorted."""
    found = sorted(axis_of(op, a, rank) for a in axes)
    require(len(set(found)) == len(found), f"{op}: axes={tuple(axes)} name an axis twice")
    return tuple(found)


def rank_of(op: str, t: Tensor, rank: int, names: str) -> None:
    require(len(t.shape) == rank, f"{op}: {names} needs {rank} dimensions, got shape {t.shape}")


def same_dtype(op: str, tensors: Sequence[Tensor]) -> DType:
    """The dtype that all tensors share."""
    dtypes = [t.dtype for t in tensors]
    listed = ", ".join(map(str, dtypes))
    require(len(set(dtypes)) == 1, f"{op}: operands have different dtypes {listed}; cast them first")
    return dtypes[0]


def factors(op: str, a: Tensor, b: Tensor) -> DType:
    """The dtype of the first of two factors: that of both, or both are 8-bit integers, whose products are i32."""
    small = (DType.i8, DType.u8)
    return a.dtype if a.dtype in small and b.dtype in small else same_dtype(op, (a, b))


def floating(op: str, t: Tensor) -> DType:
    require(t.dtype.is_float, f"{op}: needs floating-point numbers, got {t.dtype}; cast first")
    return t.dtype


def numeric(op: str, t: Tensor) -> DType:
    require(t.dtype is not DType.bool, f"{op}: needs numbers, got bool; cast first")
    require(not t.dtype.is_storage, f"{op}: computes nothing in {t.dtype}; cast first")
    return t.dtype


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
