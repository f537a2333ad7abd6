"""Database: what is stored comes back, replaced rows are replaced, keys select."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import DatabaseError
from autotune.records import Database, TuningRecord, prune
from autotune.records.rows import equals
from tests.records.records_samples import TARGET_KEY, make_failure, make_record, records, target_json


@settings(max_examples=50, deadline=None)
@given(st.lists(records(), max_size=12))
def test_what_is_added_comes_back(added: list[TuningRecord]) -> None:
    expected: dict[object, TuningRecord] = {}
    first: dict[str, TuningRecord] = {}
    for record in added:
        # A workload's description, anchor and family are stored once, as its first record says.
        shared = first.setdefault(record.workload_key, record)
        expected[record.identity] = replace(
            record, anchor_key=shared.anchor_key, family_key=shared.family_key, description=shared.description
        )
    with tempfile.TemporaryDirectory() as folder, Database.open(Path(folder, "db.sqlite")) as db:
        for record in added:
            db.add(record)
        assert {record.identity: record for record in db.trials()} == expected
        assert len(list(db.trials())) == len(expected)


def test_a_second_trial_replaces_the_first(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add(make_record(1))
        db.add(make_failure(1, "incorrect"))
        assert list(db.trials()) == [make_failure(1, "incorrect")]
        db.add(make_record(1, seconds=5e-4))
        assert list(db.trials()) == [make_record(1, seconds=5e-4)]


def test_residency_interface_and_target_make_separate_rows(tmp_path: Path) -> None:
    separate = [
        make_record(1),
        make_record(1, residency="DRAM"),
        make_record(1, interface="[1]"),
        make_record(1, target=target_json(num_threads=2)),
    ]
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many(separate)
        assert list(db.trials()) == separate


def test_add_many_stores_all_or_none(tmp_path: Path) -> None:
    def breaking() -> Iterator[TuningRecord]:
        yield make_record(1)
        raise KeyError("the caller's own mistake")

    with Database.open(tmp_path / "db.sqlite") as db:
        with pytest.raises(KeyError):
            db.add_many(breaking())
        assert list(db.trials()) == []
        db.add(make_record(1))
        assert list(db.trials()) == [make_record(1)]


def test_one_key_cannot_have_two_meanings(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add(make_record(1))
        for changes in ({"workload": '{"op":"matmul"}'}, {"target": target_json(num_threads=9)}):
            with pytest.raises(DatabaseError, match="already belongs to"):
                db.add(make_record(2, workload_key=make_record().workload_key, target_key=TARGET_KEY, **changes))
        assert list(db.trials()) == [make_record(1)]


def test_trials_select_by_key(tmp_path: Path) -> None:
    other = make_record(1, workload='{"op":"matmul"}', anchor_key=None)
    elsewhere = make_record(2, target=target_json(num_threads=2), interface="[1]", residency="L2")
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many([make_record(0), other, elsewhere])
        assert list(db.trials(other.workload_key)) == [other]
        assert list(db.trials(target_key=elsewhere.target_key)) == [elsewhere]
        assert list(db.trials(interface="[1]")) == [elsewhere]
        assert list(db.trials(residency="L2")) == [elsewhere]
        assert list(db.trials("unknown")) == []


def test_trials_without_steps_say_all_else(tmp_path: Path) -> None:
    record = make_record(steps='[["split",1]]')
    with Database.open(tmp_path / "tuning.sqlite") as db:
        db.add(record)
        assert list(db.trials(steps=False)) == [replace(record, steps=None)]
        assert list(db.trials()) == [record]


def test_trials_may_be_written_while_they_are_read(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many(make_record(i) for i in range(1200))
        seen = 0
        for record in db.trials():
            db.add(make_record(5000 + seen))
            assert record == make_record(seen)
            seen += 1
        assert seen == 1200


def test_a_family_lists_its_workloads_with_verified_records(tmp_path: Path) -> None:
    large = make_record(1, workload='{"op":"large"}')
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many([make_record(1), make_record(2), large])
        db.add(make_failure(1, workload='{"op":"broken"}'))
        db.add(make_record(1, workload='{"op":"elsewhere"}', target=target_json(cpu="other")))
        db.add(make_record(1, workload='{"op":"stranger"}', family_key="another"))
        members = {record.workload_key: record.workload for record in (make_record(1), large)}
        assert db.family("family", TARGET_KEY) == members
        assert db.family("unknown", TARGET_KEY) == {}


def test_families_are_completed_where_they_are_missing_and_can_be_told(tmp_path: Path) -> None:
    old, foreign = make_record(1, family_key=None), make_record(1, workload='{"op":"foreign"}', family_key=None)
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many([old, foreign, make_record(1, workload='{"op":"known"}')])
        db.complete_families(lambda text: None if "foreign" in text else "late")
        assert {record.workload: record.family_key for record in db.trials()} == {
            old.workload: "late",
            foreign.workload: None,
            '{"op":"known"}': "family",
        }


def test_top_is_sorted_and_verified(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many([make_record(3), make_record(1), make_failure(0), make_record(2), make_record(4, verified=False)])
        assert db.top(make_record().workload_key, TARGET_KEY, 2) == [make_record(1), make_record(2)]
        assert len(db.top(make_record().workload_key, TARGET_KEY, 10)) == 3
        times = db.times(make_record().workload_key, TARGET_KEY, 10)
        assert [trial.seconds for trial in times] == [make_record(number).seconds for number in (1, 2, 3)]
        assert db.timed(make_record().workload_key, TARGET_KEY, times[1]) == make_record(2)
        assert db.timed(make_record().workload_key, "elsewhere", times[1]) is None


def test_times_hold_what_was_disturbed_behind_any_number_of_others(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many([*(make_record(number) for number in (2, 3, 4, 5)), make_record(1, disturbed=True)])
        key = make_record().workload_key
        assert [trial.seconds for trial in db.times(key, TARGET_KEY, 2)] == [
            make_record(number).seconds for number in (2, 3, 1)
        ]
        assert db.top(key, TARGET_KEY, 9, disturbed=True) == [make_record(1, disturbed=True)]
        assert db.top(key, TARGET_KEY, 1, disturbed=False) == [make_record(2)]


def test_who_only_reads_a_database_does_not_import_what_makes_one(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add(make_record())
    program = (
        "import sys; from autotune.records import Database\n"
        f"with Database.open({str(tmp_path / 'db.sqlite')!r}, read_only=True) as db: assert list(db.trials())\n"
        "assert 'sqlite_utils' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_interfaces_of_verified_records(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many([make_record(1, interface='["a"]'), make_failure(2, interface='["b"]'), make_record(3)])
        assert sorted(db.interfaces(make_record().workload_key, TARGET_KEY)) == ['["a"]', "null"]


def test_workloads_are_summed_up(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many([make_record(1), make_record(2), make_failure(3), make_record(4, verified=False)])
        (summary,) = db.workloads()
    assert (summary.trials, summary.verified, summary.failed) == (4, 2, 1)
    assert summary.best_seconds == make_record(1).seconds
    assert (summary.description, summary.anchor_key, summary.target_key) == ("conv2d 64x64", "anchor", TARGET_KEY)


def test_best_and_top_use_the_index(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        plan = db.connection.rows(
            f"EXPLAIN QUERY PLAN SELECT * FROM trials WHERE {equals('workload_key')} AND {equals('target_key')} "
            "AND trials.verified = 1 ORDER BY trials.disturbed, trials.seconds, trials.config_key LIMIT 1",
            {"workload_key": "w", "target_key": "t"},
        )
    read = [step["detail"] for step in plan if "trials" in step["detail"]]
    assert read == ["SEARCH trials USING INDEX trials_best (workload_id=? AND target_id=?)"]
    sorts = [step["detail"] for step in plan if "ORDER BY" in step["detail"]]
    assert sorts in ([], ["USE TEMP B-TREE FOR LAST TERM OF ORDER BY"], ["USE TEMP B-TREE FOR RIGHT PART OF ORDER BY"])


def test_what_was_measured_beside_other_programs_comes_last(tmp_path: Path) -> None:
    """As when a record with a spread of 2418 % was the best one, and "exact"."""
    steady, lucky = make_record(1, seconds=2e-6, spread=0.02), make_record(2, seconds=1e-6, spread=24.18)
    assert lucky.disturbed and not steady.disturbed
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add(lucky)
        found = db.best(lucky.workload_key, lucky.target_key, lucky.target)
        assert found.record == lucky and "beside other programs: tune again" in found.reason
        db.add(steady)
        assert db.best(lucky.workload_key, lucky.target_key, lucky.target).record == steady
        assert db.top(lucky.workload_key, lucky.target_key, 2) == [steady, lucky]
        assert db.workloads()[0].best_seconds == 2e-6
        assert prune(db, 1) == 1
        assert list(db.trials()) == [steady]


def test_reopening_gives_the_same(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        db.add(make_record(1))
    with Database.open(path) as db:
        db.add(make_record(2))
    with Database.open(path, read_only=True) as db:
        assert list(db.trials()) == [make_record(1), make_record(2)]
        assert db.path == path


def test_a_reader_sees_what_the_writer_has_added(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as writer, Database.open(path, read_only=True) as reader:
        writer.add(make_record(1))
        assert list(reader.trials()) == [make_record(1)]
        with pytest.raises(DatabaseError, match="opened for reading only"):
            reader.add(make_record(2))


def test_odd_file_names(tmp_path: Path) -> None:
    path = tmp_path / "with space?and%23#hash.sqlite"
    with Database.open(path) as db:
        db.add(make_record(1))
    assert path.exists()
    with Database.open(str(path), read_only=True) as db:
        assert len(list(db.trials())) == 1
