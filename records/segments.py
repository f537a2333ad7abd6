"""Segments: the bytes of a layer's segments, a range where the store can give one, from a copy where it cannot."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from autotune.errors import DatabaseError
from autotune.records.block import Extent
from autotune.records.store import SUFFIX, NoRanges, Store, read_ranges

MAX_BYTES = 16 * 2**30
ALTERED = "these are not the bytes that its name stands for"


class Altered(DatabaseError):
    """A segment's bytes are others than its name says."""


class Segments:
    """Files of a store by their names. Every method raises DatabaseError where one cannot be reached or copied.

    Args:
        copies: a folder for copies, which is made when it is needed.
    """

    def __init__(self, store: Store, copies: Path) -> None:
        self.store = store
        self._copies = copies
        self._open: dict[str, BinaryIO] = {}

    def close(self) -> None:
        for file in self._open.values():
            with contextlib.suppress(Exception):  # of a file system's own library, and nobody is interested any more
                file.close()
        self._open.clear()

    def read(self, name: str, extent: Extent) -> bytes:
        """The lines of an extent; fewer bytes where the segment is shorter. Nothing is checked."""
        if name not in self._open:
            copy = self._copies / name
            self._open[name] = copy.open("rb") if copy.exists() else self.store.open(name)
        try:
            return read_ranges(self._open[name], extent.ranges)
        except NoRanges:
            self._open.pop(name).close()
            self._open[name] = self.whole(name).open("rb")
            return read_ranges(self._open[name], extent.ranges)

    def whole(self, name: str) -> Path:
        """The file on this machine. A copy of what is elsewhere is checked by its name, and stays."""
        path = self.store.path(name) or self._copies / name
        if path.exists():
            return path
        partial = self._copies / f".{name}.{uuid.uuid4().hex}.part"
        try:
            self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                if self.store.fetch(name, partial, MAX_BYTES) != name.removesuffix(SUFFIX):
                    raise Altered(ALTERED)
                os.replace(partial, path)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise DatabaseError(f"{self._copies} cannot be written: {error.strerror}") from None
        return path

    def forget(self, names: Iterable[str]) -> None:
        """Deletes the copies of segments that are gone."""
        for name in names:
            with contextlib.suppress(OSError):
                (self._copies / name).unlink(missing_ok=True)
