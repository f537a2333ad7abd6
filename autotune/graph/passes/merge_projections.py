"""Matrix products of one value whose results one attention reads become one product, read where its heads lie.

requires: attention reads heads in place (attention-views).
ensures: queries, keys and values of an attention that are projected from one value come from one product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.affine import side_by_side
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite


class Projection(NamedTuple):
    """reshape(matmul(x, weight) + bias), read by nobody but the attention; `bias` None where there is none."""

    matmul: Node
    weight: Array
    bias: Array | None

    @property
    def x(self) -> str:
        return self.matmul.inputs[0]


def merge_projections(graph: Graph) -> Graph:
    """`attention(x·a + p, x·b + q, x·c + r)` --> `attention(y, y, y)` with y = x·[a b c] + [p q r]."""
    return rewrite(graph, _merged, ("attention",))


def _merged(sweep: Sweep, node: Node) -> str | None:
    orders, first = str(node.attr("order")).split(","), node.int_tuple("first")
    found = {n: _projection(sweep, node.inputs[n], orders[n], first[n]) for n in range(3)}
    able = {n: p for n, p in found.items() if p is not None}
    for lead in able.values():
        positions = [n for n, p in able.items() if _beside(lead, p)]
        widths = {sweep.values[node.inputs[n]].shape[3] for n in positions}
        if len(positions) < 2 or len(widths) > 1 or len({node.inputs[n] for n in positions}) < len(positions):
            continue
        parts = [able[n] for n in positions]
        biases = [p.bias for p in parts if p.bias is not None]
        rank = len(lead.matmul.output.shape)
        total = side_by_side(sweep, [p.matmul for p in parts], lead.x, [p.weight for p in parts], biases, 1, rank - 1)
        shapes = [sweep.values[node.inputs[n]].shape for n in positions]
        heads = [shape[2] for shape in shapes]
        whole = sweep.emit(node, "reshape", (total,), shape=(*shapes[0][:2], sum(heads), shapes[0][3]))
        operands, starts = list(node.inputs), list(first)
        for at, n in enumerate(positions):
            operands[n], starts[n] = whole, sum(heads[:at])
        return sweep.emit(node, "attention", operands, **{**dict(node.attrs), "first": tuple(starts)})
    return None


def _projection(sweep: Sweep, name: str, order: str, first: int) -> Projection | None:
    reshape = made_by(sweep, name, "reshape")
    if reshape is None or order != "bshd" or first or not sweep.sole_use(name):
        return None
    result, bias = reshape.inputs[0], None
    added = made_by(sweep, result, "add")
    if added is not None:
        bias = next((sweep.array(x) for x in added.inputs if sweep.array(x) is not None), None)
        inner = [x for x in added.inputs if sweep.array(x) is None]
        if (
            bias is None
            or len(inner) != 1
            or bias.shape[-1:] != added.output.shape[-1:]
            or bias.size != bias.shape[-1]
            or not sweep.sole_use(added.name)
        ):
            return None
        result = inner[0]
    matmul = made_by(sweep, result, "matmul")
    weight = sweep.array(matmul.inputs[1]) if matmul is not None else None
    if matmul is None or weight is None or weight.ndim != 2 or not sweep.sole_use(matmul.name):
        return None
    if matmul.attr("trans_a") or matmul.attr("trans_b") or matmul.output.shape[-1] != np.prod(reshape.output.shape[2:]):
        return None
    return Projection(matmul, weight, None if bias is None else bias.reshape(-1))


def _beside(a: Projection, b: Projection) -> bool:
    """Whether the two can be computed as one product."""
    return a.x == b.x and (a.bias is None) == (b.bias is None) and a.weight.dtype == b.weight.dtype
