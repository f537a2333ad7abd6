"""Products of 8-bit integers by dot-product instructions: exact for any sizes and knobs."""

from __future__ import annotations

import random

import pytest

from autotune.errors import ScheduleError
from autotune.ops import parse_workload
from autotune.search_spaces import lookup, make_schedule, templates_for
from autotune.search_spaces.space.interface import Interface
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.conv_cases import check, random_dot

ON = Target.parse("native -num-cores=2")
VNNI = Target.parse("x86 -mcpu=icelake-server")
NAMES = ("conv1d.dot", "conv2d.dot", "conv3d.dot", "matmul.dot")


@pytest.mark.skipif(not ON.has("avx512vnni"), reason="this CPU has no dot-product instructions")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_random_workloads_and_configs(name: str, seed: int) -> None:
    rng = random.Random(seed)
    workload = random_dot(rng, name.split(".")[0])
    config = lookup(name).default(workload, ON) if seed == 0 else lookup(name).space(workload, ON).sample(rng)
    check(workload, config.replace(template=name), ON)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("matmul a=8,64:u8 b=64,32:i8", "matmul.dot"),
        ("conv2d data=1,32,9,9:u8 weight=16,32,3,3:i8", "conv2d.dot"),
        ("matmul a=8,62:u8 b=62,32:i8", "sketch.contraction"),
        ("matmul a=8,64:i8 b=64,32:i8", "sketch.contraction"),
        ("matmul a=8,64:u8 b=var:64,32:i8", "sketch.contraction"),
        ("conv2d data=1,32,9,9:u8 weight=16,8,3,3:i8 groups=4", "sketch.contraction"),
    ],
)
def test_they_are_the_first_choice_for_what_the_instruction_multiplies(text: str, first: str) -> None:
    assert templates_for(parse_workload(text), VNNI)[0].name == first
    assert not templates_for(parse_workload(text), Target.parse("x86 -mcpu=haswell"))[0].name.endswith(".dot")


def test_channels_that_are_apart_are_refused() -> None:
    workload = parse_workload("conv2d data=1,32,9,9:u8 weight=16,32,3,3:i8")
    config = lookup("conv2d.dot").default(workload, VNNI).replace(template="conv2d.dot")
    rows = Interface((Layout.row_major(4),) * 3)
    with pytest.raises(ScheduleError, match="4 channels of the activations side by side"):
        make_schedule(workload, config, VNNI, rows)
