"""Repair saves every row that can be read, counts the others, and leaves the damaged file as it is."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from autotune.errors import DatabaseError
from autotune.records import Database, Plan, repair, verify
from tests.cli.cli_models import invoke
from tests.records.records_samples import alter_details, make_failure, make_record, make_session

PLAN = Plan(model_key="m", target_key="t", tuned=True, tuned_seconds=1.0, untuned_seconds=2.0, created=3.0)
RECORDS = [*(make_record(number) for number in range(20)), make_failure(99)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many(RECORDS)
        db.add_session(make_session())
        db.set_plan(PLAN)
    return tmp_path / "db.sqlite"


def test_a_sound_database_is_copied(path: Path, tmp_path: Path) -> None:
    found = repair(path, tmp_path / "new.sqlite")
    assert (found.trials, found.lost_trials, found.sessions, found.plans, found.causes) == (21, 0, 1, 1, ())
    with Database.open(tmp_path / "new.sqlite", read_only=True) as db:
        assert list(db.trials()) == RECORDS
        assert db.sessions() == [make_session()]
        assert db.plan("m", "t") == PLAN


def test_rows_that_make_no_sense_are_counted(path: Path, tmp_path: Path) -> None:
    alter_details(path, "trials.id IN (2, 3)", config="{")
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute("UPDATE sessions SET state = 'odd'")
    raw.commit()
    raw.close()
    before = path.read_bytes()
    found = repair(path, tmp_path / "new.sqlite")
    assert (found.trials, found.lost_trials, found.sessions, found.lost_sessions) == (19, 2, 0, 1)
    assert [cause.startswith("trials 2, 3: config must be JSON text") for cause in found.causes] == [True]
    assert path.read_bytes() == before


def test_a_lost_page_takes_its_rows_only(tmp_path: Path) -> None:
    path, texts = tmp_path / "db.sqlite", random.Random(0)
    with Database.open(path) as db:
        db.add_many(make_record(number, steps=f'["{texts.randbytes(3000).hex()}"]') for number in range(50))
        (row,) = db.connection.rows("SELECT substr(details, 1, 100) AS start FROM trials WHERE id = 26")
    content = bytearray(path.read_bytes())
    start = content.index(row["start"]) // 4096 * 4096
    content[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(bytes(content))
    found = repair(path, tmp_path / "new.sqlite")
    assert 45 <= found.trials < 50
    assert found.trials + found.lost_trials == 50
    with Database.open(tmp_path / "new.sqlite", read_only=True) as db:
        assert verify(db) == []


def test_an_older_file_that_cannot_be_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    raw = sqlite3.connect(path)
    raw.executescript((Path(__file__).parent / "schemas" / "0006_disturbed.sql").read_text())
    raw.execute("UPDATE trials SET config = x'00' WHERE id = 1")
    raw.commit()
    raw.close()
    assert repair(path, tmp_path / "new.sqlite").trials == 1


def test_what_cannot_be_repaired(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="exists; name a new file"):
        repair(path, path)
    with pytest.raises(DatabaseError, match="No such file"):
        repair(tmp_path / "none", tmp_path / "new.sqlite")
    (tmp_path / "text").write_text("no database\n" * 1000)
    with pytest.raises(DatabaseError, match="is not a SQLite file"):
        repair(tmp_path / "text", tmp_path / "new.sqlite")
    assert not (tmp_path / "new.sqlite").exists()


@pytest.mark.parametrize("seed", range(12))
def test_random_damage(path: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 3, 30, 300])):
        content[rng.randrange(100, len(content))] = rng.randrange(256)
    path.write_bytes(bytes(content))
    try:
        found = repair(path, tmp_path / "new.sqlite")
    except DatabaseError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    with Database.open(tmp_path / "new.sqlite", read_only=True) as db:
        assert len(list(db.trials())) <= found.trials
        assert verify(db) == []
    assert path.read_bytes() == bytes(content)


def test_the_command(path: Path, tmp_path: Path) -> None:
    alter_details(path, "trials.id = 2", config="{")
    done = invoke("db", "repair", str(path), "-o", str(tmp_path / "new.sqlite"))
    assert done.exit_code == 0, done.stderr
    assert f"20 trials saved in {tmp_path / 'new.sqlite'}, 1 lost" in done.stdout
