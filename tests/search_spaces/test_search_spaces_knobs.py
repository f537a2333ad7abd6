from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import ConfigError
from autotune.search_spaces.space.knobs import Choice, flag, tile

SPLITS = [(a, b, 64 // a // b) for a in (1, 2, 4, 8, 16, 32, 64) for b in (1, 2, 4, 8, 16, 32, 64) if a * b <= 64]


def test_default_is_the_first_value_unless_given() -> None:
    assert Choice("k", (3, 5)).default == 3
    assert Choice("k", (3, 5), 5).default == 5


@pytest.mark.parametrize(
    ("values", "default"),
    [((), None), ((1, 1), None), ((1, True), None), ((1, "a"), None), (((1, 2), (1,)), None), ((1, 2), 3), ((1.5,), 0)],
)
def test_bad_knobs_are_refused(values: tuple[object, ...], default: object) -> None:
    with pytest.raises(ConfigError, match="knob 'k'"):
        Choice("k", values, default)  # type: ignore[arg-type]


def test_index_keeps_types_apart() -> None:
    assert Choice("k", (0, 1)).index(1) == 1
    with pytest.raises(ConfigError, match=r"knob 'k' cannot be True; its values are 0, 1"):
        Choice("k", (0, 1)).index(True)


def test_neighbours_follow_the_kind_of_the_values() -> None:
    assert Choice("k", (8, 1, 4, 2)).near(4) == (2, 8)
    assert Choice("k", (8, 1, 4, 2)).near(1) == (2,)
    assert Choice("k", ("a", "b", "c")).near("b") == ("a", "c")
    assert flag("k").near(True) == (False,)
    close = Choice("k", tuple(SPLITS)).near((4, 4, 4))
    assert (2, 8, 4) in close
    assert (64, 1, 1) not in close


def test_encoding_has_one_number_per_feature_name() -> None:
    for knob in (Choice("k", (1, 2)), Choice("k", ("a", "b")), flag("k"), Choice("k", tuple(SPLITS))):
        for value in knob.values:
            assert len(knob.encode(value)) == len(knob.feature_names)
    assert Choice("k", ("a", "b")).encode("b") == (0.0, 1.0)
    assert Choice("k", ("a", "b")).feature_names == ("k=a", "k=b")
    assert Choice("k", ((3, 4), (4, 3))).encode((3, 4)) == (3.0, 4.0)


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 3000))
def test_tile_keeps_the_smallest_size_of_each_tile_count(extent: int, limit: int, default: int) -> None:
    knob = tile("k", extent, limit=limit, default=default)
    sizes = [size for size in knob.values if isinstance(size, int)]
    counts = [math.ceil(extent / size) for size in sizes]
    assert len(set(counts)) == len(counts) <= 2 * math.isqrt(extent) + 1
    assert all(size == 1 or math.ceil(extent / (size - 1)) > math.ceil(extent / size) for size in sizes)
    assert max(sizes) <= min(extent, limit)
    assert isinstance(knob.default, int)
    assert knob.default <= default or knob.default == sizes[0]


def test_a_tile_has_at_least_one_element() -> None:
    with pytest.raises(ConfigError, match="'k': extent and limit must be at least 1"):
        tile("k", 0)


def test_tiles_are_near_when_one_part_steps_or_a_factor_moves() -> None:
    tiles = Choice("k", tuple((rows, columns) for rows in range(1, 33) for columns in range(1, 5)))
    assert set(tiles.near((14, 2))) == {(13, 2), (15, 2), (14, 1), (14, 3), (7, 4), (28, 1)}
    assert set(tiles.near((1, 1))) == {(2, 1), (1, 2)}


def test_orders_are_near_when_two_places_are_exchanged() -> None:
    orders = Choice("k", tuple(itertools.permutations(range(4))))
    near = orders.near((0, 1, 2, 3))
    assert len(near) == 6
    assert (1, 0, 2, 3) in near and (3, 1, 2, 0) in near and (1, 2, 0, 3) not in near


def test_values_far_from_each_other_have_the_nearest_as_neighbours() -> None:
    assert Choice("k", ((1, 1), (2, 3), (16, 16))).near((1, 1)) == ((2, 3), (16, 16))
    assert Choice("k", ((0, 1, 2), (1, 2, 0))).near((0, 1, 2)) == ((1, 2, 0),)
    assert Choice("k", ((4, 4),)).near((4, 4)) == ()
