"""Matrix product with batch dimensions, broadcasting and vectors (ONNX MatMul, and Gemm's transposes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.broadcast import broadcast_shapes, element
from autotune.ops.checks import factors, flag, numeric, require
from autotune.ops.precision import accumulator, rounded
from autotune.ops.registry import operator
from autotune.tensor.expr import Expr, cast
from autotune.tensor.stage import Reduction, Tensor, compute, reduce_axis, sum_


@operator("matmul", operands="a b", weights="b", traits="leads_layout", trans_a=False, trans_b=False)
def matmul(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """matmul[..., i, j] = sum over k of a[..., i, k] * b[..., k, j]; leading dimensions broadcast.

    A one-dimensional operand is a row (a) or a column (b), and its dimension vanishes. `trans_a` and `trans_b`
    swap the last two dimensions of an operand. 16-bit floats are summed in f32; 8-bit integers, of which one may be
    signed and the other not, give i32.
    """
    a, b = inputs
    numeric("matmul", a)
    total = accumulator(factors("matmul", a, b))
    trans_a, trans_b = flag("matmul", attrs, "trans_a"), flag("matmul", attrs, "trans_b")
    for t, transposed, name in ((a, trans_a, "a"), (b, trans_b, "b")):
        require(len(t.shape) >= 1, f"matmul: {name} is a scalar; use mul")
        require(len(t.shape) >= 2 or not transposed, f"matmul: trans_{name} needs a matrix, got shape {t.shape}")
    has_rows, has_columns = len(a.shape) > 1, len(b.shape) > 1
    inner = a.shape[-2] if trans_a else a.shape[-1]
    inner_b = b.shape[-1] if trans_b or not has_columns else b.shape[-2]
    require(inner == inner_b, f"matmul: a of shape {a.shape} sums over {inner}, b of shape {b.shape} over {inner_b}")
    batch_a, batch_b = a.shape[:-2], b.shape[:-2]
    batch = broadcast_shapes("matmul", (batch_a, batch_b))
    rows = (a.shape[-1] if trans_a else a.shape[-2],) if has_rows else ()
    columns = (b.shape[-2] if trans_b else b.shape[-1],) if has_columns else ()
    k = reduce_axis(inner, "k")

    def body(*indices: Expr) -> Reduction:
        lead = indices[: len(batch)]
        i = indices[len(batch) : len(batch) + len(rows)]
        j = indices[len(batch) + len(rows) :]
        left = (k.var, *i) if trans_a else (*i, k.var)
        right = (*j, k.var) if trans_b else (k.var, *j)
        first, second = (
            element(t, (*lead, *own), (*batch, *t.shape[len(t.shape) - len(own) :]))
            for t, own in ((a, left), (b, right))
        )
        return sum_(cast(total, first) * cast(total, second), k)

    names = [f"b{n}" for n in range(len(batch))] + ["i"] * len(rows) + ["j"] * len(columns)
    return rounded(compute((*batch, *rows, *columns), body, "matmul", names), a, "matmul")
