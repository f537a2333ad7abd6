"""Value of the extern function `tree_leaves`: which leaf of each decision tree a row falls into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.tensor.extern import Array, extern_value

CODE, BELOW, STEP, LIMIT = range(4)
"""Words (i32) of a node, which lie in one cache line: the number of its feature times 2, plus 1 where NaN takes the
first branch; the node on that branch; how much further the other one is; and the bits of its limit in f32. That of
f64 needs two words, and the nodes five."""

NAN_GOES_ON = 1
SECOND, FIRST, MIXED = range(3)
"""Where NaN goes, the attribute `nan`: the same way in all nodes, or as each node says."""


def limits(nodes: Array, dtype: np.dtype[np.floating]) -> Array:
    """The limits of nodes (nodes, words)."""
    return np.ascontiguousarray(nodes[:, LIMIT : LIMIT + dtype.itemsize // 4]).view(dtype).reshape(-1)


@extern_value("tree_leaves")
def tree_leaves(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """Leaves of all trees for all rows: `depth` steps from the roots, each to the first branch where the row's feature
    is no more than the node's limit. A leaf leads to itself.

    Args:
        inputs: x (rows, features) in f32 or f64, nodes (nodes, words) and roots (trees), both in i32.
    """
    x, nodes, roots = inputs
    limit = limits(nodes, x.dtype)
    here = np.broadcast_to(roots.astype(np.int64), (len(x), len(roots)))
    rows = np.arange(len(x))[:, None]
    for _ in range(attrs["depth"]):
        value, code = x[rows, nodes[here, CODE] >> 1], nodes[here, CODE]
        nan_goes = {SECOND: False, FIRST: True, MIXED: (code & NAN_GOES_ON) != 0}[attrs["nan"]]
        with np.errstate(invalid="ignore"):
            goes = (value <= limit[here]) | (np.isnan(value) & nan_goes)
        here = nodes[here, BELOW].astype(np.int64) + np.where(goes, 0, nodes[here, STEP])
    return [here.astype(np.int32)]
