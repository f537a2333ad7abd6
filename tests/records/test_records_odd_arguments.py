"""Values of the wrong kind are refused in one line, and leave the database as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.errors import InputError
from autotune.records import Database, TuningRecord


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "db.sqlite") as opened:
        yield opened


ODD: list[tuple[Callable[[Database], object], str]] = [
    (lambda db: db.add(5), "Database.add: record must be a TuningRecord, not 5"),  # type: ignore[arg-type]
    (lambda db: db.add_many(5), "Database.add_many: records must be a list of TuningRecords, not 5"),  # type: ignore[arg-type]
    (lambda db: db.add_many([3]), "Database.add_many: records must be a list of TuningRecords, not [3]"),  # type: ignore[list-item]
    (lambda db: db.best(5, "b", "{}"), "Database.best: workload_key must be a text, not 5"),  # type: ignore[arg-type]
    (lambda db: db.top("a", "b", "x"), "Database.top: k must be a whole number, not 'x'"),  # type: ignore[arg-type]
    (lambda db: db.times("a", 5, 1), "Database.times: target_key must be a text, not 5"),  # type: ignore[arg-type]
    (lambda db: db.plan(5, "b"), "Database.plan: model_key must be a text, not 5"),  # type: ignore[arg-type]
    (lambda db: db.workload_keys(5), "Database.workload_keys: start must be a text, not 5"),  # type: ignore[arg-type]
    (lambda db: db.interfaces("a", 5), "Database.interfaces: target_key must be a text, not 5"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("ask", "said"), ODD, ids=[said for _, said in ODD])
def test_what_is_no_text_and_no_record_is_refused(
    ask: Callable[[Database], object], said: str, database: Database
) -> None:
    with pytest.raises(InputError) as caught:
        ask(database)
    assert str(caught.value) == said and not list(database.trials())


def test_records_may_come_one_by_one(database: Database) -> None:
    database.add_many(iter(()))
    database.add_many(record for record in tuple[TuningRecord, ...]())
