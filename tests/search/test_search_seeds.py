"""Seeds: records of the same workload elsewhere, then of the nearest relatives, as points of the task's own space."""

from __future__ import annotations

from autotune.measure.types import BuildResult, MeasureResult
from autotune.ops.parse import parse_workload
from autotune.records import Database
from autotune.search.recording import Recorder
from autotune.search.seeds import SEEDS, complete_families, seeds
from autotune.search.task import TuningTask
from autotune.search_spaces.library.anchored import divisors
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Member, TaskSpace
from tests.search.simulated import TARGET


def conv_task(batch: int = 1, size: int = 56, epilogue: str = "") -> TuningTask:
    """A convolution whose tile divides its image, so that not every config of one size is valid at another."""
    workload = parse_workload(f"conv2d data={batch},16,{size},{size} weight=16,16,3,3 pad=1{epilogue}")
    knobs = (Choice("ow", divisors(size, size)), Choice("oc", (1, 2, 4)))
    rule = Constraint("registers", lambda config: config.get_int("ow") * config.get_int("oc") <= 56, "at most 56")
    space = ConfigSpace(knobs, (rule,))
    return TuningTask(workload, TARGET, TaskSpace({"synthetic": Member(space, space.default())}))


def config_of(ow: int, oc: int, template: str = "synthetic") -> Config:
    return Config.of(template=template, ow=ow, oc=oc)


def measured(database: Database, task: TuningTask, *trials: tuple[Config, float]) -> None:
    recorder = Recorder(database, 1.7e9)
    for config, seconds in trials:
        result = MeasureResult(seconds, 0.0, 8, 10, 100.0, 0.0, 0.0, 1e-5)
        build: BuildResult | None = None
        recorder.add(task, config, build, result, 1.7e9)


def test_the_nearest_relatives_come_first_each_with_its_best(database: Database) -> None:
    measured(database, conv_task(batch=8), (config_of(14, 1), 2.0), (config_of(7, 2), 1.0))
    measured(database, conv_task(batch=2), (config_of(28, 2), 9.0))
    measured(database, conv_task(epilogue=" + relu"), (config_of(8, 4), 3.0))
    assert seeds(database, conv_task()) == [config_of(8, 4), config_of(28, 2), config_of(7, 2)]


def test_there_are_few_seeds_and_none_of_strangers(database: Database) -> None:
    stranger = parse_workload("conv2d data=1,16,56,56:f16 weight=16,16,3,3:f16 pad=1")
    task = conv_task()
    measured(database, TuningTask(stranger, TARGET, task.space), (config_of(7, 1), 1.0))
    assert seeds(database, task) == []
    for batch in range(2, 9):
        measured(database, conv_task(batch), (config_of(7 * (batch % 3 + 1), 1), 1.0))
    assert len(seeds(database, task)) <= SEEDS


def test_a_config_of_another_size_takes_the_closest_values(database: Database) -> None:
    measured(database, conv_task(size=56), (config_of(14, 2), 1.0))
    assert seeds(database, conv_task(size=30)) == [config_of(15, 2)]


def test_what_cannot_be_a_point_of_the_space_is_no_seed(database: Database) -> None:
    measured(database, conv_task(size=224), (config_of(56, 1, "removed"), 1.0))
    measured(database, conv_task(size=112), (config_of(56, 4), 1.0))  # too many registers in this space
    assert seeds(database, conv_task()) == []


def test_records_without_a_family_are_found_once_families_are_completed(database: Database) -> None:
    measured(database, conv_task(batch=8), (config_of(7, 2), 1.0))
    with database.transaction():
        database.connection.execute("UPDATE workloads SET family_key = NULL")
        database.connection.execute(
            "INSERT INTO workloads (key, json, description) VALUES "
            """('0', '{"inputs":[],"nodes":[["no_such",[],{}]],"outputs":[0]}', 'of a package that is not here')"""
        )
    assert seeds(database, conv_task()) == []
    complete_families(database)
    assert seeds(database, conv_task()) == [config_of(7, 2)]
