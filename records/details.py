"""Details: what a trial says beside its identity and outcome, as bytes that share what trials of a task have in common.

The schedule steps of one task differ in a few numbers among thousands of characters. So the details of the first trial
of a workload and template are a preset dictionary (RFC 1950) for all later ones: a tenth of the size, and the checksum
that zlib adds tells damage. Part of the schema: a change of this form needs a migration.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from autotune.errors import DatabaseError

MAX_BYTES = 64 * 2**20
"""No details are larger: a foreign file may hold a few bytes that claim to be terabytes."""
_LEVEL = 9


def pack(values: Mapping[str, object], base: bytes = b"") -> bytes:
    """Compressed JSON; `base`: packed details that have much in common with these."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    dictionary = unpacked(base) if base else b""
    packer = zlib.compressobj(_LEVEL, zdict=dictionary) if dictionary else zlib.compressobj(_LEVEL)
    return packer.compress(text) + packer.flush()


def unpack(packed: object, base: object = None) -> dict[str, Any]:
    """What `pack` was given; `base`: the same as there.

    Raises:
        DatabaseError: the bytes are damaged, or belong to another base.
    """
    if not isinstance(packed, bytes) or not isinstance(base, (bytes, type(None))):
        raise DatabaseError("details must be bytes")
    try:
        values = json.loads(unpacked(packed, unpacked(base) if base else b""))
    except (ValueError, RecursionError):
        raise DatabaseError("details are no JSON") from None
    if not isinstance(values, dict):
        raise DatabaseError("details are no JSON object")
    return values


def unpacked(packed: bytes, dictionary: bytes = b"") -> bytes:
    """The text of packed details. Raises DatabaseError where they are damaged."""
    opener = zlib.decompressobj(zdict=dictionary) if dictionary else zlib.decompressobj()
    try:
        text = opener.decompress(packed, MAX_BYTES)
    except zlib.error as error:
        raise DatabaseError(f"details cannot be unpacked: {error}") from None
    if not opener.eof or opener.unused_data:
        raise DatabaseError("details are cut short, or too large")
    return text
