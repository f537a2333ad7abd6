"""A record outlives its template: what its stored steps make is used, while it is the code that was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.api.best import best_schedule
from autotune.codegen.kernel import KernelSource, generate
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import kernel_cache
from autotune.compiler.choose import Chooser
from autotune.compiler.compile import compile_graph
from autotune.compiler.tasks import KernelTask, kernel_tasks
from autotune.graph import Graph, Node, Output, Value, evaluate_graph
from autotune.measure.builder import algorithm_of
from autotune.ops import Workload, parse_workload
from autotune.records import TEMPLATE_INTERFACE, Database, Tier, TuningRecord
from autotune.report.coverage import Coverage
from autotune.schedule import Schedule
from autotune.search_spaces import Config, Interface, default_config, make_schedule, templates_for
from autotune.search_spaces.space.code_version import version_mark
from autotune.target import Target

TARGET = Target.parse("native -num-cores=1")
CONV = parse_workload("conv2d data=1,16,14,14 weight=16,16,3,3 pad=1")
ROWS = parse_workload("softmax data=64,100")
GONE = Config.from_json('{"template":"conv2d.of_old","tile":3}')


def config_of(workload: Workload, template: str) -> Config:
    (entry,) = [entry for entry in templates_for(workload, TARGET) if entry.name == template]
    return entry.default(workload, TARGET).replace(template=template)


def record_of(
    workload: Workload, made_by: Config, stored_as: Config | None = None, interface: Interface | None = None
) -> TuningRecord:
    """What the tuner wrote when it measured `made_by`, of which the config is called `stored_as` now."""
    schedule = make_schedule(workload, made_by, TARGET, interface)
    config = stored_as or made_by
    return TuningRecord(
        workload_key=workload.key, workload=workload.to_json(), target_key=TARGET.key, target=TARGET.to_json(),
        interface=TEMPLATE_INTERFACE if interface is None else interface.to_json(), config_key=config.key,
        config=config.to_json(), template=config.template or "?", algorithm=algorithm_of(workload, schedule),
        steps=schedule.steps_json(), ir_hash=generate(schedule, TARGET).ir_hash, seconds=1e-6,
        verified=True, created=1.0,
    )  # fmt: skip


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "db.sqlite") as opened:
        yield opened


def convolutions(count: int = 1) -> Graph:
    """Convolutions one behind the other, each with a relu, so that they agree on layouts and halos."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32) for n in range(count)}
    attrs = (("dilation", (1, 1)), ("groups", 1), ("pad", (1,) * 4), ("stride", (1, 1)))
    nodes, last = [], "x"
    for n in range(count):
        nodes.append(Node("conv2d", (last, f"w{n}"), Value(f"c{n}", "f32", (1, 16, 14, 14)), attrs))
        nodes.append(Node("relu", (f"c{n}",), Value(f"y{n}", "f32", (1, 16, 14, 14)), ()))
        last = f"y{n}"
    return Graph("g", (Value("x", "f32", (1, 16, 14, 14)),), tuple(nodes), (Output("y", last),), weights)


def convolution_of(graph: Graph) -> KernelTask:
    """The one task of a graph that is no change of layout."""
    (task,) = [task for task in kernel_tasks(graph, TARGET) if task.workload.anchor is not None]
    return task


def check_right(graph: Graph, database: Database, **options: bool) -> Coverage:
    compiled = compile_graph(graph, TARGET, database, **options)  # type: ignore[arg-type]
    x = np.random.default_rng(1).standard_normal((1, 16, 14, 14)).astype(np.float32)
    np.testing.assert_allclose(compiled.run({"x": x})[0], evaluate_graph(graph, {"x": x})["y"], atol=1e-4)
    return Coverage.of(compiled.kernels)


@pytest.mark.parametrize("template", ["conv2d.direct", "conv2d.winograd_f4"])
@pytest.mark.parametrize("noted", [True, False])
def test_a_record_of_a_removed_template_is_exact(database: Database, template: str, noted: bool) -> None:
    made_by = config_of(CONV, template)
    record = record_of(CONV, made_by, GONE)
    assert record.algorithm == ("direct" if template == "conv2d.direct" else "winograd_f4")
    database.add(record if noted else replace(record, algorithm=""))
    choice = Chooser(TARGET, database)(CONV)
    assert (choice.tier, choice.config, choice.seconds) == (Tier.EXACT, GONE, 1e-6)
    assert "made from its stored steps: there is no template 'conv2d.of_old' now" in choice.reason
    made = choice.schedule(CONV, TARGET)
    assert generate(made, TARGET).ir_hash == record.ir_hash
    assert made == make_schedule(CONV, made_by, TARGET)


def test_a_valid_config_that_gives_other_code_now_gives_way_to_its_steps(database: Database) -> None:
    """The template was changed: the default of today was a faster schedule when it was measured."""
    record = record_of(CONV, config_of(CONV, "conv2d.direct"), config_of(CONV, "conv2d.winograd_f4"))
    database.add(replace(record, autotune_version="0.1+0123456789abcdef"))
    choice = Chooser(TARGET, database)(CONV)
    assert (choice.tier, choice.recorded is not None) == (Tier.EXACT, True)
    assert "stored steps: its config gives other code now" in choice.reason


