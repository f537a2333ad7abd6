"""Attention and RotaryEmbedding. Packed heads (batch, sequence, heads·features) are read in place, never transposed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.ops.workload import AttrValue


@converts("Attention")
def attention(node: OnnxNode) -> Sequence[str]:
    """The values, then present key and value (the past ones before the new ones), then the scores if wanted."""
    for position in range(3):
        shape = node.shape(position)
        if node.rank(position) not in (3, 4) or node.rank(position) != node.rank(0):
            raise ModelError(f"{node.label}: Q, K and V must all be 3-D or all 4-D; input {position} is {shape}")
    packed = node.rank(0) == 3
    names, heads = _operands(node, packed)
    presents, offset = _presents(node, names, packed)
    orders = ["bshd" if packed else "bhsd"] * 4
    if node.given(4):
        names[1:], orders[1:3] = presents, ["bhsd", "bhsd"]
    extras = [(kind, node.input(at)) for kind, at in (("mask", 3), ("lengths", 6)) if node.given(at)]
    features = node.builder.values[names[0]].shape[-1]
    default = 1 / math.sqrt(features) if features else 1.0
    softcap = node.attr_float("softcap", 0.0)
    if not 0 <= softcap < math.inf:
        raise ModelError(f"{node.label}: softcap={softcap} is no bound")
    attrs: dict[str, AttrValue] = {
        "extras": ",".join(kind for kind, _ in extras), "q_heads": heads[0], "kv_heads": heads[1], "first": (0, 0, 0),
        "order": ",".join(orders), "empty_zero": True, "fill": -math.inf,
        "scale": node.attr_float("scale", default), "softcap": softcap,
        "causal": node.attr_flag("is_causal"), "offset": offset,
        "window": (node.attr_int("left_window_size", -1), node.attr_int("right_window_size", -1)),
        "precision": dtype_of(node.attr_int("softmax_precision", 0), node.label).value
        if node.has("softmax_precision") else "",
    }  # fmt: skip
    operands = (*names, *(name for _, name in extras))
    values = node.emit("attention", *operands, **attrs, result=0)
    if packed:
        values = node.reshaped(values, (*node.shape(0)[:2], heads[0] * node.builder.values[values].shape[-1]))
    mode = node.attr_int("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise ModelError(f"{node.label}: qk_matmul_output_mode={mode} must be 0 to 3")
    scores = node.emit("attention", *operands, **attrs, result=1 + mode) if node.wanted(3) else ""
    return values, *presents, scores


def _operands(node: OnnxNode, packed: bool) -> tuple[list[str], tuple[int, int]]:
    """q, k, v as 4-D values, and the numbers of query and key heads."""
    if not packed:
        return [node.input(n) for n in range(3)], (node.shape(0)[1], node.shape(1)[1])
    heads = (node.attr_int("q_num_heads", 0), node.attr_int("kv_num_heads", 0))
    names = []
    for position, count in enumerate((heads[0], heads[1], heads[1])):
        batch, length, width = node.shape(position)
        if count < 1 or width % count:
            raise ModelError(f"{node.label}: input {position} of width {width} has no {count} heads; "
                             "3-D inputs need q_num_heads and kv_num_heads")  # fmt: skip
        names.append(node.reshaped(node.input(position), (batch, length, count, width // count)))
    return names, heads


def _presents(node: OnnxNode, names: Sequence[str], packed: bool) -> tuple[list[str], int]:
    """Present key and value (batch, heads, positions, features), "" where nobody wants them; how long the past is."""
    if node.given(4) != node.given(5):
        raise ModelError(f"{node.label}: past_key and past_value go together")
    if node.given(4) and node.given(6):
        raise ModelError(f"{node.label}: nonpad_kv_seqlen and past_key exclude each other")
    found = []
    for position in (1, 2):
        past = node.given(3 + position)
        if not past and not node.wanted(position):
            found.append("")
            continue
        name = node.emit("transpose", names[position], perm=(0, 2, 1, 3)) if packed else names[position]
        found.append(node.emit("concat", node.input(3 + position), name, axis=2) if past else name)
    return found, node.shape(4)[2] if node.given(4) else 0


@converts("RotaryEmbedding")
def rotary_embedding(node: OnnxNode) -> str:
    """Pairs of features turned by the angles of their positions."""
    x = node.input(0)
    shape = node.shape()
    if len(shape) == 3:
        heads = node.attr_int("num_heads", 0)
        if heads < 1 or shape[2] % heads:
            raise ModelError(f"{node.label}: width {shape[2]} has no {heads} heads; 3-D input needs num_heads")
        x = node.reshaped(x, (*shape[:2], heads, shape[2] // heads))
    elif len(shape) != 4:
        raise ModelError(f"{node.label}: input of shape {shape} must be 3-D or 4-D")
    dim = node.attr_int("rotary_embedding_dim", 0) or node.builder.values[x].shape[-1]
    positions = (node.input(3),) if node.given(3) else ()
    for name in positions:
        rows = node.shape(1)[0]
        node.must_lie(name, (-rows,), (rows,), "a position")
    turned = node.emit(
        "rotary", x, node.input(1), node.input(2), *positions,
        order="bshd" if len(shape) == 3 else "bhsd", dim=dim, interleaved=node.attr_flag("interleaved"),
    )  # fmt: skip
    return node.reshaped(turned, shape)


@converts("LinearAttention")
def linear_attention(node: OnnxNode) -> tuple[str, str]:
    """What the tokens read, and the state after the last one."""
    heads, kv_heads = node.attr_int("q_num_heads", 0), node.attr_int("kv_num_heads", 0)
    return linear_recurrence(node, *(tokens_of(node, n, count) for n, count in enumerate((heads, kv_heads, kv_heads))))


def linear_recurrence(node: OnnxNode, q: str, k: str, v: str) -> tuple[str, str]:
    """The same of (batch, tokens, heads, features), with the past, decay and beta of the node."""
    rule = node.attr_string("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise ModelError(f"{node.label}: update_rule '{rule}' is not linear, gated, delta or gated_delta")
    for position, needed, name in ((4, "gated" in rule, "decay"), (5, "delta" in rule, "beta")):
        if node.given(position) != needed:
            raise ModelError(f"{node.label}: update_rule '{rule}' {'needs' if needed else 'takes no'} {name}")
    extras = [("past", node.input(3))] if node.given(3) else []
    extras += [("decay", tokens_of(node, 4, node.attr_int("kv_num_heads", 0)))] if node.given(4) else []
    extras += [("beta", node.input(5))] if node.given(5) else []
    width = node.builder.values[q].shape[-1]
    scale = node.attr_float("scale", 0.0) or (1 / math.sqrt(width) if width else 1.0)
    results = [
        node.emit(
            "linear_attention", q, k, v, *(name for _, name in extras),
            extras=",".join(kind for kind, _ in extras), scale=scale, result=result,
        ) if result == 0 or node.wanted(result) else ""
        for result in range(2)
    ]  # fmt: skip
    shape = node.builder.values[results[0]].shape
    return node.reshaped(results[0], (*shape[:2], shape[2] * shape[3])), results[1]


def tokens_of(node: OnnxNode, position: int, heads: int) -> str:
    """(batch, tokens, heads·features) as (batch, tokens, heads, features)."""
    shape = node.shape(position)
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise ModelError(f"{node.label}: input {position} of shape {shape} has no {heads} packed heads")
    return node.reshaped(node.input(position), (*shape[:2], heads, shape[2] // heads))
