"""Transposed convolution, as a convolution of its own for each phase of the stride: no product with an inserted zero.

The outputs at `o = q*stride + p` of one phase `p` see every `period`-th tap of the window only, and so few inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.ops.checks import integer, integers, numeric, rank_of, require, same_dtype
from autotune.ops.precision import accumulator
from autotune.ops.registry import operator
from autotune.ops.window import inside, sides_of
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, cast, const, read
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_

MAX_STRIDE = 2**16  # every phase is looked at while compiling
TRANSPOSED = {"conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3}
"""Spatial axes of each operator."""


@dataclass(frozen=True, slots=True)
class Side:
    """One spatial axis.

    Attributes:
        image, window, out: extents of data, kernel and result.
        before: results that are cut off at the front, negative where zeros are put before them.
    """

    image: int
    window: int
    out: int
    stride: int
    dilation: int
    before: int

    @property
    def period(self) -> int:
        """Distance of the taps that one phase sees."""
        return self.stride // math.gcd(self.stride, self.dilation)

    @property
    def taps(self) -> int:
        """Taps per phase."""
        return -(-self.window // self.period)

    @property
    def positions(self) -> int:
        """Results per phase, those beyond the end included."""
        return -(-self.out // self.stride)

    @property
    def step(self) -> int:
        """Inputs between the taps of a phase."""
        return self.dilation // math.gcd(self.stride, self.dilation)

    @property
    def reach(self) -> tuple[int, int]:
        """The first and the last input position that is read, inside the image or not."""
        common, inverse = math.gcd(self.stride, self.dilation), pow(self.step, -1, self.period)
        starts = [
            (at - at // common * inverse % self.period * self.dilation) // self.stride
            for at in range(self.before, self.before + self.stride)
        ]
        return min(starts) - (self.taps - 1) * self.step, max(starts) + self.positions - 1

    def tap(self, p: Expr, j: Expr) -> tuple[Expr, Expr, Expr | None]:
        """(tap, input position less the output's own, condition for the tap to exist) of phase p, its j-th tap."""
        at = p + self.before if self.before else p
        common = math.gcd(self.stride, self.dilation)
        first: Expr = const(0, DType.i64)
        if self.period > 1:
            inverse = pow(self.step, -1, self.period)
            first = (at // common if common > 1 else at) * inverse % self.period
        tap = first + j * self.period
        start = at // self.stride if self.dilation == 1 else (at - first * self.dilation) // self.stride
        exists: Expr | None = tap < self.window if self.window % self.period else None
        if common > 1:
            aligned = binary("eq", at % common, 0)
            exists = aligned if exists is None else aligned & exists
        return tap, start - j * self.step, exists


@dataclass(frozen=True, slots=True)
class ConvTranspose:
    """Checked sizes: x (n, c, *image), weight (c, k/groups, *window), result (n, k, *out)."""

    n: int
    c: int
    k: int
    groups: int
    sides: tuple[Side, ...]

    @staticmethod
    def of(op: str, x: tuple[int, ...], weight: tuple[int, ...], attrs: Mapping[str, Any]) -> ConvTranspose:
        """Sizes of `op` on data of shape `x`.

        Raises:
            WorkloadError: when they do not fit together.
        """
        rank = TRANSPOSED[op]
        stride, dilation = (integers(op, attrs, a, rank, 1) for a in ("stride", "dilation"))
        pad, extra = integers(op, attrs, "pad", 2 * rank), integers(op, attrs, "output_padding", rank, 0)
        groups = integer(op, attrs, "groups", 1)
        (n, c, *image), (inputs, per_group, *window) = x, weight
        require(max(stride) <= MAX_STRIDE, f"{op}: stride={stride} is more than {MAX_STRIDE}")
        require(min(per_group, *window) >= 1, f"{op}: weight of shape {weight} is empty")
        require(c % groups == 0, f"{op}: groups={groups} does not divide {c} channels")
        require(inputs == c, f"{op}: data has {c} channels, weight of shape {weight} reads {inputs}")
        sides = []
        for d, name in enumerate(sides_of(rank)):
            whole = (image[d] - 1) * stride[d] + (window[d] - 1) * dilation[d] + 1 + extra[d]
            out = whole - pad[d] - pad[d + rank]
            require(
                image[d] >= 1 and out >= 0,
                f"{op}: pad {pad[d]} and {pad[d + rank]} leave nothing of the {name} {whole}",
            )
            sides.append(Side(image[d], window[d], out, stride[d], dilation[d], pad[d]))
        return ConvTranspose(n, c, per_group * groups, groups, tuple(sides))

    @property
    def out(self) -> tuple[int, ...]:
        return tuple(side.out for side in self.sides)


def _transposed(op: str, rank: int) -> None:
    @operator(
        op, operands="data weight", weights="weight", traits="leads_layout", stride=(1,) * rank, pad=(0,) * (2 * rank),
        dilation=(1,) * rank, output_padding=(0,) * rank, groups=1,
    )  # fmt: skip
    def conv_transpose(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
        """out[n,k,o] = sum over c, y, r with y*stride + r*dilation - before == o of x[n,c,y] * w[c,k,r].

        16-bit floats are summed in f32 and rounded at the end; 8-bit integers give i32.
        """
        x, weight = inputs
        for t, what in ((x, "data (N,C,...)"), (weight, "weight (C,K/groups,...)")):
            rank_of(op, t, rank + 2, what)
        numeric(op, x)
        same_dtype(op, (x, weight))
        size = ConvTranspose.of(op, x.shape, weight.shape, attrs)
        total = accumulator(x.dtype)
        per_group, per_filter = size.c // size.groups, size.k // size.groups
        c = reduce_axis(per_group, "c")
        taps = [reduce_axis(side.taps, f"r{d}") for d, side in enumerate(size.sides)]
        overhang = [(side.reach[0] < 0, side.reach[1] >= side.image) for side in size.sides]

        def phase(n: Expr, k: Expr, *at: Expr) -> Reduction:
            found = [side.tap(at[rank + d], taps[d].var) for d, side in enumerate(size.sides)]
            places = [at[d] + offset for d, (_, offset, _) in enumerate(found)]
            group = k // per_filter * per_group if size.groups > 1 else None
            channel = c.var if group is None else group + c.var
            exists: Expr | None = None
            for _, _, condition in found:
                if condition is not None:
                    exists = condition if exists is None else exists & condition
            filter_ = k if size.groups == 1 else k % per_filter
            tap = read(weight, (channel, filter_, *(t for t, _, _ in found)), when=exists)
            there = inside(places, x.shape[2:], overhang)
            if exists is not None:  # both are zero where there is no tap: infinities elsewhere do not matter
                there = exists if there is None else exists & there
            return sum_(cast(total, read(x, (n, channel, *places), when=there)) * cast(total, tap), (c, *taps))

        positions = (*(side.positions for side in size.sides), *(side.stride for side in size.sides))
        names = [f"{what}{d}" for what in "qp" for d in range(rank)]
        phases = compute((size.n, size.k, *positions), phase, "phases", ("n", "k", *names))
        result = x.dtype if x.dtype.is_float else total

        def pick(n: Expr, k: Expr, *o: Expr) -> Expr:
            whole = [e // side.stride for e, side in zip(o, size.sides, strict=True)]
            rest = [e % side.stride for e, side in zip(o, size.sides, strict=True)]
            return cast(result, phases[(n, k, *whole, *rest)])

        return compute((size.n, size.k, *size.out), pick, "conv", ("n", "k", *(f"o{d}" for d in range(rank))))


for _op, _rank in TRANSPOSED.items():
    _transposed(_op, _rank)