def test_a_config_that_gives_the_same_code_is_used_and_lowered_only_where_sources_differ(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = default_config(CONV, TARGET)
    record = record_of(CONV, config)
    database.add(replace(record, autotune_version="0.1+0123456789abcdef"))
    choice = Chooser(TARGET, database)(CONV)
    assert (choice.tier, choice.config, choice.recorded) == (Tier.EXACT, config, None)

    def never(*given: object) -> str:
        raise AssertionError("lowered, though nothing has changed")

    monkeypatch.setattr(Chooser, "_hash", never)
    database.add(replace(record, autotune_version=f"0.1{version_mark(CONV, config)}"))
    assert Chooser(TARGET, database)(CONV) == choice


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": '[["forgotten","out0","n",4]]'}, "its steps do not replay: unknown primitive 'forgotten'"),
        ({"steps": '[["split","out0","no_loop",4]]'}, "its steps do not replay: "),
        ({"steps": "[]"}, "its steps give other code now"),
        ({"steps": None}, "its steps give other code now"),
        ({"algorithm": "forgotten"}, "its steps do not replay: conv2d has no algorithm 'forgotten'"),
        ({"algorithm": "unknown"}, "its steps do not replay: conv2d has no algorithm 'unknown'"),
        ({"ir_hash": "0" * 64}, "its steps give other code now"),
    ],
)
def test_steps_that_do_not_replay_leave_the_default_and_the_report_says_why(
    database: Database, changes: dict[str, str], said: str
) -> None:
    graph = convolutions()
    task = convolution_of(graph)
    record = record_of(task.workload, config_of(task.workload, "conv2d.direct"), GONE)
    database.add(replace(record, **changes))  # type: ignore[arg-type]
    coverage = check_right(graph, database)
    assert coverage.exact == 0.0
    (reason, kernels) = next(entry for entry in coverage.reasons if said in entry[0])
    assert kernels == 1 and "\n" not in reason and reason.endswith("; tune again")


def test_a_model_runs_on_stored_steps_in_the_layouts_around_them(database: Database, tmp_path: Path) -> None:
    graph = convolutions(3)
    task = convolution_of(graph)
    plain = compile_graph(graph, TARGET, None)
    database.add(record_of(task.workload, config_of(task.workload, "conv2d.direct"), GONE))
    coverage = check_right(graph, database)
    assert (coverage.exact, coverage.parts[0].kernels) == (1.0, 3)
    direct = compile_graph(graph, TARGET, database)
    assert len(direct.kernels) == len(plain.kernels)
    cache = ObjectCache(tmp_path / "cache")
    first, second = (compile_graph(graph, TARGET, database, cache) for _ in range(2))
    assert first.program == second.program == direct.program


def test_a_streaming_kernel_is_replayed_in_its_own_layouts(database: Database) -> None:
    (task,) = kernel_tasks(softmax(), TARGET)
    assert task.interface is not None
    config = default_config(task.workload, TARGET).replace(unroll=2)
    database.add(record_of(task.workload, config, GONE, task.interface))
    (kernel,) = compile_graph(softmax(), TARGET, database).kernels
    assert (kernel.tier, kernel.config) == (Tier.EXACT, GONE.to_json())


def softmax() -> Graph:
    node = Node("softmax", ("x",), Value("y", "f32", (64, 100)), (("axis", -1),))
    return Graph("g", (Value("x", "f32", (64, 100)),), (node,), (Output("y", "y"),), {})


def test_strict_arithmetic_follows_from_the_algorithm_and_not_from_the_template(database: Database) -> None:
    graph = convolutions()
    task = convolution_of(graph)
    record = record_of(task.workload, config_of(task.workload, "conv2d.winograd_f4"), GONE)
    database.add(record)
    assert check_right(graph, database).exact == 1.0
    assert check_right(graph, database, strict_fp=True).exact == 0.0
    database.add(replace(record, algorithm=""))
    assert check_right(graph, database, strict_fp=True).exact == 0.0
    direct = config_of(task.workload, "conv2d.direct")
    database.add(record_of(task.workload, direct, GONE.replace(tile=4)))
    assert check_right(graph, database, strict_fp=True).exact == 1.0


def test_the_best_schedule_is_built_from_stored_steps(database: Database) -> None:
    database.add(record_of(CONV, config_of(CONV, "conv2d.winograd_f4"), GONE))
    best = best_schedule(CONV, TARGET, database)
    assert (best.tier, best.config) == (Tier.EXACT, GONE)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 14, 14)).astype(np.float32)
    w = rng.standard_normal((16, 16, 3, 3)).astype(np.float32)
    untuned = best_schedule(CONV, TARGET, False)
    np.testing.assert_allclose(best.build()(x, w), untuned.build()(x, w), atol=1e-3)


def test_what_was_generated_for_a_choice_is_compiled(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = convolutions()
    task = convolution_of(graph)
    made_by = default_config(task.workload, TARGET)
    database.add(record_of(task.workload, made_by, interface=task.interface))
    anew: list[Schedule] = []

    def generating(schedule: Schedule, target: Target, *, check: bool) -> KernelSource:
        anew.append(schedule)
        return generate(schedule, target, check=check)

    monkeypatch.setattr(kernel_cache, "generate", generating)
    assert check_right(graph, database).exact > 0.99
    assert make_schedule(task.workload, made_by, TARGET, task.interface).compute not in [s.compute for s in anew]


def test_code_that_no_record_wants_is_not_kept(database: Database) -> None:
    task = convolution_of(convolutions())
    made_by = default_config(task.workload, TARGET)
    record = record_of(task.workload, made_by, interface=task.interface)
    schedule = make_schedule(task.workload, made_by, TARGET, task.interface)
    for ir_hash, seconds, kept in (("0" * 64, 1e-6, False), (record.ir_hash, 5e-7, True)):
        database.add(replace(record, ir_hash=ir_hash, seconds=seconds))
        chooser = Chooser(TARGET, database)
        chooser(task.workload, task.interface)
        assert (chooser.generated(schedule) is not None) is kept
