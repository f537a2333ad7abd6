"""One connection to a database file: opening, settings, migrations, transactions, and errors in one clear line.

WAL with synchronous=NORMAL: a transaction that was committed survives `kill -9` of any process; after a power
cut the newest may be missing, but the file is whole. Readers never wait for the writer, nor it for them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import DatabaseError
from autotune.install import needing_all
from autotune.records import fields
from autotune.records.schema import APPLICATION_ID, MIGRATION_SET, SAME_TABLES, STEPS, migrations
from autotune.records.tables import APPLIED, foreign_table

Parameters = Sequence[object] | dict[str, object]

_DAMAGED = "`autotune db verify` says where, `autotune db repair` saves what can still be read"

# Fragments of SQLite's messages (Python 3.10 does not give its error codes), and what a user can do about each.
_ADVICE = (
    ("not a database", "is not a SQLite file, so no tuning database; name another file"),
    ("malformed", f"is damaged; {_DAMAGED}"),
    ("is locked", "is being written by another process; wait for it to end, or stop it"),
    ("readonly", "cannot be written: the file or its folder is read-only; change its permissions or copy it"),
    ("disk is full", "cannot be written: the disk is full; free some space, nothing stored is lost"),
    ("disk i/o error", "cannot be written: the disk refused (full, over quota, or failing)"),
    ("unable to open", "cannot be opened: check the permissions of the file and of its folder"),
)


class Connection:
    """Owned by one thread of one process; `transaction` takes the write lock at once, so it cannot fail halfway."""

    def __init__(self, path: Path, read_only: bool, raw: sqlite3.Connection) -> None:
        self.path = path
        self.read_only = read_only
        self._raw = raw

    @classmethod
    def open(cls, path: str | os.PathLike[str], read_only: bool, busy_seconds: float) -> Connection:
        """Opens the file, creating or migrating it unless `read_only`; DatabaseError says why it cannot be used."""
        file = Path(path)
        _check_file(file, read_only)
        if not read_only:
            return cls._connect(file, "rwc", False, busy_seconds)
        try:
            return cls._connect(file, "ro", True, busy_seconds)
        except DatabaseError as error:
            # WAL needs to create two small files beside the database. Where that is forbidden, a database
            # that was closed cleanly can be read as it is: nobody can be writing it there.
            if "permissions" not in str(error) or _has_content(Path(f"{file}-wal")):
                raise
        return cls._connect(file, "ro&immutable=1", True, busy_seconds)

    @classmethod
    def _connect(cls, file: Path, mode: str, read_only: bool, busy_seconds: float) -> Connection:
        with explained(file):
            raw = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=busy_seconds, isolation_level=None
            )
        self = cls(file, read_only, raw)
        try:
            self._check_ours()
            if not read_only:
                self._prepare(busy_seconds)
            self._check_schema()
        except BaseException:
            self.close()
            raise
        return self

    def _check_ours(self) -> None:
        tables = self.rows("SELECT count(*) AS n FROM sqlite_master")[0]["n"]
        application = self.rows("PRAGMA application_id")[0]["application_id"]
        if tables and application != APPLICATION_ID:
            raise DatabaseError(f"{self.path} is a SQLite file of another program; name another file")
        if self.read_only and not tables:
            raise DatabaseError(f"{self.path} is empty: nothing has been tuned into it yet")
        with self._snapshot():  # or another process, which migrates the file right now, makes names and columns differ
            self._check_tables(())
            applied = tuple(name for name in self._applied() if name in STEPS)
            if applied:
                self._check_tables(applied)
            elif others := self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> ?", (APPLIED,)):
                known = fields.shortened(str(others[0]["name"]))
                raise DatabaseError(
                    f"{self.path} is damaged or no tuning database: it has '{known}' and does not say which autotune "
                    "made it; name another file"
                )

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """All that is read inside is of one moment."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self.execute("ROLLBACK")

    def _check_tables(self, applied: tuple[str, ...]) -> None:
        with explained(self.path):
            wrong = foreign_table(self._raw, applied)
        if wrong is not None:
            raise DatabaseError(f"{self.path} is damaged or no tuning database: {wrong}; name another file")

    def _prepare(self, busy_seconds: float) -> None:
        self.execute("PRAGMA foreign_keys = ON")
        self._use_wal(busy_seconds)
        self.execute("PRAGMA synchronous = NORMAL")
        while True:
            # Looked up under the write lock: another process may be migrating the same file right now.
            with self.transaction(), explained(self.path):
                self._refuse_newer()
                pending = self._pending()
                fresh = len(pending) == len(STEPS)  # made whole or not at all, should the disk become full
                if pending:
                    self._apply([] if fresh else pending[1:2])
            if fresh or len(pending) <= 1:
                return

    def _apply(self, stop_before: list[str]) -> None:
        with needing_all("writing a database"):  # 50 ms, which who only reads does not wait for
            from sqlite_utils import Database as SqliteDatabase
        database = SqliteDatabase(self._raw, recursive_triggers=False, execute_plugins=False)
        try:
            migrations().apply(database, stop_before=stop_before)
        except DatabaseError as error:
            raise DatabaseError(
                f"{self.path} cannot be upgraded: {error}; `autotune db repair` saves all else in a new file"
            ) from None

    def _use_wal(self, busy_seconds: float) -> None:
        """SQLite does not wait for other connections when it changes the mode, so we do."""
        deadline = time.monotonic() + busy_seconds
        while True:
            try:
                self.execute("PRAGMA journal_mode = WAL")
            except DatabaseError as error:
                if "another process" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def _applied(self) -> list[str]:
        """The names of the migrations in this file, in order."""
        if not self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (APPLIED,)):
            return []
        rows = self.rows(f"SELECT name FROM {APPLIED} WHERE migration_set = ? ORDER BY rowid", (MIGRATION_SET,))
        return [row["name"] for row in rows]

    def _pending(self) -> list[str]:
        """The names of the migrations that this file has not had."""
        applied = self._applied()
        return [name for name in STEPS if name not in applied]

    def _refuse_newer(self) -> None:
        newer = [name for name in self._applied() if name not in STEPS]
        if newer:
            raise DatabaseError(
                f"{self.path} was written by a newer autotune (schema {fields.shortened(str(newer[-1]))}); "
                "upgrade autotune to use it"
            )

    def _check_schema(self) -> None:
        self._refuse_newer()
        if not SAME_TABLES.issuperset(self._pending()):
            raise DatabaseError(
                f"{self.path} was written by an older autotune; "
                f"run `autotune db upgrade --db {self.path}` once to bring it up to date"
            )

    @property
    def schema(self) -> str:
        """The name of the last migration."""
        return self._applied()[-1]

    def rows(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """All rows of a query, as mappings from column to value."""
        with explained(self.path):
            return list(self._query(sql, parameters))

    def readable(self, sql: str) -> Iterator[dict[str, Any]]:
        """The rows of a query up to the first that is damaged."""
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            yield from self._query(sql)

    def _query(self, sql: str, parameters: Parameters = ()) -> Iterator[dict[str, Any]]:
        cursor = self._raw.execute(sql, parameters)
        names = [column[0] for column in cursor.description]
        return (dict(zip(names, row)) for row in cursor)

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Runs one statement; the number of rows it changed."""
        with explained(self.path):
            return int(self._raw.execute(sql, parameters).rowcount)

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Runs one statement for each row of parameters."""
        with explained(self.path):
            self._raw.executemany(sql, rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: an exception inside rolls everything back. Inside another one, part of that one."""
        if self.read_only:
            raise DatabaseError(f"{self.path} was opened for reading only")
        if self._raw.in_transaction:
            yield
            return
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # A full disk may have rolled back already, and then there is nothing to roll back.
            with contextlib.suppress(sqlite3.Error):
                self._raw.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._raw.close()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into a DatabaseError that names the file and says what to do."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        said = str(error)
        for fragment, advice in _ADVICE:
            if fragment in said.lower():
                raise DatabaseError(f"{path} {advice} ({said})") from error
        raise DatabaseError(f"{path}: {said}") from error
    except UnicodeDecodeError as error:  # of a text, or of SQLite's message about a damaged name
        raise DatabaseError(f"{path} is damaged; {_DAMAGED}") from error


def _check_file(file: Path, read_only: bool) -> None:
    if "\0" in str(file):
        raise DatabaseError(f"{str(file)!r} cannot be opened: a NUL byte in a file name")
    try:
        if file.is_dir():
            raise DatabaseError(f"{file} is a folder; name a file in it")
        if file.exists() and not file.is_file():
            raise DatabaseError(f"{file} is not a regular file; name another file")
        if read_only and not file.exists():
            raise DatabaseError(f"{file} does not exist; `autotune tune` creates it")
        if not file.parent.is_dir():
            raise DatabaseError(f"{file.parent} is not a folder; create it first, or name another file")
        # SQLite would open it for reading only, without a word, and fail at the first trial.
        if not read_only and file.exists() and not os.access(file, os.W_OK):
            raise DatabaseError(f"{file} cannot be written: it is read-only; change its permissions or copy it")
    except OSError as error:
        raise DatabaseError(f"{file} cannot be opened: {error.strerror}; check the permissions") from None


def _has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0
