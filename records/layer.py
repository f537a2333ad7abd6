"""Layer: records of others, read-only: a shared folder or object store of segments, and a cache of what they say.

A segment is what `autotune db export` writes, named by the SHA-256 of its bytes. So it never changes, what is half
there or altered is noticed before a line of it is read, and one that was read once is not read again: its records are
in a database of the layer's own, in the user's cache folder. Nothing in a segment is executed; docs/adr/0051 says why.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.database import Database
from autotune.records.exchange import add_items, new_lines, read_items, write_lines
from autotune.records.rows import listed
from autotune.records.store import SUFFIX, Store, open_store, sha256

MAX_BYTES = 16 * 2**30
MAX_SEGMENTS = 100_000
_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}\Z")
_ALTERED = "these are not the bytes that its name stands for"
_BUSY_SECONDS = 1.0
"""How long to wait for another process that reads new segments in; what is there already serves meanwhile."""
_SEGMENTS = """
    CREATE TABLE IF NOT EXISTS segments (
        name    TEXT PRIMARY KEY NOT NULL,
        bytes   INTEGER NOT NULL,
        problem TEXT
    ) WITHOUT ROWID
"""


class Layer:
    """A layer and its cache.

    Args:
        location: a folder or a URL.
        folder: for the caches of layers.
    """

    def __init__(self, location: str, folder: Path) -> None:
        self.location = location
        self._folder = folder
        self._cache = folder / f"{fields.text_key(location)}.sqlite"

    def open(self) -> tuple[Database | None, list[str]]:
        """The records, read anew where segments came or went, and what is wrong, one line each.

        A layer that cannot be reached has the records that it had; None where that is none.
        """
        problems: list[str] = []
        try:
            self._read_news(open_store(self.location), problems)
        except DatabaseError as error:
            problems.append(f"{error}")
        database = None
        if self._cache.exists():
            try:
                database = Database.open(self._cache, read_only=True, name=self.location)
            except DatabaseError as error:
                problems.append(f"its cache is of no use: {error}; delete {self._cache}, it is made anew")
        if problems:
            used = "is left out" if database is None else f"serves {_count(database)} records"
            problems = [f"layer {self.location} {used}: {problem}" for problem in problems]
        return database, problems

    def add(self, db: Database, damaged: list[str]) -> int:
        """Puts there what the layer does not have of a database, as one segment; how many records that is.

        A folder that is missing is made.

        Rows that cannot be read are left out, and named in `damaged`. DatabaseError where the layer cannot be read or
        written.
        """
        store = open_store(self.location)
        store.make()
        self._read_news(store, [])
        with Database.open(self._cache, read_only=True) as known, self._temporary() as path:
            count = write_lines(new_lines(db, known, damaged), path)
            if count:
                store.put(path, sha256(path) + SUFFIX)
        return count

    def _read_news(self, store: Store, problems: list[str]) -> None:
        """Brings the cache up to what the store has."""
        sizes = store.sizes()
        wanted = {name: size for name, size in sizes.items() if _NAME.match(name)}
        if strange := sorted(sizes.keys() - wanted.keys()):
            are = "is no segment" if len(strange) == 1 else "are no segments"
            problems.append(f"{listed('file', strange)} {are}; `autotune db export FOLDER/` makes them")
        if len(wanted) > MAX_SEGMENTS:
            raise DatabaseError(f"more than {MAX_SEGMENTS} segments; join them into one")
        with contextlib.suppress(DatabaseError), Database.open(self._cache, read_only=True) as cache:
            known = _segments(cache)
            if {name: size for name, (size, _) in known.items()} == wanted:
                problems += _problems(known)
                return
        self._make_folder()
        with Database.open(self._cache, busy_seconds=_BUSY_SECONDS) as cache:
            _forget(cache, wanted)
            for name in sorted(wanted.keys() - _segments(cache).keys()):
                self._read(store, name, wanted[name], cache, problems)
            problems += _problems(_segments(cache))

    def _read(self, store: Store, name: str, size: int, cache: Database, problems: list[str]) -> None:
        """Adds a segment to the cache, whole or not at all. What is wrong with it is remembered; that it cannot be
        reached is not."""
        with self._temporary() as path:
            try:
                digest = store.fetch(name, path, MAX_BYTES)
            except DatabaseError as error:
                problems.append(f"{fields.shortened(name)} cannot be read: {error}")
                return
            fault = _add(cache, name, size, path) if digest == name.removesuffix(SUFFIX) else _ALTERED
            if fault is not None:
                _remember(cache, name, size, fault)

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseError(f"the folder {self._folder} cannot be created: {error.strerror}") from None

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        self._make_folder()
        try:
            with tempfile.TemporaryDirectory(prefix="segment-", dir=self._folder) as folder:
                yield Path(folder) / "segment"
        except OSError as error:
            raise DatabaseError(f"{self._folder} cannot be written: {error.strerror}") from None


def _add(cache: Database, name: str, size: int, path: Path) -> str | None:
    """Adds what the file of a segment says; what is wrong with it, where nothing was added."""
    try:
        with cache.transaction():
            if name not in _segments(cache):  # another process may have been faster
                add_items(cache, read_items(path))
                _remember(cache, name, size, None)
    except DatabaseError as error:
        if isinstance(error.__cause__, sqlite3.Error):
            raise  # about the cache, not about the segment
        return str(error).replace(f"{path}, ", "")
    return None


def _count(cache: Database) -> int:
    return int(cache.connection.rows("SELECT count(*) AS n FROM trials")[0]["n"])


def _segments(cache: Database) -> dict[str, tuple[int, str | None]]:
    """Those that were looked at: bytes, and what is wrong with them."""
    rows = cache.connection.rows("SELECT name, bytes, problem FROM segments")
    return {row["name"]: (row["bytes"], row["problem"]) for row in rows}


def _remember(cache: Database, name: str, size: int, problem: str | None) -> None:
    with cache.transaction():
        cache.connection.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?)", (name, size, problem))


def _problems(segments: dict[str, tuple[int, str | None]]) -> list[str]:
    """One line for all segments with the same fault."""
    causes: dict[str, list[str]] = {}
    for name, (_, problem) in sorted(segments.items()):
        if problem is not None:
            causes.setdefault(problem, []).append(name)
    return [f"{listed('segment', names)} left out: {problem}" for problem, names in causes.items()]


def _forget(cache: Database, wanted: dict[str, int]) -> None:
    """Makes room for segments that took the place of others. What one that is gone had replaced is in others, so that
    all are read again; one that had a fault left nothing."""
    with cache.transaction():
        cache.connection.execute(_SEGMENTS)
        gone = {name: fault for name, (size, fault) in _segments(cache).items() if wanted.get(name) != size}
        if any(fault is None for fault in gone.values()):
            for table in ("trials", "sessions", "segments"):
                cache.connection.execute(f"DELETE FROM {table}")
        for name in gone:
            cache.connection.execute("DELETE FROM segments WHERE name = ?", (name,))
