"""Winograd's matrices: exact, exact in float32 where they must be, and as precise as they are said to be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.ops import winograd
from autotune.ops.winograd import TILES, Tile
from autotune.ops.winograd_transforms import POINTS, Rational, finite_points, opposite, rational, transforms

SIDES = sorted({(m, r) for tile in TILES.values() for m in tile for r in range(2, winograd.most_taps(tile) + 1)})
Numbers = list[Fraction]


def exact(m: int, r: int) -> Rational:
    return rational(m, r, finite_points(m + r - 2))


def apply(matrix: tuple[tuple[Fraction, ...], ...], values: Numbers) -> Numbers:
    return [sum((x * v for x, v in zip(row, values, strict=True)), start=Fraction(0)) for row in matrix]


def filtered(matrices: Rational, image: Numbers, taps: Numbers) -> Numbers:
    products = [x * y for x, y in zip(apply(matrices.BT, image), apply(matrices.G, taps), strict=True)]
    return apply(matrices.AT, products)


@given(side=st.sampled_from(SIDES), data=st.data())
def test_every_tile_is_the_direct_sum_in_exact_arithmetic(side: tuple[int, int], data: st.DataObject) -> None:
    m, r = side
    numbers = st.fractions(-9, 9, max_denominator=9)
    image = data.draw(st.lists(numbers, min_size=m + r - 1, max_size=m + r - 1))
    taps = data.draw(st.lists(numbers, min_size=r, max_size=r))
    direct = [sum((image[i + j] * taps[j] for j in range(r)), start=Fraction(0)) for i in range(m)]
    assert filtered(exact(m, r), image, taps) == direct


@given(pairs=st.sets(st.fractions("1/8", 4, max_denominator=8), min_size=1, max_size=3), zero=st.booleans())
def test_any_points_are_right(pairs: set[Fraction], zero: bool) -> None:
    points = opposite([*([Fraction(0)] if zero else []), *sorted(pairs)])
    m, r = len(points), 2
    image, taps = [Fraction(n * n, 3) for n in range(m + 1)], [Fraction(2), Fraction(-5, 7)]
    direct = [image[i] * taps[0] + image[i + 1] * taps[1] for i in range(m)]
    assert filtered(rational(m, r, points), image, taps) == direct


@pytest.mark.parametrize("side", SIDES)
def test_transforms_of_inputs_and_products_are_exact_in_float32(side: tuple[int, int]) -> None:
    matrices = exact(*side)
    for row in (*matrices.BT, *matrices.AT):
        assert all(Fraction(float(np.float32(float(x)))) == x for x in row)


def test_points_are_distinct_and_as_many_as_they_should_be() -> None:
    for count in POINTS:
        assert len(set(finite_points(count))) == count


def test_points_amplify_less_than_the_usual_ones() -> None:
    """0, ±1 and ±2, as in the textbooks."""
    usual = rational(4, 3, opposite([Fraction(n) for n in (0, 1, 2)]))
    assert transforms(4, 3).amplification < 0.5 * usual.amplification


@pytest.mark.parametrize(("m", "most"), [(2, 1.7), (4, 4.8), (5, 9.7), (6, 20.7)])
def test_amplification_is_what_random_sums_show(m: int, most: float) -> None:
    """Noise of one part in 2**20 in every product, by that in every product of direct sums."""
    rng, taps, channels, unit = np.random.default_rng(0), 3, 24, 2.0**-20
    edge = m + taps - 1
    BT, G, AT = (np.array(x) for x in (transforms(m, taps).BT, transforms(m, taps).G, transforms(m, taps).AT))
    image, weights = rng.standard_normal((300, channels, edge, edge)), rng.standard_normal((channels, taps, taps))
    inputs, factors = BT @ image @ BT.T, G @ weights @ G.T
    products = inputs * factors
    noise = products * unit * rng.standard_normal(products.shape)
    errors = AT @ noise.sum(axis=1) @ AT.T
    direct = unit * math.sqrt(channels * taps * taps)
    amplified = float(np.sqrt((errors**2).mean())) / direct
    assert amplified == pytest.approx(winograd.amplification(Tile(m, m), taps), rel=0.15)
    assert amplified < 1.1 * most
