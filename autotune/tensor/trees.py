"""Value of the extern function `tree_leaves`: what the leaf of each decision tree says that a row falls into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.tensor.externs import Array, extern_value

LINK, LIMIT = range(2)
"""Words of a node, integers as wide as the data's floats: the node on its first branch, which the other one follows,
times the columns of the data, plus the column that it asks for; and the bits of its limit. All are powers of two, and
what links name is taken modulo them: no link leads out of its table, and none needs a test.

A leaf leads to itself on the second branch: it asks for a column that holds NaN, which compares with nothing, and its
limit is free for what it says."""
WORDS = 2


@extern_value("tree_leaves")
def tree_leaves(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """The second words of the leaves of all trees for all rows: `depth` steps from the roots, each to the first branch
    where the row's feature is no more than the node's limit.

    Args:
        inputs: x (rows, columns) in f32 or f64, nodes (nodes, WORDS) and roots (trees), both in integers as wide.
    """
    x, nodes, roots = inputs
    columns, last = x.shape[1], len(nodes) - 1
    links = nodes[:, LINK].view(f"u{x.dtype.itemsize}")
    limits = np.ascontiguousarray(nodes[:, LIMIT]).view(x.dtype)
    here = np.broadcast_to(roots.astype(np.int64) & last, (len(x), len(roots)))
    rows = np.arange(len(x))[:, None]
    for _ in range(attrs["depth"]):
        column, below = links[here] % columns, links[here] // columns
        with np.errstate(invalid="ignore"):
            goes = x[rows, column] <= limits[here]
        here = (below.astype(np.int64) + ~goes) & last
    return [nodes[here, LIMIT]]
