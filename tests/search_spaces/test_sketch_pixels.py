"""Sketches of convolutions whose pixels are one axis: right for any sizes, there where tiles would be half empty."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower import lower
from autotune.measure.reference import sample
from autotune.ops import parse_workload
from autotune.ops.workload import TensorType
from autotune.schedule.dot_products import TILE_ROWS
from autotune.search_spaces import lookup, templates_for
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.target import Target
from autotune.tensor.evaluate import evaluate
from tests.lower.loop_interpreter import execute
from tests.search_spaces.matmul_cases import check_drawn
from tests.search_spaces.pixels_cases import random_small_image
from tests.targets import fixed

PIXELS = "sketch.pixels"
SERVER = fixed("x86 -mcpu=graniterapids -num-cores=1")
ZEN5 = fixed("x86 -mcpu=znver5 -num-cores=1")
WIDE = "cast data=1,512,7,7:bf16 to=f32 + cast data=const:512,512,3,3:bf16 to=f32"
LAST = f"{WIDE} + conv2d data=step1 weight=step2 pad=1 + add b=const:1,512,1,1 + relu + cast to=bf16"


@pytest.mark.isa("amx-int8")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_convolutions_of_small_images(seed: int) -> None:
    rng = random.Random(seed)
    target = Target.parse(f"native -num-cores={rng.choice((1, 2))}")
    check_drawn(PIXELS, random_small_image(rng), target, rng)


@pytest.mark.parametrize(
    "text",
    [
        "conv2d data=1,64,3,3:u8 weight=16,64,2,2:i8 pad=1,0,0,1 pad_value=3 + bias",
        "conv2d data=1,64,5,4:u8 weight=32,64,1,1:i8 stride=2",
        "conv3d data=1,64,2,2,3:u8 weight=16,64,1,1,2:i8",
    ],
)
def test_the_nest_means_the_definition_on_any_cpu(text: str) -> None:
    """Executed point by point; the instructions are those of a CPU that need not be here."""
    workload, template = parse_workload(text), lookup(PIXELS)
    schedule = template.schedule(workload, template.default(workload, SERVER), SERVER, None)
    rng = np.random.default_rng(0)
    inputs = {t.name: sample(TensorType(t.dtype.value, t.shape), rng) for t in schedule.compute.inputs}
    found = execute(lower(schedule), inputs)
    plain = lookup("plain").schedule(workload, lookup("plain").default(workload, SERVER), SERVER, None).compute
    for name, expected in evaluate(plain, inputs).items():
        np.testing.assert_array_equal(found[name], expected)


def test_a_tile_has_pixels_of_several_rows() -> None:
    workload, template = parse_workload(LAST), lookup(PIXELS)
    assert PIXELS in [entry.name for entry in templates_for(workload, SERVER)]
    assert not template.applies(workload, ZEN5), "which has no tiles"
    space = template.space(workload, SERVER)
    assert isinstance(space, SketchSpace)
    assert all(space.tiling(config).height == TILE_ROWS for config in template.promising(workload, SERVER, 8))


@pytest.mark.parametrize(
    "text",
    [
        "conv2d data=1,64,7,7 weight=16,64,3,3 pad=1",  # f32
        "conv2d data=1,64,16,16:u8 weight=16,64,3,3:i8 pad=1",  # rows fill tiles
        "conv2d data=1,64,7,7:u8 weight=16,64,3,3:i8 stride=2",  # windows lie apart
        "conv2d data=1,48,7,7:u8 weight=16,48,3,3:i8",  # channels fill no row
        "conv2d data=1,64,7,7:u8 weight=24,64,3,3:i8",  # no whole vectors of filters
        "conv2d data=1,64,56,56:u8 weight=256,64,1,1:i8",  # two passes over so much take longer
        "conv2d data=1,128,7,7:u8 weight=64,64,3,3:i8 groups=2",
        "matmul a=7,64:u8 b=64,32:i8",
    ],
)
def test_others_are_left_as_they_are(text: str) -> None:
    assert not lookup(PIXELS).applies(parse_workload(text), SERVER)
