"""Sketches of convolutions along rows: right for any sizes, and chosen for the first layer of a network."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.kernel import generate
from autotune.lower import lower
from autotune.lower.printer import print_program
from autotune.ops import parse_workload
from autotune.search_spaces import lookup, templates_for
from autotune.search_spaces.sketch.in_rows import in_rows
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.target import Target
from tests.search_spaces.bytes_cases import TARGETS
from tests.search_spaces.matmul_cases import check_drawn
from tests.search_spaces.rows_cases import random_in_rows
from tests.targets import fixed

ROWS = "sketch.rows"
TILES = fixed("x86 -mcpu=graniterapids -num-cores=1")
PAIRS = fixed("x86 -mcpu=znver4 -num-cores=1")
FIRST = "conv2d data=1,3,224,224:u8 weight=64,3,7,7:i8 stride=2 pad=3"
ROUNDED = (
    "cast data=1,3,224,224 to=bf16 + cast to=f32 + cast data=const:64,3,7,7:bf16 to=f32 + "
    "conv2d data=step2 weight=step3 stride=2 pad=3 + add b=const:1,64,1,1 + relu"
)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_convolutions_along_rows(seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_in_rows(rng), Target.parse(rng.choice(TARGETS))
    if target.runs_on_host():
        check_drawn(ROWS, workload, target, rng)


def test_rows_of_windows_that_do_not_overlap_are_not_copied_again() -> None:
    workload = parse_workload("conv1d data=2,4,9:u8 weight=20,4,3:u8 stride=3")
    space = lookup(ROWS).space(workload, PAIRS)
    assert isinstance(space, SketchSpace)
    knobs = space.knobs
    assert not [knob.name for knob in knobs if knob.name.startswith("pack.rows")]


@pytest.mark.parametrize(("text", "target"), [(FIRST, TILES), (ROUNDED, TILES), (ROUNDED, PAIRS)])
def test_rows_come_first_where_they_fill_instructions(text: str, target: Target) -> None:
    assert templates_for(parse_workload(text), target)[0].name == ROWS


@pytest.mark.parametrize(
    "text",
    [
        "conv2d data=1,3,32,32 weight=16,3,3,3",  # f32: nothing is folded
        "conv2d data=1,16,32,32:u8 weight=16,16,3,3:i8",  # channels enough
        "conv2d data=1,3,32,32:u8 weight=16,3,1,1:i8",  # no neighbours
        "conv2d data=1,3,32,32:u8 weight=3,3,3,3:i8",  # no vector of filters
        "conv2d data=1,4,32,32:u8 weight=4,1,3,3:i8 groups=4",
        "conv2d data=1,3,32,32:u8 weight=16,3,3,3:i8 dilation=1,2",
        "conv2d data=1,3,32,32:u8 weight=var:16,3,3,3:i8",  # weights of the run
        "matmul a=8,64:u8 b=64,32:i8",
    ],
)
def test_others_are_no_rows(text: str) -> None:
    assert not lookup(ROWS).applies(parse_workload(text), TILES)


def test_a_tile_multiplies_what_a_window_reads_of_a_row() -> None:
    workload, template = parse_workload(FIRST), lookup(ROWS)
    c = in_rows(workload, TILES)
    assert c is not None and [a.extent for a in c.reduce] == [7, 28]
    config = template.default(workload, TILES)
    assert config.get_str("dot") == "tdpbusd"
    text = print_program(lower(template.schedule(workload, config, TILES, None), check=False))
    assert "out0.c.t.1.0 in 0..7" in text and "out0.c.t.1.1 in 0..4" in text, "one instruction sums 28 terms"


def test_rows_are_put_together_of_planes_without_gathering() -> None:
    """The border, the missing channel and the rounding included."""
    template = lookup(ROWS)
    for text in (FIRST, ROUNDED):
        workload = parse_workload(text)
        source = generate(template.schedule(workload, template.default(workload, TILES), TILES, None), TILES)
        assert "insertelement <64 x i8>" not in source.ir and "insertelement <32 x float>" not in source.ir


@pytest.mark.parametrize(("block", "inside"), [(1, False), (4, True)])
def test_blocks_copy_their_rows_unless_most_of_them_are_the_next_blocks_too(block: int, inside: bool) -> None:
    workload, template = parse_workload(FIRST), lookup(ROWS)
    space = template.space(workload, TILES)
    assert isinstance(space, SketchSpace)
    config = template.default(workload, TILES).replace(tile=(1, 1, 1, 1))
    config = config.replace(**{"block.o0": block, "block.o1": 0, "outer": (2, 1, 3)})
    space.validate(config)
    program = lower(template.schedule(workload, config, TILES, None), check=False)
    (rows,) = (b for b in program.buffers if b.name == "rows")
    assert rows.shape[1] == (2 * block + 5 if inside else 229)
