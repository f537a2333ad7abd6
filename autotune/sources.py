"""Our own sources, and a hash of them: results that are remembered are those of the code that made them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parent


def files_of(root: Path, room: str) -> list[Path]:
    """The sources and the data of a room, which is a folder or a file."""
    if (root / f"{room}.py").is_file():
        return [root / f"{room}.py"]
    return [path for path in (root / room).rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def hash_of(root: Path, rooms: Iterable[str], *versions: str) -> str | None:
    """64 hex digits over the files of rooms, and what else decides; None where files cannot be read."""
    digest = hashlib.sha256(" ".join(versions).encode())
    try:
        for path in sorted(path for room in rooms for path in files_of(root, room)):
            digest.update(f"{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


@functools.cache
def hash_of_all() -> str | None:
    """64 hex digits over all of autotune; None where its files cannot be read."""
    return hash_of(PACKAGE, sorted({path.stem for path in PACKAGE.iterdir()} - {"__pycache__"}))
