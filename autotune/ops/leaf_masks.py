"""Decision trees without walking: every split of a tree is looked at, and takes away the leaves that it rules out.

Leaves of a tree are numbered from first branch to second, a bit each. A split that a row fails leaves none of those
below its first branch; the lowest bit that all splits leave is the leaf that the row falls into
(Lucchese et al., "QuickScorer", SIGIR'15; many rows at a time as in "V-QuickScorer", SIGIR'16). No split waits for
another, so rows, or trees for one row, fill vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ops.checks import integer, require, word
from autotune.ops.registry import operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, binary, cast, const, select
from autotune.tensor.reducer import Reducer
from autotune.tensor.stage import Tensor, compute, max_, min_, reduce, reduce_axis, sum_

REDUCERS = {"sum": sum_, "max": max_, "min": min_}
NEUTRAL = {"sum": 0.0, "max": -math.inf, "min": math.inf}
"""What a leaf weighs that changes nothing."""
WORD = 32
"""Leaves of a word of bits."""
ALL = 2**WORD - 1
BOTH = Reducer("both", (DType.u32,), (const(ALL, DType.u32),),
               (binary("and", Reducer.left(0, DType.u32), Reducer.right(0, DType.u32)),))  # fmt: skip


@operator(
    "leaf_masks", operands="data limits features masks weights", weights="limits features masks weights",
    across="rows", reduction="sum", words=1,
)  # fmt: skip
def leaf_masks(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """What the leaves of all trees weigh together, for each row of data and each target.

    Args:
        inputs: data (rows, features) in f32 or f64, or (features, rows) if vectors lie `across` rows; of every word of
            every tree its splits: limits of the data's type, features in i32 or u8 and the leaves that remain if the
            feature is more, in u32, each (trees * words, splits), or (splits, trees * words) across trees; weights
            (trees, words * 32, targets).
        attrs: `words` of each tree.

    Returns:
        (targets, rows) across rows, else (rows, targets).
    """
    x, limits, features, masks, weights = inputs
    across = word("leaf_masks", attrs, "across", ("rows", "trees"))
    by_rows = across == "rows"
    words, reduction = integer("leaf_masks", attrs, "words", 1), word("leaf_masks", attrs, "reduction", (*REDUCERS,))
    require(x.dtype in (DType.f32, DType.f64) and len(x.shape) == 2, "leaf_masks: the data is no matrix of floats")
    count, splits = limits.shape if by_rows else limits.shape[::-1]
    trees = weights.shape[0]
    fits = limits.shape == features.shape == masks.shape and count == trees * words and weights.shape[1] == words * WORD
    require(features.dtype in (DType.i32, DType.u8), "leaf_masks: features are i32 or u8")
    require(fits, "leaf_masks: tables of splits and weights do not fit together")
    rows = x.shape[1] if by_rows else x.shape[0]
    split = reduce_axis(splits, "split")

    def remains(row: Expr, place: Expr) -> Expr:
        at = (place, split.var) if by_rows else (split.var, place)
        feature = cast(DType.i64, features[at])
        value = x[(feature, row) if by_rows else (row, feature)]
        return reduce(BOTH, [select(value <= limits[at], const(ALL, DType.u32), masks[at])], split)

    def leaf(tree: Expr, left: Callable[[Expr], Expr]) -> Expr:
        return min_(_number(left(tree * words + part.var), part.var, words), part)

    part, tree = reduce_axis(words, "part"), reduce_axis(trees, "tree")
    if by_rows:
        left = compute((count, rows), lambda place, row: remains(row, place), "remains")
        found = compute((trees, rows), lambda t, row: leaf(t, lambda place: left[place, row]), "leaf")
    else:
        left = compute((rows, count), remains, "remains")
        found = compute((rows, trees), lambda row, t: leaf(t, lambda place: left[row, place]), "leaf")

    def total(row: Expr, target: Expr) -> Expr:
        at = found[(tree.var, row) if by_rows else (row, tree.var)]
        return REDUCERS[reduction](weights[tree.var, cast(DType.i64, at), target], tree)

    if by_rows:
        return compute((weights.shape[2], rows), lambda target, row: total(row, target), "leaf_masks")
    return compute((rows, weights.shape[2]), total, "leaf_masks")


def _number(left: Expr, part: Expr, words: int) -> Expr:
    """In its tree, of the leaf of the lowest bit of a word; no less than any other's where none is left."""
    lowest = binary("and", left, const(0, DType.u32) - left)
    exponent = binary("shr", Reinterpret(cast(DType.f32, lowest), DType.u32), const(23, DType.u32))
    place = cast(DType.i32, exponent) + (cast(DType.i32, part) * WORD - 127)
    return select(binary("eq", left, const(0, DType.u32)), const(words * WORD - 1, DType.i32), place)
