"""Mixtures of experts: a router chooses a few of many feed-forward parts for each token (MoE)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.contrib.activation import swiglu_gate, swiglu_up
from autotune.graph.frontend.contrib.matrices import Projection, RealMatrices
from autotune.graph.frontend.contrib.routing import Routes, routed
from autotune.graph.frontend.node import OnnxNode, contributed

ACTIVATIONS = ("relu", "relu2", "gelu", "silu", "identity")
GATED = ("swiglu", "geglu")
"""Activations of two projections, which may be the rows of one matrix."""


@dataclass(frozen=True, slots=True)
class Experts:
    """down(activation(gate x, up x)), or down(activation(gate x)) without `up`."""

    gate: Projection
    up: Projection | None
    down: Projection


@dataclass(frozen=True, slots=True)
class Activation:
    """What is done to the gate, and to the other projection that it is multiplied by; as the node's attributes."""

    kind: str
    alpha: float
    beta: float
    limit: float
    late: bool


@contributed("MoE", inputs=8)
def mixture_of_experts(node: OnnxNode) -> str:
    """As ONNX Runtime's kernels: the router's numbers are logits of all experts, of which the k largest count."""
    first, down, third = (projection(node, weight, weight + 1) if node.given(weight) else None for weight in (2, 4, 6))
    assert first is not None and down is not None  # the inputs 2 and 4 are not optional
    return mixture(node, first, down, third, None)


def projection(node: OnnxNode, weight: int, bias: int) -> Projection:
    return Projection(RealMatrices(node, node.input(weight)), node.input(bias) if node.given(bias) else None)


def mixture(node: OnnxNode, first: Projection, down: Projection, third: Projection | None, mixing: str | None) -> str:
    """What the experts chosen for each token make of it, weighted.

    Args:
        mixing: the weights of all experts for each token, where they are not the router's probabilities.
    """
    shape = node.shape()
    if len(shape) not in (2, 3):
        raise ModelError(f"{node.label}: tokens of shape {shape}, two or three dimensions are needed")
    tokens, width = math.prod(shape[:-1]), shape[-1]
    if node.rank(1) != 2 or node.shape(1)[0] != tokens:
        raise ModelError(f"{node.label}: a router's output of shape {node.shape(1)} for {tokens} tokens")
    count = node.shape(1)[1]
    experts = _experts(node, first, down, third)
    _check_shapes(node, experts, count, width)
    chosen, weights = _chosen(node, count, mixing)
    routes = routed(node, node.reshaped(node.input(0), (tokens, width)), chosen, count)
    found = _computed(node, experts, routes)
    k = node.builder.values[chosen].shape[1]
    found = node.reshaped(found, (node.builder.values[found].shape[0] * node.builder.values[found].shape[1], width))
    if routes.slots is not None:
        found = node.emit("gather", found, routes.slots, axis=0)
    weighted = node.emit("mul", node.reshaped(found, (tokens, k, width)), node.reshaped(weights, (tokens, k, 1)))
    return node.reshaped(node.emit("reduce_sum", weighted, axes=(1,), keepdims=False), shape)


def _chosen(node: OnnxNode, count: int, mixing: str | None) -> tuple[str, str]:
    """(experts, weights), each (tokens, k), of the k most probable experts."""
    k = node.attr_int("k", 1)
    if not 1 <= k <= count:
        raise ModelError(f"{node.label}: k={k} of {count} experts")
    if node.attr_int("use_sparse_mixer", 0):
        raise UnsupportedError(f"{node.label}: use_sparse_mixer=1 is not supported; ONNX Runtime ignores it on CPUs")
    probabilities = node.emit("softmax", node.input(1), axis=1)
    weights, chosen = (
        node.emit("top_k", probabilities, axis=1, k=k, largest=True, sorted=True, result=n) for n in range(2)
    )
    if mixing is not None:
        weights = node.emit("gather_elements", mixing, chosen, axis=1)
    if node.attr_flag("normalize_routing_weights"):
        weights = node.emit("div", weights, node.emit("reduce_sum", weights, axes=(1,), keepdims=True))
    return chosen, weights


