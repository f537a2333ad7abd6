"""Layouts of a whole graph: by rule without records, by records where they say that others are cheaper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.compiler.choose import Chooser
from autotune.compiler.compile import compile_graph
from autotune.compiler.layouts import assign
from autotune.compiler.slots import Assignment, KernelStep, layout_workload, place
from autotune.compiler.tasks import alternative_tasks, kernel_tasks
from autotune.compiler.wishes import Wishes, bare, leads_layouts
from autotune.graph import Graph, Output, Value, evaluate_graph, partition
from autotune.graph.builder import GraphBuilder
from autotune.ops import TensorType, Workload
from autotune.records import TEMPLATE_INTERFACE, Database, TuningRecord
from autotune.search_spaces import Interface, default_config
from autotune.target import Target
from autotune.tensor import Layout

TARGET = Target.parse("x86 -mcpu=znver4 -num-cores=2")
PLAIN, BLOCKED = Layout.row_major(4), Layout.blocked(4, [(1, 16)])


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(tmp_path / "db.sqlite")


def shuffle_graph(kernel: int = 1) -> Graph:
    """Two convolutions with a channel shuffle between them, which works on the row-major form."""
    builder = GraphBuilder("shuffle")
    x = builder.input(Value("x", "f32", (1, 32, 14, 14)))
    for shuffled in (True, False):
        weight = builder.constant(
            np.linspace(-1, 1, 1024 * kernel**2, dtype=np.float32).reshape(32, 32, kernel, kernel)
        )
        pad = (kernel // 2,) * 4
        x = builder.emit("conv2d", [x, weight], stride=(1, 1), pad=pad, dilation=(1, 1), groups=1)
        if shuffled:
            x = builder.emit("reshape", [x], shape=(1, 2, 16, 14, 14))
            x = builder.emit("transpose", [x], perm=(0, 2, 1, 3, 4))
            x = builder.emit("reshape", [x], shape=(1, 32, 14, 14))
    return builder.build([Output("y", x)])


def assigned(graph: Graph, database: Database | None) -> Assignment:
    return assign(graph, partition(graph), Chooser(TARGET, database))


def by_rule(graph: Graph, database: Database | None) -> Assignment:
    return place(graph, partition(graph), Wishes(Chooser(TARGET, database), None))


def transforms(assignment: Assignment) -> int:
    return sum(step.workload.nodes[0].op == "layout" for step in assignment.steps)


def add(
    database: Database, workload: Workload, seconds: float, interface: Interface | None = None, target: Target = TARGET
) -> None:
    config = default_config(workload, target)
    database.add(
        TuningRecord(
            workload_key=workload.key, workload=workload.to_json(), target_key=target.key, target=target.to_json(),
            config_key=config.key, config=config.to_json(), template=config.template or "", seconds=seconds,
            verified=True, created=1.0, interface=TEMPLATE_INTERFACE if interface is None else interface.to_json(),
        )
    )  # fmt: skip


def tune_by_rule(graph: Graph, database: Database) -> Workload:
    """Records for every kernel of the rules' assignment, 0.1 ms each; the convolution's workload."""
    for task in kernel_tasks(graph, TARGET):
        add(database, task.workload, 1e-4, task.interface)
    return next(task.workload for task in kernel_tasks(graph, TARGET) if leads_layouts(task.workload))


def test_without_records_the_rules_decide(database: Database) -> None:
    graph = shuffle_graph()
    expected = by_rule(graph, None)
    assert transforms(expected) == 4  # in, before and after the shuffle, out
    for held in (None, database):
        assert assigned(graph, held).steps == by_rule(graph, held).steps
        assert [s.interface for s in assigned(graph, held).steps] == [s.interface for s in expected.steps]


@pytest.mark.parametrize("kernel", [1, 3])
def test_kernels_that_lead_are_foreseen_as_they_will_be(kernel: int) -> None:
    """Halos included: they are those of readers, which are looked at first."""
    graph, told = shuffle_graph(kernel), list[KernelStep]()
    found = assign(graph, partition(graph), Chooser(TARGET, None), foresee=told.append)
    leading = [(s.workload, s.interface) for s in found.steps if leads_layouts(s.workload)]
    assert {(s.workload, s.interface) for s in told} == set(leading) and len(told) == len(set(leading))
    assert found.steps == assigned(graph, None).steps


def test_records_of_the_rules_layouts_change_nothing(database: Database) -> None:
    graph = shuffle_graph()
    tune_by_rule(graph, database)
    assert [s.interface for s in assigned(graph, database).steps] == [s.interface for s in by_rule(graph, None).steps]


def test_a_cheaper_interface_is_taken(database: Database) -> None:
    graph = shuffle_graph()
    conv = tune_by_rule(graph, database)
    reads_plain = Interface((PLAIN, PLAIN, BLOCKED))
    add(database, conv, 1.2e-4, reads_plain)  # slower, but it saves a transform of 0.1 ms
    found = assigned(graph, database)
    assert transforms(found) == 2
    for step in found.steps:
        if leads_layouts(step.workload):
            assert step.asked == reads_plain
            assert bare(step.interface.layouts[0]) == PLAIN
            assert step.choice.seconds == 1.2e-4
    assert [task.interface for task in kernel_tasks(graph, TARGET, database) if leads_layouts(task.workload)] == [
        reads_plain
    ]


def test_a_dearer_interface_is_not(database: Database) -> None:
    graph = shuffle_graph()
    conv = tune_by_rule(graph, database)
    add(database, conv, 2.2e-4, Interface((PLAIN, PLAIN, BLOCKED)))
    assert transforms(assigned(graph, database)) == 4


def test_a_dear_interface_that_saves_two_transforms_is_taken(database: Database) -> None:
    graph = shuffle_graph()
    conv = tune_by_rule(graph, database)
    add(database, conv, 2.5e-4, Interface((PLAIN, PLAIN, PLAIN)))
    found = assigned(graph, database)
    assert transforms(found) == 0
    assert {slot.layout for slot in found.slots if len(slot.shape) == 4} == {PLAIN}


def test_measured_transforms_count(database: Database) -> None:
    """Reading row-major saves a transform that was measured to be nearly free: it stays."""
    graph = shuffle_graph()
    conv = tune_by_rule(graph, database)
    kind = TensorType("f32", (1, 32, 14, 14))
    for layouts in ((PLAIN, BLOCKED), (BLOCKED, PLAIN)):
        add(database, layout_workload(kind), 1e-6, Interface(layouts))
    add(database, conv, 1.2e-4, Interface((PLAIN, PLAIN, BLOCKED)))
    assert transforms(assigned(graph, database)) == 4


def test_what_would_save_transforms_is_proposed_until_it_is_measured(database: Database) -> None:
    graph = shuffle_graph()
    conv = tune_by_rule(graph, database)
    proposed = alternative_tasks(graph, TARGET, database)
    assert {task.workload for task in proposed} == {conv}
    forms = [tuple(map(bare, task.interface.layouts)) for task in proposed if task.interface is not None]
    assert {(form[0], form[-1]) for form in forms} == {(PLAIN, BLOCKED), (BLOCKED, PLAIN), (PLAIN, PLAIN)}
    for task in proposed:
        add(database, task.workload, 1e-4, task.interface)
    assert transforms(assigned(graph, database)) == 0
    assert alternative_tasks(graph, TARGET, database) == ()


def test_transforms_that_cost_little_are_left_alone(database: Database) -> None:
    graph = shuffle_graph()
    for task in kernel_tasks(graph, TARGET):
        add(database, task.workload, 1e-3 if leads_layouts(task.workload) else 1e-6, task.interface)
    assert alternative_tasks(graph, TARGET, database) == ()


@pytest.mark.parametrize("layouts", [(PLAIN, PLAIN, BLOCKED), (BLOCKED, PLAIN, PLAIN), (PLAIN, PLAIN, PLAIN)])
def test_decided_layouts_compute_the_same(layouts: tuple[Layout, ...], database: Database) -> None:
    graph, host = shuffle_graph(kernel=3), Target.parse("native -num-cores=2")
    for task in kernel_tasks(graph, host):
        add(database, task.workload, 1e-4, task.interface, host)
    (conv,) = {task.workload for task in kernel_tasks(graph, host) if leads_layouts(task.workload)}
    add(database, conv, 1e-5, Interface(layouts), host)
    model = compile_graph(graph, host, database)
    assert sum(report.description.startswith("layout") for report in model.kernels) < 4
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 32, 14, 14)).astype(np.float32)}
    (y,), right = model.run(feeds), evaluate_graph(graph, feeds)["y"]
    # Winograd's error is that of the largest numbers.
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=3e-5 * np.abs(right).max())


@pytest.mark.parametrize(("rank", "side"), [(1, 64), (2, 12), (3, 8)])
def test_what_streams_between_convolutions_keeps_their_form_whatever_the_rank(rank: int, side: int) -> None:
    """Only the input and the output of the model change their form."""
    builder = GraphBuilder("chain")
    ones, rng = (1,) * rank, np.random.default_rng(0)
    x = builder.input(Value("x", "f32", (1, 32, *(side,) * rank)))
    pad = (1,) * (2 * rank)
    for streamed in (True, False):
        weight = builder.constant((rng.standard_normal((32, 32, *(3,) * rank)) / 32).astype(np.float32))
        x = builder.emit(f"conv{rank}d", [x, weight], stride=ones, pad=pad, dilation=ones, groups=1)
        if streamed:
            size = (3,) * rank
            x = builder.emit("max_pool", [x], kernel=size, stride=ones, pad=pad, dilation=ones, ceil_mode=False)
    graph = builder.build([Output("y", x)])
    assert transforms(assigned(graph, None)) == 2
    compiled = compile_graph(graph, Target.parse("native -num-cores=1"))
    feeds = {"x": rng.standard_normal((1, 32, *(side,) * rank)).astype(np.float32)}
    np.testing.assert_allclose(compiled.run(feeds)[0], evaluate_graph(graph, feeds)["y"], atol=1e-4)
