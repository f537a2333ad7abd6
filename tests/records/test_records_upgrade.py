"""Files and lines that an older autotune wrote: upgraded or read, and nothing in them is lost."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database as SqliteDatabase

from autotune.records import Database, MergeReport, Plan, export_records, import_records, stats, verify
from autotune.records import schema as module
from autotune.records.schema import STEPS
from tests.records.records_samples import make_failure, make_record

RECORDS = [make_record(1, family_key=None), make_failure(2, family_key=None)]


def old_file(path: Path, monkeypatch: pytest.MonkeyPatch, schema: str) -> None:
    """A database as it was when `schema` was the newest step, with `RECORDS` in it."""
    with monkeypatch.context() as past:
        past.setattr(module, "STEPS", {name: step for name, step in STEPS.items() if name <= schema})
        raw = SqliteDatabase(path)
        module.migrations().apply(raw)
        raw.close()
    raw_connection = sqlite3.connect(path)
    columns = {row[1] for row in raw_connection.execute("PRAGMA table_info(trials)")}
    for record in RECORDS:
        raw_connection.execute(
            "INSERT OR IGNORE INTO workloads (key, anchor_key, json, description) VALUES (?, ?, ?, ?)",
            (record.workload_key, record.anchor_key, record.workload, record.description),
        )
        for table, key, text in (
            ("targets", record.target_key, record.target),
            ("interfaces", record.interface_key, record.interface),
        ):
            raw_connection.execute(f"INSERT OR IGNORE INTO {table} (key, json) VALUES (?, ?)", (key, text))
        values = {name: getattr(record, name, "") for name in columns - {"id"}}
        marks = ", ".join(f":{name}" for name in values)
        raw_connection.execute(f"INSERT INTO trials ({', '.join(values)}) VALUES ({marks})", values)
    if schema > "0001_initial":
        raw_connection.execute(
            "INSERT INTO plans (model_key, target_key, tuned, tuned_seconds, untuned_seconds, created) "
            "VALUES ('m', 't', 0, 2.0, 1.0, 3.0)"
        )
    raw_connection.commit()
    raw_connection.close()


@pytest.mark.parametrize("schema", list(STEPS)[:-1])
def test_every_older_schema_is_upgraded_with_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    path = tmp_path / "old.sqlite"
    old_file(path, monkeypatch, schema)
    with Database.open(path) as db:
        assert list(db.trials()) == RECORDS
        plan = Plan(model_key="m", target_key="t", tuned=False, tuned_seconds=2.0, untuned_seconds=1.0, created=3.0)
        assert db.plan("m", "t") == (plan if schema > "0001_initial" else None)
        evidence = replace(plan, speedup=0.5, low=0.4, high=0.6, rounds=30, error=0.0, programs="p", asked_for=True)
        db.set_plan(evidence)
        assert db.plan("m", "t") == evidence
        assert verify(db) == []
        assert stats(db).schema == list(STEPS)[-1]
        db.add(make_record(1, algorithm="winograd_f4", family_key=None))
        assert next(db.trials()).algorithm == "winograd_f4"
        db.complete_families(lambda text: "family")
        assert db.family("family", RECORDS[0].target_key) == {RECORDS[0].workload_key: RECORDS[0].workload}


@pytest.mark.parametrize("schema", list(STEPS)[:5])
def test_of_older_records_the_spread_says_which_were_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    path = tmp_path / "old.sqlite"
    old_file(path, monkeypatch, schema)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE trials SET spread = 24.18 WHERE seconds NOTNULL")
    raw.commit()
    raw.close()
    with Database.open(path) as db:
        assert [trial.disturbed for trial in db.trials()] == [True, False]
        assert [row["disturbed"] for row in db.connection.rows("SELECT disturbed FROM trials ORDER BY id")] == [1, 0]


@pytest.mark.parametrize("version", [1, 2])
def test_of_older_lines_the_spread_says_it_too(tmp_path: Path, version: int) -> None:
    values = json.loads(RECORDS[0].to_json()) | {"spread": 24.18}
    path = tmp_path / "old.jsonl"
    path.write_text(f'{{"format":"autotune-records","version":{version}}}\n' + json.dumps({"trial": values}) + "\n")
    with Database.open(tmp_path / "db.sqlite") as db:
        import_records(db, path)
        assert next(db.trials()).disturbed
        export_records(db, tmp_path / "new.jsonl")
        with Database.open(tmp_path / "other.sqlite") as other:
            import_records(other, tmp_path / "new.jsonl")
            assert list(other.trials()) == list(db.trials())


def test_lines_of_format_1_are_read(tmp_path: Path) -> None:
    values = json.loads(RECORDS[0].to_json())
    assert "algorithm" not in values and "family_key" not in values
    path = tmp_path / "old.jsonl"
    path.write_text('{"format":"autotune-records","version":1}\n' + json.dumps({"trial": values}) + "\n")
    with Database.open(tmp_path / "db.sqlite") as db:
        assert import_records(db, path) == MergeReport(added=1, replaced=0, kept=0)
        assert list(db.trials()) == RECORDS[:1]
