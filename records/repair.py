"""Repair: what can still be read of a damaged database, row by row, in a new file. The damaged one stays as it is."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import DatabaseError
from autotune.records.connection import Connection
from autotune.records.database import Database
from autotune.records.plan import plan_of
from autotune.records.rows import trials_of
from autotune.records.session import Session

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class RepairReport:
    """How many rows were saved and lost: lost ones are named by an index, or are there and make no sense.

    Attributes:
        causes: why trials were lost, one line each.
    """

    trials: int
    lost_trials: int
    sessions: int
    lost_sessions: int
    plans: int
    lost_plans: int
    causes: tuple[str, ...]


def repair(path: str | os.PathLike[str], new: str | os.PathLike[str]) -> RepairReport:
    """Saves what can be read of a database in a new file, which appears when all is in it.

    DatabaseError where there is something at `new`, or so much is damaged that no table can be found.
    """
    source, target = Path(path), Path(new)
    if target.exists():
        raise DatabaseError(f"{target} exists; name a new file for what can be saved")
    try:
        with tempfile.TemporaryDirectory(prefix=".repair-", dir=target.parent) as folder:
            copy, made = Path(folder) / "damaged.sqlite", Path(folder) / "saved.sqlite"
            shutil.copyfile(source, copy)
            with contextlib.suppress(FileNotFoundError):  # what a killed process had committed, and not yet moved
                shutil.copyfile(f"{source}-wal", f"{copy}-wal")
            try:
                with _opened(copy) as old, Database.open(made) as fresh:
                    report = _save(old, fresh)
            except DatabaseError as error:
                raise DatabaseError(str(error).replace(str(copy), str(source))) from None
            os.replace(made, target)
    except OSError as error:
        raise DatabaseError(f"{source} cannot be repaired into {target}: {error.strerror}") from None
    return report


def _opened(copy: Path) -> Database:
    """The copy, brought up to date without the rows that would hinder that."""
    try:
        return Database.open(copy, read_only=True)
    except DatabaseError as error:
        if "older autotune" not in str(error):
            raise
    raw = sqlite3.connect(copy)
    try:
        raw.execute(
            "DELETE FROM trials WHERE workload_key NOT IN (SELECT key FROM workloads) "
            "OR target_key NOT IN (SELECT key FROM targets) OR interface_key NOT IN (SELECT key FROM interfaces) "
            "OR 'blob' IN (typeof(config), typeof(steps), typeof(template), typeof(failure_message), typeof(ir_hash))"
        )
        raw.commit()
    except sqlite3.Error as error:
        raise DatabaseError(f"{copy} is too damaged to be upgraded: {error}") from None
    finally:
        raw.close()
    return Database.open(copy)


def _save(old: Database, fresh: Database) -> RepairReport:
    ids = sorted(_ids(old.connection))
    causes: list[str] = []
    trials = 0
    records = trials_of(old.connection, ids, causes)
    while batch := list(itertools.islice(records, _BATCH)):
        fresh.add_many(batch)
        trials += len(batch)
    sessions = plans = 0
    session_rows, plan_rows = _rows(old.connection, "sessions"), _rows(old.connection, "plans")
    with fresh.transaction():
        for row in session_rows:
            with contextlib.suppress(DatabaseError, TypeError):
                fresh.add_session(Session.from_mapping(row))
                sessions += 1
        for row in plan_rows:
            with contextlib.suppress(DatabaseError, TypeError):
                fresh.set_plan(plan_of(row))
                plans += 1
    return RepairReport(
        trials, len(ids) - trials, sessions, len(session_rows) - sessions, plans, len(plan_rows) - plans,
        tuple(dict.fromkeys(causes)),
    )  # fmt: skip


def _ids(connection: Connection) -> set[int]:
    """The numbers of all trials that the table or its index knows of."""
    sources = ("trials NOT INDEXED", "trials INDEXED BY sqlite_autoindex_trials_1", "trials INDEXED BY trials_created")
    queries = (f"SELECT id FROM {source} ORDER BY id {order}" for source in sources for order in ("ASC", "DESC"))
    return {row["id"] for query in queries for row in connection.readable(query) if isinstance(row["id"], int)}


def _rows(connection: Connection, table: str) -> list[dict[str, object]]:
    """Those of a small table, from both ends up to what is damaged."""
    key = "id" if table == "sessions" else "model_key, target_key"
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for order in ("ASC", "DESC"):
        query = f"SELECT * FROM {table} ORDER BY {', '.join(f'{name} {order}' for name in key.split(', '))}"
        for row in connection.readable(query):
            found[tuple(row[name] for name in key.split(", "))] = row
    return list(found.values())
