"""Reducers: an identity and a combine function over tuples of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Const, Expr, Var, binary, const, select


@dataclass(frozen=True, slots=True)
class Reducer:
    """An associative and commutative fold over tuples: schedules regroup and reorder it.

    Attributes:
        name: "sum", "argmax", ... or a name of the user's own.
        dtypes: dtype of each component.
        identity: value of each component before anything is folded.
        combine: new value of each component, over the variables lhs0.. (folded so far) and rhs0.. (next value).
    """

    name: str
    dtypes: tuple[DType, ...]
    identity: tuple[Const, ...]
    combine: tuple[Expr, ...]

    @staticmethod
    def left(n: int, dtype: DType) -> Var:
        return Var(f"lhs{n}", dtype)

    @staticmethod
    def right(n: int, dtype: DType) -> Var:
        return Var(f"rhs{n}", dtype)


def _simple(op: str, identity: Callable[[DType], Const]) -> Callable[[DType], Reducer]:
    def make(dtype: DType) -> Reducer:
        combined = binary(op, Reducer.left(0, dtype), Reducer.right(0, dtype))
        name = {"add": "sum", "mul": "prod"}.get(op, op)
        return Reducer(name, (dtype,), (identity(dtype),), (combined,))

    return make


def lowest(dtype: DType) -> Const:
    """The smallest value: the identity of max."""
    if dtype.is_float:
        return const(-math.inf, dtype)
    if dtype is DType.bool:
        return const(False, dtype)
    return const(-(2 ** (dtype.bits - 1)) if dtype.is_signed else 0, dtype)


def highest(dtype: DType) -> Const:
    """The largest value: the identity of min."""
    if dtype.is_float:
        return const(math.inf, dtype)
    if dtype is DType.bool:
        return const(True, dtype)
    return const(2 ** (dtype.bits - 1) - 1 if dtype.is_signed else 2**dtype.bits - 1, dtype)


def arg_reducer(name: str, dtype: DType, last: bool = False) -> Reducer:
    """argmax or argmin over (value, index); ties go to the first index, or to the last with `last`.

    The identity's index is -1, so that the first real value always wins, even when it equals the identity.
    """
    value, index = Reducer.left(0, dtype), Reducer.left(1, DType.i64)
    new_value, new_index = Reducer.right(0, dtype), Reducer.right(1, DType.i64)
    better = new_value > value if name == "argmax" else new_value < value
    tie = binary("eq", new_value, value)
    earlier = new_index > index if last else new_index < index
    take = better | (tie & earlier) | (index < 0)
    keep_identity = new_index < 0
    take = binary("and", take, binary("eq", keep_identity, const(False, DType.bool)))
    identity = lowest(dtype) if name == "argmax" else highest(dtype)
    return Reducer(
        f"{name}_last" if last else name,
        (dtype, DType.i64),
        (identity, const(-1, DType.i64)),
        (select(take, new_value, value), select(take, new_index, index)),
    )


def _largest(dtype: DType) -> Reducer:
    """max that passes over NaN: one instruction where max needs three."""
    folded, value = Reducer.left(0, dtype), Reducer.right(0, dtype)
    return Reducer("largest", (dtype,), (lowest(dtype),), (select(value > folded, value, folded),))


BUILTIN: dict[str, Callable[[DType], Reducer]] = {
    "sum": _simple("add", lambda d: const(0, d)),
    "prod": _simple("mul", lambda d: const(1, d)),
    "max": _simple("max", lowest),
    "min": _simple("min", highest),
    "largest": _largest,
}


def is_builtin(reducer: Reducer) -> bool:
    """Whether the reducer is one of sum, prod, max, min, largest (and not just named so)."""
    return reducer.name in BUILTIN and reducer == BUILTIN[reducer.name](reducer.dtypes[0])
