"""Index of a segment: a small file beside it that lists its blocks, so that nobody has to read it to know what it has.

Gzipped JSON lines: a header, then targets and blocks. Its name holds the SHA-256 of the segment and of its own bytes,
so that an index that is half there or altered is noticed before a line of it is read. It is a hint from a stranger like
all else in a layer: what it says of a block is checked against the block's bytes when they are read.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.block import Block, Extent, Summary, Task
from autotune.records.exchange import MAX_LINE

FORMAT = "autotune-index"
VERSION = 1
SUFFIX = ".index.gz"
MAX_BYTES = 2**30
"""Of the index, zipped or not: some hundred bytes stand for a block, so that it is of terabytes."""
NAME = re.compile(rf"([0-9a-f]{{64}})\.([0-9a-f]{{64}}){re.escape(SUFFIX)}\Z")


def write_index(blocks: Sequence[Block], size: int, path: Path) -> None:
    """Writes the index of a segment of `size` bytes. Raises OSError."""
    with path.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as out:
        out.write(_line({"format": FORMAT, "version": VERSION, "bytes": size}))
        known: set[str] = set()
        for block in blocks:
            if block.task is not None and block.task.target_key not in known:
                known.add(block.task.target_key)
                target = {"target_key": block.task.target_key, "target": fields.embed(block.task.target)}
                out.write(_line({"target": target}))
            out.write(_line({"block": _mapping(block)}))


def read_index(path: Path, size: int | None) -> Iterator[Block]:
    """The blocks of a segment.

    Args:
        size: of the segment; None where the store does not say.

    Raises:
        DatabaseError: the index is damaged, of a newer version, or does not belong to a segment of this size.
    """
    try:
        with gzip.open(path, "rb") as lines:
            yield from _blocks(_numbered(lines), size)  # type: ignore[arg-type]
    except (EOFError, zlib.error):
        raise DatabaseError("its index is damaged: no gzip file") from None
    except OSError as error:
        raise DatabaseError(f"its index cannot be read: {error.strerror or 'no gzip file'}") from None


def _numbered(lines: BinaryIO) -> Iterator[tuple[int, Any]]:
    number = total = 0
    while line := lines.readline(MAX_LINE + 1):
        number, total = number + 1, total + len(line)
        if len(line) > MAX_LINE or total > MAX_BYTES:
            raise DatabaseError(f"its index, line {number}: too large")
        try:
            yield number, fields.parse_json(line.decode())
        except ValueError as error:
            raise DatabaseError(f"its index, line {number}: not JSON: {error}") from None


def _blocks(lines: Iterator[tuple[int, Any]], size: int | None) -> Iterator[Block]:
    targets: dict[str, str] = {}
    left = None
    for number, values in lines:
        try:
            if left is None:
                left = _bytes(values, size)
                end = left
                continue
            match values:
                case {"target": {"target_key": str(key), "target": target, **others}} if not others:
                    targets[key] = fields.unembed(target)
                case {"block": dict(found)}:
                    block = _block(found, targets)
                    left -= block.extent.size
                    if block.extent.ranges[-1][1] > end or left < 0:
                        raise DatabaseError(f"more than the segment's {end} bytes")
                    yield block
                case _:
                    raise DatabaseError("neither a target nor a block")
        except DatabaseError as error:
            raise DatabaseError(f"its index, line {number}: {error}") from None
    if left is None:
        raise DatabaseError("its index is empty")


def _bytes(values: object, size: int | None) -> int:
    """Of the segment, as the header says."""
    match values:
        case {"format": "autotune-index", "version": int(version), "bytes": int(found), **others}:
            if version != VERSION:
                raise DatabaseError(f"format version {version}, this autotune reads {VERSION}; upgrade autotune")
            if others or (size is not None and found != size):
                raise DatabaseError(f"it is of another segment: of {found} bytes, not {size}")
            return found
    raise DatabaseError("no header of an index")


def _mapping(block: Block) -> dict[str, object]:
    out: dict[str, object] = {"ranges": block.extent.ranges, "sha256": block.extent.sha256}
    for part, names in ((block.task, _TASK), (block.summary, _SUMMARY)):
        if part is not None:
            out |= {name: getattr(part, name) for name in names if getattr(part, name) not in (None, "")}
    if block.task is not None:
        out["workload"] = fields.embed(block.task.workload)
    return out


_TASK = ("workload_key", "anchor_key", "family_key", "description", "target_key")
_SUMMARY = ("trials", "verified", "failures", "best_seconds", "oldest", "newest")


def _block(values: dict[str, Any], targets: dict[str, str]) -> Block:
    match values:
        case {"ranges": list(ranges), "sha256": sha256, **rest}:
            extent = Extent(ranges=tuple(_range(one) for one in ranges), sha256=sha256)
        case _:
            raise DatabaseError("a block needs ranges and sha256")
    if not rest:
        return Block(extent)
    if unknown := sorted(rest.keys() - {*_TASK, *_SUMMARY, "workload"}):
        raise DatabaseError(f"a block has no field {fields.shown(unknown[0])}")
    if missing := sorted({"workload_key", "workload", "target_key", "trials", "oldest", "newest"} - rest.keys()):
        raise DatabaseError(f"a block needs the field {missing[0]!r}")
    if not isinstance(rest["target_key"], str) or rest["target_key"] not in targets:
        raise DatabaseError(f"no target {fields.shown(rest['target_key'])} before it")
    if not isinstance(rest.get("failures", {}), dict):
        raise DatabaseError("failures must be counts by kind")
    task = Task(
        **{name: rest[name] for name in _TASK if name in rest},
        workload=fields.unembed(rest["workload"]),
        target=targets[rest["target_key"]],
    )
    return Block(extent, task, Summary(**{name: rest[name] for name in _SUMMARY if name in rest}))


def _range(values: object) -> tuple[int, int]:
    match values:
        case [int(start), int(end)]:
            return fields.count("a range", start), fields.count("a range", end)
    raise DatabaseError("a range must be two whole numbers")


def _line(values: object) -> bytes:
    return f"{fields.dump_json(values)}\n".encode()
