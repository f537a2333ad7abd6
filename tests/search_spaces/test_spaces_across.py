"""Groups across vectors: right for any sizes, layouts and knobs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.search_spaces import lookup, templates_for
from autotune.target import Target
from tests.search_spaces.conv_cases import TARGETS, check, check_random, conv

NAME = "conv2d.grouped_across"


@settings(max_examples=12, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("target", TARGETS)
def test_random_workloads_configs_and_layouts(target: str, seed: int) -> None:
    check_random(random.Random(seed), NAME, "depthwise", Target.parse(f"{target} -num-cores=2"))


def test_channels_beside_the_vector_width_are_padded_with_zeros() -> None:
    on = Target.parse("native -num-cores=2")
    for epilogue in (("bias", "relu6"), ("sigmoid",)):
        workload = conv(24, 9, 9, 24, groups=24, epilogue=epilogue)
        check(workload, lookup(NAME).default(workload, on).replace(template=NAME), on)


def test_it_is_a_choice_for_any_groups_and_the_first_one_where_they_divide_the_vector() -> None:
    on = Target.parse("x86 -mcpu=haswell")
    for channels, groups, first in ((32, 32, "sketch.contraction"), (64, 32, NAME), (32, 16, NAME)):
        names = [t.name for t in templates_for(conv(32, 8, 8, channels, groups=groups), on)]
        assert names[0] == first and NAME in names
    assert NAME not in {t.name for t in templates_for(conv(32, 8, 8, 32, groups=1), on)}


@pytest.mark.parametrize("window", [1, 3, 5, 7, 11])
def test_default_keeps_its_tile_in_registers(window: int) -> None:
    for target in TARGETS:
        on = Target.parse(target)
        workload = conv(64, 30, 30, 64, window, groups=64, pad=(window // 2,) * 4)
        config = lookup(NAME).default(workload, on)
        lookup(NAME).space(workload, on).validate(config)
        assert config.get_int("ow_tile") * config.get_int("oh_tile") < on.num_vector_registers
