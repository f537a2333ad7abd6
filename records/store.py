"""Store: where the segments of a layer are, a folder or what fsspec can reach. Names, sizes and bytes, nothing else."""

from __future__ import annotations

import hashlib
import os
import queue
import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from autotune.errors import DatabaseError

SUFFIX = ".jsonl"
SUFFIXES = (SUFFIX, ".index.gz")
_PIECE = 2**20
ANSWER_SECONDS = 20.0
"""How long to wait for the list of segments: a server or a mount that is gone may never answer."""

Answer = TypeVar("Answer")


class NoRanges(DatabaseError):
    """The store gives files as a whole or not at all, as simple web servers do."""


class Store(Protocol):
    """Every method raises DatabaseError, one line, where the store cannot be reached, read or written."""

    def make(self) -> None:
        """Makes the place where there is none yet."""

    def sizes(self) -> dict[str, int]:
        """Bytes of each file that may be a segment or an index, by its name; 0 where the store does not say."""

    def path(self, name: str) -> Path | None:
        """Where the file is on this machine; None where it is elsewhere."""

    def open(self, name: str) -> BinaryIO:
        """The file, for `read_ranges`."""

    def fetch(self, name: str, path: Path, limit: int) -> str:
        """Copies a file of no more than `limit` bytes to `path`; the SHA-256 of what came."""

    def put(self, source: Path, name: str) -> None:
        """Adds a file; readers see it whole or not at all, where the store can do that."""


def open_store(location: str) -> Store:
    """The store of a folder, or of a URL such as s3://bucket/folder, which needs the extra `remote`."""
    return _Remote(location) if "://" in location else _Folder(Path(location))


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        _said(lambda: self._path.mkdir(exist_ok=True))

    def sizes(self) -> dict[str, int]:
        def listed() -> dict[str, int]:
            with os.scandir(self._path) as entries:
                return {
                    one.name: one.stat().st_size for one in entries if one.name.endswith(SUFFIXES) and one.is_file()
                }

        return _answer(listed)

    def path(self, name: str) -> Path | None:
        return self._path / name

    def open(self, name: str) -> BinaryIO:
        return _answer(lambda: (self._path / name).open("rb"))

    def fetch(self, name: str, path: Path, limit: int) -> str:
        return _said(lambda: _copied((self._path / name).open("rb"), path, limit))

    def put(self, source: Path, name: str) -> None:
        def copied() -> None:
            partial = self._path / f".{name}.{uuid.uuid4().hex}.part"
            try:
                shutil.copyfile(source, partial)
                os.replace(partial, self._path / name)
            finally:
                partial.unlink(missing_ok=True)

        _said(copied)


class _Remote:
    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise DatabaseError("a URL needs fsspec: pip install 'autotune-compiler[remote]'") from None
        self._files: Any
        self._files, self._root = _said(lambda: fsspec.core.url_to_fs(url))
        self._made = False

    def make(self) -> None:
        _answer(lambda: self._files.makedirs(self._root, exist_ok=True))
        self._made = True

    def sizes(self) -> dict[str, int]:
        def listed() -> dict[str, int]:
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                if self._made:  # object stores have no folders, but for what is in them
                    return {}
                raise
            named = {str(one["name"]).rstrip("/").rpartition("/")[2]: one for one in entries if one["type"] == "file"}
            return {name: int(one.get("size") or 0) for name, one in named.items() if name.endswith(SUFFIXES)}

        return _answer(listed)

    def path(self, name: str) -> Path | None:
        return None

    def open(self, name: str) -> BinaryIO:
        opened: BinaryIO = _answer(lambda: self._files.open(f"{self._root}/{name}", "rb", cache_type="none"))
        return opened

    def fetch(self, name: str, path: Path, limit: int) -> str:
        def copied(**how: object) -> str:
            return _said(lambda: _copied(self._files.open(f"{self._root}/{name}", "rb", **how), path, limit))

        try:
            return copied()
        except NoRanges:
            return copied(block_size=0)  # as a stream

    def put(self, source: Path, name: str) -> None:
        _said(lambda: self._files.put_file(str(source), f"{self._root}/{name}"))


def read_ranges(file: BinaryIO, ranges: Sequence[tuple[int, int]]) -> bytes:
    """The bytes from a first one up to another of each range, one after the other.

    Raises:
        NoRanges: the store has no way to give them alone.
        DatabaseError: it cannot be reached, or the file ends before.
    """

    def parts() -> bytes:
        found = []
        for start, end in ranges:
            file.seek(start)
            found.append(file.read(end - start))
        return b"".join(found)

    return _answer(parts)


def sha256(path: Path) -> str:
    """Of a file, in hex. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _copied(source: BinaryIO, path: Path, limit: int) -> str:
    digest, total = hashlib.sha256(), 0
    with source, path.open("wb") as copy:
        while piece := source.read(_PIECE):
            total += len(piece)
            if total > limit:
                raise DatabaseError(f"larger than {limit} bytes")
            digest.update(piece)
            copy.write(piece)
    return digest.hexdigest()


def _said(action: Callable[[], Answer]) -> Answer:
    """What the action returns; whatever it raises, in one line."""
    try:
        return action()
    except DatabaseError:
        raise
    except Exception as error:  # noqa: BLE001 (file systems of fsspec raise the errors of their own libraries)
        strerror = error.strerror if isinstance(error, OSError) else None
        said = " ".join((strerror or str(error) or type(error).__name__).split())
        # As fsspec says it, of HTTP.
        kind = NoRanges if "range requests" in said or "Cannot seek" in said else DatabaseError
        raise kind(said[:200]) from None


def _answer(action: Callable[[], Answer]) -> Answer:
    """The same, and no longer than `ANSWER_SECONDS`: a call that never returns is left behind in its thread."""
    answers: queue.SimpleQueue[tuple[Answer | None, DatabaseError | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((_said(action), None))
        except DatabaseError as error:
            answers.put((None, error))

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer, error = answers.get(timeout=ANSWER_SECONDS)
    except queue.Empty:
        raise DatabaseError(f"no answer in {ANSWER_SECONDS:g} s") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]
