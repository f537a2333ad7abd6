"""Files and lines that an older autotune wrote: upgraded or read, and nothing in them is lost."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import DatabaseError
from autotune.records import Database, MergeReport, Plan, export_records, import_records, stats, verify
from autotune.records.schema import SAME_TABLES, STEPS
from tests.records.records_samples import make_failure, make_record

FIXTURES = Path(__file__).parent / "schemas"
RECORDS = [
    make_record(
        1, family_key=None, residency="L2", spread=0.125, number=7, batches=3, probe_gflops=200.5,
        max_abs_err=math.inf, max_rel_err=0.0, tolerance=1e-3, predicted=0.002, session_id="s1", llvm_version="20.1",
        autotune_version="0.1+a",
    ),
    make_failure(2, family_key=None, steps=None, ir_hash=""),
]  # fmt: skip


def old_file(path: Path, schema: str) -> Path:
    """A database of when `schema` was the newest step, with `RECORDS` in it, as that autotune left it."""
    raw = sqlite3.connect(path)
    raw.executescript((FIXTURES / f"{schema}.sql").read_text())
    raw.close()
    return path


def test_every_schema_has_a_file_of_its_time() -> None:
    assert sorted(file.stem for file in FIXTURES.iterdir()) == sorted(STEPS)


@pytest.mark.parametrize("schema", list(STEPS))
def test_every_older_schema_is_upgraded_with_its_records(tmp_path: Path, schema: str) -> None:
    path = old_file(tmp_path / "old.sqlite", schema)
    with Database.open(path) as db:
        assert list(db.trials()) == RECORDS
        plan = Plan(model_key="m", target_key="t", tuned=False, tuned_seconds=2.0, untuned_seconds=1.0, created=3.0)
        assert db.plan("m", "t") == (plan if schema > "0001_initial" else None)
        evidence = replace(plan, speedup=0.5, low=0.4, high=0.6, rounds=30, error=0.0, programs="p", asked_for=True)
        evidence = replace(evidence, disturbance="other programs took 40 %")
        db.set_plan(evidence)
        assert db.plan("m", "t") == evidence
        assert verify(db) == []
        assert stats(db).schema == list(STEPS)[-1]
        db.add(make_record(1, algorithm="winograd_f4", family_key=None, residency="L2"))
        assert next(db.trials()).algorithm == "winograd_f4"
        db.complete_families(lambda text: "family")
        assert db.family("family", RECORDS[0].target_key) == {RECORDS[0].workload_key: RECORDS[0].workload}


@pytest.mark.parametrize("schema", list(STEPS))
def test_a_reader_takes_older_files_whose_tables_are_the_same(tmp_path: Path, schema: str) -> None:
    path = old_file(tmp_path / "old.sqlite", schema)
    if SAME_TABLES.issuperset(list(STEPS)[list(STEPS).index(schema) + 1 :]):
        with Database.open(path, read_only=True) as db:
            assert list(db.trials()) == RECORDS
    else:
        with pytest.raises(DatabaseError, match="older autotune; run `autotune db upgrade"):
            Database.open(path, read_only=True)


def test_a_damaged_file_that_cannot_be_upgraded_stays_as_it_is(tmp_path: Path) -> None:
    path = old_file(tmp_path / "old.sqlite", "0006_disturbed")
    raw = sqlite3.connect(path)
    raw.execute("DELETE FROM workloads")
    raw.commit()
    raw.close()
    with pytest.raises(DatabaseError, match="cannot be upgraded: trial 1 is damaged; `autotune db repair` saves"):
        Database.open(path)
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*), min(config) IS NOT NULL FROM trials").fetchone() == (2, 1)
    raw.close()


@pytest.mark.parametrize("schema", list(STEPS)[:5])
def test_of_older_records_the_spread_says_which_were_disturbed(tmp_path: Path, schema: str) -> None:
    path = old_file(tmp_path / "old.sqlite", schema)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE trials SET spread = 24.18 WHERE seconds NOTNULL")
    raw.commit()
    raw.close()
    with Database.open(path) as db:
        assert [trial.disturbed for trial in db.trials()] == [True, False]
        assert [row["disturbed"] for row in db.connection.rows("SELECT disturbed FROM trials ORDER BY id")] == [1, 0]


@pytest.mark.parametrize("version", [1, 2, 3])
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
