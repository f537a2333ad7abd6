"""Footprints: how much memory each loop of a nest touches in one turn, beside the caches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.lower.ir import REGISTER, Buffer, For, Load, LoopProgram, Prefetch, Stmt, Store, body_of, expressions
from autotune.tensor.linear import Linear, Ranges


@dataclass(frozen=True, slots=True)
class LoopFootprint:
    """One loop.

    Attributes:
        depth: loops around it.
        var, extent, mark: as in the loop IR.
        touched: bytes that one turn reads or writes, by buffer; registers are left out.
    """

    depth: int
    var: str
    extent: int
    mark: str
    touched: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.touched.values())


def footprints(program: LoopProgram) -> list[LoopFootprint]:
    """Every loop around other loops, parents first: those whose turns are more than a few instructions.

    What a turn touches of a buffer is counted as the box around all its places.
    """
    return list(_loops(program.body, 0, {}))


def _loops(body: tuple[Stmt, ...], depth: int, outside: Ranges) -> Iterator[LoopFootprint]:
    for stmt in body:
        if not isinstance(stmt, For):
            yield from _loops(body_of(stmt), depth, outside)
            continue
        here = {**outside, stmt.var: (stmt.begin, stmt.begin)}  # one turn: the first
        if stmt.mark in ("", "parallel"):
            boxes: dict[str, tuple[Buffer, list[tuple[int, int]]]] = {}
            _touch(stmt.body, here, boxes)
            touched = {name: _bytes(buffer, box) for name, (buffer, box) in boxes.items()}
            yield LoopFootprint(depth, stmt.var, stmt.extent, stmt.mark, touched)
        yield from _loops(stmt.body, depth + 1, here)


def _touch(body: tuple[Stmt, ...], ranges: Ranges, boxes: dict[str, tuple[Buffer, list[tuple[int, int]]]]) -> None:
    for stmt in body:
        inside = ranges
        if isinstance(stmt, For):
            inside = {**ranges, stmt.var: (stmt.begin, stmt.begin + max(stmt.extent, 1) - 1)}
        places = [(e.buffer, e.indices) for e in expressions(stmt) if isinstance(e, Load)]
        if isinstance(stmt, Store):
            places += stmt.targets
        if isinstance(stmt, Prefetch):
            continue
        for buffer, indices in places:
            if buffer.scope != REGISTER:
                _widen(boxes, buffer, [_range(index, inside, size) for index, size in zip(indices, buffer.shape)])
        _touch(body_of(stmt), inside, boxes)


def _range(index: Linear, ranges: Ranges, size: int) -> tuple[int, int]:
    """Where an index may lie, within its dimension; everywhere when data decides."""
    if index.is_opaque:
        return 0, size - 1
    low, high = index.range(ranges)
    return max(low, 0), min(high, size - 1)


def _widen(boxes: dict[str, tuple[Buffer, list[tuple[int, int]]]], buffer: Buffer, box: list[tuple[int, int]]) -> None:
    if buffer.name in boxes:
        box = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(boxes[buffer.name][1], box)]
    boxes[buffer.name] = (buffer, box)


def _bytes(buffer: Buffer, box: list[tuple[int, int]]) -> int:
    return math.prod(max(high - low + 1, 0) for low, high in box) * buffer.dtype.bytes
