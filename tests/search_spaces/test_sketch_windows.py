"""Sketches of windows: sums that each lane has for itself, what neighbours share, and what lies in padding."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower import lower, print_program
from autotune.ops import parse_workload
from autotune.search_spaces import lookup
from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.contraction import Contraction, contraction
from autotune.search_spaces.sketch.rules import ALL
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.search_spaces.sketch.tiling import Tiling
from autotune.search_spaces.sketch.windows import Windows, overlap, windows
from autotune.target import Target
from tests.search_spaces.conv_cases import check, random_conv, random_interface
from tests.targets import fixed

NAME = "sketch.contraction"
FIXED = fixed("x86 -mcpu=x86-64-v4 -num-cores=2")
TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
DEPTHWISE = "conv2d data=1,40,14,14 weight=40,1,3,3 pad=1 groups=40"


def contraction_of(text: str) -> Contraction:
    found = contraction(parse_workload(text), FIXED)
    assert found is not None
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_tilings_in_random_layouts(seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_conv(rng, "rows"), Target.parse(rng.choice(TARGETS))
    config = lookup(NAME).space(workload, target).sample(rng).replace(template=NAME)
    check(workload, config, target, random_interface(rng, workload, target.lanes(4)) if rng.random() < 0.5 else None)


@pytest.mark.parametrize(
    ("channels", "to", "tiles"), [(32, "f32", 1), (32, "bf16", 2), (96, "bf16", 2), (144, "bf16", 1)]
)
def test_a_block_writes_whole_lines_of_narrow_results(channels: int, to: str, tiles: int) -> None:
    """144 channels are nine vectors: no two of them fill the last line."""
    narrowed = "" if to == "f32" else f" + cast to={to}"
    text = f"conv2d data=1,{channels},28,28 weight={channels},1,3,3 groups={channels} pad=1{narrowed}"
    space = lookup(NAME).space(parse_workload(text), FIXED)
    assert isinstance(space, SketchSpace)
    t = space.tiling(space.default())
    assert t.block[t.vector] == tiles


def test_sums_of_lanes_are_short_and_read_nothing_in_common() -> None:
    assert contraction_of(DEPTHWISE).lanewise
    for text in (
        "conv2d data=1,32,14,14 weight=32,1,9,9 pad=4 groups=32",  # 81 terms
        "conv2d data=1,32,14,14 weight=32,8,3,3 pad=1 groups=4",
        "matmul a=16,16 b=const:16,48",
    ):
        assert not contraction_of(text).lanewise


def test_memory_without_a_border_has_ends_of_its_own() -> None:
    assert contraction_of(DEPTHWISE).edges == (2, 3)
    assert contraction_of("conv2d data=1,32,14,14 weight=32,32,3,3 pad=1").edges == ()


@pytest.mark.parametrize("text", [DEPTHWISE, "conv2d data=1,32,28,28 weight=32,1,5,5 pad=2 groups=32"])
def test_the_untuned_choice_walks_along_memory(text: str) -> None:
    workload = parse_workload(text)
    space = lookup(NAME).space(workload, FIXED)
    t = space.tiling(space.default())  # type: ignore[attr-defined]
    assert t.block == (1, 1, 1, 1) or t.tile[t.vector] == 1
    assert t.tile[1] == 1  # several vectors would share nothing
    assert np.prod(t.tile) < FIXED.num_vector_registers


def test_a_sum_is_written_out_one_after_another() -> None:
    space = lookup(NAME).space(parse_workload(DEPTHWISE), FIXED)
    config = space.default().replace(unroll=ALL, slide=True, terms=(0, 1), tile=(1, 1, 1, 14))
    text = print_program(lower(lookup(NAME).schedule(parse_workload(DEPTHWISE), config, FIXED)))
    rows, columns, terms = (text.rindex(f"unroll for out0.c.{loop}") for loop in ("r in", "ow in", "s.1 in"))
    assert rows < columns < terms


def test_what_windows_share() -> None:
    assert overlap(4, 3, 1, 1) == (6, 3)  # six columns for four sums of three; three of them are read again
    assert overlap(4, 3, 2, 1) == (9, 3)
    assert overlap(4, 1, 1, 1) == (4, 0)
    assert overlap(2, 2, 1, 3) == (4, 0)


def test_tiles_at_the_ends() -> None:
    c = contraction_of(DEPTHWISE)
    rows, columns = windows(c)
    assert (rows.axis, columns.axis) == (2, 3)
    low, high = columns.at_ends(c, np.array([1.0, 2.0, 7.0, 14.0]))
    assert low.tolist() == [1, 1, 1, 1] and high.tolist() == [1, 1, 1, 1]


def test_loads_that_are_shared_and_tests_of_padding() -> None:
    c = contraction_of(DEPTHWISE)

    order = (0, 1, 2, 3)

    def tiling(tile: tuple[int, ...], unroll: int, slide: bool) -> Tiling:
        whole = (order, order, (0, 1), 0, unroll, ("no", "no"), 1, "no", False, slide)
        return Tiling(1, 16, tile, (1, 1, 1, 1), *whole)

    wide, single = tiling((1, 1, 1, 14), ALL, True), tiling((1, 1, 1, 1), 1, False)
    counted = Windows(c, Batch.of(c, [wide, single]))
    left, _ = counted.shared()
    assert left[0][0] == pytest.approx(16 / 42) and left[0][1] == 1.0
    tests = counted.tests()
    assert tests[0] < tests[1]
    assert counted.masked().tolist() == [pytest.approx(1 / 3)] * 2  # 40 channels: the last of three vectors is half


def test_vectors_along_padding_are_masked_at_its_ends() -> None:
    text = "max_pool data=1,8,64,64 kernel=3,3 stride=1,1 pad=1,1,1,1"
    space = lookup("sketch.map").space(parse_workload(text), FIXED)
    assert isinstance(space, SketchSpace)
    config = space.default()
    t = space.tiling(config)
    assert t.vector == 3
    masked = space.encode(config)[space.feature_names.index("masked")]
    assert masked == pytest.approx(2 * t.lanes / 64)
