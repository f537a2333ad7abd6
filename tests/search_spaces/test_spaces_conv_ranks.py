"""Convolutions of one and three axes, and transposed ones: right for any sizes, layouts and knobs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower import lower, print_program
from autotune.ops import parse_workload
from autotune.search_spaces import default_config, lookup, make_schedule, templates_for
from autotune.search_spaces.operators.conv2d_shape import padded_share, sizes
from autotune.target import Target
from tests.search_spaces.conv_cases import TARGETS, check, check_random
from tests.targets import fixed

NAMES = (
    "conv1d.direct", "conv3d.direct", "conv1d.grouped_across",
    "conv3d.grouped", "conv3d.grouped_bands", "conv3d.grouped_across",
    "conv_transpose1d.phases", "conv_transpose2d.phases", "conv_transpose3d.phases",
)  # fmt: skip


@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_random_workloads_configs_and_layouts(name: str, target: str, seed: int) -> None:
    check_random(random.Random(seed), name, name.split(".")[0], Target.parse(f"{target} -num-cores=2"))


@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ("conv2d.direct", *NAMES))
def test_weights_that_all_come_from_afar_are_asked_for_and_change_no_answer(name: str, target: str, seed: int) -> None:
    small = replace(Target.parse(f"{target} -num-cores=1"), l2_bytes=256)
    check_random(random.Random(seed), name, "dense" if name == "conv2d.direct" else name.split(".")[0], small)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("conv2d data=1,256,56,56 weight=64,256,1,1", True),
        ("conv3d data=1,144,16,32,32 weight=64,144,3,1,1 pad=1,0,0", True),
        ("conv2d data=1,256,56,56 weight=512,256,1,1 stride=2", False),  # most of what lies ahead is never read
        ("conv2d data=1,256,14,14 weight=64,256,1,1", False),  # the second cache has it
        ("conv2d data=1,64,112,112 weight=64,64,1,1", False),  # eight runs, which the CPU follows itself
    ],
)
def test_images_of_many_runs_of_memory_are_asked_for(text: str, asked: bool) -> None:
    workload, on = parse_workload(text), fixed("x86 -mcpu=znver3 -num-cores=1")
    entry = lookup(f"{text.split()[0]}.direct")
    schedule = make_schedule(workload, entry.default(workload, on).replace(template=entry.name), on)
    assert ("prefetch to L2 in0" in print_program(lower(schedule))) == asked


@pytest.mark.parametrize("window", [2, 3, 4])
def test_up_sampling_by_two(window: int) -> None:
    """The three ways in which networks double their images, with what is fused behind."""
    on = Target.parse("native -num-cores=2")
    pad, extra = {2: (0, 0), 3: (1, 1), 4: (1, 0)}[window]
    text = f"conv_transpose2d data=1,32,7,9 weight=32,48,{window},{window} stride=2 pad={pad} output_padding={extra}"
    workload = parse_workload(f"{text} bias relu")
    assert workload.types()[-1].shape == (1, 48, 14, 18)
    assert templates_for(workload, on)[0].name == "conv_transpose2d.phases"
    check(workload, default_config(workload, on), on)


@pytest.mark.parametrize(
    "sizes", ["9 weight=17,1,3 stride=3 dilation=2 pad=2,1", "6 weight=17,3,4 stride=5 dilation=3"]
)
def test_strides_and_dilations_without_a_common_divisor(sizes: str) -> None:
    """Which input a phase begins with has no simple form then."""
    on = Target.parse("native")
    workload = parse_workload(f"conv_transpose1d data=2,17,{sizes}")
    check(workload, default_config(workload, on), on)


def test_taps_that_a_phase_does_not_see_are_skipped() -> None:
    on = Target.parse("native")
    workload = parse_workload("conv_transpose1d data=1,32,14 weight=32,32,3 stride=2")
    nest = print_program(lower(make_schedule(workload, default_config(workload, on), on)))
    test = next(line.strip() for line in nest.splitlines() if line.strip().startswith("if "))
    assert test == "if -out0.o0.1 - 2*phases.r0 + 2 >= 0:"
    even = parse_workload("conv_transpose1d data=1,32,14 weight=32,32,4 stride=2")
    assert "if " not in print_program(lower(make_schedule(even, default_config(even, on), on)))


def test_the_space_of_one_axis_has_no_rows() -> None:
    on = Target.parse("native")
    workload = parse_workload("conv1d data=1,32,50 weight=64,32,3")
    space = lookup("conv1d.direct").space(workload, on)
    assert space.knob("oh_tile").values == (1,)
    assert space.knob("order").values == ("kw", "wk")


def test_a_convolution_without_input_channels_is_zero() -> None:
    on = Target.parse("native")
    workload = parse_workload("conv2d data=1,0,5,5 weight=4,0,3,3")
    assert {t.name for t in templates_for(workload, on)} <= {"generic", "plain"}
    check(workload, default_config(workload, on), on)


def test_padding_before_and_behind_a_volume_is_left_out() -> None:
    """Of 24 planes of taps 2 lie outside a volume of depth 8, and 2 of 84 rows."""
    on = Target.parse("x86 -mcpu=x86-64-v4")
    workload = parse_workload("conv3d data=1,64,8,28,28 weight=64,64,3,3,3 pad=1")
    assert padded_share(sizes(workload)) == pytest.approx(1 - 22 / 24 * 82 / 84)
    assert lookup("conv3d.direct").default(workload, on).get_bool("skip_rows")


def test_the_taps_of_a_phase_lie_together() -> None:
    on = Target.parse("x86 -mcpu=x86-64-v4")
    workload = parse_workload("conv_transpose2d data=1,32,4,4 weight=32,32,4,3 pad=1 stride=2")
    rules = lookup("conv_transpose2d.phases")
    schedule = make_schedule(workload, rules.default(workload, on).replace(template=rules.name), on)
    order = schedule.state.layout(next(t for t in schedule.compute.inputs if t.constant)).order
    assert order[:4] == ((1, 0), (2, 2), (3, 2), (0, 0))
