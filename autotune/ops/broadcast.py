"""NumPy broadcasting of shapes and indices."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import WorkloadError
from autotune.tensor.expr import Expr, Read
from autotune.tensor.stage import Tensor


def broadcast_shapes(op: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all broadcast to.

    Raises:
        WorkloadError: when they do not broadcast.
    """
    rank = max(map(len, shapes), default=0)
    out = []
    for d in range(rank):
        extents = {s[d - rank + len(s)] for s in shapes if d - rank + len(s) >= 0}
        wide = extents - {1}
        if len(wide) > 1:
            raise WorkloadError(f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast")
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def element(t: Tensor, indices: Sequence[Expr], shape: Sequence[int]) -> Read:
    """The element of `t` that broadcasts to `indices` of a tensor of `shape`."""
    skip = len(shape) - len(t.shape)
    own = tuple(i if n == extent else 0 for i, n, extent in zip(indices[skip:], t.shape, shape[skip:], strict=True))
    return t[own]
