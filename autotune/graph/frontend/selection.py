"""Operators that pick elements by their value: TopK."""

from __future__ import annotations

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts


@converts("TopK")
def top_k(node: OnnxNode) -> tuple[str, ...]:
    """k is an attribute before opset 10 and an input after; `largest` and `sorted` came with opset 11."""
    axis = node.axis(node.attr_int("axis", -1), node.rank())
    given = node.constant_ints(1, "k") if node.opset >= 10 else (node.attr_int("k", 0),)
    if len(given) != 1 or not 0 <= given[0] <= node.shape()[axis]:
        raise ModelError(f"{node.label}: k is {given}; along axis {axis} there are {node.shape()[axis]} elements")
    largest, ordered = node.attr_flag("largest", default=True), node.attr_flag("sorted", default=True)
    return node.emit_results(2, "top_k", node.input(0), axis=axis, k=given[0], largest=largest, sorted=ordered)
