"""Reading images at run-time points between their elements."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, maximum, minimum, read, select, unary
from autotune.tensor.stage import Tensor


def working_dtype(*tensors: Tensor) -> DType:
    """The dtype in which points and weights are computed: f64 when something is."""
    return DType.f64 if any(t.dtype is DType.f64 for t in tensors) else DType.f32


def kept(v: Expr, low: float, high: float) -> Expr:
    """`v`, but not beyond low..high."""
    return minimum(maximum(v, low), high)


def mirrored(v: Expr, low: float, high: float) -> Expr:
    """`v` reflected at low and high until it is between them."""
    if low == high:
        return const(low, v.dtype)
    turn = 2 * (high - low)
    away = v - low
    phase = away - unary("floor", away / turn) * turn
    return select(phase <= high - low, phase, turn - phase) + low


def mirrored_index(i: Expr, extent: int, edge_twice: bool) -> Expr:
    """An index reflected at the ends; `edge_twice` reflects at the outer side of the last elements."""
    if extent == 1:
        return const(0, DType.i64)
    turn = 2 * extent if edge_twice else 2 * extent - 2
    phase = i % turn
    return minimum(phase, (turn - 1 if edge_twice else turn) - phase)


def integral(v: Expr) -> Expr:
    """A number without fraction as an index."""
    return cast(DType.i64, v)


def linear_weight(distance: Expr) -> Expr:
    """Weight of an element at a distance below 2."""
    return maximum(1 - unary("abs", distance), 0)


def cubic_weight(distance: Expr, a: float = -0.75) -> Expr:
    """Keys' cubic convolution at a distance of at most 2."""
    x = unary("abs", distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return select(x <= 1, near, far)


def element_or_zero(x: Tensor, lead: Sequence[Expr], at: Sequence[Expr], behind: int = 0) -> Expr:
    """x[*lead, *at], 0 where `at` is outside of the image; so many of `lead` come `behind` it."""
    first = len(lead) - behind
    when: Expr | None = None
    for place, extent in zip(at, x.shape[first : len(x.shape) - behind], strict=True):
        inside = binary("and", place >= 0, place < extent)
        when = inside if when is None else when & inside
    return read(x, (*lead[:first], *at, *lead[first:]), when=when)
