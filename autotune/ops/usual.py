"""What people leave out when they write an operator: the usual value of each attribute, which may hang on others.

`parse` fills these in and `describe` leaves them out, so that what one writes the other reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ops.registry import Needed, Operator
from autotune.ops.workload import AttrValue, TensorType
from autotune.tensor.dtype import DType

_WINDOW = ("kernel", "stride", "dilation", "pad")
DECIDING = ("direction", "image")
"""Attributes that others hang on: they come first."""
_PER_DIRECTION = ("activations", "alphas", "betas")


def usual_dtype(operand: str, dtype: str) -> str:
    """The dtype of an operand that is written without one; `dtype` is that of its neighbours."""
    return {"condition": "bool", "indices": "i64"}.get(operand, dtype)


def usual_attribute(
    op: Operator, key: str, types: Sequence[TensorType], given: Mapping[str, AttrValue]
) -> AttrValue | Needed:
    """The value of an attribute that is left out.

    Args:
        types: of the operands.
        given: the attributes that are written, as far as they are known.
    """
    default = op.defaults[key]
    rank = len(types[0].shape) if types else 0
    if key == "axes" and default is Needed.integers:
        return tuple(range(rank))
    if key in _PER_DIRECTION and given.get("direction") == "bidirectional":
        if isinstance(default, tuple):
            return (*default, *default)
        return f"{default},{default}"
    if isinstance(default, tuple) and (count := _sides(op, key, types, given)):
        return default[:1] * count
    if op.name == "pad" and key == "value" and not DType(types[0].dtype).is_float:
        return 0
    if key == "axis" and isinstance(default, int) and default < 0:
        return axis_from_front(op, default, rank)
    return default


def usual_count(
    op: Operator, key: str, types: Sequence[TensorType], given: Mapping[str, AttrValue]
) -> int | None:  # fmt: skip
    """How many numbers the attribute has; None if it is no list, or one of any length."""
    usual = usual_attribute(op, key, types, given)
    if isinstance(usual, tuple):
        return None if key == "axes" else len(usual) or None
    return 2 if usual is Needed.pair else _sides(op, key, types, given) if usual is Needed.spatial else None


def _sides(op: Operator, key: str, types: Sequence[TensorType], given: Mapping[str, AttrValue]) -> int | None:
    """How many numbers describe a window, for operators of any number of spatial dimensions; None for other things."""
    if key not in _WINDOW or op.defaults.get("kernel") is not Needed.spatial:
        return None
    image = given.get("image")
    sides = len(image) if isinstance(image, tuple) else max(len(types[0].shape) - 2, 1)
    return 2 * sides if key == "pad" else sides


def axis_from_front(op: Operator, axis: int, rank: int) -> int:
    """A negative axis of the result counted from the front; one that is outside stays as it is."""
    rank += op.name == "one_hot"  # the only operator whose axis is a new one
    return axis + rank if -rank <= axis < 0 else axis
