"""Our own sources, and a hash of them: results that are remembered are those of the code that made them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent


def files_of(root: Path, room: str) -> list[Path]:
    """The sources and the data of a room, which is a folder or a file."""
    return [Path(path) for path in _paths(str(root), room)]


def hash_of(root: Path, rooms: Iterable[str], *versions: str) -> str | None:
    """64 hex digits over the files of rooms, and what else decides; None where files cannot be read."""
    digest = hashlib.sha256(" ".join(versions).encode())
    start = len(str(root)) + 1
    try:
        for path in sorted(path for room in rooms for path in _paths(str(root), room)):
            digest.update(f"{path[start:]}\n".encode())
            digest.update(_contents(path))
    except OSError:
        return None
    return digest.hexdigest()


def _paths(root: str, room: str) -> list[str]:
    """Texts: to make a `Path` of each takes as long as to read the files."""
    file = os.path.join(root, f"{room}.py")
    return [file] if os.path.isfile(file) else list(_below(os.path.join(root, room)))


def _below(folder: str) -> Iterator[str]:
    """The files below a folder, what Python made of them aside."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _below(entry.path)
            elif entry.is_file():
                yield entry.path


def _contents(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # `open` looks at each file several times
    try:
        size = os.fstat(file).st_size
        contents = os.read(file, size)
        if len(contents) != size:
            raise OSError(f"{path} changed while it was read")
        return contents
    finally:
        os.close(file)


@functools.cache
def hash_of_all() -> str | None:
    """64 hex digits over all of autotune; None where its files cannot be read."""
    return hash_of(PACKAGE, sorted({os.path.splitext(name)[0] for name in os.listdir(PACKAGE)} - {"__pycache__"}))
