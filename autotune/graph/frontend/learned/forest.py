"""Forest: decision trees as columns of nodes, every comparison as "no more than", siblings side by side.

NaN, which compares with nothing, takes the second branch; where it should take the first, a node asks for a copy of its
feature in which NaN is the least number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autotune.errors import ModelError
from autotune.graph.ir import Array

Key = tuple[object, ...]
SECOND, FIRST, MIXED = range(3)
"""The branch that NaN takes: in all nodes of a forest, or each has its own."""
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")


@dataclass(frozen=True, slots=True)
class Split:
    """A node that asks: whether a feature compares with a number as `mode` says; NaN says yes if `nan`.

    `members`: what BRANCH_MEMBER asks for.
    """

    mode: str
    feature: int
    value: float
    yes: Key
    no: Key
    nan: bool = False
    members: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Forest:
    """A node has an element of each column.

    Attributes:
        features: what it asks for; of MIXED those of the copy are behind all others.
        limits: what that is no more than on the first branch.
        below: the node there, which the one on the second branch follows; -1 of leaves.
        order: which leaf it is, None for splits.
        roots: nodes, one per tree.
        depth: steps to the lowest leaf.
        nan: which copies of its features are asked for: as they are, the one for the first branch, or both.
    """

    features: Array
    limits: Array
    below: Array
    order: tuple[Key | None, ...]
    roots: Array
    depth: int
    nan: int

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Of the data and of limits."""
        return self.limits.dtype

    def weights(self, weights: Mapping[Key, Sequence[tuple[int, float]]], targets: int) -> Array:
        """A row per node: what a leaf adds to each target, the sum where a target is named twice."""
        found = np.zeros((len(self.order), targets), self.dtype)
        for number, leaf in enumerate(self.order):
            for target, weight in weights.get(leaf, ()) if leaf is not None else ():
                found[number, target] += weight
        return found


def forest(
    label: str, splits: Mapping[Key, Split], roots: Sequence[Key], features: int, dtype: np.dtype[np.floating]
) -> Forest:
    """
    Args:
        label: of the ONNX node, for messages.
        splits: by key; every other key is a leaf.
        roots: one per tree.
        features: of the data.
        dtype: of the data and of thresholds.

    Raises:
        ModelError: nodes lead in a circle, or there are no trees.
    """
    if not roots:
        raise ModelError(f"{label}: there are no trees")
    plain = {key: one for name, split in splits.items() for key, one in _plain(name, split, dtype).items()}
    slots, pair = list(roots), dict[Key, int]()
    todo = list(roots)
    while todo:
        key = todo.pop()
        if key in plain and key not in pair:
            pair[key] = len(slots)
            slots += plain[key].ways
            todo += plain[key].ways
    asked, below, limits = np.zeros(len(slots), np.int64), np.full(len(slots), -1), np.zeros(len(slots), dtype)
    ways = {one.nan_first for one in plain.values()}
    nan = MIXED if len(ways) > 1 else FIRST if ways == {True} else SECOND
    for number, key in enumerate(slots):
        if key in plain:
            one = plain[key]
            asked[number] = one.feature + (features if nan == MIXED and one.nan_first else 0)
            limits[number], below[number] = one.limit, pair[key]
    order = tuple(None if key in plain else key for key in slots)
    depth = _depth(label, plain, roots)
    return Forest(asked, limits, below, order, np.arange(len(roots)), depth, nan)


class _Plain(NamedTuple):
    """Where a feature leads that is no more than a limit, and any other."""

    feature: int
    limit: float
    first: Key
    second: Key
    nan_first: bool

    @property
    def ways(self) -> tuple[Key, Key]:
        return self.first, self.second


def _plain(name: Key, s: Split, dtype: np.dtype[np.floating]) -> dict[Key, _Plain]:
    """A split as nodes that ask for "no more than"."""
    value = _exact(s.value, dtype)

    def node(nan_first: bool, limit: float, first: Key, second: Key) -> _Plain:
        if nan_first and math.isnan(limit):  # Even the least number is not: all numbers lead elsewhere than NaN.
            return _Plain(s.feature, math.inf, second, first, False)
        return _Plain(s.feature, limit, first, second, nan_first)

    ordered = s.mode in ("BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")
    if s.mode == "BRANCH_LEQ" or (ordered and math.isnan(value)):  # all the same to NaN, which nothing compares with
        return {name: node(s.nan, value, s.yes, s.no)}
    if s.mode == "BRANCH_LT":
        return {name: node(s.nan, _before(value, dtype), s.yes, s.no)}
    if s.mode == "BRANCH_GT":
        return {name: node(not s.nan, value, s.no, s.yes)}
    if s.mode == "BRANCH_GTE":
        return {name: node(not s.nan, _before(value, dtype), s.no, s.yes)}
    members = s.members if s.mode == "BRANCH_MEMBER" else (s.value,)
    # NaN passes every "no more than", then is told yes or no by the last question.
    yes, no = (s.no, s.yes) if s.mode == "BRANCH_NEQ" else (s.yes, s.no)
    nan_is_equal = s.nan != (s.mode == "BRANCH_NEQ")
    found: dict[Key, _Plain] = {}
    here = name
    for number, member in enumerate(members or (float("nan"),)):
        last = number + 1 >= len(members)
        other = no if last else (name, "or", number + 1)
        exact = _exact(member, dtype)
        found[here] = node(nan_is_equal and last, exact, (name, "and", number), other)
        found[name, "and", number] = node(False, _before(exact, dtype), other, yes)
        here = (name, "or", number + 1)
    return found


def _exact(value: float, dtype: np.dtype[np.floating]) -> float:
    """The number as the data's type has it."""
    return float(np.asarray(value, dtype))


def _before(value: float, dtype: np.dtype[np.floating]) -> float:
    """The largest number that is less; NaN, which nothing is no more than, for what has none."""
    below = np.nextafter(np.asarray(value, dtype), np.asarray(-np.inf, dtype))
    return float("nan") if value == -np.inf else float(below)


def _depth(label: str, plain: Mapping[Key, _Plain], roots: Sequence[Key]) -> int:
    """Steps to the lowest leaf."""
    depths: dict[Key, int] = {}
    open_: set[Key] = set()
    todo: list[tuple[Key, bool]] = [(root, False) for root in roots]
    while todo:
        key, done = todo.pop()
        if key not in plain:
            depths[key] = 0
        elif done:
            open_.discard(key)
            depths[key] = 1 + max(depths[below] for below in plain[key].ways)
        elif key not in depths:
            if key in open_:
                raise ModelError(f"{label}: the nodes of a tree lead in a circle")
            open_.add(key)
            todo += [(key, True), *((below, False) for below in plain[key].ways)]
    return max(depths[root] for root in roots)
