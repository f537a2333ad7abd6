"""A header of JSON, and parts of bytes behind it, each with a checksum of its own: the form of staged files.

head (`file_head.py`), whose checksum is the SHA-256 of the header; the header, which has the size and the SHA-256 of
each part; the parts, at multiples of 64 bytes. So parts are checked on all cores, and known by their hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from autotune import machine
from autotune.runtime.file_head import HEAD, damaged, magic, mapped_file
from autotune.runtime.signature import Signer, Trust

Bytes = npt.NDArray[np.uint8]
MAGIC = magic(1, staged=True)
_ALIGN = 64
_PARTS = "parts"


@dataclass
class Parts:
    """Parts that are being collected: what is equal is there once."""

    arrays: list[Bytes] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _seen: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, data: bytes | Bytes) -> int:
        """The number of a part with these bytes."""
        array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        same = array.__array_interface__["data"][0], array.nbytes  # it lives as long as the parts do
        if same not in self._seen:
            digest = hashlib.sha256(array.data).hexdigest()
            if digest not in self._places:
                self._places[digest] = len(self.arrays)
                self.arrays.append(array)
                self.digests.append(digest)
            self._seen[same] = self._places[digest]
        return self._seen[same]


@dataclass(frozen=True)
class Sealed:
    """A file that was checked.

    Attributes:
        header: as it was written. `parts`: u8, mapped; `digests`: their SHA-256, in hex.
    """

    header: Mapping[str, Any]
    parts: Sequence[Bytes]
    digests: Sequence[str]


def write_sealed(file: BinaryIO, header: Mapping[str, Any], parts: Parts, signer: Signer | None = None) -> None:
    """To an open file that is at its beginning; OSError when it takes no more."""
    sizes = [[array.nbytes, digest] for array, digest in zip(parts.arrays, parts.digests)]
    text = json.dumps({**header, _PARTS: sizes}, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(HEAD.size + len(text)) % _ALIGN)
    head = HEAD.pack(MAGIC, len(text), hashlib.sha256(text).digest())
    file.write(head)
    file.write(text)
    position = 0
    for array in parts.arrays:
        gap = -position % _ALIGN
        file.write(bytes(gap))
        file.write(array.data)
        position += gap + array.nbytes
    if signer is not None:
        file.write(signer.trailer(head))


def read_header(path: Path, trust: Trust | None = None) -> tuple[Mapping[str, Any], Bytes]:
    """The header of a file, checked, and all of its bytes, mapped, of which nothing else is.

    Raises:
        CompiledModelError: missing, damaged, of another kind or version, or not signed as `trust` asks.
    """
    mapped, length, digest = mapped_file(path, MAGIC, trust)
    text = bytes(mapped[HEAD.size : HEAD.size + length])
    if hashlib.sha256(text).digest() != digest:
        raise damaged(path)
    header: Mapping[str, Any] = json.loads(text)
    return header, mapped[HEAD.size + length :].view(np.ndarray)


def read_sealed(path: Path, trust: Trust | None = None) -> Sealed:
    """Map a file and check all of it; nothing in it is used before. Raises as `read_header`."""
    header, behind = read_header(path, trust)
    try:
        digests = [str(one) for _, one in header[_PARTS]]
        parts = list(_placed(behind, [int(size) for size, _ in header[_PARTS]]))
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path) from error
    with ThreadPoolExecutor(machine.allowed_cores(), "autotune-hash") as threads:  # without Python's lock
        found = list(threads.map(lambda part: hashlib.sha256(part.data).hexdigest(), parts))
    if found != digests:
        raise damaged(path)
    return Sealed(header, parts, digests)


def _placed(behind: Bytes, sizes: Sequence[int]) -> Iterator[Bytes]:
    """The parts of what follows the header. Raises ValueError where one lies outside."""
    position = 0
    for size in sizes:
        position += -position % _ALIGN
        if size < 0 or position + size > behind.size:
            raise ValueError("a part lies outside")
        yield behind[position : position + size]
        position += size
