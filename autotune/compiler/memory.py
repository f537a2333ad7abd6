"""Memory plan: one arena, buffers that are never alive together share space.

Placing intervals in the least space is NP-hard. Buffers are placed one by one, each in the gap among its neighbours in
time that fits it best; what decides is their order. A few orders are tried, then the buffers at the top of the best
plan are moved to the front, again and again, until the plan is as small as the most ever alive, or effort is spent.

Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020): greedy by size.
Maas et al., "TelaMalloc" (ASPLOS 2022): what a failed placement teaches about the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

ALIGN = 64
EFFORT = 500_000
"""Comparisons of two buffers that a plan may cost before the search for a better order ends."""


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
    """Offsets, multiples of `ALIGN`, such that buffers alive together do not overlap. Empty buffers lie anywhere."""
    sizes = [-(-b.size // ALIGN) * ALIGN for b in buffers]
    present = [n for n, size in enumerate(sizes) if size]
    neighbours, bound = _neighbours(buffers, sizes, present)
    best, total = [0] * len(buffers), sum(sizes) + 1
    left = EFFORT
    for order in _orders(buffers, sizes, present):
        offsets = _placed(order, sizes, neighbours)
        left -= sum(len(found) for found in neighbours.values()) + len(buffers)
        top = max((offsets[n] + sizes[n] for n in present), default=0)
        if top < total:
            best, total = offsets, top
        if total == bound or left <= 0:
            return MemoryPlan(tuple(best), total, bound)
    return MemoryPlan(*_improved(best, total, bound, sizes, present, neighbours, left), bound)


def _neighbours(
    buffers: Sequence[Lifetime], sizes: Sequence[int], present: Sequence[int]
) -> tuple[dict[int, list[int]], int]:
    """The buffers alive together with each one, and the most bytes alive at any step."""
    found: dict[int, list[int]] = {n: [] for n in present}
    alive: list[int] = []
    most = 0
    for n in sorted(present, key=lambda n: buffers[n].first):
        alive = [m for m in alive if buffers[m].last >= buffers[n].first]
        for m in alive:
            found[m].append(n)
        found[n] = list(alive)
        alive.append(n)
        most = max(most, sum(sizes[m] for m in alive))
    return found, most


def _orders(buffers: Sequence[Lifetime], sizes: Sequence[int], present: Sequence[int]) -> Iterator[list[int]]:
    """Orders worth trying, the usually best one first."""
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda n: (-sizes[n], buffers[n].first),
        lambda n: (-sizes[n] * (buffers[n].last - buffers[n].first + 1), buffers[n].first),
        lambda n: (buffers[n].first - buffers[n].last, -sizes[n]),
        lambda n: (buffers[n].first, -sizes[n]),
    )
    for key in keys:
        yield sorted(present, key=key)


def _placed(order: Sequence[int], sizes: Sequence[int], neighbours: dict[int, list[int]]) -> list[int]:
    """Each buffer in order at the lowest end of the narrowest gap that holds it."""
    offsets = [-1] * len(sizes)
    for n in order:
        taken = sorted((offsets[m], offsets[m] + sizes[m]) for m in neighbours[n] if offsets[m] >= 0)
        end, place, narrowest = 0, -1, 0
        for start, stop in taken:
            gap = start - end
            if gap >= sizes[n] and (place < 0 or gap < narrowest):
                place, narrowest = end, gap
            end = max(end, stop)
        offsets[n] = end if place < 0 else place
    return [max(offset, 0) for offset in offsets]


def _improved(
    offsets: list[int], total: int, bound: int, sizes: Sequence[int], present: Sequence[int],
    neighbours: dict[int, list[int]], effort: int,
) -> tuple[tuple[int, ...], int]:  # fmt: skip
    """A smaller plan, if one is found within the effort: whatever ends highest is placed earlier the next time."""
    order = sorted(present, key=lambda n: offsets[n])
    best, smallest, current = offsets, total, offsets
    cost = sum(len(found) for found in neighbours.values()) + len(sizes)
    promoted: set[int] = set()
    seen: set[tuple[object, ...]] = set()
    while effort > 0 and smallest > bound:
        top = max(current[n] + sizes[n] for n in present)
        highest = next(n for n in order if current[n] + sizes[n] == top)
        rank = {n: position for position, n in enumerate(order)}
        before = [m for m in neighbours[highest] if rank[m] < rank[highest]]
        # Just before the first neighbour that is in its way; all the way to the front when that was tried.
        goal = 0 if highest in promoted or not before else min(rank[m] for m in before)
        promoted.add(highest)
        order.remove(highest)
        order.insert(goal, highest)
        current = _placed(order, sizes, neighbours)
        effort -= cost
        top = max(current[n] + sizes[n] for n in present)
        if top < smallest:
            best, smallest = current, top
        if (state := (*order, len(promoted))) in seen:  # the same orders would come again and again
            break
        seen.add(state)
    return tuple(best), smallest
