"""Rows and records: how a TuningRecord is laid over the tables, and read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.connection import Connection
from autotune.records.record import TuningRecord

# Stored once in a table of their own, and joined when a record is read.
_SHARED = frozenset({"workload", "anchor_key", "family_key", "description", "target", "interface"})
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
    "workloads.anchor_key, workloads.family_key, workloads.description, targets.json AS target, "
    "interfaces.json AS interface "
    "FROM trials JOIN workloads ON workloads.key = trials.workload_key "
    "JOIN targets ON targets.key = trials.target_key JOIN interfaces ON interfaces.key = trials.interface_key "
)
_PAGE = 500
_LISTED = 3


def store_trial(connection: Connection, record: TuningRecord) -> None:
    """Writes or replaces the row of `record.identity`; what it refers to must be stored."""
    values = {name: getattr(record, name) for name in _COLUMNS}
    connection.execute(_STORE_TRIAL, values)


def store_shared(connection: Connection, record: TuningRecord) -> None:
    """Writes the workload, target and interface of `record` where they are new.

    DatabaseError when a key is already taken by another text: somebody computed a key wrongly.
    """
    connection.execute(
        "INSERT INTO workloads (key, anchor_key, family_key, json, description) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (record.workload_key, record.anchor_key, record.family_key, record.workload, record.description),
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
            raise DatabaseError(
                f"{connection.path}: the key {key} in {table} already belongs to {fields.shown(stored)}"
            )


def read_trials(connection: Connection, rest: str, parameters: dict[str, object]) -> list[TuningRecord]:
    """The records that `rest` (WHERE, ORDER BY, LIMIT) selects."""
    records = []
    for row in connection.rows(_READ_TRIALS + rest, parameters):
        try:
            records.append(_make(row))
        except DatabaseError as error:
            raise _damaged(connection, row, error) from None
    return records


def find_trial(connection: Connection, identity: tuple[str, ...]) -> TuningRecord | None:
    """The record of `TuningRecord.identity`, if there is one."""
    where = " AND ".join(f"trials.{name} = :{name}" for name in _IDENTITY)
    found = read_trials(connection, f"WHERE {where}", dict(zip(_IDENTITY, identity, strict=True)))
    return found[0] if found else None


def iterate_trials(
    connection: Connection, where: str, parameters: dict[str, object], damaged: list[str] | None = None
) -> Iterator[TuningRecord]:
    """The records that the condition `where` selects, in the order in which they were first stored.

    Chosen at once and read a page at a time, so the caller may write in between: rows added later are not
    seen, rows deleted meanwhile are left out. A row that makes no record is an error, or, when a list
    `damaged` is given, part of a line in it: one for all rows of one cause, once all have been read.
    """
    causes: dict[str, list[int]] | None = None if damaged is None else {}
    for row in _pages(connection, where, parameters, causes):
        try:
            yield _make(row)
        except DatabaseError as error:
            if causes is None:
                raise _damaged(connection, row, error) from None
            causes.setdefault(str(error), []).append(row["id"])
    if damaged is not None:
        damaged += [f"{listed('trial', ids)}: {error}" for error, ids in (causes or {}).items()]


def listed(what: str, ids: Sequence[object]) -> str:
    """Some rows, by the first of them: trial 7; trials 1, 2, 3 and 97 others."""
    if len(ids) == 1:
        return f"{what} {fields.shortened(str(ids[0]))}"
    first = ", ".join(fields.shortened(str(name)) for name in ids[:_LISTED])
    return f"{what}s {first}" + (f" and {len(ids) - _LISTED} others" if len(ids) > _LISTED else "")


def _pages(
    connection: Connection, where: str, parameters: dict[str, object], damaged: dict[str, list[int]] | None
) -> Iterator[dict[str, Any]]:
    # The index of the UNIQUE constraint names every row, whatever has happened to the table itself.
    source = "trials" if damaged is None else "trials INDEXED BY sqlite_autoindex_trials_1"
    ids = [row["id"] for row in connection.rows(f"SELECT id FROM {source} WHERE {where} ORDER BY id", parameters)]
    for start in range(0, len(ids), _PAGE):
        page = ids[start : start + _PAGE]
        try:
            rows = _read_page(connection, page)
        except DatabaseError:
            if damaged is None:
                raise
            rows = []
            for row_id in page:  # one unreadable row must not take its neighbours with it
                try:
                    rows += _read_page(connection, [row_id])
                except DatabaseError as error:
                    damaged.setdefault(str(error), []).append(row_id)
        yield from rows


def _read_page(connection: Connection, ids: list[int]) -> list[dict[str, Any]]:
    marks = ", ".join("?" * len(ids))
    return connection.rows(f"{_READ_TRIALS} WHERE trials.id IN ({marks}) ORDER BY trials.id", ids)


def _make(row: Mapping[str, Any]) -> TuningRecord:
    values = {name: value for name, value in row.items() if name != "id"}
    return TuningRecord(**values | {name: bool(values[name]) for name in ("verified", "disturbed")})


def _damaged(connection: Connection, row: Mapping[str, Any], error: DatabaseError) -> DatabaseError:
    return DatabaseError(f"{connection.path}: trial {row['id']} is damaged: {error}; run `autotune db verify`")
