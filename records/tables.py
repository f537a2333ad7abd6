"""The tables of a file against those that its migrations make: a foreign or altered file is refused before it is read.

Nothing of what is checked here runs anything: a view in the place of a table may never end, a trigger may do anything.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterator

from autotune.records.schema import STEPS

APPLIED = "_sqlite_migrations"
"""The table in which sqlite-utils lists the migrations that a file has had."""

_APPLIED = f"CREATE TABLE {APPLIED} (id INTEGER PRIMARY KEY, migration_set TEXT, name TEXT, applied_at TEXT)"

Columns = tuple[tuple[object, ...], ...]


def foreign_table(db: sqlite3.Connection, applied: tuple[str, ...]) -> str | None:
    """What is wrong with the tables of a file that has had these migrations; None when they are ours.

    With no migrations, only the table that lists them is looked at: what is in it is the next question.
    """
    expected = _expected(applied)
    marks = ", ".join("?" * len(expected))
    for kind, name, table in db.execute(
        f"SELECT type, name, tbl_name FROM sqlite_master WHERE lower(name) IN ({marks})"
        f" OR (type = 'trigger' AND lower(tbl_name) IN ({marks}))",
        (*expected, *expected),
    ):
        if kind == "trigger":
            return f"'{table}' has a trigger"
        if kind != "table":
            return f"'{name}' is a {kind}, not a table"
    for name, columns in expected.items():
        found = _columns(db, name)
        if found != columns and (found or applied):
            return f"'{name}' has other columns" if found else f"there is no table '{name}'"
    return None


@functools.lru_cache(maxsize=16)
def _expected(applied: tuple[str, ...]) -> dict[str, Columns]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(_APPLIED)
        for name in applied:
            STEPS[name](db)
        return {name: _columns(db, name) for name in _tables(db)}


def _tables(db: sqlite3.Connection) -> Iterator[str]:
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        if not name.startswith("sqlite_"):
            yield name


def _columns(db: sqlite3.Connection, table: str) -> Columns:
    """Name, type, NOT NULL, place in the key, and hidden or generated, of each column."""
    rows = db.execute('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)', (table,))
    return tuple(tuple(row) for row in rows)
