"""Leaves: trees of few splits as the masks that the operator `leaf_masks` reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.frontend.learned.forest import Forest
from autotune.graph.ir import Array
from autotune.ops.leaf_masks import ALL, WORD

UNIT = 32
"""Trees of a group are a multiple, so that vectors of trees are whole, some at once: two of f32 with AVX-512."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """Trees of about as many splits: see `leaf_masks`, across rows.

    Attributes:
        words: of each tree.
        numbers: nodes of the forest that are leaves, by tree, from first branch to second; of trees that only fill up
            the group none.
    """

    limits: Array
    features: Array
    masks: Array
    words: int
    numbers: tuple[tuple[int, ...], ...]

    def weights(self, weights: Array, filling: float) -> Array:
        """(trees, words * 32, targets) of the weights (nodes, targets) of all nodes; `filling` changes no result."""
        found = np.full((len(self.masks) // self.words, self.words * WORD, weights.shape[1]), filling, weights.dtype)
        for tree, leaves in enumerate(self.numbers):
            found[tree, : len(leaves)] = weights[list(leaves)]
        return found


@dataclass(frozen=True, slots=True)
class _Tree:
    """A tree in order. `splits`: a node, and the leaves below its first branch: from, up to."""

    leaves: tuple[int, ...]
    splits: tuple[tuple[int, int, int], ...]
    depth: int

    @property
    def words(self) -> int:
        return -(-len(self.leaves) // WORD)

    def looked_at(self) -> int:
        """Splits of all words."""
        return sum(len(list(self.of_word(word))) for word in range(self.words))

    def of_word(self, word: int) -> Iterator[tuple[int, int]]:
        """Nodes that rule out leaves of a word, and what they leave."""
        for node, begin, end in self.splits:
            first, last = max(begin - word * WORD, 0), min(end - word * WORD, WORD)
            if first < last:
                yield node, ALL & ~((1 << last) - (1 << first))


def masked(grown: Forest, most: int) -> tuple[tuple[Leaves, ...], Forest | None]:
    """Trees as masks, in groups, and those to walk.

    Args:
        most: splits to look at for each step of a walk.
    """
    groups, rest, depth = defaultdict[tuple[int, int], list[_Tree]](list), list[int](), 0
    for root in map(int, grown.roots):
        tree = _tree(grown, root, most * grown.depth + 1)
        if tree is not None and tree.looked_at() <= most * tree.depth:
            groups[tree.words, tree.looked_at().bit_length()].append(tree)
        else:
            rest.append(root)
            depth = max(depth, grown.depth if tree is None else tree.depth)
    walked = replace(grown, roots=np.array(rest), depth=depth) if rest else None
    return tuple(_group(grown, trees) for trees in groups.values()), walked


def _group(grown: Forest, trees: Sequence[_Tree]) -> Leaves:
    words = trees[0].words
    lists = [list(tree.of_word(word)) for tree in trees for word in range(words)]
    shape = (-(-len(trees) // UNIT) * UNIT * words, max(1, *map(len, lists)))
    limit, feature, mask = np.zeros(shape, grown.dtype), np.zeros(shape, np.int32), np.full(shape, ALL, np.uint32)
    for place, found in enumerate(lists):
        for n, (node, left) in enumerate(found):
            limit[place, n], feature[place, n], mask[place, n] = grown.limits[node], grown.features[node], left
    return Leaves(limit, feature, mask, words, tuple(tree.leaves for tree in trees))


def _tree(grown: Forest, root: int, most: int) -> _Tree | None:
    """The tree below a root; None of more leaves than `most`, as where branches meet again and again."""
    leaves, splits, begins = list[int](), list[tuple[int, int, int]](), dict[int, list[int]]()
    depth = 0
    todo = [(root, 0, True)]
    while todo and len(leaves) <= most:
        node, above, entering = todo.pop()
        depth = max(depth, above)
        below = int(grown.below[node])
        if below < 0:
            leaves.append(node)
        elif entering:
            begins.setdefault(node, []).append(len(leaves))
            todo += [(below + 1, above + 1, True), (node, above, False), (below, above + 1, True)]
        else:
            splits.append((node, begins[node].pop(), len(leaves)))
    return None if todo else _Tree(tuple(leaves), tuple(splits), depth)
