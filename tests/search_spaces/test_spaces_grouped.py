"""Grouped convolution: right for any sizes, layouts and knobs, with vectors inside groups and across them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.search_spaces import templates_for
from autotune.target import Target
from tests.search_spaces.conv_cases import TARGETS, check_random, conv

NAMES = ("conv2d.grouped", "conv2d.grouped_across")


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_random_workloads_configs_and_layouts(target: str, name: str, seed: int) -> None:
    check_random(random.Random(seed), name, "grouped", Target.parse(f"{target} -num-cores=2"))


@pytest.mark.parametrize(("channels", "groups", "first"), [
    (96, 2, "conv2d.grouped"),  # 48 channels per group: three vectors
    (64, 4, "conv2d.grouped"),
    (128, 32, "conv2d.grouped_across"),  # 4 channels per group, as in ResNeXt
    (66, 2, "conv2d.grouped_across"),  # 33: no vector fits
])  # fmt: skip
def test_first_choice_follows_from_the_channels_of_a_group(channels: int, groups: int, first: str) -> None:
    names = [
        t.name
        for t in templates_for(conv(channels, 8, 8, channels, groups=groups), Target.parse("x86 -mcpu=x86-64-v4"))
    ]
    assert names[0] == first
    assert "conv2d.direct" not in names and "conv2d.depthwise" not in names
