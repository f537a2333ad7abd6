from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.lower import lower, print_program
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule.state import PARALLEL, REGISTER
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import default_config, lookup, make_schedule, task_space
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.matmul_cases import EXTENTS, TARGETS, check, matmul, random_matmul

SKETCH, PARTS = "sketch.contraction", "sketch.parts"
LONG = (512, 768, 1000)


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    return Target.parse(f"{request.param} -num-cores=2")


@pytest.mark.parametrize(("name", "depths"), [(SKETCH, EXTENTS), (SKETCH, LONG), (PARTS, LONG)])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_configs_of_random_products_are_right(name: str, depths: tuple[int, ...], seed: int) -> None:
    rng = random.Random(seed)
    target = Target.parse(f"{rng.choice(TARGETS)} -num-cores=2")
    workload = random_matmul(rng, constant=rng.random() < 0.6, depths=depths)
    assume(lookup(name).applies(workload, target))
    config = lookup(name).space(workload, target).sample(rng).replace(template=name)
    check(workload, config, target)


@pytest.mark.parametrize(
    "workload",
    [
        matmul(1, 1, 1),
        matmul(128, 96, 64, epilogue=("bias", "gelu")),
        matmul(61, 1000, 37, epilogue=("bias", "residual", "relu")),
        matmul(7, 5, 3, batch=(2, 3), batch_b=(1, 3), epilogue=("scale",)),
        matmul(33, 17, 130, trans_a=True, trans_b=True, dtype="f64"),
        matmul(30, 31, 64, batch=(2, 3), batch_b=(2, 3), trans_b=True, constant=False, epilogue=("scale",)),
        matmul(16, 64, 128, batch=(4,), batch_b=(4,), constant=False),
    ],
)
def test_default_configs_are_right(workload: Workload, target: Target) -> None:
    for config in task_space(workload, target).defaults():
        check(workload, config, target)


@pytest.mark.parametrize(("m", "depth", "block"), [(61, 128, 4), (61, 256, 2), (29, 384, 0), (64, 128, 1)])
def test_sums_in_parts_with_ragged_rows(m: int, depth: int, block: int, target: Target) -> None:
    workload = matmul(m, 70, 768, epilogue=("bias", "relu"))
    space = lookup(SKETCH).space(workload, target)
    assert {0, depth} <= set(space.knob("depth").values)
    for outer, inner in (((0, 1), (1, 0)), ((1, 0), (0, 1))):
        config = space.default().replace(depth=depth, outer=outer, inner=inner, **{"block.i": block, "block.j": 1})
        check(workload, config.replace(template=SKETCH), target)
        text = print_program(lower(make_schedule(workload, config.replace(template=SKETCH), target)))
        assert not any("if " in line for line in text.splitlines() if "matmul" in line), "the sum tests its rows"


def test_operands_in_the_layouts_of_an_interface(target: Target) -> None:
    workload = matmul(30, 40, 24, epilogue=("residual",))
    a, b = Layout.blocked(2, [(1, 8)]), Layout.row_major(2)
    config = default_config(workload, target)
    check(workload, config, target, Interface((a, b, Layout.blocked(2, [(0, 4), (1, 8)]), a)))


def test_the_epilogue_is_applied_in_registers(target: Target) -> None:
    workload = matmul(64, 64, 64, epilogue=("bias", "residual", "relu"))
    state = make_schedule(workload, default_config(workload, target), target).state
    assert [(s.name, s.scope if s.at else "top level") for s in state.stages] == [
        ("matmul", REGISTER),
        ("out0", "top level"),
    ]
    assert state.stage("out0").loops[0].mark == PARALLEL


@pytest.mark.parametrize("threads", [2, 8])
def test_defaults_give_every_thread_work(threads: int) -> None:
    target = Target.parse(f"native -num-cores={threads}")
    for m, n, k in ((1, 1000, 2048), (128, 768, 768), (3136, 64, 64), (64, 64, 4096)):
        workload = matmul(m, n, k)
        outermost = make_schedule(workload, default_config(workload, target), target).state.stage("out0").loops[0]
        assert outermost.mark == PARALLEL
        assert outermost.extent >= threads


def test_weights_from_afar_may_be_asked_for_in_advance(target: Target) -> None:
    workload = matmul(4, 2048, 1024)
    config = lookup(SKETCH).default(workload, target).replace(ahead=16, template=SKETCH)
    text = print_program(lower(make_schedule(workload, config, target)))
    assert "in1[" in next(line for line in text.splitlines() if "prefetch" in line)
    check(workload, config, target)
    assert "ahead" in lookup(SKETCH).default(matmul(512, 1024, 1024), target)  # what little it is beside the work
    small = lookup(SKETCH).space(matmul(4, 64, 64), target)
    assert "ahead" not in small.default() and "stream" not in small.default()


def test_panels_that_are_read_again_and_again_leave_time_to_ask_for_the_next(target: Target) -> None:
    rules, workload = lookup(SKETCH), matmul(64, 2048, 1024)
    config = rules.default(workload, target).replace(template=SKETCH, stream=True, **{"tile": (4, 2), "block.j": 1})
    config = config.replace(outer=(1, 0), inner=(1, 0), depth=0, **{"block.i": 0})
    text = print_program(lower(make_schedule(workload, config, target)))
    assert any("prefetch to L2 in1[" in line for line in text.splitlines())
    check(workload, config, target)
    once = rules.default(matmul(4, 2048, 1024), target).replace(tile=(4, 2), stream=True)
    assert rules.space(matmul(4, 2048, 1024), target).canonical(once).get("stream") is False  # one tile reads all


def test_both_operands_may_be_the_same(target: Target) -> None:
    nodes = (WorkloadNode.make("matmul", (0, 0), trans_a=False, trans_b=True),)
    workload = Workload((WorkloadInput(TensorType("f32", (37, 20)), False),), nodes, (1,))
    check(workload, default_config(workload, target), target)


def test_threads_share_a_long_sum() -> None:
    target = Target.parse("native -num-cores=2")
    workload = matmul(3, 20, 1024, epilogue=("bias", "relu"))
    config = lookup(PARTS).default(workload, target).replace(template=PARTS)
    state = make_schedule(workload, config, target).state
    shared = [s.name for s in state.stages if s.loops[0].mark == PARALLEL]
    assert shared == ["matmul.rf", "out0"]
    alone = Target.parse("native -num-cores=1")
    assert not lookup(PARTS).applies(workload, alone)
    assert not lookup(PARTS).applies(matmul(512, 2048, 1024), target)  # results enough for all


def test_the_space_has_features_for_the_cost_model(target: Target) -> None:
    space = task_space(matmul(128, 768, 768), target)
    encoded = space.encode(space.default())
    assert len(encoded) == len(space.feature_names)
    assert any(name.endswith("accumulators") for name in space.feature_names)
