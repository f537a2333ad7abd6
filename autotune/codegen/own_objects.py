"""Machine code of our own for operators that run on the host: LLVM compiles it once a process, unless a file brings it.

It is the same for every model, so that it is known by its text: what a file of another version brings is not asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from autotune.codegen.jit import compile_ir

_brought: dict[str, bytes] = {}  # of the process, as what is loaded of it is


def own_object(ir_text: str, cpu: str) -> bytes:
    """The object code of an IR text: what a file has brought, else what LLVM makes of it."""
    found = _brought.get(own_key(ir_text, cpu))
    return compile_ir(ir_text, cpu=cpu, features="").object_code if found is None else found


def own_key(ir_text: str, cpu: str) -> str:
    """What the object of a text is brought under."""
    return hashlib.sha256(f"{cpu}\n{ir_text}".encode()).hexdigest()


def bring(objects: Mapping[str, bytes]) -> None:
    """Objects of a file that was checked, by their keys; what is loaded already stays."""
    _brought.update(objects)
