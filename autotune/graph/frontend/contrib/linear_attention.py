"""Linear attention and the causal convolution before it, as ONNX Runtime has them: hybrid decoders (Qwen3.5, Mamba)."""

from __future__ import annotations

import math
from dataclasses import replace

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.attention import linear_recurrence, tokens_of
from autotune.graph.frontend.convolution import causal_convolution
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType


@contributed("LinearAttention", inputs=6)
def linear_attention(node: OnnxNode) -> tuple[str, str]:
    """What ONNX has of this name, where states may be more than heads of queries or keys: each is read by several."""
    _refuse(node, "state_window")
    node.attr_int("chunk_size", 64)  # how it may be computed, not what
    heads, states = node.attr_int("q_num_heads", 0), node.attr_int("kv_num_heads", 0)
    q, v = tokens_of(node, 0, heads), tokens_of(node, 2, states)
    width = node.builder.values[q].shape[3]
    k = tokens_of(node, 1, node.shape(1)[-1] // width if node.shape(1) and width else states)
    return linear_recurrence(node, _repeated(node, q, states), _repeated(node, k, states), v)


def _repeated(node: OnnxNode, name: str, heads: int) -> str:
    """(batch, tokens, heads, features) of as many heads, each several times in a row; as it is where there are more."""
    batch, tokens, own, width = node.builder.values[name].shape
    if own >= heads or heads % own:
        return name
    wide = node.expanded(node.reshaped(name, (batch, tokens, own, 1, width)), (batch, tokens, own, heads // own, width))
    return node.reshaped(wide, (batch, tokens, heads, width))


@contributed("CausalConvWithState", inputs=4)
def causal_conv_with_state(node: OnnxNode) -> tuple[str, ...]:
    """(batch, channels, tokens), or (batch, tokens, channels...) with `channels_last`, as the states are."""
    names = ("state_window", "state_update_capacity", "state_length", "input_channel_offset", "input_channels")
    _refuse(node, *names)
    if node.attr_int("ndim", 1) != 1 or node.attr_int("state_channels_last", -1) != -1:
        raise UnsupportedError(f"{node.label}: only ndim=1 and state_channels_last=-1 are supported")
    dilation = node.attr_int("dilation", 1)
    if dilation < 1:
        raise ModelError(f"{node.label}: dilation={dilation} must be positive")
    if not node.attr_flag("channels_last"):
        return causal_convolution(node, dilation)
    inputs = tuple(_channels_first(node, n) if n in (0, 3) and node.given(n) else x for n, x in enumerate(node.inputs))
    trailing = node.shape()[2:]
    found = causal_convolution(replace(node, inputs=inputs), dilation)
    turned = [node.transposed(name, (0, 2, 1)) for name in found]
    return tuple(node.reshaped(name, (*node.builder.values[name].shape[:2], *trailing)) for name in turned)


def _channels_first(node: OnnxNode, position: int) -> str:
    shape = node.shape(position)
    if len(shape) < 3:
        raise ModelError(f"{node.label}: input {position} of shape {shape} has no channels behind its tokens")
    return node.transposed(node.reshaped(node.input(position), (*shape[:2], math.prod(shape[2:]))), (0, 2, 1))


@contributed("LinearAttentionGate", inputs=4)
def linear_attention_gate(node: OnnxNode) -> tuple[str, str]:
    """(decay, beta): decay_scale * softplus(a + dt_bias) in f32, and sigmoid(b)."""
    own = DType(node.value().dtype)
    total = node.emit("add", node.converted(node.input(0), DType.f32), node.input(1))
    decay = node.emit("mul", node.emit("softplus", total), node.input(2))
    if node.wanted(1) and not node.given(3):
        raise ModelError(f"{node.label}: beta is asked for, b (input 3) is left out")
    return node.converted(decay, own), node.emit("sigmoid", node.input(3)) if node.given(3) else ""


def _refuse(node: OnnxNode, *attributes: str) -> None:
    for name in attributes:
        if node.attr_int(name, 0):
            raise UnsupportedError(
                f"{node.label}: the attribute '{name}' is not supported; ONNX Runtime's CPU refuses it"
            )
