"""Rows on their way through the experts of a mixture: only the chosen ones, each matrix read for many rows at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.frontend.node import OnnxNode

MOST_ROWS = 32
"""Rows of a block at most: more would not make its product faster, and would take more memory where they are not."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Rows in blocks, all rows of a block for one expert.

    Attributes:
        rows: (blocks, rows of a block, width), or one block for all experts to read.
        expert: (blocks,), of each block.
        end: (blocks, 1, 1), how many rows of a block there are; less than one in a block that nobody needs. None where
            each route is a block.
        slots: (tokens * experts of a token,), where the row of a route is among those of all blocks; None where each
            route is a block, in order.
    """

    rows: str
    expert: str
    end: str | None
    slots: str | None

    def ended(self, node: OnnxNode, name: str) -> str:
        """Of (blocks, rows of a block, width), the rows that there are: what comes behind them nobody reads."""
        return name if self.end is None else node.emit("until", name, self.end, axis=1, rest="any")


def routed(node: OnnxNode, tokens: str, chosen: str, experts: int) -> Routes:
    """Tokens (count, width) on their way through the experts chosen for each (count, k)."""
    count, k = node.builder.values[chosen].shape
    width = node.builder.values[tokens].shape[1]
    size = rows_of_a_block(count, k, experts)
    if size == 1:
        rows = node.reshaped(tokens, (count, 1, width))
        if count > 1 and k > 1:
            rows = node.reshaped(node.expanded(rows, (count, k, width)), (count * k, 1, width))
        return Routes(rows, node.reshaped(chosen, (count * k,)), None, None)
    blocks = blocks_at_most(count, k, experts, size)
    expert, end, slots = _blocks(node, node.reshaped(chosen, (count * k,)), experts, size, blocks)
    token = node.new_constant(np.arange(count * k) // k)
    unused = node.new_constant(np.zeros(blocks * size, np.int64))
    source = node.emit("scatter_elements", unused, slots, token, axis=0, reduction="none")
    rows = node.reshaped(node.emit("gather", tokens, source, axis=0), (blocks, size, width))
    return Routes(rows, expert, end, slots)


def rows_of_a_block(tokens: int, k: int, experts: int) -> int:
    """Twice as many as an expert has on average, a power of two, so that its matrix is mostly read once; one where
    there are no more routes than experts, which hardly meet."""
    twice = -(-2 * tokens * k // experts)
    return 1 if tokens * k <= experts else min(tokens, MOST_ROWS, 1 << (twice - 1).bit_length())


def blocks_at_most(tokens: int, k: int, experts: int, size: int) -> int:
    """However the tokens choose, each of them `k` different experts: an expert's last block may not be full."""
    routes = tokens * k
    return min((routes + experts * (size - 1)) // size, experts * -(-tokens // size), routes)


def _blocks(node: OnnxNode, chosen: str, experts: int, size: int, blocks: int) -> tuple[str, str, str]:
    """(expert and end of each block, slot of each route): an expert's routes in order, from a new block on.

    How many blocks an expert has is known at run time only; how many all have at most, before.
    """
    (routes,) = node.builder.values[chosen].shape
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
    expert = node.emit("min", expert, last)
    behind = node.emit("gather", node.emit("add", begin, total), expert, axis=0)  # the slot behind an expert's last one
    end = node.emit("sub", behind, node.new_constant(np.arange(blocks) * size))
    return expert, node.reshaped(end, (blocks, 1, 1)), slots
