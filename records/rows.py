"""Rows and records: how a TuningRecord is laid over the tables, and read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import DatabaseError
from autotune.records.connection import Connection
from autotune.records.record import TuningRecord

# Stored once in a table of their own, and joined when a record is read.
_SHARED = frozenset({"workload", "anchor_key", "description", "target", "interface"})
_OWN = tuple(field.name for field in dataclasses.fields(TuningRecord) if field.name not in _SHARED)
_COLUMNS = ("interface_key", *_OWN)
_IDENTITY = ("workload_key", "target_key", "interface_key", "residency", "config_key")

_STORE_TRIAL = (
    f"INSERT INTO trials ({', '.join(_COLUMNS)}) VALUES ({', '.join(':' + name for name in _COLUMNS)}) "
    f"ON CONFLICT ({', '.join(_IDENTITY)}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in _IDENTITY)
)
_READ_TRIALS = (
    f"SELECT trials.id, {', '.join('trials.' + name for name in _OWN)}, workloads.json AS workload, "
    "workloads.anchor_key, workloads.description, targets.json AS target, interfaces.json AS interface "
    "FROM trials JOIN workloads ON workloads.key = trials.workload_key "
    "JOIN targets ON targets.key = trials.target_key JOIN interfaces ON interfaces.key = trials.interface_key "
)
_PAGE = 500


def store_trial(connection: Connection, record: TuningRecord) -> None:
    """Writes or replaces the row of `record.identity`; what it refers to must be stored."""
    values = {name: getattr(record, name) for name in _COLUMNS}
    connection.execute(_STORE_TRIAL, values)


def store_shared(connection: Connection, record: TuningRecord) -> None:
    """Writes the workload, target and interface of `record` where they are new.

    DatabaseError when a key is already taken by another text: somebody computed a key wrongly.
    """
    connection.execute(
        "INSERT INTO workloads (key, anchor_key, json, description) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (record.workload_key, record.anchor_key, record.workload, record.description),
    )
    for table, key, text in (
        ("targets", record.target_key, record.target),
        ("interfaces", record.interface_key, record.interface),
    ):
        connection.execute(f"INSERT INTO {table} (key, json) VALUES (?, ?) ON CONFLICT DO NOTHING", (key, text))
    for table, key, text in (
        ("workloads", record.workload_key, record.workload),
        ("targets", record.target_key, record.target),
    ):
        stored = connection.rows(f"SELECT json FROM {table} WHERE key = ?", (key,))[0]["json"]
        if stored != text:
            raise DatabaseError(f"{connection.path}: the key {key} in {table} already belongs to {stored[:60]}")


def read_trials(connection: Connection, rest: str, parameters: dict[str, object]) -> list[TuningRecord]:
    """The records that `rest` (WHERE, ORDER BY, LIMIT) selects."""
    rows = connection.rows(_READ_TRIALS + rest, parameters)
    return [_record(connection.path, row) for row in rows]


def iterate_trials(connection: Connection, where: str, parameters: dict[str, object]) -> Iterator[TuningRecord]:
    """The records that the condition `where` selects, in the order in which they were first stored.

    Chosen at once and read a page at a time, so the caller may write in between: rows added later are not
    seen, rows deleted meanwhile are left out.
    """
    for row in _pages(connection, where, parameters):
        yield _record(connection.path, row)


def find_damage(connection: Connection) -> Iterator[str]:
    """One line per trial whose row makes no record."""
    for row in _pages(connection, "1", {}):
        try:
            _make(row)
        except DatabaseError as error:
            yield f"trial {row['id']}: {error}"


def _pages(connection: Connection, where: str, parameters: dict[str, object]) -> Iterator[dict[str, Any]]:
    ids = [row["id"] for row in connection.rows(f"SELECT id FROM trials WHERE {where} ORDER BY id", parameters)]
    for start in range(0, len(ids), _PAGE):
        page = ids[start : start + _PAGE]
        marks = ", ".join("?" * len(page))
        yield from connection.rows(f"{_READ_TRIALS} WHERE trials.id IN ({marks}) ORDER BY trials.id", page)


def _record(path: Path, row: Mapping[str, Any]) -> TuningRecord:
    try:
        return _make(row)
    except DatabaseError as error:
        raise DatabaseError(f"{path}: trial {row['id']} is damaged: {error}; run `autotune db verify`") from None


def _make(row: Mapping[str, Any]) -> TuningRecord:
    values = {name: value for name, value in row.items() if name != "id"}
    return TuningRecord(**{**values, "verified": bool(values["verified"])})
