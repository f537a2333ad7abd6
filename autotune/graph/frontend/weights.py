"""Large weights of a model file, read straight into arrays: protobuf would copy them, and copy them again for Python.

A file is taken apart as protobuf's wire format says (https://protobuf.dev/programming-guides/encoding): all fields are
handed on as they are, but for the data of large initializers, whose lengths are known from their headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

from autotune.graph.ir import Array
from autotune.tensor.aligned import aligned_empty

LARGE = 1 << 16
"""Bytes of a tensor whose data is worth it to be read apart."""

MOST_FIELDS = 1 << 18
"""What a model is taken apart into, at most: protobuf is faster where data is not in one piece."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # of ModelProto, GraphProto, TensorProto
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # kinds of fields


class _Unknown(Exception):
    """It is left to protobuf, which says what is wrong, if anything."""


def without_weights(file: BinaryIO, size: int) -> tuple[bytes, dict[int, Array]] | None:
    """A model without the data of its large initializers, and these, u8, by their places among all initializers.

    Args:
        file: at its beginning; `size` bytes.

    Returns:
        None where the file is no model, a damaged one, or one of too many parts.
    """
    if not size:
        return None
    reader = _Reader(file)
    try:
        return b"".join(reader.fields(size, {_GRAPH: reader.graph})), reader.found
    except (_Unknown, MemoryError):
        return None


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self.file, self.place = file, 0
        self.found: dict[int, Array] = {}
        self.tensors = self.count = 0

    def fields(self, end: int, inside: dict[int, Callable[[int], bytes | None]]) -> Iterator[bytes]:
        """The fields up to a place in the file; of those `inside`, what their readers make of so many bytes."""
        while self.place < end:
            self.count += 1
            if self.count > MOST_FIELDS:
                raise _Unknown
            key, head = self.number(end)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                yield head + self.number(end)[1]
            elif kind in (_EIGHT, _FOUR):
                yield head + self.take(8 if kind == _EIGHT else 4, end)
            elif kind == _BYTES:
                length, encoded = self.number(end)
                if length > end - self.place:
                    raise _Unknown
                if number not in inside:
                    yield head + encoded + self.take(length, end)
                elif (body := inside[number](length)) is not None:
                    yield head + _encoded(len(body)) + body
            else:
                raise _Unknown  # groups, which ONNX has not

    def graph(self, length: int) -> bytes:
        return b"".join(self.fields(self.place + length, {_INITIALIZER: self.tensor}))

    def tensor(self, length: int) -> bytes:
        self.tensors += 1
        end = self.place + length
        return self.take(length, end) if length < LARGE else b"".join(self.fields(end, {_RAW_DATA: self.data}))

    def data(self, length: int) -> bytes | None:
        """Reads the data of the present tensor; None in its place."""
        array = aligned_empty(length)  # so that programs may read it where it is
        into, done = array.data, 0
        while done < length:
            count = self.file.readinto(into[done:])  # type: ignore[attr-defined]  # files opened for bytes have it
            if not count:
                raise _Unknown  # it became shorter
            done += count
        self.place += length
        array.flags.writeable = False
        self.found[self.tensors - 1] = array
        return None

    def take(self, count: int, end: int) -> bytes:
        found = self.file.read(count) if count <= end - self.place else b""
        if len(found) != count:
            raise _Unknown
        self.place += count
        return found

    def number(self, end: int) -> tuple[int, bytes]:
        """A variable-length integer, and its bytes."""
        value, encoded = 0, b""
        while len(encoded) < 10:
            encoded += self.take(1, end)
            value |= (encoded[-1] & 0x7F) << 7 * (len(encoded) - 1)
            if encoded[-1] < 0x80:
                return value, encoded
        raise _Unknown


def _encoded(value: int) -> bytes:
    """A variable-length integer."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
