"""Forest: decision trees as tables of nodes, every comparison as "no more than", siblings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.errors import ModelError
from autotune.graph.ir import Array
from autotune.tensor.trees import BELOW, CODE, FIRST, LIMIT, MIXED, NAN_GOES_ON, SECOND, STEP

Key = tuple[object, ...]
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
    """What the operator `tree_ensemble` reads: see there. `order`: which leaf each node is, None for splits."""

    nodes: Array
    roots: Array
    depth: int
    nan: int
    dtype: np.dtype[np.floating]
    order: tuple[Key | None, ...]

    def weights(self, weights: Mapping[Key, Sequence[tuple[int, float]]], targets: int) -> Array:
        """A row per node: what a leaf adds to each target, the sum where a target is named twice."""
        found = np.zeros((len(self.order), targets), self.dtype)
        for number, leaf in enumerate(self.order):
            for target, weight in weights.get(leaf, ()) if leaf is not None else ():
                found[number, target] += weight
        return found


def forest(label: str, splits: Mapping[Key, Split], roots: Sequence[Key], dtype: np.dtype[np.floating]) -> Forest:
    """
    Args:
        label: of the ONNX node, for messages.
        splits: by key; every other key is a leaf.
        roots: one per tree.
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
            slots += plain[key][2:]
            todo += plain[key][2:]
    nodes = np.zeros((len(slots), LIMIT + dtype.itemsize // 4), np.int32)
    nodes[:, BELOW] = np.arange(len(slots))  # a leaf leads to itself, on both branches
    limits = np.zeros(len(slots), dtype)
    for number, key in enumerate(slots):
        if key in plain:
            nodes[number, CODE], limits[number] = plain[key][:2]
            nodes[number, BELOW], nodes[number, STEP] = pair[key], 1
    nodes[:, LIMIT:] = limits.view(np.int32).reshape(len(slots), -1)
    ways = {code & NAN_GOES_ON for code, *_ in plain.values()}
    nan = MIXED if len(ways) > 1 else FIRST if ways == {NAN_GOES_ON} else SECOND
    order = tuple(None if key in plain else key for key in slots)
    return Forest(nodes, np.arange(len(roots), dtype=np.int32), _depth(label, plain, roots), nan, dtype, order)


_Plain = tuple[int, float, Key, Key]
"""Code, threshold, and where a feature that is no more than it leads, and any other."""


def _plain(name: Key, s: Split, dtype: np.dtype[np.floating]) -> dict[Key, _Plain]:
    """A split as nodes that ask for "no more than"."""
    value = _exact(s.value, dtype)

    def node(nan_first: bool, limit: float, first: Key, second: Key) -> _Plain:
        return (s.feature << 1 | (NAN_GOES_ON if nan_first else 0), limit, first, second)

    if s.mode == "BRANCH_LEQ":
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
            depths[key] = 1 + max(depths[below] for below in plain[key][2:])
        elif key not in depths:
            if key in open_:
                raise ModelError(f"{label}: the nodes of a tree lead in a circle")
            open_.add(key)
            todo += [(key, True), *((below, False) for below in plain[key][2:])]
    return max(depths[root] for root in roots)
