"""The solver against enumeration: exact where it promises to be, a local optimum elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.compiler.pbqp import Costs, solve, total

Edges = dict[tuple[int, int], Costs]


def instance(seed: int, nodes: int, pairs: list[tuple[int, int]]) -> tuple[list[Costs], Edges]:
    rng = np.random.default_rng(seed)
    costs = [rng.uniform(0, 1, rng.integers(1, 5)) for _ in range(nodes)]
    edges = {(u, v): rng.uniform(0, 2, (len(costs[u]), len(costs[v]))) for u, v in pairs}
    for matrix in edges.values():
        matrix[rng.uniform(size=matrix.shape) < 0.1] = 50
    return costs, edges


def least(costs: list[Costs], edges: Edges) -> float:
    return min(total(costs, edges, choice) for choice in itertools.product(*(range(len(c)) for c in costs)))


@pytest.mark.parametrize("seed", range(10))
def test_trees_and_rings_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = [(int(rng.integers(0, n)), n) for n in range(1, 8)]
    ring = [(n, (n + 1) % 7) for n in range(7)]
    for pairs in (tree, ring):
        costs, edges = instance(seed, 8, pairs)
        assert total(costs, edges, solve(costs, edges)) == pytest.approx(least(costs, edges))


def test_dense_graphs_come_close_and_no_single_change_helps() -> None:
    found, best = 0.0, 0.0
    for seed in range(20):
        costs, edges = instance(seed, 6, list(itertools.combinations(range(6), 2)))
        chosen = solve(costs, edges)
        here = total(costs, edges, chosen)
        for node, options in enumerate(costs):
            for option in range(len(options)):
                assert total(costs, edges, [*chosen[:node], option, *chosen[node + 1 :]]) >= here - 1e-9
        found, best = found + here, best + least(costs, edges)
    assert found <= 1.1 * best


def test_what_is_forbidden_is_not_taken() -> None:
    inf = np.inf
    edges = {(0, 1): np.array([[inf, 1.0], [1.0, inf]]), (1, 2): np.array([[inf, 0.0], [0.0, inf]])}
    assert solve([np.array([0.0, 5.0]), np.zeros(2), np.zeros(2)], edges) == [0, 1, 0]


def test_long_chains_and_no_nodes() -> None:
    assert solve([], {}) == []
    costs = [np.array([1.0, 0.0]) if n % 2 else np.array([0.0, 0.5]) for n in range(3000)]
    edges = {(n, n + 1): 2 * (1 - np.eye(2)) for n in range(2999)}
    assert len(set(solve(costs, edges))) == 1
