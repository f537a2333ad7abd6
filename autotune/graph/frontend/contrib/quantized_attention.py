"""QAttention of ONNX Runtime: Attention whose projection is a product of bytes."""

from __future__ import annotations

from dataclasses import replace

from autotune.graph.frontend.contrib.attention import attend_projected, head_count, hidden_sizes, refuse
from autotune.graph.frontend.contrib.quantization import columns_scale, real_product
from autotune.graph.frontend.node import OnnxNode, contributed

X, WEIGHT, BIAS, X_SCALE, WEIGHT_SCALE, MASK, X_ZERO, WEIGHT_ZERO, PAST = range(9)


@contributed("QAttention", inputs=9)
def qattention(node: OnnxNode) -> tuple[str, str]:
    """(result, present), as Attention; the projection has a scale and a zero point for all columns or for each."""
    refuse(node, 9, "more", "do_rotary", "past_present_share_buffer")
    heads = head_count(node)
    zeros = [node.input(n) if node.given(n) else None for n in (X_ZERO, WEIGHT_ZERO)]
    operands = node.input(X), node.input(WEIGHT), *zeros
    first, second = node.reshaped(node.input(X_SCALE), ()), columns_scale(node, WEIGHT_SCALE)
    projected = node.emit("add", real_product(node, operands, first, second), node.input(BIAS))
    mask, past = (node.input(n) if node.given(n) else None for n in (MASK, PAST))
    inner = replace(node, inputs=(projected, None, None, mask, past))
    return attend_projected(inner, projected, hidden_sizes(inner, projected, heads), heads)
