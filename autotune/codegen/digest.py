"""A hash of much that is found on all cores: the SHA-256 of the SHA-256 of each part."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from autotune import machine

Result = TypeVar("Result")

PART = 8 << 20
"""Bytes of a part: so many that threads are worth it."""

_PIECE = 1 << 20
"""Bytes that are read and hashed at a time: they are in the cache then."""


class Digest:
    """The hash of bytes that come one after another."""

    def __init__(self, name: str) -> None:
        """`name` counts as a part before the first."""
        self._whole, self._part, self._room = hashlib.sha256(name.encode()), hashlib.sha256(), PART

    def update(self, data: memoryview) -> None:
        """Bytes that follow; contiguous ones, of any form."""
        data = data.cast("B")
        while data.nbytes:
            taken = data[: self._room]
            self._part.update(taken)
            self._room -= taken.nbytes
            if not self._room:
                self._whole.update(self._part.digest())
                self._part, self._room = hashlib.sha256(), PART
            data = data[taken.nbytes :]

    def hexdigest(self) -> str:
        """64 hex digits; nothing must follow."""
        if self._room < PART:
            self._whole.update(self._part.digest())
        return self._whole.hexdigest()


def read_hashed(file: int, start: int, memory: memoryview, name: str) -> str:
    """Read a file from `start` on, as far as there is memory for it; the `Digest` of what was read.

    Raises:
        OSError: it has not so many bytes.
    """

    def read(begin: int, digest: Callable[[memoryview], None]) -> None:
        for at in range(begin, min(begin + PART, memory.nbytes), _PIECE):
            piece = memory[at : min(at + _PIECE, begin + PART)]
            if os.preadv(file, [piece], start + at) != piece.nbytes:
                raise OSError("a file became shorter while it was read")
            digest(piece)

    return _of_parts(memory.nbytes, read, name)


def file_digest(path: Path) -> str:
    """The `Digest` of a file that has no name.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        number = file.fileno()

        def read(begin: int, digest: Callable[[memoryview], None]) -> None:
            memory = memoryview(bytearray(_PIECE))
            for at in range(begin, begin + PART, _PIECE):
                size = os.preadv(number, [memory], at)
                digest(memory[:size])
                if size < _PIECE:
                    return

        return _of_parts(os.fstat(number).st_size, read, "")


def bytes_digest(data: memoryview) -> str:
    """The `Digest` of a file with these contents that has no name."""
    data = data.cast("B")
    return _of_parts(data.nbytes, lambda begin, digest: digest(data[begin : begin + PART]), "")


def begun(threads: ThreadPoolExecutor, work: Callable[[], Result]) -> Callable[[], Result]:
    """What waits for the result of work, which is done only then where the interpreter ends and starts no threads."""
    try:
        return threads.submit(work).result
    except RuntimeError:
        return work


def _of_parts(size: int, read: Callable[[int, Callable[[memoryview], None]], None], name: str) -> str:
    """`read` gives the bytes of the part that begins at a place to a hash."""

    def part(begin: int) -> bytes:
        digest = hashlib.sha256()
        read(begin, digest.update)
        return digest.digest()

    begins, whole = range(0, size, PART), hashlib.sha256(name.encode())
    with ThreadPoolExecutor(min(machine.allowed_cores(), max(len(begins), 1)), "autotune-hash") as threads:
        asked = [begun(threads, functools.partial(part, begin)) for begin in begins]
        whole.update(b"".join(ask() for ask in asked))
    return whole.hexdigest()
