"""verify finds what is broken, stats counts, prune keeps the best."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from autotune.errors import DatabaseError
from autotune.records import Database, export_lines, export_records, import_records, prune, stats, verify
from autotune.records.schema import STEPS
from tests.records.records_samples import alter_details, make_failure, make_record, make_session


def damage(path: Path, *statements: str) -> None:
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()


def test_a_sound_database_has_no_problems(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        assert verify(db) == []
        db.add_many([make_record(1), make_failure(2), make_record(3, interface="[1]")])
        db.add_session(make_session())
        assert verify(db) == []


@pytest.mark.parametrize(
    "statement, said",
    [
        ("UPDATE trials SET details = x'00' WHERE id = 2", "trial 2: details are cut short"),
        ("UPDATE trials SET details = 'steps' WHERE id = 2", "trial 2: details must be bytes"),
        ("UPDATE trials SET base_id = NULL", "trials 1, 2: details cannot be unpacked"),
        ("DELETE FROM bases", "trials: rows 1, 2 refer to a row of bases that is not there"),
        ("UPDATE trials SET seconds = -1 WHERE id = 1", "trial 1: seconds must be greater than 0"),
        ("UPDATE trials SET seconds = 'fast' WHERE id = 1", "trial 1: seconds must be a number"),
        ("UPDATE trials SET verified = 1, failure_kind = 'crash' WHERE id = 1", "trial 1: a trial has either"),
        ("UPDATE workloads SET json = '{'", "trials 1, 2: workload must be JSON text"),
        ("UPDATE interfaces SET json = '[7]'", "the key does not belong to its JSON"),
        ("UPDATE sessions SET state = 'odd'", "sessions: a session's state is one of"),
        ("DELETE FROM targets", "trials: rows 1, 2 refer to a row of targets that is not there"),
        ("UPDATE trials SET config_key = '' WHERE id = 1", "trial 1: config_key must be"),
    ],
)
def test_each_kind_of_damage_is_found(tmp_path: Path, statement: str, said: str) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        db.add_many([make_record(1), make_record(2)])
        db.add_session(make_session())
    damage(path, statement)
    with Database.open(path, read_only=True) as db:
        problems = verify(db)
    assert any(said in problem for problem in problems), problems
    assert all("\n" not in problem for problem in problems)


def test_broken_pages_are_found(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        db.add_many(make_record(i) for i in range(100))
    content = bytearray(path.read_bytes())
    content[-3 * 4096 :] = b"\xff" * (3 * 4096)
    path.write_bytes(bytes(content))
    with Database.open(path, read_only=True) as db:
        assert verify(db) != []


def test_stats_count_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        empty = stats(db)
        assert (empty.trials, empty.verified, empty.oldest, empty.failures) == (0, 0, None, {})
        db.add_many(
            [
                make_record(1),
                make_record(2, verified=False),
                make_failure(3, "timeout"),
                make_failure(4, "timeout"),
                make_failure(5, "crash", workload='{"op":"other"}'),
            ]
        )
        db.add_session(make_session())
        counted = stats(db)
    assert (counted.trials, counted.verified, counted.unverified) == (5, 1, 1)
    assert counted.failures == {"crash": 1, "timeout": 2}
    assert (counted.workloads, counted.targets, counted.sessions) == (2, 1, {"running": 1})
    assert (counted.oldest, counted.newest) == (1001.0, 1005.0)
    assert (counted.path, counted.schema) == (str(path), list(STEPS)[-1])
    assert counted.size_bytes == path.stat().st_size


def test_prune_keeps_the_best_of_each_task(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    kept = [make_record(0), make_record(1), make_record(7, interface="[1]"), make_record(9, residency="DRAM")]
    dropped = [make_record(2), make_failure(3), make_record(4, seconds=1e-9, verified=False)]
    bulk = [make_failure(i, workload='{"op":"hopeless"}') for i in range(1500)]
    with Database.open(path) as db:
        db.add_many([*dropped, *kept, *bulk])
        before = stats(db).size_bytes
        assert prune(db, 2) == len(dropped) + len(bulk)
        assert sorted(db.trials(), key=lambda r: r.created) == kept
        assert stats(db).size_bytes < before / 2
        assert prune(db, 2) == 0
        assert prune(db, 1) == 1
        db.add(make_failure(1, workload='{"op":"hopeless"}'))
        assert verify(db) == []
        with pytest.raises(DatabaseError, match="at least 1"):
            prune(db, 0)


def test_what_can_be_read_of_a_damaged_database_can_be_exported(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        db.add_many([make_record(1), make_record(2), make_record(3)])
    alter_details(path, "trials.id = 2", config="{")
    with Database.open(path, read_only=True) as db:
        with pytest.raises(DatabaseError, match="trial 2 is damaged"):
            list(export_lines(db))
        damaged: list[str] = []
        assert export_records(db, tmp_path / "saved.jsonl", damaged) == 2
    assert len(damaged) == 1
    assert damaged[0].startswith("trial 2: config must be JSON")
    with Database.open(tmp_path / "saved.sqlite") as saved:
        import_records(saved, tmp_path / "saved.jsonl")
        assert list(saved.trials()) == [make_record(1), make_record(3)]


@pytest.mark.parametrize("table", ["workloads", "targets", "interfaces"])
def test_trials_whose_task_is_lost_are_named(tmp_path: Path, table: str) -> None:
    """As when nothing was written, and nothing said."""
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        db.add_many([make_record(1), make_record(2)])
    damage(path, f"DELETE FROM {table}")
    damaged: list[str] = []
    with Database.open(path, read_only=True) as db:
        assert export_records(db, tmp_path / "saved.jsonl", damaged) == 0
        with pytest.raises(DatabaseError, match="trial 1 is damaged: what it refers to .* is not there"):
            list(db.trials())
    (line,) = damaged
    assert line.startswith("trials 1, 2: what it refers to")


def test_rows_on_sound_pages_survive_broken_ones(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        texts = random.Random(0)
        db.add_many(make_record(i, steps=f'["{texts.randbytes(3000).hex()}"]') for i in range(50))
        (row,) = db.connection.rows("SELECT substr(details, 1, 100) AS start FROM trials WHERE id = 26")
    content = bytearray(path.read_bytes())
    start = content.index(row["start"]) // 4096 * 4096  # a page holds one row of this size
    content[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(bytes(content))
    damaged: list[str] = []
    with Database.open(path, read_only=True) as db:
        assert 45 <= export_records(db, tmp_path / "saved.jsonl", damaged) < 50
    assert damaged


def test_counts_of_a_damaged_file_name_it(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as db:
        db.add(make_failure(1))
        db.connection.execute("UPDATE trials SET failure_kind = ?", ("X" * 2**20,))
        with pytest.raises(DatabaseError) as raised:
            stats(db)
    assert str(raised.value).startswith(f"{path} is damaged: a kind or state must be 1 to 128 printable characters")
    assert len(str(raised.value)) < 400
