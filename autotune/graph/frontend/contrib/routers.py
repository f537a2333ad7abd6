"""MoEGroupRouter: which experts a token may choose, by groups (DeepSeek V3)."""

from __future__ import annotations

import math

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType

LEAST_SCORE = 1e-20
"""What a probability is at least before its logarithm is taken."""


@contributed("MoEGroupRouter", inputs=3)
def group_router(node: OnnxNode) -> tuple[str, str, str]:
    """(logarithms for a mixture's router, scores to choose by, weights): either the first or the other two."""
    whole = node.wanted(1) or node.wanted(2)
    if whole == node.wanted(0) or (node.given(2) and not whole):
        raise ModelError(f"{node.label}: its outputs are router_probs, or selection_scores and router_weights of all")
    logits = node.reshaped(node.input(0), (math.prod(node.shape()[:-1]), node.shape()[-1]))
    if node.given(2):
        x, weight = (node.converted(name, DType.f32) for name in (logits, node.input(2)))
        logits = node.emit("matmul", x, weight, trans_a=False, trans_b=True)
    tokens, experts = node.builder.values[logits].shape
    if node.shape(1) != (experts,):
        raise ModelError(f"{node.label}: a bias of shape {node.shape(1)} for {experts} experts")
    weights = node.emit("sigmoid", node.converted(logits, DType.f32))
    scores = node.emit("add", weights, node.input(1))
    groups, active = node.attr_int("n_group", 1), node.attr_int("topk_group", 1)
    k, best = node.attr_int("top_k", 0), node.attr_int("group_topk", 2)
    sentinel = node.attr_float("router_sentinel", -10000.0)
    fits = groups > 0 and experts % groups == 0 and 0 < active <= groups and best > 0
    if not fits or not 0 < k <= experts // groups * active:
        said = f"top_k={k} of {experts} experts, n_group={groups}, topk_group={active} and group_topk={best}"
        raise ModelError(f"{node.label}: {said} do not fit")
    if whole:
        return "", scores, weights
    if active < groups:
        scores = _of_best_groups(node, scores, (tokens, groups, experts // groups), active, best)
    chosen = _largest(node, scores, k, 1)
    least = node.emit("max", weights, node.scalar(LEAST_SCORE, weights))
    found = node.emit("gather_elements", node.emit("log", least), chosen, axis=1)
    none = node.constant_like(sentinel, found, (tokens, experts))
    result = node.emit("scatter_elements", none, chosen, found, axis=1, reduction="none")
    return node.converted(result, DType(node.value().dtype)), "", ""


def _of_best_groups(node: OnnxNode, scores: str, grouped: tuple[int, int, int], active: int, best: int) -> str:
    """Scores (tokens, experts), -inf outside of the groups whose best experts have the largest sums."""
    tokens, groups, size = grouped
    highest = _largest(node, node.reshaped(scores, grouped), min(best, size), 0)
    totals = node.emit("reduce_sum", highest, axes=(2,), keepdims=False)
    none = node.constant_like(-math.inf, scores, (tokens, groups))
    chosen = _largest(node, totals, active, 1)
    zeros = node.constant_like(0.0, scores, (tokens, active))
    barred = node.emit("scatter_elements", none, chosen, zeros, axis=1, reduction="none")
    kept = node.emit("add", node.reshaped(scores, grouped), node.reshaped(barred, (tokens, groups, 1)))
    return node.reshaped(kept, (tokens, groups * size))


def _largest(node: OnnxNode, x: str, k: int, result: int) -> str:
    """The k largest along the last dimension (0), or their positions (1)."""
    axis = len(node.builder.values[x].shape) - 1
    return node.emit("top_k", x, axis=axis, k=k, largest=True, sorted=True, result=result)
