"""Databases that somebody else made or altered: one short line whatever they hold, and nothing in them is run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import DatabaseError
from autotune.records import Database, export_lines, stats, verify
from autotune.records.schema import APPLICATION_ID
from tests.records.records_samples import TARGET, TARGET_KEY, alter_details, make_record, make_session

KEY = make_record().workload_key
LONGEST = 600
HUGE: dict[str, object] = {
    "a long text": "x" * 2**17,
    "a deep list": "[" * 50_000 + "]" * 50_000,
    "a deep object": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "a blob": b"\x00\xff" * 1000,
}
READERS: dict[str, Callable[[Database], object]] = {
    "workloads": Database.workloads,
    "trials": lambda db: list(db.trials()),
    "best": lambda db: db.best(KEY, TARGET_KEY, TARGET),
    "other target": lambda db: db.best(KEY, "other", '{"arch":"x86","features":[]}'),
    "sessions": Database.sessions,
    "plan": lambda db: db.plan("model", TARGET_KEY),
    "stats": stats,
    "export": lambda db: list(export_lines(db, [])),
}


def filled(path: Path, count: int = 5) -> Path:
    with Database.open(path) as db:
        db.add_session(make_session())
        db.add_many(make_record(i) for i in range(count))
    return path


def altered(path: Path, *statements: str, value: object = None) -> Path:
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        raw.execute(statement, (value,) if "?" in statement else ())
    raw.commit()
    raw.close()
    return path


def refused(path: Path, read_only: bool = True) -> str:
    with pytest.raises(DatabaseError) as raised:
        Database.open(path, read_only)
    said = str(raised.value)
    assert said.startswith(f"{path} is damaged or no tuning database: ")
    assert "\n" not in said
    assert len(said) < LONGEST
    return said


@pytest.mark.parametrize("what", list(HUGE))
@pytest.mark.parametrize(
    "column",
    ["workloads.json", "workloads.description", "workloads.anchor_key", "targets.json", "interfaces.json",
     "interfaces.key", "sessions.state", "sessions.host", "sessions.versions", "trials.created", "trials.seconds",
     "trials.failure_kind", "trials.details", "bases.details", "bases.template", "details.config", "details.steps",
     "details.template", "details.llvm_version", "details.number", "details.unknown", "_sqlite_migrations.name"],
)  # fmt: skip
def test_what_a_field_holds_is_never_echoed_whole(tmp_path: Path, column: str, what: str) -> None:
    table, name = column.split(".")
    path = filled(tmp_path / "db.sqlite", 2)
    if table != "details":
        altered(path, f"UPDATE OR IGNORE {table} SET {name} = ?", value=HUGE[what])
    elif not isinstance(HUGE[what], bytes):
        alter_details(path, **{name: str(HUGE[what])})
    lines = []
    for reader in READERS.values():
        try:
            with Database.open(path, read_only=True) as db:
                reader(db)
        except DatabaseError as error:
            lines.append(str(error))
    try:
        with Database.open(path, read_only=True) as db:
            lines += verify(db)
    except DatabaseError as error:
        lines.append(str(error))
    for line in lines:
        assert len(line) < LONGEST
        assert "\n" not in line


def test_a_blob_for_a_description_is_named(tmp_path: Path) -> None:
    path = altered(filled(tmp_path / "db.sqlite"), "UPDATE workloads SET description = x'00ff'")
    with Database.open(path, read_only=True) as db, pytest.raises(DatabaseError) as raised:
        db.workloads()
    said = f"{path} is damaged: a workload's description must be a string, got b'\\x00\\xff'; run `autotune db verify`"
    assert str(raised.value) == said


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE workloads ADD COLUMN more TEXT", "'workloads' has other columns"),
        ("ALTER TABLE sessions RENAME COLUMN host TO guest", "'sessions' has other columns"),
        ("ALTER TABLE trials ADD COLUMN twice AS (seconds * 2)", "'trials' has other columns"),
        ("ALTER TABLE _sqlite_migrations ADD COLUMN more TEXT", "'_sqlite_migrations' has other columns"),
        ("DROP TABLE plans", "there is no table 'plans'"),
        ("CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM trials; END", "'trials' has a trigger"),
    ],
)
def test_tables_of_another_form(tmp_path: Path, statement: str, said: str, read_only: bool) -> None:
    assert said in refused(altered(filled(tmp_path / "db.sqlite"), statement), read_only)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", ["_sqlite_migrations", "trials", "workloads"])
def test_a_view_that_never_ends_is_not_read(tmp_path: Path, name: str, read_only: bool) -> None:
    path = filled(tmp_path / "db.sqlite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 'x' AS name FROM n"
    altered(path, f"ALTER TABLE {name} RENAME TO hidden", f"CREATE VIEW {name} AS {endless}")
    assert f"'{name}' is a view, not a table" in refused(path, read_only)


@pytest.mark.parametrize("read_only", [True, False])
def test_tables_without_a_version_are_not_upgraded(tmp_path: Path, read_only: bool) -> None:
    path = altered(tmp_path / "f.sqlite", f"PRAGMA application_id = {APPLICATION_ID}", "CREATE TABLE trials (a INT)")
    assert "it has 'trials' and does not say which autotune made it" in refused(path, read_only)


def test_tables_of_others_beside_ours_are_left_alone(tmp_path: Path) -> None:
    path = altered(filled(tmp_path / "db.sqlite"), "CREATE TABLE notes (text TEXT)", "CREATE VIEW seen AS SELECT 1")
    with Database.open(path) as db:
        assert len(list(db.trials())) == 5
        assert verify(db) == []


@pytest.mark.parametrize(
    ("statement", "problems"),
    [
        ("UPDATE workloads SET json = '{'", ["trials 1, 2, 3 and 297 others: workload must be JSON text"]),
        ("UPDATE targets SET json = x'00'", ["trials 1, 2, 3 and 297 others: target must be JSON text"]),
        (
            "UPDATE workloads SET id = 7",
            ["trials: rows 1, 2, 3 and 297 others refer to a row of workloads", "bases: row 1 refers to a row"],
        ),
        ("DELETE FROM targets", ["trials: rows 1, 2, 3 and 297 others refer to a row of targets"]),
        ("UPDATE interfaces SET id = 7, key = 'other'", ["rows 1, 2, 3 and 297 others refer", "'other': the key"]),
        ("UPDATE bases SET details = x'00'", ["trials 1, 2, 3 and 297 others: details are cut short"]),
        ("UPDATE trials SET created = 'now' WHERE id < 3", ["trials 1, 2: created must be a number"]),
        ("UPDATE trials SET created = 'now' WHERE id = 9", ["trial 9: created must be a number"]),
    ],
)
def test_one_cause_is_one_problem(tmp_path: Path, statement: str, problems: list[str]) -> None:
    path = altered(filled(tmp_path / "db.sqlite", 300), statement)
    with Database.open(path, read_only=True) as db:
        found = verify(db)
    assert len(found) == len(problems)
    for line, wanted in zip(found, problems, strict=True):
        assert wanted in line


def test_rows_that_an_index_has_lost_are_one_problem(tmp_path: Path) -> None:
    path = filled(tmp_path / "db.sqlite", 50)
    altered(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'verified = 1', 'verified = 0') WHERE name = 'trials_best'",
    )
    altered(path, "UPDATE trials SET seconds = 0.5")
    with Database.open(path, read_only=True) as db:
        assert len(verify(db)) <= 3
