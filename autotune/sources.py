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
    if (root / f"{room}.py").is_file():
        return [root / f"{room}.py"]
    return [Path(path) for path in _below(str(root / room))]


def hash_of(root: Path, rooms: Iterable[str], *versions: str) -> str | None:
    """64 hex digits over the files of rooms, and what else decides; None where files cannot be read."""
    digest = hashlib.sha256(" ".join(versions).encode())
    start = len(str(root)) + 1
    try:
        for path in sorted(str(path) for room in rooms for path in files_of(root, room)):
            digest.update(f"{path[start:]}\n".encode())
            digest.update(_contents(path))
    except OSError:
        return None
    return digest.hexdigest()


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
    with open(path, "rb", buffering=0) as file:
        return file.read()


@functools.cache
def hash_of_all() -> str | None:
    """64 hex digits over all of autotune; None where its files cannot be read."""
    return hash_of(PACKAGE, sorted({path.stem for path in PACKAGE.iterdir()} - {"__pycache__"}))
