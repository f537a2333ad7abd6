"""Decision trees: for each row the leaf of every tree, and what the leaves say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import integer, require, word
from autotune.ops.registry import operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import cast
from autotune.tensor.extern import Output, extern
from autotune.tensor.stage import Tensor, compute, max_, min_, reduce_axis, sum_
from autotune.tensor.trees import FIRST, LIMIT, MIXED, SECOND

REDUCERS = {"sum": sum_, "max": max_, "min": min_}


@operator(
    "tree_ensemble", operands="data nodes roots weights", weights="nodes roots weights", depth=1, nan=MIXED,
    reduction="sum",
)  # fmt: skip
def tree_ensemble(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """What the leaves of all trees weigh together, for each row of data and each target.

    Args:
        inputs: data (rows, features) in f32 or f64; the nodes of all trees (nodes, words) and their roots (trees) in
            i32, as `tree_leaves` has them; weights (nodes, targets), of which only those of leaves count.
    """
    x, nodes, roots, weights = inputs
    require(x.dtype in (DType.f32, DType.f64), f"tree_ensemble: the data is {x.dtype}, not f32 or f64")
    require(len(x.shape) == 2 and x.shape[1] > 0, f"tree_ensemble: data of shape {x.shape} is no matrix of features")
    words = LIMIT + x.dtype.bytes // 4
    require(nodes.dtype is DType.i32 and nodes.shape[1:] == (words,), f"tree_ensemble: nodes are i32(n, {words})")
    require(nodes.shape[0] > 0, "tree_ensemble: there are no nodes")
    require(roots.dtype is DType.i32 and len(roots.shape) == 1 and roots.shape[0] > 0, "tree_ensemble: no roots (i32)")
    fitting = weights.dtype is x.dtype and len(weights.shape) == 2 and weights.shape[0] == nodes.shape[0]
    require(fitting, f"tree_ensemble: weights are {x.dtype}({nodes.shape[0]}, targets)")
    depth, nan = (integer("tree_ensemble", attrs, name, 0) for name in ("depth", "nan"))
    require(nan <= MIXED, f"tree_ensemble: nan={nan} must be {SECOND}, {FIRST} or {MIXED}")
    reduction = word("tree_ensemble", attrs, "reduction", (*REDUCERS,))
    output = Output("tree_leaves", roots.shape, DType.i32)
    (leaves,) = extern("tree_leaves", [x], x.shape[:1], (output,), shared=(nodes, roots), depth=depth, nan=nan)
    trees = reduce_axis(roots.shape[0], "tree")

    def total(row: Any, target: Any) -> Any:
        return REDUCERS[reduction](weights[cast(DType.i64, leaves[row, trees]), target], trees)

    return compute((x.shape[0], weights.shape[1]), total, "tree_ensemble")
