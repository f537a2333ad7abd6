"""The time to expect of whole kernels: no less than a limit, and in the order that kernels are known to have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.cost_model.expected import LATE, expected_cycles, least_cycles, overlapped
from autotune.cost_model.padding import share_read
from autotune.lower import lower
from autotune.ops import parse_workload
from autotune.ops.registry import compute_def
from autotune.search_spaces import default_config, lookup, templates_for
from autotune.search_spaces.space.limit import limit
from autotune.target import Target
from tests.targets import fixed

ONE, TWO = (fixed(f"x86 -mcpu=znver4 -num-cores={n}") for n in (1, 2))
SQUARE = "conv2d data=1,128,28,28 weight=128,128,3,3 pad=1 + relu"


def cycles(text: str, name: str, target: Target = ONE) -> float:
    workload, template = parse_workload(text), lookup(name)
    schedule = template.schedule(workload, template.default(workload, target), target)
    return expected_cycles(lower(schedule), target)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SQUARE, "conv2d.direct"),
        (SQUARE, "conv2d.winograd_f4"),
        ("matmul a=96,256 b=const:256,128", "sketch.contraction"),
        ("conv2d data=1,128,28,28 weight=128,4,3,3 pad=1 groups=32", "conv2d.grouped_across"),
    ],
)
def test_nothing_is_expected_to_be_faster_than_its_limit_nor_far_from_it(text: str, name: str) -> None:
    least = limit(parse_workload(text), ONE, strict_fp="winograd" not in name).arithmetic * ONE.core.ghz * 1e9
    assert 0.95 * least < cycles(text, name) < 3 * least


def test_fewer_multiplications_are_worth_their_transforms() -> None:
    found = {name: cycles(SQUARE, f"conv2d.{name}") for name in ("direct", "winograd_f2", "winograd_f4")}
    assert found["winograd_f4"] < found["winograd_f2"] < found["direct"]


def test_threads_share_the_work_and_slow_memory_costs_time() -> None:
    assert 0.45 < cycles(SQUARE, "conv2d.direct", TWO) / cycles(SQUARE, "conv2d.direct") < 0.6
    slow = replace(ONE, core=replace(ONE.core, dram=ONE.core.dram / 16))
    assert cycles(SQUARE, "conv2d.winograd_f6", slow) > 1.2 * cycles(SQUARE, "conv2d.winograd_f6")


def test_what_many_threads_read_comes_from_memory_once() -> None:
    """Each of these threads has a row of the image, and reads all weights."""
    text, many = "conv2d data=1,256,16,16 weight=64,256,1,1", replace(ONE, num_threads=16)
    workload, template = parse_workload(text), lookup("conv2d.direct")
    config = template.default(workload, many).replace(order="hkw", oc_vectors=4, oh_tile=1)
    program = lower(template.schedule(workload, config, many))
    slow = replace(many, core=replace(many.core, dram=1e-3, dram_shared=2e-3))
    weights = 256 * 64 * 4
    assert expected_cycles(program, slow) == pytest.approx(weights / 2e-3, rel=0.05)


def test_what_threads_fill_for_each_other_comes_from_behind_their_caches() -> None:
    text, name = "conv2d data=1,256,14,14 weight=256,256,3,3 pad=1", "conv2d.winograd_f2"
    for threads in (1, 16):
        target = replace(ONE, num_threads=threads)
        workload, template = parse_workload(text), lookup(name)
        shared = {"transform": "once", "rows": 7, "th_tile": 1, "tw_tile": 7, "oc_vectors": 1, "stream": False}
        config = template.default(workload, target).replace(**shared)
        program = lower(template.schedule(workload, config, target))
        core = replace(target.core, l3=1e-3, l3_shared=1.0, dram=1e9, dram_shared=1e9)
        transformed, weights = 16 * 49 * 256 * 4, 16 * 256 * 256 * 4
        bytes_ = weights / threads + (transformed if threads > 1 else 0)
        found = expected_cycles(program, replace(target, l2_bytes=64 << 20, core=core))
        assert found == pytest.approx(bytes_ / 1e-3, rel=0.1)


def test_threads_wait_for_each_other_as_often_as_loops_say() -> None:
    text = "gru data=20,1,192 weight=1,192,64"
    workload, template = parse_workload(text), lookup("recurrent")
    shared = template.default(workload, TWO).replace(shared=True)
    program = lower(template.schedule(workload, shared, TWO))
    slow = replace(TWO, core=replace(TWO.core, barrier_cycles=TWO.core.barrier_cycles + 1000))
    assert expected_cycles(program, slow) - expected_cycles(program, TWO) == 20 * 3 * 1000
    alone = replace(ONE, core=slow.core)
    assert cycles(text, "recurrent", alone) == cycles(text, "recurrent", ONE)


def test_moving_is_hidden_in_part() -> None:
    assert overlapped(100.0, 20.0, 30.0) == 100 + LATE * 50
    assert overlapped(100.0, 20.0, 30.0, late=10.0) == 100 + LATE * 10
    assert overlapped(27.0, 20.0, 30.0) == 30 + LATE * 50


def test_arithmetic_and_moving_take_no_more_than_one_after_the_other() -> None:
    """A pass that computes next to nothing is as fast as its bytes come."""
    assert overlapped(10.0, 20.0, 30.0) == 10 + 30
    assert overlapped(0.0, 7.0, 7.0, 7.0) == 7


@pytest.mark.parametrize("target", [TWO, fixed("x86 -mcpu=haswell -num-cores=1")], ids=["avx512", "avx2"])
@pytest.mark.parametrize(
    "text",
    [
        "conv2d data=1,32,15,17 weight=48,32,3,3 pad=1 + relu",
        "conv2d data=2,64,7,7 weight=512,64,3,3 pad=1",
        "conv2d data=1,32,27,27 weight=64,32,5,5 pad=2",
        "conv2d data=1,48,28,20 weight=64,48,3,3 pad=1 stride=2",
        "conv2d data=1,3,64,48 weight=32,3,7,7 pad=3 stride=2 + relu",
    ],
)
def test_no_template_is_expected_to_take_less_than_its_algorithm_must(text: str, target: Target) -> None:
    """So looking at those only that may be the best finds the same one."""
    workload, bounded = parse_workload(text), 0
    ranked = templates_for(workload, target)
    for entry in ranked:
        if entry.algorithm is not None:
            least = least_cycles(compute_def(workload, entry.algorithm), target)
            config = entry.default(workload, target)
            expected = expected_cycles(lower(entry.schedule(workload, config, target), check=False), target)
            assert 0.3 * expected < least <= expected, entry.name
            bounded += 1
    assert bounded
    assert default_config(workload, target).template == ranked[0].name


def test_what_padding_may_spare_is_no_part_of_a_bound() -> None:
    """Of a window of 3 x 3 on a single pixel, one term in nine is read."""
    text = "conv2d data=1,64,1,1 weight=64,64,3,3 pad=1"
    definition = compute_def(parse_workload(text))
    (total,) = (stage for stage in definition.stages if stage.reducer is not None)
    assert share_read(total) == pytest.approx(1 / 9)
    assert 0 < least_cycles(definition, ONE) < cycles(text, "conv2d.direct") / 8


def test_padding_on_both_axes_is_told_axis_by_axis() -> None:
    (total,) = compute_def(parse_workload("conv2d data=1,8,4,6 weight=8,8,3,3 pad=1")).stages
    assert share_read(total) == pytest.approx(10 / 12 * 16 / 18)


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512", "cooperlake", "znver4", "sapphirerapids"])
@pytest.mark.parametrize(
    "text",
    [
        "cast data=1,64,7,7:bf16 to=f32 + cast data=const:64,64,3,3:bf16 to=f32 + conv2d data=step1 weight=step2 pad=1",
        "cast data=32,256:bf16 to=f32 + cast data=const:256,64:bf16 to=f32 + matmul a=step1 b=step2",
        "cast data=32,256:f16 to=f32 + cast data=const:256,64:f16 to=f32 + matmul a=step1 b=step2",
        "conv2d data=1,64,7,7:u8 weight=64,64,3,3:i8 pad=1",
        "matmul a=32,256:bf16 b=const:256,64:bf16",
    ],
)
def test_no_bound_of_narrow_factors_is_above_what_is_expected(text: str, cpu: str) -> None:
    """Of factors that were cast from 16 bits an instruction may add two products a lane, as of those that still are."""
    target, workload = Target.parse(f"x86 -mcpu={cpu} -num-cores=1"), parse_workload(text)
    for entry in templates_for(workload, target):
        if entry.algorithm is not None:
            config = entry.default(workload, target)
            expected = expected_cycles(lower(entry.schedule(workload, config, target), check=False), target)
            assert least_cycles(compute_def(workload, entry.algorithm), target) <= expected, entry.name


@pytest.mark.parametrize("target", [ONE, fixed("x86 -mcpu=haswell -num-cores=1")])
def test_sums_in_parts_take_little_longer_than_in_one(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights from memory still come while all parts multiply, not the first alone."""
    text, name = "conv2d data=1,256,14,14 weight=256,256,3,3 pad=1 + relu", "conv2d.winograd_f5"
    in_parts = cycles(text, name, target)
    monkeypatch.setattr("autotune.lower.partial_sums.terms_of_a_part", lambda amplified: 1 << 20)
    assert cycles(text, name, target) < in_parts < 1.1 * cycles(text, name, target)
