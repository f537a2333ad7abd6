"""Grouped convolution: right for any sizes, layouts and knobs, with vectors inside groups and across them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.kernel import generate
from autotune.lower import lower, print_program
from autotune.ops import conv_bands
from autotune.search_spaces import lookup, make_schedule, templates_for
from autotune.search_spaces.operators.conv2d_shape import sizes
from autotune.target import Target
from tests.search_spaces.conv_cases import TARGETS, check_random, conv

NAMES = ("conv2d.grouped", "conv2d.grouped_bands", "conv2d.grouped_across")


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_random_workloads_configs_and_layouts(target: str, name: str, seed: int) -> None:
    check_random(random.Random(seed), name, "grouped", Target.parse(f"{target} -num-cores=2"))


@pytest.mark.parametrize(("channels", "groups", "first"), [
    (128, 32, "conv2d.grouped_across"),  # 4 channels per group, as in ResNeXt
    (256, 32, "conv2d.grouped_across"),
    (136, 4, "conv2d.grouped_bands"),  # 34, as in ShuffleNet: no vector of four lies in one group
])  # fmt: skip
def test_first_choice_follows_from_the_channels_of_a_group(channels: int, groups: int, first: str) -> None:
    names = [
        t.name
        for t in templates_for(conv(channels, 8, 8, channels, groups=groups), Target.parse("x86 -mcpu=x86-64-v4"))
    ]
    assert names[0] == first
    assert "conv2d.direct" not in names


def test_a_vector_in_one_group_reads_the_channels_of_that_one_only() -> None:
    """Of nine vectors of filters in four groups of 34, three lie in two groups."""
    on = Target.parse("x86 -mcpu=x86-64-v4")
    workload = conv(136, 28, 28, 136, 1, groups=4, pad=(0, 0, 0, 0))
    rules = lookup("conv2d.grouped_bands")
    program = print_program(
        lower(make_schedule(workload, rules.default(workload, on).replace(template=rules.name), on))
    )
    bands, among = program.index("for out0.c.b in 0..2:"), program.index("  if (")
    assert bands < among < program.index("for out0.c.c.0")
    assert conv_bands.groups_of(sizes(workload), 16) == (1, 1, 2, 1, 2, 1, 2, 1, 1)


def test_code_stays_small_where_every_lane_is_a_load_of_its_own() -> None:
    """Seven filters per group, seventeen channels: the largest tile would be 18,000 instructions."""
    on = Target.parse("x86 -mcpu=x86-64-v4")
    workload = conv(136, 5, 12, 56, 3, 7, stride=(1, 2), groups=8)
    template = lookup("conv2d.grouped_across")
    space = template.space(workload, on)
    default = template.default(workload, on)
    assert space.satisfies(default)
    large = default.replace(ow_tile=4, oh_tile=5, unroll_kh=True)
    assert "code size" in [c.name for c in space.constraints if not c.holds(large)]
    for config in (default, *(space.sample(random.Random(n)) for n in range(3))):
        schedule = make_schedule(workload, config.replace(template=template.name), on)
        assert generate(schedule, on).ir.count("\n") < 8000


@pytest.mark.parametrize("width", [2, 3, 4, 9])
def test_every_width_has_a_default_that_satisfies_the_rules(width: int) -> None:
    on = Target.parse("x86 -mcpu=x86-64-v4")
    workload = conv(24, 9, width, 9, 5, 1, groups=3, pad=(2, 0, 2, 0))
    template = lookup("conv2d.grouped_across")
    assert template.space(workload, on).satisfies(template.default(workload, on))
