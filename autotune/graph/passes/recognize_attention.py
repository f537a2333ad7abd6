"""Attention written in primitive nodes becomes one node: softmax(scale q·kᵀ + mask)·v.

requires: softmax is one node (recognize-softmax).
ensures: no product with a softmax of a product is left that the attention operator can express.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import made_by, number, product
from autotune.graph.passes.sweep import Sweep
from autotune.tensor import DType

NEVER = -1e9  # a number added to scores that leaves no other score of its row a chance


def recognize_attention(graph: Graph) -> Graph:
    """`matmul(softmax(matmul(q, k) * s + mask), v)` --> `attention(q, k, v, mask)` of 2-D to 4-D operands."""
    sweep = Sweep(graph)
    for node in sweep:
        found = _attention(sweep, node) if node.op == "matmul" else None
        if found is None:
            sweep.keep(node)
        else:
            sweep.replace(node, found)
    return sweep.result()


def _attention(sweep: Sweep, node: Node) -> str | None:
    softmax = made_by(sweep, node.inputs[0], "softmax")
    rank = len(node.output.shape)
    if softmax is None or rank > 4 or softmax.attr("axis") not in (-1, rank - 1) or node.attr("trans_a"):
        return None
    scores = sweep.values[softmax.name]
    if not DType(scores.dtype).is_float or not scores.size or not node.output.size:
        return None
    logits, mask = _unmasked(sweep, softmax.inputs[0], scores.shape[-2:])
    scale, factors = product(sweep, logits)
    first = made_by(sweep, factors[0], "matmul") if len(factors) == 1 else None
    if first is None or first.attr("trans_a") or first.output.shape != scores.shape:
        return None
    if any(not sweep.sole_use(name) for name in (softmax.name, first.name)):
        return None
    q, k, v = first.inputs[0], first.inputs[1], node.inputs[1]
    if any(sweep.values[name].shape[:-2] != scores.shape[:-2] for name in (q, k, v)):
        return None
    if any(sweep.values[name].dtype != scores.dtype for name in (q, k, v)):
        return None
    heads = scores.shape[-3] if rank > 2 else 1
    orders = ("bhsd", "bhsd" if first.attr("trans_b") else "bhds", "bhds" if node.attr("trans_b") else "bhsd", "bhsd")
    operands = [_four_dimensional(sweep, node, name) for name in (q, k, v)]
    causal = mask is not None and _is_causal(sweep, mask, scores.shape[-2:])
    if mask is not None and not causal:
        if not _fits(sweep.values[mask].shape, scores.shape):
            return None
        operands.append(mask)
    masked = mask is not None and not causal
    result = sweep.emit(
        node, "attention", operands, extras="mask" if masked else "", q_heads=heads, kv_heads=heads, first=(0, 0, 0),
        order=",".join(orders), scale=scale, softcap=0.0, causal=causal, offset=0, window=(-1, -1), precision="",
        empty_zero=False, result=0,
    )  # fmt: skip
    return result if rank == 4 else sweep.emit(node, "reshape", (result,), shape=node.output.shape)


def _four_dimensional(sweep: Sweep, node: Node, name: str) -> str:
    shape = sweep.values[name].shape
    return name if len(shape) == 4 else sweep.emit(node, "reshape", (name,), shape=(1,) * (4 - len(shape)) + shape)


def _unmasked(sweep: Sweep, name: str, extents: tuple[int, ...]) -> tuple[str, str | None]:
    """The scores without what is added to them or takes their place, and that: a number, or who takes part."""
    node = made_by(sweep, name, "add", "where")
    if node is None:
        return name, None
    if node.op == "where":
        condition, kept, otherwise = node.inputs
        value, chosen = number(sweep, otherwise), sweep.array(condition)
        # A finite number in place of all scores of a row is a softmax of its own; of some, it is as good as -inf.
        some = chosen is not None and bool(chosen.any(-1).all()) and chosen.shape[-1:] == extents[-1:]
        never = value is not None and (value == -np.inf or (value <= NEVER and some))
        return (kept, condition) if never and sweep.values[kept].shape == node.output.shape else (name, None)
    for scores, mask in (node.inputs, node.inputs[::-1]):
        factors = product(sweep, scores).factors
        if len(factors) == 1 and made_by(sweep, factors[0], "matmul") is not None:
            return scores, mask
    return name, None


def _fits(mask: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to the scores, whole along the keys, and counts its dimensions as 4-D scores would."""
    if not mask or mask[-1] != scores[-1] or len(mask) > len(scores):
        return False
    return all(n in (1, extent) for n, extent in zip(mask[::-1], scores[::-1], strict=False))


def _is_causal(sweep: Sweep, mask: str, extents: tuple[int, ...]) -> bool:
    """Whether a constant mask adds nothing up to the diagonal and rules out what is beyond it."""
    array = sweep.array(mask)
    if array is None or array.shape[-2:] != extents or array.size != extents[0] * extents[1] or array.size < 2:
        return False
    square = array.reshape(extents)
    if square.dtype == np.bool_:
        square = np.where(square, 0.0, -np.inf)
    square = square.astype(np.float64)
    later = np.triu(np.ones(square.shape, bool), 1)
    return bool(np.all(square[~later] == 0) and np.all(square[later] <= NEVER))
