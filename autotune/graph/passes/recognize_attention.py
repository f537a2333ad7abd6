"""Attention written in primitive nodes becomes one node: softmax(scale q·kᵀ + mask)·v.

requires: softmax is one node (recognize-softmax).
ensures: no product with a softmax of a product is left that the attention operator can express.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.masks import Mask, fits, is_causal, one_mask, split_length, unmasked
from autotune.graph.passes.match import made_by, number, product
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.tensor import DType


def recognize_attention(graph: Graph) -> Graph:
    """`matmul(softmax(matmul(q, k) * s + mask), v)` --> `attention(q, k, v, mask)` of 2-D to 4-D operands."""
    return rewrite(graph, _attention, ("matmul",))


class _Weights(NamedTuple):
    """The softmax whose rows weight the values; with `empty_zero` rows of NaN are replaced by zeros behind it."""

    softmax: Node
    empty_zero: bool


class _Scores(NamedTuple):
    """scale · product, then the masks, the last one first."""

    product: Node
    scale: float
    masks: tuple[Mask, ...]


def _attention(sweep: Sweep, node: Node) -> str | None:
    weights, rank = _weights(sweep, node.inputs[0]), len(node.output.shape)
    if weights is None or rank > 4 or node.attr("trans_a"):
        return None
    softmax = weights.softmax
    scores, own = sweep.values[softmax.name], node.output.dtype
    if softmax.attr("axis") not in (-1, rank - 1) or not DType(scores.dtype).is_float:
        return None
    if not scores.size or not node.output.size:
        return None
    found = _scores(sweep, softmax.inputs[0])
    if found is None or found.product.output.shape != scores.shape:
        return None
    first = found.product
    q, k, v = first.inputs[0], first.inputs[1], node.inputs[1]
    if any(sweep.values[name].shape[:-2] != scores.shape[:-2] or sweep.values[name].dtype != own for name in (q, k, v)):
        return None
    length, masks = split_length(sweep, found.masks, scores.shape[-1])
    causal = not length and len(masks) == 1 and is_causal(sweep, masks[0], scores.shape[-2:])
    masks = () if causal else masks
    if not all(fits(sweep.values[mask.name].shape, scores.shape) for mask in masks):
        return None
    heads = scores.shape[-3] if rank > 2 else 1
    orders = ("bhsd", "bhsd" if first.attr("trans_b") else "bhds", "bhds" if node.attr("trans_b") else "bhsd", "bhsd")
    operands, fill = [_four_dimensional(sweep, node, name) for name in (q, k, v)], -math.inf
    if masks:
        mask = one_mask(sweep, node, masks, DType(scores.dtype).numpy)
        if mask is None:
            return None
        name, fill = mask
        operands.append(name)
    if length:
        one = sweep.emit(node, "reshape", (length,), shape=(1,))
        batch = sweep.values[operands[0]].shape[0]
        operands.append(one if batch == 1 else sweep.emit(node, "expand", (one,), shape=(batch,)))
    extras = ("mask",) * bool(masks) + ("lengths",) * bool(length)
    result = sweep.emit(
        node, "attention", operands, extras=",".join(extras), q_heads=heads, kv_heads=heads, first=(0, 0, 0),
        order=",".join(orders), scale=found.scale, softcap=0.0, causal=causal, offset=0, window=(-1, -1),
        precision=scores.dtype if scores.dtype != own else "", empty_zero=weights.empty_zero, fill=fill,
        result=0,
    )  # fmt: skip
    return result if rank == 4 else sweep.emit(node, "reshape", (result,), shape=node.output.shape)


def _weights(sweep: Sweep, name: str) -> _Weights | None:
    """The softmax behind a cast back from the precision it works in, or behind `where(isnan(p), 0, p)`."""
    node = made_by(sweep, name, "softmax", "cast", "where")
    if node is None or not sweep.sole_use(name):
        return None
    if node.op == "softmax":
        return _Weights(node, False)
    if node.op == "cast":
        inner = _weights(sweep, node.inputs[0])
        return inner if inner is not None and DType(node.output.dtype).is_float else None
    condition, zero, kept = node.inputs
    missing, softmax = made_by(sweep, condition, "isnan"), made_by(sweep, kept, "softmax")
    if missing is None or missing.inputs != (kept,) or number(sweep, zero) != 0 or softmax is None:
        return None
    return _Weights(softmax, True) if sweep.uses(kept) == 2 and softmax.output.shape == node.output.shape else None


def _scores(sweep: Sweep, name: str) -> _Scores | None:
    """The product behind the logits of softmax, perhaps cast to a wider dtype."""
    name, masks = unmasked(sweep, name)
    scale, factors = product(sweep, name)
    cast = made_by(sweep, factors[0], "cast") if len(factors) == 1 else None
    if cast is not None:
        inner, factors = product(sweep, cast.inputs[0])
        scale *= inner
    first = made_by(sweep, factors[0], "matmul") if len(factors) == 1 else None
    if first is None or first.attr("trans_a") or not sweep.sole_use(first.name):
        return None
    return _Scores(first, scale, masks)


def _four_dimensional(sweep: Sweep, node: Node, name: str) -> str:
    shape = sweep.values[name].shape
    return name if len(shape) == 4 else sweep.emit(node, "reshape", (name,), shape=(1,) * (4 - len(shape)) + shape)
