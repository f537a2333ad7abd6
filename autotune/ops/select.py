"""The largest or smallest elements along an axis, and where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import axis_of, flag, integer, numeric, require
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr
from autotune.tensor.externs import Output, extern
from autotune.tensor.stage import Tensor, compute


@operator("top_k", axis=-1, k=Needed.integer, largest=True, sorted=True, result=0)
def top_k(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """The k largest (or smallest) elements along an axis, best first; result 0: the elements, 1: their positions.

    Of equal elements the first one comes first; NaN comes last. If `sorted` is false, any order would do.
    """
    (x,) = inputs
    numeric("top_k", x)
    flag("top_k", attrs, "sorted")
    axis = axis_of("top_k", integer("top_k", attrs, "axis"), len(x.shape))
    k, result = integer("top_k", attrs, "k", 0), integer("top_k", attrs, "result", 0)
    require(k <= x.shape[axis], f"top_k: k={k} is more than the {x.shape[axis]} elements along axis {axis}")
    require(result <= 1, f"top_k: result={result} must be 0 (elements) or 1 (positions)")
    outputs = (Output("top_values", (k,), x.dtype), Output("top_places", (k,), DType.i64))
    rows = swapped(x, axis, "rows")
    largest = int(flag("top_k", attrs, "largest"))
    return swapped(extern("top_k", [rows], rows.shape[:-1], outputs, k=k, largest=largest)[result], axis, "top_k")


def swapped(x: Tensor, axis: int, name: str) -> Tensor:
    """`axis` in the place of the last axis and the other way round."""
    last = len(x.shape) - 1
    if axis == last:
        return x

    def source(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(indices[last if d == axis else axis if d == last else d] for d in range(last + 1))

    shape = [x.shape[last if d == axis else axis if d == last else d] for d in range(last + 1)]
    return compute(shape, lambda *i: x[source(i)], name)
