"""Direct convolution: right for any sizes, layouts and knobs; its default fits the register file."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower import lower, print_program
from autotune.ops.workload import Workload, WorkloadNode
from autotune.search_spaces import lookup, make_schedule
from autotune.search_spaces.operators.conv2d_shape import padded_tiles, sizes
from autotune.target import Target
from tests.search_spaces.conv_cases import TARGETS, check, check_random, conv

NAME = "conv2d.direct"
RESNET = (
    conv(64, 56, 56, 64), conv(512, 7, 7, 512), conv(1024, 14, 14, 256, 1, pad=(0, 0, 0, 0)),
    conv(512, 14, 14, 512, stride=(2, 2)), conv(3, 224, 224, 64, 7, stride=(2, 2), pad=(3, 3, 3, 3)),
    conv(144, 56, 56, 24, 1, pad=(0, 0, 0, 0)), conv(1, 5, 5, 1, 1, pad=(0, 0, 0, 0)),
)  # fmt: skip


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("target", TARGETS)
def test_random_workloads_configs_and_layouts(target: str, seed: int) -> None:
    check_random(random.Random(seed), NAME, "dense", Target.parse(f"{target} -num-cores=2"))


@pytest.mark.parametrize("workload", RESNET, ids=lambda w: w.describe())
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_default_fits_the_registers_and_can_be_scheduled(workload: Workload, target: str, threads: int) -> None:
    on = Target.parse(f"{target} -num-cores={threads}")
    config = lookup(NAME).default(workload, on)
    pixels, vectors = config.get_int("ow_tile") * config.get_int("oh_tile"), config.get_int("oc_vectors")
    assert vectors * pixels + min(vectors, pixels) + 1 <= on.num_vector_registers
    make_schedule(workload, config.replace(template=NAME), on)


def test_a_last_block_of_channels_that_is_not_full() -> None:
    on = Target.parse("x86 -mcpu=haswell -num-cores=2")
    workload = conv(8, 6, 7, 8 * 32, 1, pad=(0, 0, 0, 0), epilogue=("bias", "sigmoid"))
    config = lookup(NAME).default(workload, on).replace(template=NAME, oc_vectors=3, ow_tile=4, oh_tile=1)
    check(workload, config, on)


@pytest.mark.isa("avx512f")
def test_narrow_vectors_for_a_last_vector_that_is_half_empty() -> None:
    on = Target.parse("x86 -mcpu=x86-64-v4 -num-cores=2")
    workload = conv(20, 6, 7, 24, epilogue=("bias", "relu6"))
    space = lookup(NAME).space(workload, on)
    assert space.knob("lanes").values == (16, 8)
    config = lookup(NAME).default(workload, on).replace(template=NAME, lanes=8, oc_vectors=3, ow_tile=7, oh_tile=1)
    check(workload, config, on)


def on_a_megabyte(threads: int) -> Target:
    """A core of which the second cache is 1 MiB, wherever this runs."""
    target = Target.parse(f"x86 -mcpu=skylake-avx512 -num-cores={threads}")
    return replace(target, l2_bytes=2**20)


def test_weights_from_afar_are_asked_for_before_they_are_used() -> None:
    def requests(k: int, size: int, threads: int, *epilogue: str) -> list[str]:
        workload = conv(512, size, size, k, 1, pad=(0, 0, 0, 0), epilogue=epilogue)
        on = on_a_megabyte(threads)
        config = lookup(NAME).default(workload, on).replace(template=NAME)
        lines = print_program(lower(make_schedule(workload, config, on))).splitlines()
        return sorted({line.split("[")[0].strip() for line in lines if "prefetch" in line})

    assert requests(2048, 7, 1) == ["prefetch in1", "prefetch to L2 in1"]  # the next turns', and the next block's
    assert requests(2048, 7, 2) == ["prefetch in1"]
    # What is added, too, if it is large.
    assert requests(2048, 7, 1, "residual") == ["prefetch in1", "prefetch to L2 in1"]
    assert requests(64, 56, 1, "bias", "residual") == ["prefetch in3", "prefetch to L2 in0"]
    # The image is not small beside them, but more runs of memory than the CPU follows.
    assert requests(768, 28, 1) == ["prefetch in1", "prefetch to L2 in0"]
    assert requests(64, 28, 1) == ["prefetch to L2 in0"]


@pytest.mark.parametrize(
    ("channels", "size", "filters", "order"),
    [
        (64, 56, 64, "hkw"),  # all weights stay near
        (1024, 17, 192, "hkw"),  # the image does not, the weights do
        (512, 7, 2048, "khw"),  # the image does, the weights do not
        (512, 28, 1024, "khw"),  # neither does: the image comes again for 32 blocks, less than weights for 28 rows
    ],
)
def test_what_stays_near_is_what_lets_fewer_bytes_come_from_afar(
    channels: int, size: int, filters: int, order: str
) -> None:
    workload = conv(channels, size, size, filters, 1, pad=(0, 0, 0, 0))
    assert lookup(NAME).default(workload, on_a_megabyte(1)).get_str("order") == order


def test_it_does_not_apply_where_something_is_computed_before_the_convolution() -> None:
    plain = conv(16, 8, 8, 16)
    relu, anchor = WorkloadNode.make("relu", (0,)), plain.nodes[0]
    before = Workload(plain.inputs, (relu, WorkloadNode.make("conv2d", (2, 1), **dict(anchor.attrs))), (3,))
    assert lookup(NAME).applies(plain, Target.parse("native"))
    assert not lookup(NAME).applies(before, Target.parse("native"))


def test_tiles_leave_out_columns_of_taps_in_wide_padding() -> None:
    """DeepLab's dilation of 18 on 33 columns in tiles of 11: a tile at the edge has no first, or no last taps."""
    on = Target.parse("x86 -mcpu=x86-64-v4")
    workload = conv(64, 33, 33, 32, dilation=(18, 18), pad=(18, 18, 18, 18))
    rules = lookup("conv2d.direct")
    config = rules.default(workload, on).replace(ow_tile=11, template=rules.name)
    assert padded_tiles(sizes(workload), 11) == pytest.approx(2 / 9)
    program = print_program(lower(make_schedule(workload, config, on)))
    assert [f"for out0.c.s in {bounds}:" in program for bounds in ("1..3", "0..3", "0..2")] == [True] * 3
