"""The template of recurrent layers: random layers and configs, the default of real sizes, what the nest looks like."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from autotune.lower import lower, print_program
from autotune.measure.reference import make_reference
from autotune.ops.workload import Workload, WorkloadNode
from autotune.search_spaces import lookup, make_schedule
from autotune.search_spaces.space.registry import default_config, task_space
from autotune.target import Target
from tests.conftest import Right
from tests.search_spaces.recurrent_cases import layer, random_layer
from tests.targets import fixed

TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")


@pytest.mark.parametrize("seed", range(24))
def test_random_layers_and_configs(right: Right, seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_layer(rng), Target.parse(TARGETS[seed % 2])
    rules = lookup("recurrent")
    right(rules.schedule(workload, rules.space(workload, target).sample(rng), target), target=str(target))


def test_untuned_choice(right: Right) -> None:
    target = Target.parse(TARGETS[0])
    for workload in (layer("lstm", 3, 2, 40, results=(0, 1, 2)), layer("gru", 3, 4, 17, "bidirectional")):
        config = default_config(workload, target)
        assert config.template == "recurrent"
        right(make_schedule(workload, config, target), target=str(target))


@pytest.mark.parametrize("workload", [layer("lstm", 0, 1, 8), layer("rnn", 2, 0, 8), layer("gru", 2, 1, 0)])
def test_nothing_to_do(right: Right, workload) -> None:  # type: ignore[no-untyped-def]
    target = Target.parse(TARGETS[0])
    right(make_schedule(workload, default_config(workload, target), target), target=str(target))


def test_weights_are_packed_once_and_threads_meet_once_per_step() -> None:
    target = Target.parse("x86 -mcpu=znver4 -num-cores=2")
    workload = layer("lstm", 100, 1, 512)
    config = default_config(workload, target)
    schedule = make_schedule(workload, config, target)
    (packed,) = schedule.state.prepared
    form = schedule.state.layout(schedule.state.tensor(packed[0]))
    assert form.order == ((0, 0), (2, 0), (3, 0), (1, 0), (2, 16 * config.get_int("vectors")))
    nest = print_program(lower(schedule))
    assert nest.count("barrier") == 1, nest


def test_small_layers_stay_on_one_thread() -> None:
    target = Target.parse("x86 -mcpu=znver4 -num-cores=2")
    small = layer("rnn", 100, 1, 32)
    assert not default_config(small, target).get_bool("shared")
    assert "barrier" not in print_program(lower(make_schedule(small, default_config(small, target), target)))


@pytest.mark.parametrize("barrier, shared", [(100.0, True), (100_000.0, False)])
def test_steps_are_shared_where_that_saves_more_than_threads_wait(barrier: float, shared: bool) -> None:
    target = fixed("x86 -mcpu=znver4 -num-cores=2")
    target = replace(target, core=replace(target.core, barrier_cycles=barrier))
    assert default_config(layer("lstm", 100, 1, 96), target).get_bool("shared") is shared


@pytest.mark.parametrize("cpu", ["znver4", "haswell"])
def test_several_rows_share_weights_as_far_as_registers_hold_their_sums(cpu: str) -> None:
    target = Target.parse(f"x86 -mcpu={cpu} -num-cores=1")
    config = default_config(layer("lstm", 100, 8, 256), target)
    rows, vectors = config.get_int("rows"), config.get_int("vectors")
    assert 1 < rows < 8 and 4 * vectors * rows < target.num_vector_registers


def test_configs_beyond_the_registers_are_left_out() -> None:
    target = Target.parse(TARGETS[0])
    space = task_space(layer("lstm", 10, 16, 512), target)
    rng = random.Random(0)
    for _ in range(50):
        config = space.sample(rng)
        if config.template == "recurrent":
            assert 4 * config.get_int("vectors") * config.get_int("rows") <= 32


def test_the_reference_is_no_chaos() -> None:
    """Weights of size one would amplify rounding from step to step, until any answer is within the tolerance."""
    reference = make_reference(layer("rnn", 60, 1, 64))
    assert reference.tolerances[0] < 1e-3


def test_what_comes_behind_a_layer(right: Right) -> None:
    alone = layer("gru", 3, 2, 20, "bidirectional", ("initial_h",))
    value = len(alone.inputs)
    nodes = (*alone.nodes, WorkloadNode.make("relu", (value,)))
    target = Target.parse(TARGETS[0])
    workload = Workload(alone.inputs, nodes, (value + 1,))
    right(make_schedule(workload, default_config(workload, target), target), target=str(target))
