"""Topological order, iterative and stable: 10,000-node chains are fine, and what is sorted stays as it is."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


def topological_order(dependencies: Sequence[Collection[int]]) -> list[int]:
    """Positions ordered so that each follows its dependencies; those on or behind a cycle are left out."""
    waiting = [len(sources) for sources in dependencies]
    readers: dict[int, list[int]] = {}
    for position, sources in enumerate(dependencies):
        for source in sources:
            readers.setdefault(source, []).append(position)
    ready = [position for position, count in enumerate(waiting) if not count]  # ascending: a heap
    order: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for reader in readers.get(position, []):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return order
