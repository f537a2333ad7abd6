"""Operators whose elements depend on the element before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import axis_of, flag, integer, numeric
from autotune.ops.precision import rounded, sum_dtype
from autotune.ops.registry import operator
from autotune.tensor.expr import Expr, binary, cast, read
from autotune.tensor.stage import Tensor, compute, scan


@operator("cumsum", axis=-1, exclusive=False, reverse=False)
def cumsum(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Running sums along an axis; `exclusive` leaves the element itself out, `reverse` sums from the end."""
    return _running("cumsum", "add", 0, inputs, attrs)


@operator("cumprod", axis=-1, exclusive=False, reverse=False)
def cumprod(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Running products along an axis; `exclusive` leaves the element itself out, `reverse` starts from the end."""
    return _running("cumprod", "mul", 1, inputs, attrs)


def _running(op: str, code: str, neutral: int, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    (x,) = inputs
    numeric(op, x)
    axis = axis_of(op, integer(op, attrs, "axis"), len(x.shape))
    exclusive, reverse = flag(op, attrs, "exclusive"), flag(op, attrs, "reverse")
    extent, total = x.shape[axis], sum_dtype(x.dtype)

    def mirrored(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(extent - 1 - i if d == axis and reverse else i for d, i in enumerate(indices))

    def step(previous: Expr, *indices: Expr) -> Expr:
        if not exclusive:
            return binary(code, previous, cast(total, x[mirrored(indices)]))
        earlier = tuple(i - 1 if d == axis else i for d, i in enumerate(indices))
        return binary(code, previous, cast(total, read(x, mirrored(earlier), indices[axis] >= 1, neutral)))

    running = scan(x.shape, axis, step, neutral, total, op)
    if reverse:
        running = compute(x.shape, lambda *i: running[mirrored(i)], f"{op}_reversed")
    return rounded(running, x, op)
