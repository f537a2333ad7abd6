"""Depthwise convolution by rows with shared multiplications: right for any sizes, layouts and knobs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.kernel import generate
from autotune.search_spaces import Interface, lookup, make_schedule, templates_for
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.conv_cases import TARGETS, check, check_random, conv

NAME = "conv2d.depthwise_rows"
ZEN, INTEL = Target.parse("x86 -mcpu=znver4"), Target.parse("x86 -mcpu=skylake-avx512")


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("target", TARGETS)
def test_random_workloads_configs_and_layouts(target: str, seed: int) -> None:
    check_random(random.Random(seed), NAME, "rows", Target.parse(f"{target} -num-cores=2"))


@pytest.mark.parametrize("rows", [8, 9])
def test_an_odd_last_row_and_channels_beside_the_vector_width(rows: int) -> None:
    on = Target.parse("native -num-cores=2")
    workload = conv(24, rows, 9, 24, groups=24, epilogue=("bias", "relu6"))
    for edges in ("apart", "border"):
        check(workload, lookup(NAME).default(workload, on).replace(template=NAME, edges=edges), on)


def test_it_is_the_first_choice_where_additions_are_free_and_padding_is_little() -> None:
    large, small = conv(32, 14, 14, 32, groups=32), conv(32, 7, 7, 32, 5, pad=(2, 2, 2, 2), groups=32)
    assert templates_for(large, ZEN)[0].name == NAME
    for workload, target in ((large, INTEL), (large, Target.parse("x86 -mcpu=znver2")), (small, ZEN)):
        found = [t.name for t in templates_for(workload, target)]
        assert found[0] == "conv2d.depthwise" and NAME in found


def test_additions_behind_it_count() -> None:
    for window, first in ((3, "conv2d.depthwise"), (5, NAME)):
        pad = (window // 2,) * 4
        workload = conv(32, 28, 28, 32, window, groups=32, pad=pad, epilogue=("bias", "relu6"))
        assert templates_for(workload, ZEN)[0].name == first


@pytest.mark.parametrize(("channels", "threads", "edges"), [(32, 2, "apart"), (48, 1, "apart"), (48, 2, "border")])
def test_edges_are_apart_where_threads_can_share_the_channels(channels: int, threads: int, edges: str) -> None:
    on = Target.parse(f"x86 -mcpu=znver4 -num-cores={threads}")
    config = lookup(NAME).default(conv(channels, 14, 14, channels, groups=channels), on)
    assert config.get_str("edges") == edges


def test_strict_floating_point_leaves_it_out() -> None:
    names = {t.name for t in templates_for(conv(32, 14, 14, 32, groups=32), ZEN, strict_fp=True)}
    assert "conv2d.depthwise" in names and NAME not in names


@pytest.mark.parametrize(
    ("window", "changed"),
    [(3, {"stride": (2, 1)}), (3, {"dilation": (1, 2)}), (1, {}), (11, {}), (3, {"groups": 16})],
)
def test_it_is_no_choice_for_others(window: int, changed: dict[str, object]) -> None:
    workload = conv(32, 24, 24, 32, window, **{"groups": 32, **changed})  # type: ignore[arg-type]
    assert NAME not in {t.name for t in templates_for(workload, ZEN)}


@pytest.mark.parametrize("window", [2, 3, 5, 7, 9])
def test_default_keeps_its_tile_in_registers(window: int) -> None:
    for target in TARGETS:
        on = Target.parse(target)
        workload = conv(64, 30, 30, 64, window, groups=64, pad=(window // 2,) * 4)
        config = lookup(NAME).default(workload, on)
        lookup(NAME).space(workload, on).validate(config)
        assert 3 * config.get_int("ow_tile") < on.num_vector_registers


def test_vectors_are_as_narrow_as_the_blocks_of_the_data() -> None:
    """Across blocks every channel would be a load of its own: 80,000 instructions."""
    workload = conv(17, 10, 16, 17, 5, 3, groups=17, pad=(1, 2, 0, 1))
    layouts = [Layout.blocked(4, [(1, block)]) for block in (8, 16, 16)]
    config = lookup(NAME).default(workload, ZEN).replace(template=NAME, edges="apart", ow_tile=9)
    schedule = make_schedule(workload, config, ZEN, Interface(tuple(layouts)))
    assert generate(schedule, ZEN).ir.count("\n") < 20_000


def test_channels_that_are_loaded_one_by_one_come_in_small_tiles() -> None:
    """Each copy of the tile, for edges and tails, would otherwise load every channel of every position."""
    workload = conv(24, 5, 23, 24, 3, 7, pad=(2, 1, 2, 1), groups=24)
    rows, blocked = Layout.row_major(4), Layout.blocked(4, [(1, 16)])
    config = lookup(NAME).default(workload, ZEN).replace(template=NAME, edges="apart", order="khw", ow_tile=7)
    plain = [rows] * (len(workload.inputs) - 1)
    schedule = make_schedule(workload, config, ZEN, Interface((plain[0], rows, *plain[1:], blocked)))
    assert len(generate(schedule, ZEN, check=False).ir.splitlines()) < 20_000
