"""Rows on their way through the experts of a mixture: only the chosen ones, each matrix read for many rows at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.frontend.node import OnnxNode

MOST_ROWS = 32
"""Rows of a block at most: more would not make its product faster, and the last block of an expert is rarely full."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Rows in blocks, all rows of a block for one expert.

    Attributes:
        rows: (blocks, rows of a block, width), or one block for all experts to read.
        expert: (blocks,), of each block.
        slots: (tokens * experts of a token,), where the row of a route is among those of all blocks; None where each
            route is a block, in order.
    """

    rows: str
    expert: str
    slots: str | None


def routed(node: OnnxNode, tokens: str, chosen: str, experts: int) -> Routes:
    """Tokens (count, width) on their way through the experts chosen for each (count, k)."""
    count, k = node.builder.values[chosen].shape
    width = node.builder.values[tokens].shape[1]
    size = rows_of_a_block(count * k, experts)
    if size == 1:
        rows = node.reshaped(tokens, (count, 1, width))
        if count > 1 and k > 1:
            rows = node.reshaped(node.expanded(rows, (count, k, width)), (count * k, 1, width))
        return Routes(rows, node.reshaped(chosen, (count * k,)), None)
    expert, slots, blocks = _blocks(node, node.reshaped(chosen, (count * k,)), experts, size)
    token = node.new_constant(np.arange(count * k) // k)
    unused = node.new_constant(np.zeros(blocks * size, np.int64))
    source = node.emit("scatter_elements", unused, slots, token, axis=0, reduction="none")
    rows = node.reshaped(node.emit("gather", tokens, source, axis=0), (blocks, size, width))
    return Routes(rows, expert, slots)


def rows_of_a_block(routes: int, experts: int) -> int:
    """So that most blocks are full, and half as many rows again are computed as there are, at most: a power of two.

    One where that would read no fewer matrices than there are routes.
    """
    size = 1
    while 4 * size * experts <= routes and size < MOST_ROWS:
        size *= 2
    return size


def _blocks(node: OnnxNode, chosen: str, experts: int, size: int) -> tuple[str, str, int]:
    """(expert of each block, slot of each route, number of blocks): an expert's routes in order, from a new block on.

    How many blocks an expert has is known at run time only; how many all have at most, before.
    """
    (routes,) = node.builder.values[chosen].shape
    blocks = (routes + experts * (size - 1)) // size
    one = node.new_constant(np.asarray(1, np.int64))
    height = node.new_constant(np.asarray(size, np.int64))
    names = node.new_constant(np.arange(experts)[None])
    mine = node.emit("cast", node.emit("equal", node.reshaped(chosen, (routes, 1)), names), to="i64")
    seen = node.emit("cumsum", mine, axis=0, exclusive=False, reverse=False)
    total = node.reshaped(node.sliced(seen, (range(routes - 1, routes), range(experts))), (experts,))
    own = node.emit("div", node.emit("add", total, node.new_constant(np.asarray(size - 1, np.int64))), height)
    ends = node.emit("cumsum", own, axis=0, exclusive=False, reverse=False)
    begin = node.emit("mul", node.emit("sub", ends, own), height)
    place = node.emit("add", begin, node.emit("sub", seen, one))
    slots = node.emit("reduce_sum", node.emit("mul", mine, place), axes=(1,), keepdims=False)
    before = node.emit("less_or_equal", ends, node.new_constant(np.arange(blocks)[:, None]))
    expert = node.emit("reduce_sum", node.emit("cast", before, to="i64"), axes=(1,), keepdims=False)
    last = node.new_constant(np.asarray(experts - 1, np.int64))  # of blocks that nobody needs
    return node.emit("min", expert, last), slots, blocks
