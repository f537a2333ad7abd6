"""Compiled model files: a header, JSON plans, objects and packed weights. No pickle, nothing executed before checks.

bytes 0..8    magic and version     8..16  length of the header     16..48  SHA-256 of all that follows
header JSON, then blobs at multiples of 4096 bytes: the objects, the runtime, and the constants (mapped, not read)
a signed file ends with its signature (`signature.py`)
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from autotune.runtime.constants import Constants
from autotune.runtime.file_head import HEAD, damaged, magic, mapped_file, require_cpu, write_whole_file
from autotune.runtime.program import Program
from autotune.runtime.selection import Selection
from autotune.runtime.signature import Signer, Trust

MAGIC = magic(4)
_PAGE = 4096
_LENGTH = struct.Struct("<Q")


class Alone(NamedTuple):
    """All that `Executor` takes: `objects` and `runtime` are object files."""

    program: Program
    objects: Sequence[bytes]
    constants: Constants
    runtime: bytes


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled model: a program, or those of several shapes, which share objects and constants.

    Attributes:
        objects, runtime: object files.
        selection: which program a run takes; None where there is one for all.
    """

    programs: Sequence[Program]
    objects: Sequence[bytes]
    constants: Constants
    runtime: bytes
    selection: Selection | None = None

    def alone(self, number: int = 0) -> Alone:
        """One of the programs, with the objects that it calls."""
        program = self.programs[number]
        if len(self.programs) == 1:
            return Alone(program, self.objects, self.constants, self.runtime)
        used = {at: n for n, at in enumerate(dict.fromkeys(call.object for call in program.calls))}
        calls = tuple(replace(call, object=used[call.object]) for call in program.calls)
        return Alone(replace(program, calls=calls), [self.objects[at] for at in used], self.constants, self.runtime)


def save_artifact(path: Path, artifact: Artifact, signer: Signer | None = None) -> None:
    """Write a compiled model; the file appears whole or not at all.

    Raises:
        CompiledModelError: the file cannot be written (no permission, full disk), or `path` is a device or a pipe.
    """
    write_whole_file(path, lambda file: write_artifact(file, artifact, signer))


def write_artifact(file: BinaryIO, artifact: Artifact, signer: Signer | None = None) -> None:
    """`save_artifact` to an open file that is at its beginning; OSError when it takes no more."""
    text = _header(artifact)
    digest = hashlib.sha256(text)
    for part in _parts(artifact):
        digest.update(part)
    head = HEAD.pack(MAGIC, len(text), digest.digest())
    file.write(head)
    file.write(text)
    file.writelines(_placed(artifact, len(head) + len(text)))
    if signer is not None:
        file.write(signer.trailer(head))


def to_buffers(artifact: Artifact) -> Iterator[Any]:
    """A compiled model as buffers that follow one another: what a file has, for who checks by himself what he reads."""
    text = _header(artifact)
    yield _LENGTH.pack(len(text))
    yield text
    yield from _placed(artifact, _LENGTH.size + len(text))


def from_memory(memory: npt.NDArray[np.uint8]) -> Artifact:
    """The compiled model that `to_buffers` gave, in memory (bytes,) that is as aligned as its constants have to be."""
    (length,) = _LENGTH.unpack(memory[: _LENGTH.size].data)
    end = _LENGTH.size + length
    header = json.loads(memory[_LENGTH.size : end].tobytes())
    return _assembled(header, _blobs(memory, end, header["sizes"]))


def _header(artifact: Artifact) -> bytes:
    sizes = [*map(len, artifact.objects), len(artifact.runtime), artifact.constants.nbytes]
    selection = None if artifact.selection is None else artifact.selection.to_json()
    programs = [program.to_json() for program in artifact.programs]
    header = {"programs": programs, "selection": selection, "sizes": sizes}
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def _parts(artifact: Artifact) -> Iterator[Any]:
    yield from artifact.objects
    yield artifact.runtime
    yield from artifact.constants.chunks()


def _placed(artifact: Artifact, position: int) -> Iterator[Any]:
    """What follows the header: objects, runtime and constants, each at a multiple of a page."""
    for blob in (*artifact.objects, artifact.runtime):
        gap = -position % _PAGE
        yield bytes(gap)
        yield blob
        position += gap + len(blob)
    yield bytes(-position % _PAGE)
    for chunk in artifact.constants.chunks():
        yield chunk.data


def _blobs(memory: npt.NDArray[np.uint8], position: int, sizes: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
    """The parts of what `_placed` gave. Raises ValueError where they are not all there."""
    found = []
    for size in sizes:
        position += -position % _PAGE
        if size < 0 or position + size > memory.size:
            raise ValueError("a part lies outside")
        found.append(memory[position : position + size])
        position += size
    return found


def _assembled(header: Any, blobs: Sequence[npt.NDArray[np.uint8]]) -> Artifact:
    """What a header and the parts behind it say. Raises KeyError, TypeError or ValueError where it does not fit."""
    programs = [Program.from_json(plan) for plan in header["programs"]]
    selection = None if header["selection"] is None else Selection.from_json(header["selection"])
    if len(programs) != (1 if selection is None else len(selection.candidates)) or not programs or len(blobs) < 2:
        raise ValueError("programs that nothing chooses among")
    objects = [blob.tobytes() for blob in blobs[:-2]]
    return Artifact(programs, objects, Constants.of(blobs[-1]), blobs[-2].tobytes(), selection)


def load_artifact(path: Path, trust: Trust | None = None) -> Artifact:
    """Read a compiled model and check it: version, checksum, CPU features. Weights stay mapped from the file.

    Args:
        trust: whose signature it must have; None takes any file.

    Raises:
        CompiledModelError: missing, damaged, of another version, made for another CPU, or not signed as `trust` asks.
    """
    mapped, length, digest = mapped_file(path, MAGIC, trust)
    text = bytes(mapped[HEAD.size : HEAD.size + length])
    try:
        header = json.loads(text)
        sizes = [int(n) for n in header["sizes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path) from error
    try:
        blobs = _blobs(mapped, HEAD.size + length, sizes)
    except ValueError as error:
        raise damaged(path) from error
    check = hashlib.sha256(text)
    for blob in blobs:
        check.update(blob.data)
    if check.digest() != digest:
        raise damaged(path)
    try:
        artifact = _assembled(header, blobs)
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(path) from error
    require_cpu(path, artifact.programs[0].target)
    return artifact
