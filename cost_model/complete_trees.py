"""Regression trees for many rows at once: each question is asked once, and its answers are bits, 64 rows to a word.

A forest asks the same questions again and again, so that answering each for all rows comes first. Which leaf a row ends
in is then a number whose bits are answers: those of a level of a tree are picked by the answers above, word by word.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
_WORD = 64


class CompleteTrees:
    """Trees as tables: level l of a tree has 2^l questions, whether they are asked or not, as many as the deepest has.

    Args:
        feature, threshold, child: (nodes,) of the nodes as a `Forest` has them.
        roots: (trees,) the first node of each tree.
        columns: of the rows that will be looked at.
    """

    def __init__(
        self, feature: NDArray[np.int16], threshold: Array, child: NDArray[np.int32], roots: NDArray[np.int32],
        columns: int,
    ) -> None:  # fmt: skip
        asks = np.flatnonzero(feature >= 0)
        order = asks[np.lexsort((threshold[asks], feature[asks]))]  # by column, then by threshold
        new = np.ones(len(order), bool)
        new[1:] = (feature[order[1:]] != feature[order[:-1]]) | (threshold[order[1:]] != threshold[order[:-1]])
        self._thresholds = threshold[order[new], None]
        ends = np.cumsum(np.bincount(feature[order[new]], minlength=columns)).tolist()
        self._asked = [(n, slice(a, b)) for n, (a, b) in enumerate(itertools.pairwise([0, *ends])) if a < b]
        question = np.zeros(len(feature), np.int64)
        question[order] = np.cumsum(new) - 1
        self._levels: list[NDArray[np.int64]] = []
        nodes = roots.astype(np.int64)[None]
        while (feature[nodes] >= 0).any():
            self._levels.append(question[nodes])
            below = np.where(feature[nodes] >= 0, child[nodes], nodes)  # a leaf is both its own children
            nodes = np.stack([below, below + (feature[nodes] >= 0)], axis=1).reshape(-1, len(roots))
        self._leaves = np.ascontiguousarray(threshold[nodes].T)
        self._some = [slice(n, n + _WORD) for n in range(0, len(roots), _WORD)]
        self._first = (np.arange(len(roots)) % _WORD * len(nodes))[:, None]

    def leaves(self, values: Array) -> Array:
        """(trees, rows) the leaf that each row ends in, of (rows, columns) values; NaN goes to the first child."""
        rows, columns = len(values), np.ascontiguousarray(values.T)
        answers = np.empty((len(self._thresholds), rows), np.bool_)
        for column, asked in self._asked:
            np.greater_equal(columns[column], self._thresholds[asked], out=answers[asked])
        words = np.zeros((len(answers), -(-rows // _WORD)), np.uint64)
        packed = np.packbits(answers, axis=1, bitorder="little")
        words.view(np.uint8)[:, : packed.shape[1]] = packed
        path: list[NDArray[np.uint64]] = []
        for level in self._levels:
            found = words.take(level, axis=0)  # in a third of the time that words[level] takes
            for answer in path:  # of halves, the one that the answer leads to
                half = len(found) // 2
                found = found[:half] ^ ((found[:half] ^ found[half:]) & answer)
            path.append(found[0])
        place = np.zeros((len(self._leaves), rows), np.min_scalar_type(self._leaves.shape[1]))
        for answer in path:
            np.add(place, place, out=place)
            place += np.unpackbits(answer.view(np.uint8), axis=1, count=rows, bitorder="little")
        ends = np.empty(place.shape, np.float32)
        for some in self._some:  # few at a time: their leaves, and places among these, stay in the nearest cache
            where = place[some] + self._first[some]
            np.take(self._leaves[some].ravel(), where, mode="clip", out=ends[some])  # nothing is ever clipped
        return ends
