"""Sums of products in 16 bits: what instructions make that add pairs, until they would be too large.

They are added to a sum of 32 bits by an instruction of their own, which takes as long as what made them: so once for as
many of them as fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.codegen.index import Offset
from autotune.codegen.memory import Memory
from autotune.codegen.value import stored_type
from autotune.lower.ir import Buffer
from autotune.schedule.dot_products import DOT_PRODUCTS, MOST_HALF, PAIRS
from autotune.tensor.dtype import DType


@dataclass(frozen=True, slots=True)
class _Half:
    """`<2 * lanes x i16>`, none larger than `most`, that belongs to the sums of `lanes` elements from a place on."""

    buffer: Buffer
    offset: Offset
    lanes: int
    text: str
    most: int


class Halves:
    """Those of the statements since something else was last emitted than products."""

    def __init__(self, memory: Memory) -> None:
        self._m = memory
        self._kept: dict[tuple[str, Offset], _Half] = {}

    def add(self, buffer: Buffer, offset: Offset, text: str, most: int) -> None:
        """Sums of pairs, none larger than `most`, for the sums of all lanes at a place."""
        key, lanes = (buffer.name, offset), self._m.lanes
        before = self._kept.pop(key, None)
        if before is not None and before.most + most > MOST_HALF:
            self._settle(before)
            before = None
        if before is not None:
            text = self._m.w.value(f"add <{2 * lanes} x i16> {before.text}, {text}")
            most += before.most
        self._kept[key] = _Half(buffer, offset, lanes, text, most)

    def flush(self) -> None:
        """Whatever comes next finds whole sums."""
        for half in self._kept.values():
            self._settle(half)
        self._kept.clear()

    def _settle(self, half: _Half) -> None:
        w, x, lanes = self._m.w, self._m.x, half.lanes
        kind, pairs = stored_type(DType.i32, lanes), f"<{2 * lanes} x i16>"
        symbol = f"@{DOT_PRODUCTS[PAIRS].symbol(lanes)}"
        w.declare(f"{kind} {symbol}({pairs}, {pairs})")
        both = w.value(f"call {kind} {symbol}({pairs} {half.text}, {pairs} splat (i16 1))")
        pointer, align = x.pointer(half.buffer, half.offset, "i32"), x.alignment(half.buffer, half.offset)
        total = w.value(f"load {kind}, ptr {pointer}, align {align}")
        total = w.value(f"add {kind} {total}, {both}")
        w.forget(half.buffer.name)
        w.emit(f"store {kind} {total}, ptr {pointer}, align {align}")
