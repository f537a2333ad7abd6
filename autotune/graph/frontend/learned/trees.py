"""Tree ensembles. Every version of the operators becomes one `tree_ensemble` and what is done with its sums."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.learned.forest import FIRST, MODES, SECOND, Forest, Key, Split, forest
from autotune.graph.frontend.learned.leaves import Leaves, masked
from autotune.graph.frontend.learned.scores import best, check_transform, chosen, transformed
from autotune.graph.frontend.learned.walks import columns, parted, walk
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.ir import Array
from autotune.ops.leaf_masks import NEUTRAL
from autotune.tensor import DType

ML = ("ai.onnx.ml",)
REDUCTIONS = {"SUM": "sum", "AVERAGE": "sum", "MIN": "min", "MAX": "max"}
ROWS = 8
"""Rows from which they fill vectors; of fewer, trees do."""
BYTES = 256
NEAR = 1 << 14
"""Nodes that are walked together by many rows: 128 KiB."""
SPLITS_BY_ROWS, SPLITS_BY_TREES = 8, 4
"""Splits that take as long as a step of a walk, at least: measured on a Zen 3."""
Weights = dict[Key, list[tuple[int, float]]]


@contributed("TreeEnsembleRegressor", inputs=1, domains=ML)
def regressor(node: OnnxNode) -> str:
    x, grown = _data(node), _grown(node)
    targets, base = node.attr_int("n_targets", 1), _numbers(node, "base_values")
    weights = _weights(node, "target", targets)
    sums = _aggregated(node, x, grown, weights, targets, node.attr_string("aggregate_function", "SUM"))
    sums = _plus(node, node.converted(sums, DType.f32), base, targets)
    return transformed(node, sums, node.attr_string("post_transform", "NONE"))


@contributed("TreeEnsembleClassifier", inputs=1, domains=ML)
def classifier(node: OnnxNode) -> tuple[str, str]:
    """(label, scores). With two classes and weights for one only, that is the second's."""
    x, grown = _data(node), _grown(node)
    labels = node.attr_ints("classlabels_int64s") or ()
    classes, base = max(len(labels), 1), _numbers(node, "base_values")
    named = set(node.attr_ints("class_ids") or ())
    transform = node.attr_string("post_transform", "NONE")
    weights = _weights(node, "class", classes)
    if classes == 2 and len(named) == 1:
        return _binary(node, x, grown, weights, labels, base, transform)
    sums = node.converted(_aggregated(node, x, grown, weights, classes, "SUM"), DType.f32)
    sums = _plus(node, sums, base, classes)
    return best(node, sums, labels), transformed(node, sums, transform)


def _binary(
    node: OnnxNode, x: str, grown: Forest, weights: Weights, labels: Sequence[int], base: Array | None, transform: str
) -> tuple[str, str]:
    """Two classes of which the trees weigh one: weights that are never negative are a probability, others are not.

    Of the transforms only LOGISTIC is one of a single score.
    """
    check_transform(node, transform, of_one_score=True)
    one = {leaf: [(0, weight) for _, weight in found] for leaf, found in weights.items()}
    score = node.converted(_aggregated(node, x, grown, one, 1, "SUM"), DType.f32)
    if base is not None and base.size:
        score = node.emit("add", score, node.scalar(float(base[-1]), score))
    likely = all(weight >= 0 for found in weights.values() for _, weight in found)
    above = node.emit("greater", score, node.scalar(0.5 if likely else 0.0, score))
    label = chosen(node, above, labels[1], labels[0])
    if transform == "LOGISTIC":
        score, other = node.emit("sigmoid", score), node.emit("sigmoid", node.emit("neg", score))
    else:
        other = node.emit("sub", node.scalar(1.0, score), score) if likely else node.emit("neg", score)
    return label, node.emit("concat", other, score, axis=1)


