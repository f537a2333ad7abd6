"""The matrices of Winograd's filtering: Cook and Toom's interpolation at points that amplify rounding little.

Scaling a row of one matrix against that of another changes nothing in floating point, so what is left to choose are the
points. Errors of the products' sums outweigh those of the transforms, and the outputs' transform amplifies them: by how
much follows from the matrices (Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution for
deep neural networks", 2020).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Matrix = tuple[tuple[float, ...], ...]
Exact = tuple[tuple[Fraction, ...], ...]
Integers = tuple[tuple[int, ...], ...]

POINTS = {
    2: ("5/8",),
    3: ("0", "1"),
    4: ("3/8", "5/4"),
    5: ("0", "5/8", "3/2"),
    6: ("1/4", "7/8", "7/4"),
    7: ("0", "1/2", "1", "2"),
}
"""Interpolation points beside infinity by their number; of opposite ones, which share half of their work, the positive.
Of all multiples of 1/8 they amplify least (`python -m benchmarks.winograd_points`), and what they make the
transforms of inputs and products of is exact in float32."""


WHOLE_POINTS = {3: ("0", "1"), 5: ("0", "1", "2")}
"""The same where nothing is rounded: the smallest, whose transforms of bytes fit into 16 bits."""


@dataclass(frozen=True, slots=True)
class Rational:
    """Matrices of F(m, r) with a = m + r - 1 points: of inputs (a x a), of taps (a x r), of products (m x a)."""

    BT: Exact
    G: Exact
    AT: Exact

    @property
    def amplification(self) -> float:
        """Mean square of an output's error, of independent inputs and taps, by that of a sum of r products.

        The product of a point is as large as its rows of BT and G are long, its error is relative to that, and an
        output has it times its element of AT.
        """
        lengths = [_square(b) * _square(g) for b, g in zip(self.BT, self.G, strict=True)]
        errors = [sum(a * a * x for a, x in zip(row, lengths, strict=True)) for row in self.AT]
        return float(sum(errors) / (len(errors) * len(self.G[0])))


@dataclass(frozen=True, slots=True)
class Transforms:
    """The same in floating point, and how much they amplify errors."""

    BT: Matrix
    G: Matrix
    AT: Matrix
    amplification: float


@dataclass(frozen=True, slots=True)
class Whole:
    """The same in integers: outputs are `scale` times what they should be."""

    BT: Integers
    G: Integers
    AT: Integers
    scale: int


def finite_points(count: int) -> list[Fraction]:
    """So many of them, opposite ones side by side."""
    return opposite(tuple(map(Fraction, POINTS[count])))


def opposite(points: Sequence[Fraction]) -> list[Fraction]:
    """The points with their opposites behind them; 0 is its own."""
    return [sign * point for point in points for sign in ((1, -1) if point else (1,))]


def rational(m: int, r: int, finite: Sequence[Fraction]) -> Rational:
    """Cook and Toom's: a polynomial of degree a - 1 by its values at a points, of which the last one is infinity."""
    inputs, taps = [], []
    for point in finite:
        others = [p for p in finite if p != point]
        scale = math.prod((point - p for p in others), start=Fraction(1))
        sign = -1 if point == 0 and scale < 0 else 1  # so that the first tap keeps its sign
        inputs.append((*(sign * c for c in _with_roots(others)), Fraction(0)))
        taps.append(tuple(sign * point**power / scale for power in range(r)))
    one = Fraction(1)
    return Rational(
        (*inputs, tuple(_with_roots(finite))),
        (*taps, tuple(one * (power == r - 1) for power in range(r))),
        tuple((*(p**power for p in finite), one * (power == m - 1)) for power in range(m)),
    )


@functools.cache
def transforms(m: int, r: int) -> Transforms:
    """Those of the points chosen."""
    exact = rational(m, r, finite_points(m + r - 2))
    return Transforms(_floats(exact.BT), _floats(exact.G), _floats(exact.AT), exact.amplification)


@functools.cache
def whole(m: int, r: int) -> Whole:
    """Those of whole points: the taps' rows without their denominators, for which the products' columns make up."""
    exact = rational(m, r, opposite(tuple(map(Fraction, WHOLE_POINTS[m + r - 2]))))
    denominators = [math.lcm(*(x.denominator for x in row)) for row in exact.G]
    scale = math.lcm(*denominators)
    return Whole(
        tuple(tuple(map(int, row)) for row in exact.BT),
        tuple(tuple(int(x * d) for x in row) for row, d in zip(exact.G, denominators, strict=True)),
        tuple(tuple(int(x * scale / d) for x, d in zip(row, denominators, strict=True)) for row in exact.AT),
        scale,
    )


def halves(matrix: Matrix, *, monic: bool = False) -> tuple[Matrix, Matrix]:
    """Two sparse factors, signs and parts, whose product is `matrix` (a x b): (a x a) and (a x b).

    Rows of opposite interpolation points differ in the signs of every other element; their even and odd parts are
    computed once, then added and subtracted.

    Args:
        monic: an odd part ends in 1 and is multiplied where it is added: multiply-adds do so for nothing.
    """
    signs, parts = [list(row) for row in _identity(len(matrix))], [list(map(float, row)) for row in matrix]
    for i in range(len(matrix) - 1):
        first, second = matrix[i], matrix[i + 1]
        mirrored = all(abs(x) == abs(y) for x, y in zip(first, second, strict=True))
        if mirrored and signs[i][i - 1] == 0:
            odd = [(x - y) / 2 for x, y in zip(first, second, strict=True)]
            scale = next(filter(None, reversed(odd))) if monic else 1.0
            parts[i] = [(x + y) / 2 for x, y in zip(first, second, strict=True)]
            parts[i + 1] = [x / scale for x in odd]
            signs[i][i + 1], signs[i + 1][i], signs[i + 1][i + 1] = scale, 1.0, -scale
    return tuple(map(tuple, signs)), tuple(map(tuple, parts))


def _with_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the product of (x - root), constant first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *coefficients], [*(root * c for c in coefficients), Fraction(0)]
        coefficients = [x - y for x, y in zip(shifted, scaled, strict=True)]
    return coefficients


def _square(row: Sequence[Fraction]) -> Fraction:
    return sum((x * x for x in row), start=Fraction(0))


def _identity(size: int) -> Matrix:
    return tuple(tuple(float(i == j) for j in range(size)) for i in range(size))


def _floats(matrix: Exact) -> Matrix:
    return tuple(tuple(map(float, row)) for row in matrix)
