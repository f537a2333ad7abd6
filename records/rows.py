"""Rows and records: how a TuningRecord is laid over the tables, and read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.connection import Connection
from autotune.records.details import pack, unpack
from autotune.records.record import TuningRecord

# Stored once in a table of their own, and joined when a record is read.
_SHARED = ("workload", "target", "interface")
_OF_WORKLOADS = ("anchor_key", "family_key", "description")
_IDENTITY = ("workload_key", "target_key", "interface_key", "residency", "config_key")
# What queries ask for; all else is packed.
_OWN = ("residency", "config_key", "seconds", "verified", "disturbed", "failure_kind", "created")
_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(TuningRecord)
    if field.name not in {*_SHARED, *_OF_WORKLOADS, *_IDENTITY, *_OWN}
}
_COLUMNS = (*(f"{name}_id" for name in _SHARED), *_OWN, "base_id", "details")

_STORE_TRIAL = (
    f"INSERT INTO trials ({', '.join(_COLUMNS)}) VALUES ({', '.join(':' + name for name in _COLUMNS)}) "
    "ON CONFLICT (workload_id, target_id, interface_id, residency, config_key) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[5:])
)
_READ_TRIALS = (
    f"SELECT trials.id, {', '.join('trials.' + name for name in _OWN)}, trials.details, bases.details AS base, "
    + ", ".join(f"{name}s.json AS {name}" for name in _SHARED)
    + ", workloads.key AS workload_key, targets.key AS target_key, "
    + ", ".join(f"workloads.{name}" for name in _OF_WORKLOADS)
    + " FROM trials "
    + " ".join(f"JOIN {name}s ON {name}s.id = trials.{name}_id" for name in _SHARED)
    + " LEFT JOIN bases ON bases.id = trials.base_id "
)
_PAGE = 500
_LISTED = 3
ALONE = "what it refers to (workload, target or layouts) is not there"


@dataclass(frozen=True, slots=True)
class Shared:
    """The numbers of what many rows refer to."""

    workload_id: int
    target_id: int
    interface_id: int


def equals(name: str) -> str:
    """The condition that a trial has the value of the parameter `name`: a column, or the key of what it refers to."""
    shared = name.removesuffix("_key")
    if shared in _SHARED:
        return f"trials.{shared}_id = (SELECT id FROM {shared}s WHERE key = :{name})"
    return f"trials.{name} = :{name}"


def store_trial(connection: Connection, record: TuningRecord, shared: Shared) -> None:
    """Writes or replaces the row of `record.identity`; `shared`: what it refers to, as `store_shared` found it."""
    values = {name: value for name, default in _DEFAULTS.items() if (value := getattr(record, name)) != default}
    base_id, base = _base(connection, shared.workload_id, record.template)
    if base_id is None and record.steps is not None:
        base = pack(values)
        connection.execute(
            "INSERT INTO bases (workload_id, template, details) VALUES (?, ?, ?)",
            (shared.workload_id, record.template, base),
        )
        base_id, base = _base(connection, shared.workload_id, record.template)
    own = {name: getattr(record, name) for name in _OWN}
    connection.execute(
        _STORE_TRIAL, {**own, **dataclasses.asdict(shared), "base_id": base_id, "details": pack(values, base)}
    )


def _base(connection: Connection, workload_id: int, template: str) -> tuple[int | None, bytes]:
    rows = connection.rows(
        "SELECT id, details FROM bases WHERE workload_id = ? AND template = ?", (workload_id, template)
    )
    return (rows[0]["id"], rows[0]["details"]) if rows else (None, b"")


def store_shared(connection: Connection, record: TuningRecord) -> Shared:
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
    return Shared(
        _number(connection, "workloads", record.workload_key, record.workload),
        _number(connection, "targets", record.target_key, record.target),
        _number(connection, "interfaces", record.interface_key, record.interface),
    )


def _number(connection: Connection, table: str, key: str, text: str) -> int:
    row = connection.rows(f"SELECT id, json FROM {table} WHERE key = ?", (key,))[0]
    if row["json"] != text:
        raise DatabaseError(
            f"{connection.path}: the key {key} in {table} already belongs to {fields.shown(row['json'])}"
        )
    return int(row["id"])


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
    where = " AND ".join(map(equals, _IDENTITY))
    found = read_trials(connection, f"WHERE {where}", dict(zip(_IDENTITY, identity, strict=True)))
    return found[0] if found else None


def has_trial(connection: Connection, identity: tuple[str, ...]) -> bool:
    """Whether there is a trial of `TuningRecord.identity`."""
    sql = f"SELECT 1 FROM trials WHERE {' AND '.join(map(equals, _IDENTITY))}"
    return bool(connection.rows(sql, dict(zip(_IDENTITY, identity, strict=True))))


def iterate_trials(
    connection: Connection,
    where: str,
    parameters: dict[str, object],
    damaged: list[str] | None = None,
    by_task: bool = False,
    steps: bool = True,
) -> Iterator[TuningRecord]:
    """The records that the condition `where` selects, in the order in which they were first stored.

    With `by_task`, those of one workload and target together; without `steps`, which are most of what a record says
    and take most of the time to check, as if none had been stored.

    Chosen at once and read a page at a time, so the caller may write in between: rows added later are not
    seen, rows deleted meanwhile are left out. A row that makes no record is an error, or, when a list
    `damaged` is given, part of a line in it: one for all rows of one cause, once all have been read.
    """
    # The index of the UNIQUE constraint names every row, whatever has happened to the table itself.
    source = "trials" if damaged is None else "trials INDEXED BY sqlite_autoindex_trials_1"
    order = "workload_id, target_id, id" if by_task else "id"
    ids = [row["id"] for row in connection.rows(f"SELECT id FROM {source} WHERE {where} ORDER BY {order}", parameters)]
    yield from trials_of(connection, ids, damaged, steps)


def trials_of(
    connection: Connection, ids: Sequence[int], damaged: list[str] | None = None, steps: bool = True
) -> Iterator[TuningRecord]:
    """The records of these numbers, as `iterate_trials` reads them."""
    causes: dict[str, list[int]] | None = None if damaged is None else {}
    for row in _pages(connection, ids, causes):
        try:
            yield _make(row, steps)
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
    connection: Connection, ids: Sequence[int], damaged: dict[str, list[int]] | None
) -> Iterator[dict[str, Any]]:
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


def _read_page(connection: Connection, ids: Sequence[int]) -> list[dict[str, Any]]:
    """The rows in this order, but for those that were deleted meanwhile; of one that is alone, its number only."""
    marks = ", ".join("?" * len(ids))
    rows = {row["id"]: row for row in connection.rows(f"{_READ_TRIALS} WHERE trials.id IN ({marks})", ids)}
    if len(rows) < len(ids):  # no JOIN says which: of another table's row, or of this one
        there = connection.rows(f"SELECT id FROM trials NOT INDEXED WHERE id IN ({marks})", ids)
        rows = {row["id"]: row for row in there} | rows
    return [rows[number] for number in ids if number in rows]


def _make(row: Mapping[str, Any], steps: bool = True) -> TuningRecord:
    if "details" not in row:
        raise DatabaseError(ALONE)
    values = {name: value for name, value in row.items() if name not in ("id", "details", "base")}
    values |= {name: bool(values[name]) for name in ("verified", "disturbed")}
    found = unpack(row["details"], row["base"])
    if not found.keys() <= _DEFAULTS.keys() or "config" not in found or "template" not in found:
        raise DatabaseError(f"details say {fields.shown(sorted(found))}, not what a trial says")
    if not steps:
        found.pop("steps", None)
    return TuningRecord(**values, **found)


def _damaged(connection: Connection, row: Mapping[str, Any], error: DatabaseError) -> DatabaseError:
    return DatabaseError(f"{connection.path}: trial {row['id']} is damaged: {error}; run `autotune db verify`")
