from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.lower import lower, print_program
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule.state import PARALLEL, REGISTER
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import default_config, lookup, make_schedule, task_space, templates_for
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.matmul_cases import EXTENTS, TARGETS, check, matmul, random_matmul


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    return Target.parse(f"{request.param} -num-cores=2")


@pytest.mark.parametrize("name", ["matmul.packed", "matmul.skinny", "matmul.dynamic", "matmul.split_k"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_configs_of_random_products_are_right(name: str, seed: int) -> None:
    rng = random.Random(seed)
    target = Target.parse(f"{rng.choice(TARGETS)} -num-cores=2")
    depths = (512, 768, 1000) if name == "matmul.split_k" else EXTENTS
    workload = random_matmul(rng, constant=name != "matmul.dynamic", depths=depths)
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


@pytest.mark.parametrize(("m", "k_block", "m_tiles"), [(61, 64, 4), (61, 128, 2), (29, 192, 0), (64, 64, 1)])
def test_sums_in_blocks_with_ragged_rows(m: int, k_block: int, m_tiles: int, target: Target) -> None:
    workload = matmul(m, 70, 384, epilogue=("bias", "relu"))
    for outer, inner in (("mn", "nm"), ("nm", "mn")):
        config = lookup("matmul.packed").default(workload, target)
        config = config.replace(k_block=k_block, m_tiles=m_tiles, n_tiles=1, outer=outer, inner=inner)
        check(workload, config.replace(template="matmul.packed"), target)


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


def test_default_tiles_fit_the_registers(target: Target) -> None:
    for m, n, k in ((128, 768, 768), (1024, 1024, 1024), (197, 3072, 768), (1, 1000, 2048), (3136, 64, 64)):
        config = lookup("matmul.packed").default(matmul(m, n, k), target)
        rows, vectors = config.get_int("rows"), config.get_int("vectors")
        assert rows * vectors + vectors + 1 <= target.num_vector_registers


@pytest.mark.parametrize("threads", [2, 8])
def test_defaults_give_every_thread_work(threads: int) -> None:
    target = Target.parse(f"native -num-cores={threads}")
    for m, n, k in ((1, 1000, 2048), (128, 768, 768), (3136, 64, 64), (64, 64, 4096)):
        workload = matmul(m, n, k)
        outermost = make_schedule(workload, default_config(workload, target), target).state.stage("out0").loops[0]
        assert outermost.mark == PARALLEL
        assert outermost.extent >= threads


def test_batches_that_share_weights_reuse_them_block_by_block(target: Target) -> None:
    workload = matmul(3, 640, 96, batch=(5,), epilogue=("bias", "relu"))
    config = lookup("matmul.packed").default(workload, target).replace(outer="nm", n_tiles=1, template="matmul.packed")
    outermost = make_schedule(workload, config, target).state.stage("out0").loops[0]
    assert outermost.name.index("i2.0.0") < outermost.name.index("i0")  # columns outside, batches inside
    check(workload, config, target)


def test_weights_may_be_asked_for_in_advance(target: Target) -> None:
    workload = matmul(4, 200, 96)
    config = lookup("matmul.skinny").default(workload, target).replace(prefetch=16, template="matmul.skinny")
    text = print_program(lower(make_schedule(workload, config, target)))
    line = next(line for line in text.splitlines() if "prefetch" in line)
    assert "in1[" in line
    assert "out0.c.k.0 + 16" in line or "out0.c.k.1 + 16" in line
    check(workload, config, target)


def test_both_operands_may_be_the_same(target: Target) -> None:
    nodes = (WorkloadNode.make("matmul", (0, 0), trans_a=False, trans_b=True),)
    workload = Workload((WorkloadInput(TensorType("f32", (37, 20)), False),), nodes, (1,))
    check(workload, lookup("matmul.dynamic").default(workload, target).replace(template="matmul.dynamic"), target)


def test_threads_share_a_long_sum() -> None:
    target = Target.parse("native -num-cores=2")
    workload = matmul(3, 20, 1024, epilogue=("bias", "relu"))
    config = lookup("matmul.split_k").default(workload, target).replace(template="matmul.split_k")
    state = make_schedule(workload, config, target).state
    shared = [s.name for s in state.stages if s.loops[0].mark == PARALLEL]
    assert shared == ["matmul.rf", "out0"]
    alone = Target.parse("native -num-cores=1")
    assert not lookup("matmul.split_k").applies(workload, alone)


def test_other_products_are_left_to_other_templates(target: Target) -> None:
    def names(workload: Workload) -> list[str]:
        return [t.name for t in templates_for(workload, target)]

    assert "matmul.packed" in names(matmul(4, 4, 4))
    assert "matmul.packed" not in names(matmul(4, 4, 4, constant=False))
    assert "matmul.packed" not in names(matmul(4, 4, 4, dtype="f16"))
    assert "matmul.packed" not in names(matmul(4, 0, 4))


def test_the_space_has_features_for_the_cost_model(target: Target) -> None:
    space = task_space(matmul(128, 768, 768), target)
    encoded = space.encode(space.default())
    assert len(encoded) == len(space.feature_names)
    assert any(name.endswith("live_vectors") for name in space.feature_names)
