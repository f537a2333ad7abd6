"""Footprints: how much memory each loop of a nest touches in one turn, beside the caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.lower.ir import For, LoopProgram, Stmt, body_of
from autotune.lower.regions import touched
from autotune.tensor.linear import Ranges


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

    What a turn touches of a buffer is counted as the box around all its places, but for what loops step over.
    """
    return list(_loops(program.body, 0, {}))


def _loops(body: tuple[Stmt, ...], depth: int, outside: Ranges) -> Iterator[LoopFootprint]:
    for stmt in body:
        if not isinstance(stmt, For):
            yield from _loops(body_of(stmt), depth, outside)
            continue
        here = {**outside, stmt.var: (stmt.begin, stmt.begin)}  # one turn: the first
        if stmt.mark in ("", "parallel"):
            bytes_ = {name: region.bytes for name, region in touched(stmt.body, here).items()}
            yield LoopFootprint(depth, stmt.var, stmt.extent, stmt.mark, bytes_)
        yield from _loops(stmt.body, depth + 1, here)
