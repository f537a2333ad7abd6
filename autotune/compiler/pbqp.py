"""Partitioned boolean quadratic problems: options per node, a cost per option, a cost per pair of options on an edge.

Solved as in register allocation (Scholz and Eckstein, LCTES 2002): nodes of up to two neighbours are taken out without
loss, so chains, trees and all that is series-parallel are solved exactly; where every node has three, the busiest one
takes the option that looks best locally. What was taken out then decides in reverse order, and single nodes change
their minds as long as that helps.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.float64]
SWEEPS = 10


def solve(costs: Sequence[Costs], edges: Mapping[tuple[int, int], Costs]) -> list[int]:
    """The option of each node.

    Args:
        costs: one vector per node, an entry for each of its options; at least one.
        edges: a matrix for pairs of different nodes (u, v), by options of u and of v. Infinite costs forbid.
    """
    problem = _Problem(costs, edges)
    chosen = problem.solved()
    _improve(costs, problem.full, chosen)
    return chosen


def total(costs: Sequence[Costs], edges: Mapping[tuple[int, int], Costs], chosen: Sequence[int]) -> float:
    """What a choice costs."""
    alone = sum(float(cost[option]) for cost, option in zip(costs, chosen, strict=True))
    return alone + sum(float(matrix[chosen[u], chosen[v]]) for (u, v), matrix in edges.items())


class _Problem:
    def __init__(self, costs: Sequence[Costs], edges: Mapping[tuple[int, int], Costs]) -> None:
        self.costs = [np.array(cost, np.float64) for cost in costs]
        self.near: list[dict[int, Costs]] = [{} for _ in costs]
        for (u, v), matrix in edges.items():
            self._add(u, v, np.asarray(matrix, np.float64))
        self.full = [dict(near) for near in self.near]
        self.gone: list[tuple[int, dict[int, Costs]]] = []

    def solved(self) -> list[int]:
        live = [True] * len(self.costs)
        queue = [(len(near), u) for u, near in enumerate(self.near)]
        heapq.heapify(queue)
        while queue:
            degree, u = heapq.heappop(queue)
            if not live[u] or degree != len(self.near[u]):
                continue  # an entry from before the node's neighbours went
            if degree > 2:
                heapq.heappush(queue, (degree, u))
                u = max((n for n, alive in enumerate(live) if alive), key=lambda n: (len(self.near[n]), -n))
            live[u] = False
            for v in self._take_out(u):
                heapq.heappush(queue, (len(self.near[v]), v))
        chosen = [0] * len(self.costs)
        for u, near in reversed(self.gone):
            cost = self.costs[u].copy()
            for v, matrix in near.items():
                cost += matrix[:, chosen[v]]
            chosen[u] = int(np.argmin(cost))
        return chosen

    def _take_out(self, u: int) -> list[int]:
        """Remove a node, its cost moved to its neighbours, which are returned."""
        near = self.near[u]
        for v in near:
            del self.near[v][u]
        if len(near) == 1:
            ((v, matrix),) = near.items()
            self.costs[v] += (self.costs[u][:, None] + matrix).min(axis=0)
        elif len(near) == 2:
            (v, first), (w, second) = near.items()
            both = self.costs[u][:, None, None] + first[:, :, None] + second[:, None, :]
            self._add(v, w, both.min(axis=0))
        elif near:
            local = self.costs[u].copy()
            for v, matrix in near.items():
                local += (matrix + self.costs[v][None, :]).min(axis=1)
            option = int(np.argmin(local))
            for v, matrix in near.items():
                self.costs[v] += matrix[option]
            only = np.full_like(self.costs[u], np.inf)
            only[option] = self.costs[u][option]
            self.costs[u] = only
        self.gone.append((u, near))
        return list(near)

    def _add(self, u: int, v: int, matrix: Costs) -> None:
        known = self.near[u].get(v)
        summed = matrix if known is None else known + matrix
        self.near[u][v], self.near[v][u] = summed, summed.T


def _improve(costs: Sequence[Costs], near: Sequence[Mapping[int, Costs]], chosen: list[int]) -> None:
    """Let every node take its best option given all others, in turn, until none changes."""
    for _ in range(SWEEPS):
        changed = False
        for u, cost in enumerate(costs):
            if len(cost) == 1:
                continue
            here = np.array(cost, np.float64)
            for v, matrix in near[u].items():
                here += matrix[:, chosen[v]]
            option = int(np.argmin(here))
            if here[option] < here[chosen[u]]:
                chosen[u], changed = option, True
        if not changed:
            return
