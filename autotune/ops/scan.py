"""Operators whose elements depend on the element before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import axis_of, flag, integer, numeric
from autotune.ops.precision import rounded, sum_dtype
from autotune.ops.registry import operator
from autotune.tensor.expr import Expr, cast, read
from autotune.tensor.stage import Tensor, compute, scan


@operator("cumsum", axis=-1, exclusive=False, reverse=False)
def cumsum(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Running sums along an axis; `exclusive` leaves the element itself out, `reverse` sums from the end."""
    (x,) = inputs
    numeric("cumsum", x)
    axis = axis_of("cumsum", integer("cumsum", attrs, "axis"), len(x.shape))
    exclusive, reverse = flag("cumsum", attrs, "exclusive"), flag("cumsum", attrs, "reverse")
    extent, total = x.shape[axis], sum_dtype(x.dtype)

    def mirrored(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(extent - 1 - i if d == axis and reverse else i for d, i in enumerate(indices))

    def step(previous: Expr, *indices: Expr) -> Expr:
        if not exclusive:
            return previous + cast(total, x[mirrored(indices)])
        earlier = tuple(i - 1 if d == axis else i for d, i in enumerate(indices))
        return previous + cast(total, read(x, mirrored(earlier), when=indices[axis] >= 1))

    running = scan(x.shape, axis, step, 0, total, "cumsum")
    if reverse:
        running = compute(x.shape, lambda *i: running[mirrored(i)], "cumsum_reversed")
    return rounded(running, x, "cumsum")
