"""Layer: records of others, read-only: a shared folder or object store of segments, and a cache of what was read.

A segment is what `autotune db export` writes, named by the SHA-256 of its bytes, and beside it is an index of the tasks
in it. So it never changes, what is half there or altered is noticed, and opening reads indexes alone: the trials of a
task are read when they are asked for, checked, and kept in a database of the layer's own, in the user's cache folder.
Nothing in a segment is executed; docs/adr/0051 says why.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotune.errors import DatabaseError
from autotune.records import fields, layer_cache, segment_index
from autotune.records.connection import Connection
from autotune.records.database import Database
from autotune.records.exchange import new_lines, write_lines
from autotune.records.layer_database import LayerDatabase
from autotune.records.progress import Progress, Say, silent
from autotune.records.rows import listed
from autotune.records.schema import STEPS
from autotune.records.segment_scan import scan
from autotune.records.segments import ALTERED, MAX_BYTES, Altered, Segments
from autotune.records.store import SUFFIX, Store, open_store, sha256

MAX_SEGMENTS = 100_000
_NAME = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}\Z")
_BUSY_SECONDS = 1.0
"""How long to wait for another process that reads new segments in; what is there already serves meanwhile."""


class Layer:
    """A layer and its cache.

    Args:
        location: a folder or a URL.
        folder: for the caches of layers.
        progress: what is said while much is read.
    """

    def __init__(self, location: str, folder: Path, progress: Say = silent) -> None:
        self.location = location
        self._folder = folder
        self._progress = progress
        name = fields.text_key(location)
        self._cache = folder / f"{name}.{next(reversed(STEPS))}.sqlite"  # other versions of autotune have their own
        self._files = folder / f"{name}.segments"

    def open(self, tell: Say) -> LayerDatabase | None:
        """The records, with the segments that came since.

        A layer that cannot be reached has the records that were read; None where it never was.

        Args:
            tell: of what is wrong, one line each, now and when trials are read.
        """
        problems: list[str] = []
        segments = None
        try:
            store = open_store(self.location)
            sizes = store.sizes()
            segments = self._segments(store)
            self._read_news(segments, sizes, problems)
        except DatabaseError as error:
            problems.append(f"{error}")
        database = None
        if self._cache.is_file() and self._cache.stat().st_size:  # a full disk leaves an empty one
            try:
                database = self._opened(segments, tell)
            except DatabaseError as error:
                problems.append(f"its cache is of no use: {error}; delete {self._cache}, it is made anew")
        used = "is left out"
        if database is not None and problems:
            used = f"serves {database.known_trials()} records"
        for problem in problems:
            tell(f"layer {self.location} {used}: {problem}")
        return database

    def add(self, db: Database, damaged: list[str]) -> int:
        """Puts there what the layer does not have of a database, as one segment with its index; how many records.

        A folder that is missing is made.

        Rows that cannot be read are left out, and named in `damaged`. DatabaseError where the layer cannot be read or
        written.
        """
        with self._reached():
            store = open_store(self.location)
            store.make()
            sizes = store.sizes()
        segments = self._segments(store)
        self._read_news(segments, sizes, [])
        cache = Connection.open(self._cache, True, _BUSY_SECONDS)
        with (
            LayerDatabase(cache, self.location, segments, silent, self._progress) as known,
            self._temporary() as folder,
        ):
            path, index = folder / "segment", folder / "index"
            count = write_lines(new_lines(db, known, damaged), path)
            if count:
                found = scan(path, self._doing("indexing what is new", path.stat().st_size))
                segment_index.write_index(found.blocks, path.stat().st_size, index)
                with self._reached():  # first the index: whoever sees the segment sees it, too
                    store.put(index, f"{found.sha256}.{sha256(index)}{segment_index.SUFFIX}")
                    store.put(path, found.sha256 + SUFFIX)
        return count

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Names the place where something went wrong, as stores do not."""
        try:
            yield
        except DatabaseError as error:
            raise DatabaseError(f"layer {self.location}: {error}") from None

    def _opened(self, segments: Segments | None, tell: Say) -> LayerDatabase:
        cache = Connection.open(self._cache, read_only=True, busy_seconds=_BUSY_SECONDS)
        return LayerDatabase(cache, self.location, segments, tell, self._progress)

    def _segments(self, store: Store) -> Segments:
        return Segments(store, self._files)

    def _read_news(self, segments: Segments, sizes: dict[str, int], problems: list[str]) -> None:
        """Brings the cache up to what the store has: files of these sizes."""
        wanted = {name: size for name, size in sizes.items() if _NAME.match(name)}
        indexes = {found[1] + SUFFIX: name for name in sorted(sizes) if (found := segment_index.NAME.match(name))}
        if strange := sorted(name for name in sizes.keys() - wanted.keys() if name.endswith(SUFFIX)):
            are = "is no segment" if len(strange) == 1 else "are no segments"
            problems.append(f"{listed('file', strange)} {are}; `autotune db export FOLDER/` makes them")
        if len(wanted) > MAX_SEGMENTS:
            raise DatabaseError(f"more than {MAX_SEGMENTS} segments; join them into one")
        with contextlib.suppress(DatabaseError), Database.open(self._cache, read_only=True) as cache:
            if {name: size for name, (size, _) in layer_cache.segments(cache.connection).items()} == wanted:
                problems += layer_cache.problems(cache.connection)
                return
        self._make_folder()
        with Database.open(self._cache, busy_seconds=_BUSY_SECONDS) as cache:
            layer_cache.prepare(cache.connection)
            segments.forget(layer_cache.forget(cache.connection, wanted))
            news = sorted(wanted.keys() - layer_cache.segments(cache.connection).keys())
            progress = self._doing("reading indexes", len(news))
            doubted = layer_cache.doubted(cache.connection)
            for number, name in enumerate(news):
                progress(number)
                index = None if name in doubted else indexes.get(name)
                self._read(segments, name, wanted[name], index, cache.connection, problems)
            problems += layer_cache.problems(cache.connection)

    def _read(
        self, segments: Segments, name: str, size: int, index: str | None, cache: Connection, problems: list[str]
    ) -> None:
        """Notes the blocks of a segment, as its index has them or as they are found in it, or what is wrong with it.
        That it cannot be reached is not remembered."""
        by_index = self._read_index(segments.store, name, size, index, cache) if index is not None else ""
        if by_index is None:
            return
        try:
            fault = self._read_whole(segments, name, size, cache)
        except DatabaseError as error:
            if isinstance(error.__cause__, sqlite3.Error):
                raise  # about the cache, not about the segment
            problems.append(f"{fields.shortened(name)} cannot be read: {error}")
            return
        if fault is not None:
            layer_cache.remember(cache, name, size, fault)
        elif by_index:
            problems.append(f"segment {fields.shortened(name)} had to be read as a whole: {by_index}")

    def _read_index(self, store: Store, name: str, size: int, index: str, cache: Connection) -> str | None:
        """Notes the blocks of a segment as its index has them; why not, where that cannot be done."""
        try:
            with self._temporary() as folder:
                path = folder / "index"
                if store.fetch(index, path, segment_index.MAX_BYTES) != index.split(".")[1]:
                    return f"its index is damaged: {ALTERED}"
                layer_cache.add(cache, name, size, segment_index.read_index(path, size or None))
        except DatabaseError as error:
            if isinstance(error.__cause__, sqlite3.Error):
                raise
            return str(error)
        return None

    def _read_whole(self, segments: Segments, name: str, size: int, cache: Connection) -> str | None:
        """Notes the blocks that are found in a segment; what is wrong with it, where that cannot be done.

        Raises:
            DatabaseError: it cannot be reached.
        """
        try:
            path = segments.whole(name)
            if path.stat().st_size > MAX_BYTES:
                return f"larger than {MAX_BYTES} bytes"
            try:
                found = scan(path, self._doing(f"indexing segment {fields.shortened(name)}", path.stat().st_size))
            except DatabaseError as error:
                altered = sha256(path) != name.removesuffix(SUFFIX)
                return ALTERED if altered else str(error).removeprefix(f"{path}").lstrip(", ")
        except Altered as error:
            return str(error)
        except OSError as error:
            raise DatabaseError(f"{error.strerror}") from None
        if found.sha256 != name.removesuffix(SUFFIX):
            return ALTERED
        try:
            layer_cache.add(cache, name, size, found.blocks)
        except DatabaseError as error:
            if isinstance(error.__cause__, sqlite3.Error):
                raise
            return str(error)
        return None

    def _doing(self, what: str, total: int) -> Progress:
        return Progress(self._progress, f"layer {self.location}: {what}", total)

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
                yield Path(folder)
        except OSError as error:
            raise DatabaseError(f"{self._folder} cannot be written: {error.strerror}") from None
