"""What all files of `autotune compile` begin and end with, how they are written, and what is checked before any of it.

bytes 0..8    magic, kind and version     8..16  length of the header     16..48  SHA-256 of what the kind says
a signed file ends with its signature (`signature.py`), which is over these bytes
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from autotune.errors import CompiledModelError, TargetError
from autotune.runtime.signature import TRAILER_BYTES, Trust
from autotune.target import Target

HEAD = struct.Struct("<8sQ32s")
_NAME = b"ATMODEL"
_STAGED = 0x80
"""The bit of a version that says of which kind the file is."""


def magic(version: int, staged: bool = False) -> bytes:
    """What a file of a version begins with."""
    return _NAME + bytes([version | _STAGED if staged else version])


def is_compiled(data: bytes) -> bool:
    """Whether the first bytes are those of a compiled model of any kind and version."""
    return data[:7] == _NAME


def is_staged(data: bytes) -> bool:
    """Whether the first bytes are those of a model with the programs of its stages, of any version."""
    return is_compiled(data) and len(data) > len(_NAME) and bool(data[len(_NAME)] & _STAGED)


def is_compiled_file(path: Path) -> bool:
    """Whether the file begins as a compiled model does; False when it cannot be read."""
    return is_compiled(_beginning(path))


def is_staged_file(path: Path) -> bool:
    """Whether it is one that holds a model with the programs of its stages; False when it cannot be read."""
    return is_staged(_beginning(path))


def _beginning(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe may never give anything
            return b""
        with path.open("rb") as file:
            return file.read(len(_NAME) + 1)
    except (OSError, ValueError):
        return b""


def mapped_file(path: Path, wanted: bytes, trust: Trust | None) -> tuple[npt.NDArray[np.uint8], int, bytes]:
    """A file of one kind and version, none of which has been parsed.

    Args:
        wanted: its `magic`.
        trust: whose signature it must have; None takes any file.

    Returns:
        all bytes, mapped, the length of the header, and the checksum.

    Raises:
        CompiledModelError: missing, another file, of another version, or not signed as `trust` asks.
    """
    try:
        mapped = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is empty"
        raise CompiledModelError(f"cannot read compiled model {path}: {reason}") from error
    if mapped.size < HEAD.size or not is_compiled(bytes(mapped[:8])):
        raise CompiledModelError(f"{path} is not a compiled model; make one with: autotune compile MODEL -o FILE")
    head = bytes(mapped[: HEAD.size])
    found, length, digest = HEAD.unpack(head)
    if found != wanted:
        kind = is_staged(found) != is_staged(wanted)
        why = "holds a model of another kind" if kind else "was written by another version of autotune"
        raise CompiledModelError(f"{path} {why}; compile the model again")
    if trust is not None:
        trust.check(path, head, bytes(mapped[-TRAILER_BYTES:]))
    return mapped, length, digest


def write_whole_file(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file that appears whole or not at all.

    Raises:
        CompiledModelError: it cannot be written (no permission, full disk), or `path` is a device or a pipe.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    if path.exists() and not path.is_file():
        raise CompiledModelError(f"cannot write {path}: it is no ordinary file; name another")
    temporary = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}")
    try:
        output = temporary.open("xb")  # with the permissions that the user's other files have
    except OSError as error:
        raise CompiledModelError(f"cannot write {path}: {error.strerror}") from error
    try:
        with output as file:
            write(file)
        os.replace(temporary, path)
    except OSError as error:
        raise CompiledModelError(f"cannot write {path}: {error.strerror}; free some space and try again") from error
    finally:
        temporary.unlink(missing_ok=True)


def require_cpu(path: Path, target: str) -> None:
    """Raises CompiledModelError where this CPU cannot run what was compiled for a target, in JSON."""
    try:
        Target.from_json(target).require_host()
    except TargetError as error:
        raise CompiledModelError(f"{path} cannot run here: {error}") from error


def damaged(path: Path) -> CompiledModelError:
    return CompiledModelError(f"{path} is damaged (its checksum does not match); compile the model again")