@contributed("TreeEnsemble", inputs=1, domains=ML)
def ensemble(node: OnnxNode) -> str:
    """The operator of version 5: leaves apart from splits, thresholds and weights as tensors."""
    x = _data(node)
    splits, roots = _splits_of_5(node)
    dtype = _float(node, x)
    targets = node.attr_int("n_targets", 1)
    leaf_targets, leaf_weights = node.attr_ints("leaf_targetids") or (), _tensor(node, "leaf_weights")
    if leaf_weights is None or len(leaf_weights) != len(leaf_targets):
        raise ModelError(f"{node.label}: leaf_weights and leaf_targetids differ in length")
    weights: Weights = {
        ("leaf", n): [(target, float(weight))] for n, (target, weight) in enumerate(zip(leaf_targets, leaf_weights))
    }
    _must_be_targets(node, weights, targets)
    aggregate = ("AVERAGE", "SUM", "MIN", "MAX")[_one_of(node, "aggregate_function", 1, 4)]
    sums = _aggregated(node, x, forest(node.label, splits, roots, node.shape()[1], dtype), weights, targets, aggregate)
    transform = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[_one_of(node, "post_transform", 0, 5)]
    return node.converted(transformed(node, sums, transform), DType(node.value().dtype))


def _splits_of_5(node: OnnxNode) -> tuple[dict[Key, Split], list[Key]]:
    modes, values = _tensor(node, "nodes_modes"), _tensor(node, "nodes_splits")
    columns = [node.attr_ints(f"nodes_{name}") or () for name in
               ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")]  # fmt: skip
    if modes is None or values is None or {len(values), *map(len, columns)} != {len(modes)}:
        raise ModelError(f"{node.label}: the attributes nodes_* differ in length")
    nan = node.attr_ints("nodes_missing_value_tracks_true") or (0,) * len(modes)
    members, sets = _tensor(node, "membership_values"), []
    if members is not None:
        ends = np.flatnonzero(np.isnan(members))
        sets = [tuple(map(float, part[~np.isnan(part)])) for part in np.split(members, ends + 1)[: len(ends)]]
    _tensor(node, "nodes_hitrates")  # how often a node was met: nothing depends on it
    found: dict[Key, Split] = {}
    waiting = iter(sets)
    for n, mode in enumerate(modes.tolist()):
        feature, yes, no, yes_leaf, no_leaf = (column[n] for column in columns)
        if not 0 <= mode < len(MODES):
            raise ModelError(f"{node.label}: nodes_modes has {mode}, not 0 to {len(MODES) - 1}")
        asked = next(waiting, None) if MODES[mode] == "BRANCH_MEMBER" else ()
        if asked is None:
            raise ModelError(f"{node.label}: membership_values has fewer sets than there are nodes that ask for one")
        found["node", n] = Split(
            MODES[mode], feature, float(values[n]), ("leaf" if yes_leaf else "node", yes),
            ("leaf" if no_leaf else "node", no), bool(nan[n]), asked,
        )  # fmt: skip
    leaves = len(node.attr_ints("leaf_targetids") or ())
    for split in found.values():
        _must_exist(node, split, found, leaves)
    _must_be_features(node, found.values())
    roots: list[Key] = [("node", root) for root in node.attr_ints("tree_roots") or ()]
    if any(root not in found for root in roots):
        raise ModelError(f"{node.label}: tree_roots names a node that is not there")
    return found, roots


def _must_exist(node: OnnxNode, split: Split, found: dict[Key, Split], leaves: int) -> None:
    for kind, number in (split.yes, split.no):
        there = (kind, number) in found if kind == "node" else isinstance(number, int) and 0 <= number < leaves
        if not there:
            raise ModelError(f"{node.label}: a node leads to {kind} {number}, which is not there")


def _grown(node: OnnxNode) -> Forest:
    """The trees of the older operators, whose nodes have numbers within their tree."""
    trees, numbers = (node.attr_ints(f"nodes_{name}") or () for name in ("treeids", "nodeids"))
    modes = node.attr_strings("nodes_modes") or ()
    columns = [node.attr_ints(f"nodes_{name}") or () for name in ("featureids", "truenodeids", "falsenodeids")]
    values = _numbers(node, "nodes_values")
    nan = node.attr_ints("nodes_missing_value_tracks_true") or (0,) * len(trees)
    _numbers(node, "nodes_hitrates")  # how often a node was met: nothing depends on it
    lengths = [len(numbers), len(modes), *map(len, columns), len(nan), -1 if values is None else len(values)]
    if values is None or any(length != len(trees) for length in lengths):
        raise ModelError(f"{node.label}: the attributes nodes_* differ in length")
    keys: list[Key] = list(zip(trees, numbers))
    if len(set(keys)) < len(keys):
        raise ModelError(f"{node.label}: two nodes of a tree have one number")
    there, splits = set(keys), dict[Key, Split]()
    for n, (key, mode) in enumerate(zip(keys, modes)):
        feature, yes, no = (column[n] for column in columns)
        if mode == "LEAF":
            continue
        if mode not in MODES[:-1]:
            raise ModelError(f"{node.label}: nodes_modes has '{mode}', not LEAF, {', '.join(MODES[:-1])}")
        if not {(trees[n], yes), (trees[n], no)} <= there:
            raise ModelError(f"{node.label}: node {numbers[n]} of tree {trees[n]} leads to one that is not there")
        splits[key] = Split(mode, feature, float(values[n]), (trees[n], yes), (trees[n], no), bool(nan[n]))
    _must_be_features(node, splits.values())
    firsts: dict[int, Key] = {}
    for key, tree in zip(keys, trees):
        firsts.setdefault(tree, key)  # the first node of a tree is its root
    ordered = [firsts[tree] for tree in sorted(firsts)]
    return forest(node.label, splits, ordered, node.shape()[1], _float(node, node.input(0)))


def _must_be_features(node: OnnxNode, splits: Iterable[Split]) -> None:
    features = node.shape()[1]
    for split in splits:
        if not 0 <= split.feature < features:
            raise ModelError(f"{node.label}: a node asks for feature {split.feature}, the data has {features}")


def _weights(node: OnnxNode, prefix: str, targets: int) -> Weights:
    """What leaves add, from `class_*` or `target_*`."""
    trees, numbers, ids = (node.attr_ints(f"{prefix}_{name}") or () for name in ("treeids", "nodeids", "ids"))
    values = _numbers(node, f"{prefix}_weights")
    if values is None or not len(trees) == len(numbers) == len(ids) == len(values):
        raise ModelError(f"{node.label}: the attributes {prefix}_* differ in length")
    found: Weights = defaultdict(list)
    for tree, number, target, weight in zip(trees, numbers, ids, values):
        found[tree, number].append((target, float(weight)))
    _must_be_targets(node, found, targets)
    return found


def _must_be_targets(node: OnnxNode, weights: Weights, targets: int) -> None:
    wrong = [target for found in weights.values() for target, _ in found if not 0 <= target < targets]
    if wrong:
        raise ModelError(f"{node.label}: a leaf weighs target {wrong[0]}, there are {targets}")


def _aggregated(node: OnnxNode, x: str, grown: Forest, weights: Weights, targets: int, how: str) -> str:
    if how not in REDUCTIONS:
        raise ModelError(f"{node.label}: aggregate_function is '{how}', not {', '.join(REDUCTIONS)}")
    reduction, weight = REDUCTIONS[how], grown.weights(weights, targets)
    by_rows = node.builder.values[x].shape[0] >= ROWS
    groups, rest = masked(grown, SPLITS_BY_ROWS if by_rows else SPLITS_BY_TREES)
    data = _for_nan(node, x, grown.nan)
    parts = []
    if groups:
        ordered = node.emit("transpose", data, perm=(1, 0)) if by_rows else _wider(node, data, BYTES)
        parts = [_by_masks(node, ordered, group, weight, by_rows, reduction) for group in groups]
    if by_rows and parts:
        parts = [node.emit("transpose", _together(node, parts, reduction), perm=(1, 0))]
    if rest is not None:
        parts += _by_walks(node, data, rest, weight, by_rows, reduction)
    found = _together(node, parts, reduction)
    if how == "AVERAGE":
        found = node.emit("div", found, node.scalar(float(len(grown.roots)), found))
    return found


def _for_nan(node: OnnxNode, x: str, nan: int) -> str:
    """The data as nodes ask for it: as it is, with the least number for NaN, or both side by side."""
    if nan == SECOND:
        return x
    least = node.emit("where", node.emit("isnan", x), node.scalar(-math.inf, x), x)
    return least if nan == FIRST else node.emit("concat", x, least, axis=1)


def _wider(node: OnnxNode, x: str, width: int) -> str:
    """The data with as many columns, if it has fewer, NaN in the others: some indices then need no test."""
    rows, features = node.builder.values[x].shape
    if features >= width:
        return x
    rest = np.full((rows, width - features), np.nan, _float(node, x))
    return node.emit("concat", x, node.new_constant(rest), axis=1)


def _by_masks(node: OnnxNode, data: str, group: Leaves, weight: Array, by_rows: bool, reduction: str) -> str:
    """What a group of trees says: (targets, rows) by rows, else (rows, targets)."""
    short = not by_rows and node.builder.values[data].shape[1] == BYTES
    tables = (group.limits, group.features.astype(np.uint8) if short else group.features, group.masks)
    names = [node.new_constant(np.ascontiguousarray(table if by_rows else table.T)) for table in tables]
    names.append(node.new_constant(group.weights(weight, NEUTRAL[reduction])))
    across = "rows" if by_rows else "trees"
    return node.emit("leaf_masks", data, *names, across=across, reduction=reduction, words=group.words)


def _by_walks(node: OnnxNode, x: str, grown: Forest, weight: Array, by_rows: bool, reduction: str) -> list[str]:
    """What trees say that are walked, (rows, targets). All rows walk some, then the next: nodes that the second cache
    holds are read again from there."""
    features, dtype = node.builder.values[x].shape[1], DType(node.builder.values[x].dtype)
    found, data = [], {dtype: _wider(node, x, columns(features))}
    for part in parted(grown, NEAR) if by_rows else (grown,):
        one = walk(part, weight, features)
        width = DType.f64 if one.nodes.dtype.itemsize == DType.f64.bytes else DType.f32
        if width not in data:
            data[width] = node.converted(data[dtype], width)
        names = [node.new_constant(table) for table in (one.nodes, one.roots, one.weights) if table is not None]
        said = node.emit("tree_ensemble", data[width], *names, depth=one.depth, reduction=reduction)
        found.append(node.converted(said, dtype))
    return found


def _together(node: OnnxNode, parts: Sequence[str], reduction: str) -> str:
    combine = {"sum": "add"}.get(reduction, reduction)
    return functools.reduce(lambda a, b: node.emit(combine, a, b), parts)


def _plus(node: OnnxNode, sums: str, base: Array | None, targets: int) -> str:
    if base is None or not base.size:
        return sums
    if base.size not in (1, targets):
        raise ModelError(f"{node.label}: base_values has {base.size} numbers for {targets} targets")
    return node.emit("add", sums, node.new_constant(base.reshape(1, -1).astype(np.float32)))


def _data(node: OnnxNode) -> str:
    """The data as floats: those of f64 stay."""
    if node.rank() != 2:
        raise ModelError(f"{node.label}: the data has shape {node.shape()}, it must be a matrix")
    return node.input(0) if node.value().dtype == DType.f64.value else node.converted(node.input(0), DType.f32)


def _float(node: OnnxNode, x: str) -> np.dtype[np.floating]:
    return np.dtype(np.float64 if node.builder.values[x].dtype == DType.f64.value else np.float32)


def _numbers(node: OnnxNode, name: str) -> Array | None:
    """Numbers that are an attribute, or a tensor of a longer name."""
    tensor = _tensor(node, f"{name}_as_tensor")
    if tensor is not None:
        return tensor
    found = node.attr_floats(name)
    return None if found is None else np.asarray(found, np.float32)


def _tensor(node: OnnxNode, name: str) -> Array | None:
    found = node.attr_tensor(name)
    return None if found is None else found.reshape(-1)


def _one_of(node: OnnxNode, name: str, default: int, count: int) -> int:
    found = node.attr_int(name, default)
    if not 0 <= found < count:
        raise ModelError(f"{node.label}: {name} is {found}, not 0 to {count - 1}")
    return found
