"""What passes between a tuner and its worker processes: JSON and raw bytes, never pickle.

A frame is `magic, length of header (u32), length of all blobs (u64), header, blobs`. The header is
JSON: the body and the length of each blob. Anything else on the pipe is refused, so a worker gone
wild cannot make the tuner run or misread something.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from autotune.errors import MeasureError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"atm1"
_MAX_HEADER = 64 << 20
_MAX_BLOBS = 4 << 30


@dataclass(frozen=True, slots=True)
class Message:
    """One request or reply: a JSON object and, beside it, binary data that JSON would bloat."""

    body: dict[str, Json]
    blobs: tuple[bytes, ...] = ()


def encode(message: Message) -> bytes:
    """One frame as bytes."""
    header = json.dumps([message.body, [len(blob) for blob in message.blobs]], separators=(",", ":")).encode()
    total = sum(len(blob) for blob in message.blobs)
    return b"".join((_PREFIX.pack(_MAGIC, len(header), total), header, *message.blobs))


@dataclass(slots=True)
class Decoder:
    """Turns a stream of byte chunks back into messages."""

    _buffer: bytearray = field(default_factory=bytearray)

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Yield every message that `chunk` completes.

        Raises:
            MeasureError: the bytes are no frame of ours.
        """
        self._buffer += chunk
        while len(self._buffer) >= _PREFIX.size:
            magic, header_size, blob_size = _PREFIX.unpack_from(self._buffer)
            if magic != _MAGIC or header_size > _MAX_HEADER or blob_size > _MAX_BLOBS:
                raise MeasureError("worker sent bytes that are no message; it is killed and started again")
            end = _PREFIX.size + header_size + blob_size
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_PREFIX.size : end])
            del self._buffer[:end]
            yield _parse(frame, header_size)


def _parse(frame: bytes, header_size: int) -> Message:
    try:
        body, sizes = json.loads(frame[:header_size])
        if not isinstance(body, dict) or sum(sizes) != len(frame) - header_size:
            raise ValueError("body or blob sizes do not fit the frame")
    except (ValueError, TypeError) as error:
        raise MeasureError(f"worker sent a damaged message ({error}); it is killed and started again") from error
    blobs, start = [], header_size
    for size in sizes:
        blobs.append(frame[start : start + size])
        start += size
    return Message(body, tuple(blobs))
