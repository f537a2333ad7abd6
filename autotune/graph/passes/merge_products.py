"""Two matrix products with weights in a row become one, where that takes fewer multiplications.

requires: constants folded.    ensures: no product with a matrix of a product with a matrix that only it reads, unless
the two are cheaper than one with the product of both matrices (low rank).
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite

MAX_MULTIPLICATIONS = 2**33  # while compiling: seconds


def merge_products(graph: Graph) -> Graph:
    """`(x · A) · B` --> `x · (A · B)`."""
    return rewrite(graph, _merged, ("matmul",))


def _merged(sweep: Sweep, node: Node) -> str | None:
    inner = made_by(sweep, node.inputs[0], "matmul")
    if inner is None or not sweep.sole_use(inner.name) or node.attr("trans_a"):
        return None
    first, second = _matrix(sweep, inner), _matrix(sweep, node)
    if first is None or second is None or first.dtype != second.dtype:
        return None
    (k, r), n = first.shape, second.shape[1]
    if k * n > r * (k + n) or k * r * n > MAX_MULTIPLICATIONS:
        return None
    with np.errstate(all="ignore"):  # infinities and NaNs of the model are the model's
        both = (first.astype(np.float64) @ second.astype(np.float64)).astype(first.dtype)
    operands = (inner.inputs[0], sweep.constant(both, node.inputs[1]))
    return sweep.emit(node, "matmul", operands, trans_a=inner.attr("trans_a"), trans_b=False)


def _matrix(sweep: Sweep, node: Node) -> Array | None:
    """The weights of a product as they are multiplied."""
    weight = sweep.array(node.inputs[1])
    if weight is None or weight.ndim != 2 or weight.dtype.kind != "f":
        return None
    return weight.T if node.attr("trans_b") else weight
