"""What compiled code is, for those who keep it and those who run it: none of them needs LLVM."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompiledObject:
    """A relocatable object and what its assembly tells about it.

    Attributes:
        object_code: the bytes of an ELF relocatable object.
        ir_hash: identity of the IR text it was compiled from.
        spills: vector instructions that touch the stack (static count); 0 where nobody counted.
        fmas: vector multiply-accumulate instructions (static count); likewise.
    """

    object_code: bytes
    ir_hash: str
    spills: int = 0
    fmas: int = 0


def ir_hash(ir_text: str) -> str:
    """The identity of an IR text: SHA-256, 64 hex digits."""
    return hashlib.sha256(ir_text.encode()).hexdigest()
