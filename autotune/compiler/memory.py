"""Memory plan: one arena, buffers that are never alive together share space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `size` bytes, needed from step `first` to step `last` inclusive."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offset of each buffer, the arena's size, and the most that is alive at any step."""

    offsets: tuple[int, ...]
    total: int
    lower_bound: int


def plan_memory(buffers: Sequence[Lifetime]) -> MemoryPlan:
    """Greedy by size: the largest buffers first, each at the lowest gap among those alive with it.

    Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020).
    """
    rounded = [-(-b.size // ALIGN) * ALIGN for b in buffers]
    offsets = [0] * len(buffers)
    placed: list[int] = []
    for n in sorted(range(len(buffers)), key=lambda n: (-rounded[n], buffers[n].first)):
        b = buffers[n]
        alive = [m for m in placed if buffers[m].first <= b.last and b.first <= buffers[m].last]
        offset = 0
        for m in sorted(alive, key=lambda m: offsets[m]):
            if offset + rounded[n] <= offsets[m]:
                break
            offset = max(offset, offsets[m] + rounded[m])
        offsets[n] = offset
        placed.append(n)
    total = max((offsets[n] + rounded[n] for n in placed), default=0)
    steps = sorted({b.first for b in buffers})
    bound = max((sum(r for r, b in zip(rounded, buffers) if b.first <= step <= b.last) for step in steps), default=0)
    return MemoryPlan(tuple(offsets), total, bound)
