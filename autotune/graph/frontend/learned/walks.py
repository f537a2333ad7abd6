"""Walks: trees of many splits as the tables that the operator `tree_ensemble` reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.frontend.learned.forest import Forest
from autotune.graph.ir import Array
from autotune.tensor.trees import LIMIT, LINK, WORDS

TOGETHER = 8
"""Pairs of siblings that lie together below a node, three steps of a walk: two cache lines, that many CPUs fetch."""


@dataclass(frozen=True, slots=True)
class Walk:
    """See `tree_ensemble`. Leaves of one target weigh their limits: they have no `weights`.

    Nodes are wider than the forest's numbers where these have no room for links: then the data must be, too.
    """

    nodes: Array
    roots: Array
    weights: Array | None
    depth: int


def columns(features: int) -> int:
    """A power of two: of data with as many features, and a column at least that holds NaN."""
    return 1 << features.bit_length()


def walk(grown: Forest, weights: Array, features: int) -> Walk:
    """
    Args:
        weights: (nodes, targets), of which only those of leaves count.
        features: of the data, which has `columns(features)` columns, NaN in the last.
    """
    slots, place = _placed(grown)
    used = slots >= 0
    splits = used & (grown.below[slots] >= 0)
    leaves = used & ~splits
    first, column = np.arange(len(slots)) - 1, np.full(len(slots), columns(features) - 1)
    first[splits], column[splits] = place[grown.below[slots[splits]]], grown.features[slots[splits]]
    count, dtype, one = 1 << (len(slots) - 1).bit_length(), grown.dtype, weights.shape[1] == 1
    if count * columns(features) > 1 << 8 * dtype.itemsize:
        dtype = np.dtype(np.float64)
    unsigned, signed = (np.dtype(f"{kind}{dtype.itemsize}") for kind in "ui")
    said = weights[slots[leaves]].astype(dtype)
    limits = grown.limits[slots].astype(dtype).view(signed)
    limits[leaves] = said[:, 0].view(signed) if one else np.arange(len(said))
    nodes = np.zeros((count, WORDS), signed)
    # The link of a leaf in the first place, to the one before, is the largest that there is.
    nodes[: len(slots), LINK] = (first * columns(features) + column).astype(unsigned).view(signed)
    nodes[: len(slots), LIMIT] = limits
    roots = np.arange(len(grown.roots), dtype=signed)
    return Walk(nodes, roots, None if one else said, grown.depth)


def parted(grown: Forest, most: int) -> tuple[Forest, ...]:
    """Some trees after the other, those of a part with no more nodes than `most`, or a single one."""
    parts, room = [list[int]()], most
    for root in map(int, grown.roots):
        size = _size(grown, root)
        if size > room and parts[-1]:
            parts.append([])
            room = most
        parts[-1].append(root)
        room -= size
    return tuple(replace(grown, roots=np.array(part)) for part in parts)


def _placed(grown: Forest) -> tuple[Array, Array]:
    """The node of each place, -1 for none, and the place of each node that is the first of a pair: roots in the order
    of trees; then of each tree some pairs from the top, level by level, and so on below those."""
    slots = grown.roots.tolist()
    slots += [-1] * (-len(slots) % (2 * TOGETHER))
    place = np.full(len(grown.below), -1)
    below = grown.below.tolist()
    todo = grown.roots.tolist()[::-1]
    while todo:
        block, met, taken = [todo.pop()], 0, 0
        while met < len(block) and taken < TOGETHER:
            first = below[block[met]]
            met += 1
            if first >= 0 and place[first] < 0:
                place[first] = len(slots)
                slots += first, first + 1
                block += first, first + 1
                taken += 1
        todo += block[: met - 1 : -1]
    return np.array(slots), place


def _size(grown: Forest, root: int) -> int:
    """Nodes of a tree."""
    met, todo = {root}, [root]
    while todo:
        first = int(grown.below[todo.pop()])
        if first >= 0 and first not in met:
            met |= {first, first + 1}
            todo += first, first + 1
    return len(met)
