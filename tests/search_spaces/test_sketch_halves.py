"""Sketches of products of floats of 16 bits: the image is widened once, weights stay as they are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.ops import parse_workload
from autotune.search_spaces import lookup, templates_for
from autotune.target import Target
from autotune.tensor.dtype import DType
from tests.search_spaces.halves_cases import random_halves
from tests.search_spaces.matmul_cases import wrong

OLD = Target.parse("x86 -mcpu=haswell -num-cores=1")
TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
FOLDS = Target.parse("x86 -mcpu=cooperlake -num-cores=1")
WIDENED, WIDE = "sketch.widened", "sketch.wide"


def slow_to_fold() -> Target:
    """A CPU whose instruction for bf16 multiplies half of what multiply-adds of f32 do."""
    pipes = [replace(p, per_cycle=0.5) if p.kind == "dot.bf16" else p for p in FOLDS.core.pipes]
    return replace(FOLDS, core=replace(FOLDS.core, pipes=tuple(pipes)))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_products_of_halves(seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_halves(rng), Target.parse(rng.choice(TARGETS))
    template = lookup(rng.choice(("sketch.contraction", WIDENED, WIDE)))
    if not target.runs_on_host() or not template.applies(workload, target):
        return
    config = template.space(workload, target).sample(rng)
    failure = wrong(workload, template.schedule(workload, config, target, None), target)
    assert failure is None, f"{workload.to_json()} {config.to_json()} {target}: {failure}"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    "line", ["conv2d data=1,64,14,14:{0} weight=64,64,3,3:{0} pad=1 + relu", "matmul a=49,64:{0} b=64,64:{0}"]
)
def test_the_image_is_widened_and_weights_are_not(line: str, dtype: str) -> None:
    workload, template = parse_workload(line.format(dtype)), lookup(WIDENED)
    assert templates_for(workload, OLD)[0].name in (WIDENED, WIDE)
    source = generate(template.schedule(workload, template.default(workload, OLD), OLD), OLD)
    assert all(o.dtype == DType(dtype) for o in source.program.operands)
    code = assembly(source.ir, cpu=OLD.cpu, features=OLD.llvm_features)
    assert "vbroadcastss" in code and "vpinsrw" not in code


@pytest.mark.parametrize(
    "line",
    [
        "matmul a=8,64 b=64,32",
        "conv2d data=1,32,9,9:f16 weight=32,1,3,3:f16 groups=32",  # no number for all lanes
    ],
)
def test_what_has_nothing_to_widen_once(line: str) -> None:
    assert not lookup(WIDENED).applies(parse_workload(line), OLD)


def test_where_an_instruction_multiplies_them_nothing_is_widened() -> None:
    newer = Target.parse("x86 -mcpu=znver4 -num-cores=1")
    assert not lookup(WIDENED).applies(parse_workload("matmul a=8,64:bf16 b=64,32:bf16"), newer)
    assert lookup(WIDENED).applies(parse_workload("matmul a=8,64:f16 b=64,32:f16"), newer)


@pytest.mark.parametrize(("dtype", "fits"), [("f32", True), ("f16", False)])
def test_what_is_widened_in_registers_needs_one(dtype: str, fits: bool) -> None:
    space = lookup("sketch.contraction").space(parse_workload(f"matmul a=48,64:{dtype} b=64,64:{dtype}"), OLD)
    assert space.satisfies(space.default().replace(tile=(3, 4), unroll=1)) is fits  # twelve sums, three and one factors


LARGE = "matmul a=128,256:bf16 b=const:256,256:bf16"


def test_where_multiply_adds_do_more_than_an_instruction_all_is_widened() -> None:
    workload, slow = parse_workload(LARGE), slow_to_fold()
    assert templates_for(workload, slow)[0].name == WIDE
    source = generate(lookup(WIDE).schedule(workload, lookup(WIDE).default(workload, slow), slow, None), slow)
    assert "dpbf16ps" not in source.ir
    assert not lookup(WIDE).applies(workload, FOLDS)
    assert not lookup(WIDE).applies(workload, Target.parse("x86 -mcpu=sapphirerapids -num-cores=1"))  # it has tiles


def test_two_runtime_factors_are_widened_there_too() -> None:
    workload = parse_workload("matmul a=var:32,64:bf16 b=var:64,32:bf16")
    assert lookup(WIDE).applies(workload, slow_to_fold()) and not lookup(WIDE).applies(workload, OLD)


@pytest.mark.parametrize(("outer", "blocks"), [((2, 3, 1), 0), ((1, 2, 3), 1)])
def test_a_block_of_the_image_is_widened_when_it_is_needed(outer: tuple[int, ...], blocks: int) -> None:
    """Where every block is needed once; where weights go round outside of it, all of it is widened before."""
    workload = parse_workload("conv2d data=1,64,12,16:f16 weight=64,64,3,3:f16 pad=1")
    template = lookup(WIDE)
    config = template.default(workload, OLD).replace(
        vector="k", lanes=8, tile=(1, 1, 1, 4), outer=outer, shared=1, **{"block.k": 1, "block.oh": 2, "block.ow": 0}
    )
    template.space(workload, OLD).validate(config)
    schedule = template.schedule(workload, config, OLD, None)
    inside = [s for s in schedule.state.stages if s.name.startswith("in0") and s.at is not None]
    assert len(inside) == 1 - blocks
    assert wrong(workload, schedule, OLD) is None or not OLD.runs_on_host()