def _experts(node: OnnxNode, first: Projection, down: Projection, third: Projection | None) -> Experts:
    """Gate and up are rows of one matrix in turns (swiglu_fusion=1), one behind the other (2), or two matrices (0)."""
    kind, fusion = node.attr_string("activation_type", "relu"), node.attr_int("swiglu_fusion", 0)
    if kind not in (*ACTIVATIONS, *GATED):
        raise UnsupportedError(f"{node.label}: activation_type='{kind}' is none of {', '.join((*ACTIVATIONS, *GATED))}")
    if kind not in GATED or (fusion == 0 and kind == "swiglu"):
        if kind in GATED and third is None:
            raise ModelError(f"{node.label}: {kind} without swiglu_fusion needs a third matrix (input 6)")
        return Experts(first, third, down)
    if fusion not in (1, 2) or third is not None:
        raise ModelError(f"{node.label}: {kind} with swiglu_fusion={fusion} and {3 if third else 2} matrices")
    rows = first.matrices.shape[1] if len(first.matrices.shape) == 3 else 0
    if rows % 2:
        raise ModelError(f"{node.label}: {kind} of {rows} rows, which are no pairs")
    parts = (range(0, rows, 2), range(1, rows, 2)) if fusion == 1 else (range(rows // 2), range(rows // 2, rows))
    gate, up = (_rows(node, first, part) for part in parts)
    return Experts(gate, up, down)


def _rows(node: OnnxNode, whole: Projection, part: range) -> Projection:
    """Some of the outputs of a projection."""
    bias = whole.bias
    if bias is not None:
        bias = node.sliced(bias, (range(node.builder.values[bias].shape[0]), part))
    return Projection(whole.matrices.rows(part), bias)


def _check_shapes(node: OnnxNode, experts: Experts, count: int, width: int) -> None:
    hidden = experts.down.matrices.shape[-1]
    wanted = [(experts.gate, (count, hidden, width)), (experts.down, (count, width, hidden))]
    wanted += [(experts.up, (count, hidden, width))] if experts.up is not None else []
    for one, shape in wanted:
        found = one.matrices.shape
        bias = shape[:2] if one.bias is None else node.builder.values[one.bias].shape
        if found != shape or bias != shape[:2]:
            raise ModelError(f"{node.label}: matrices {found} and biases {bias} of experts, {shape} are needed")


def _computed(node: OnnxNode, experts: Experts, routes: Routes) -> str:
    """(blocks, rows of a block, width) of the rows."""
    activation = _activation(node)
    found = _activated(node, _projected(node, experts.gate, routes.rows, routes.expert), activation)
    found = routes.ended(node, found)
    if experts.up is not None:
        up = _projected(node, experts.up, routes.rows, routes.expert)
        up = swiglu_up(node, up, activation.beta, activation.limit) if activation.kind == "swiglu" else up
        found = routes.ended(node, node.emit("mul", found, up))
    return routes.ended(node, _projected(node, experts.down, found, routes.expert))


def _projected(node: OnnxNode, one: Projection, rows: str, expert: str) -> str:
    """Each block by the matrix of its expert."""
    result = one.matrices.product(rows, expert)
    if one.bias is None:
        return result
    bias = node.emit("gather", one.bias, expert, axis=0)
    blocks, outputs = node.builder.values[bias].shape
    return node.emit("add", result, node.reshaped(bias, (blocks, 1, outputs)))


def _activation(node: OnnxNode) -> Activation:
    return Activation(
        node.attr_string("activation_type", "relu"), node.attr_float("activation_alpha", 1.0),
        node.attr_float("activation_beta", 0.0), node.attr_float("swiglu_limit", math.inf),
        node.attr_flag("swiglu_limit_after_activation"),
    )  # fmt: skip


def _activated(node: OnnxNode, gate: str, one: Activation) -> str:
    return {
        "relu": lambda: node.emit("relu", gate),
        "relu2": lambda: _squared(node, node.emit("relu", gate)),
        "gelu": lambda: node.emit("gelu", gate, approximate="tanh"),
        "geglu": lambda: node.emit("gelu", gate, approximate="tanh"),
        "silu": lambda: node.emit("swish", gate, alpha=1.0),
        "swiglu": lambda: swiglu_gate(node, gate, one.alpha, one.limit, late=one.late),
        "identity": lambda: gate,
    }[one.kind]()


def _squared(node: OnnxNode, x: str) -> str:
    return node.emit("mul", x, x)
