"""Decision trees: for each row the leaf of every tree, and what the leaves say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import integer, require, word
from autotune.ops.registry import operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Reinterpret, cast
from autotune.tensor.externs import Output, extern
from autotune.tensor.stage import Tensor, compute, max_, min_, reduce_axis, sum_
from autotune.tensor.trees import WORDS

REDUCERS = {"sum": sum_, "max": max_, "min": min_}


@operator(
    "tree_ensemble", operands="data nodes roots weights?", weights="nodes roots weights?", depth=1, reduction="sum",
)  # fmt: skip
def tree_ensemble(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """What the leaves of all trees weigh together, for each row of data and each target.

    Args:
        inputs: data (rows, columns) in f32 or f64; the nodes of all trees (nodes, WORDS) and their roots (trees) in
            integers as wide, as `tree_leaves` has them; columns and nodes are powers of two. Leaves say what they weigh
            for the one target that there is, or which of the weights (leaves, targets) are theirs.
    """
    x, nodes, roots, *rest = inputs
    require(x.dtype in (DType.f32, DType.f64), f"tree_ensemble: the data is {x.dtype}, not f32 or f64")
    require(len(x.shape) == 2 and _is_power_of_two(x.shape[1]), f"tree_ensemble: data of shape {x.shape}: its columns "
            "are no power of two")  # fmt: skip
    integers = DType.i32 if x.dtype is DType.f32 else DType.i64
    require(nodes.dtype is integers and nodes.shape[1:] == (WORDS,), f"tree_ensemble: nodes are {integers}(n, {WORDS})")
    require(_is_power_of_two(nodes.shape[0]), f"tree_ensemble: {nodes.shape[0]} nodes are no power of two")
    fitting = roots.dtype is integers and len(roots.shape) == 1 and roots.shape[0] > 0
    require(fitting, f"tree_ensemble: no roots ({integers})")
    fitting = all(weights.dtype is x.dtype and len(weights.shape) == 2 and weights.shape[0] > 0 for weights in rest)
    require(fitting, f"tree_ensemble: weights are {x.dtype}(leaves, targets)")
    depth = integer("tree_ensemble", attrs, "depth", 0)
    reduction = word("tree_ensemble", attrs, "reduction", (*REDUCERS,))
    output = Output("tree_leaves", roots.shape, integers)
    (leaves,) = extern("tree_leaves", [x], x.shape[:1], (output,), shared=(nodes, roots), depth=depth)
    trees = reduce_axis(roots.shape[0], "tree")

    def weight(leaf: Expr, target: Expr) -> Expr:
        return rest[0][cast(DType.i64, leaf), target] if rest else Reinterpret(leaf, x.dtype)

    def total(row: Expr, target: Expr) -> Expr:
        return REDUCERS[reduction](weight(leaves[row, trees], target), trees)

    return compute((x.shape[0], rest[0].shape[1] if rest else 1), total, "tree_ensemble")


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0
