"""A database over layers answers as one database with all records would, where the upper ones win."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.records import Database, LayeredDatabase, Plan, Tier, TuningRecord
from tests.records.records_samples import TARGET, TARGET_KEY, make_failure, make_record, records, target_json

KEY = make_record().workload_key


def over(folder: Path, *layers: list[TuningRecord]) -> LayeredDatabase:
    """The first on top."""
    made = []
    for number, content in enumerate(layers):
        with Database.open(folder / f"{number}.sqlite") as db:
            db.add_many(content)
        made.append(Database.open(folder / f"{number}.sqlite", read_only=number > 0))
    return LayeredDatabase(made)


def test_the_upper_record_of_one_identity_counts(tmp_path: Path) -> None:
    mine, theirs = make_record(1, seconds=0.5), make_record(1, seconds=1e-6, created=9e9)
    with over(tmp_path, [mine, make_failure(2)], [theirs, make_record(2), make_record(3)]) as db:
        assert db.top(KEY, TARGET_KEY, 9) == [make_record(3), mine]
        assert [db.timed(KEY, TARGET_KEY, trial) for trial in db.times(KEY, TARGET_KEY, 9)] == [make_record(3), mine]
        assert db.best(KEY, TARGET_KEY, TARGET).record == make_record(3)
        assert list(db.trials()) == [mine, make_failure(2), make_record(3)]
        assert db.origin(mine) == str(tmp_path / "0.sqlite")
        assert db.origin(make_record(3)) == str(tmp_path / "1.sqlite")


def test_what_is_written_goes_to_the_top(tmp_path: Path) -> None:
    with over(tmp_path, [], [make_record(1)]) as db:
        assert db.best(KEY, TARGET_KEY, TARGET).record == make_record(1)
        db.add(make_record(0))
        assert db.best(KEY, TARGET_KEY, TARGET).record == make_record(0)
        plan = Plan(model_key="m", target_key="t", tuned=True, tuned_seconds=1.0, untuned_seconds=2.0, created=3.0)
        db.set_plan(plan)
        assert db.plan("m", "t") == plan
        assert [(one.trials, one.origin) for one in db.workloads()] == [
            (1, str(tmp_path / "0.sqlite")), (1, str(tmp_path / "1.sqlite")),
        ]  # fmt: skip
    with Database.open(tmp_path / "1.sqlite", read_only=True) as below:
        assert list(below.trials()) == [make_record(1)]


def test_tiers_and_reasons_look_at_all_layers(tmp_path: Path) -> None:
    elsewhere = make_record(1, target=target_json(num_threads=2))
    with over(tmp_path, [make_failure(1)], [elsewhere, make_failure(7, workload='{"op":"bad"}')]) as db:
        assert db.best(KEY, TARGET_KEY, TARGET).tier is Tier.COMPATIBLE
        assert db.best(elsewhere.workload_key, elsewhere.target_key, elsewhere.target).tier is Tier.EXACT
        bad = make_failure(7, workload='{"op":"bad"}').workload_key
        assert db.best(bad, TARGET_KEY, TARGET).reason == "1 trials, none verified"
        assert db.best("nothing", TARGET_KEY, TARGET).reason == "never tuned"


@pytest.mark.parametrize("hidden", [0, 1, 2, 5, 11])
def test_top_looks_below_records_that_are_hidden(tmp_path: Path, hidden: int) -> None:
    upper = [make_failure(number) for number in range(hidden)]
    with over(tmp_path, upper, [make_record(number) for number in range(12)]) as db:
        assert db.top(KEY, TARGET_KEY, 2) == [make_record(number) for number in range(hidden, 12)][:2]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(records(), max_size=6), min_size=1, max_size=3))
def test_layers_answer_as_one_database(
    tmp_path_factory: pytest.TempPathFactory, layers: list[list[TuningRecord]]
) -> None:
    folder = tmp_path_factory.mktemp("layered")
    with Database.open(folder / "merged.sqlite") as merged, over(folder, *layers) as db:
        for content in reversed(layers):
            merged.add_many(content)
        for workload in "ab":
            for target in "xy":
                found, wanted = db.top(workload, target, 3), merged.top(workload, target, 3)
                assert [one.seconds for one in found] == [one.seconds for one in wanted]
                assert sorted(db.interfaces(workload, target)) >= sorted(merged.interfaces(workload, target))
                match, whole = (
                    one.best(workload, target, target_json(cpu=target)) for one in (db, merged)
                )  # fmt: skip
                assert match.tier is whole.tier
        assert {one.identity for one in db.trials()} == {one.identity for one in merged.trials()}
