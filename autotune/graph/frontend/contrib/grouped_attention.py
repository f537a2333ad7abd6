"""GroupQueryAttention of ONNX Runtime: heads that share keys, behind a cache of the keys and values so far.

A cache (batch, heads, positions, features) is either as long as what it holds, and comes out longer, or it has room to
spare: then the new rows go where the old ones end, which each batch says, and it comes out as long as it was.
"""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.contrib.attention import Heads, attend, refuse, split_heads
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType

QUERY, KEY, VALUE, PAST, LAST, TOTAL, COS, POSITIONS, BIAS, SINK = 0, 1, 2, 3, 5, 6, 7, 9, 10, 11
QUERY_NORM, KEY_NORM = 14, 15


@contributed("GroupQueryAttention", inputs=16)
def group_query_attention(node: OnnxNode) -> tuple[str, ...]:
    """(result, present key, present value)"""
    refuse(node, SINK + 1, "k_scale", "qk_output", "kv_cache_bit_width", "sliding_window_cache")
    for name in ("k_quant_type", "v_quant_type"):
        if node.attr_string(name, "NONE") != "NONE":
            refuse(node, SINK + 1, name)
    heads = node.attr_int("num_heads", 0), node.attr_int("kv_num_heads", 0)
    if min(heads) < 1 or heads[0] % heads[1]:
        raise ModelError(f"{node.label}: num_heads={heads[0]} for kv_num_heads={heads[1]}")
    q, k, v = _operands(node, *heads)
    q, k = _normalised(node, q, QUERY_NORM, "q_norm_epsilon"), _normalised(node, k, KEY_NORM, "k_norm_epsilon")
    causal = node.attr_flag("causal", default=True)
    batch, length = node.builder.values[q].shape[:2]
    total = node.constant_int(TOTAL, "the total length")
    if node.shape(LAST) not in ((batch,), (batch, 1)):
        raise ModelError(f"{node.label}: last positions of shape {node.shape(LAST)} for {batch} batches")
    room = node.shape(PAST)[2] if node.given(PAST) and node.rank(PAST) == 4 else 0
    if total > room + length:
        raise ModelError(f"{node.label}: a total length of {total} for {length} tokens behind a cache of {room}")
    begin = _begin(node, batch, length, total)
    if node.attr_flag("do_rotary"):
        positions = _positions(node, begin, batch, length)
        q, k = (_turned(node, name, positions) for name in (q, k))
    presents = [_present(node, past, new, begin, total - room) for past, new in ((PAST, k), (PAST + 1, v))]
    extras = {"mask": node.input(BIAS)} if node.given(BIAS) else {}
    keys = [Heads(name, "bhsd") for name in presents]
    if total == length:  # a first prompt sees itself alone
        keys = [Heads(k), Heads(v)]
    else:
        extras["lengths"] = node.emit("add", begin, node.new_constant(np.asarray(length)))
    window = node.attr_int("local_window_size", -1)
    if window > 0 and not causal:
        raise ModelError(f"{node.label}: a window of {window} tokens of attention that is not causal")

    def attended(scores: bool) -> str:
        return attend(
            node, [Heads(q), *keys], extras, heads, causal=causal, scores=scores,
            softcap=node.attr_float("softcap", 0.0), window=(window - 1 if window > 0 else -1, -1),
        )  # fmt: skip

    sink = _sink(node, heads[0])
    result = attended(False)
    return result if sink is None else _less_sink(node, result, attended(True), sink), *presents


def _sink(node: OnnxNode, heads: int) -> str | None:
    """(heads,) what goes into softmax beside the scores and takes its share of the result away: 0 if it is smooth."""
    smooth = node.attr_int("smooth_softmax", -1) == 1
    if not node.given(SINK):
        return node.constant_like(0.0, node.input(QUERY), (heads,)) if smooth else None
    if node.shape(SINK) != (heads,):
        raise ModelError(f"{node.label}: sinks of shape {node.shape(SINK)} for {heads} heads")
    return node.input(SINK)


def _less_sink(node: OnnxNode, result: str, scores: str, sink: str) -> str:
    """Attention of all scores, by the share that they have beside the sink: sigmoid(logsumexp(scores) - sink)."""
    batch, heads, length, _ = node.builder.values[scores].shape
    total = node.emit("reduce_log_sum_exp", node.converted(scores, DType.f32), axes=(3,), keepdims=True)
    beside = node.reshaped(node.converted(sink, DType.f32), (1, 1, heads, 1))
    share = node.emit("sigmoid", node.emit("sub", node.transposed(total, (0, 2, 1, 3)), beside))
    shape = node.builder.values[result].shape
    parts = node.reshaped(result, (batch, length, heads, shape[2] // heads))
    weighted = node.emit("mul", node.converted(parts, DType.f32), share)
    return node.reshaped(node.converted(weighted, DType(node.builder.values[result].dtype)), shape)


def _operands(node: OnnxNode, heads: int, kv_heads: int) -> tuple[str, str, str]:
    """q, k, v of (batch, positions, heads, features), which may come packed behind each other."""
    if node.given(KEY):
        return (
            split_heads(node, node.input(QUERY), heads),
            split_heads(node, node.input(KEY), kv_heads),
            split_heads(node, node.input(VALUE), kv_heads),
        )
    packed = split_heads(node, node.input(QUERY), heads + 2 * kv_heads)
    batch, length, _, features = node.builder.values[packed].shape
    q, k, v = (
        node.sliced(packed, (range(batch), range(length), part, range(features)))
        for part in (range(heads), range(heads, heads + kv_heads), range(heads + kv_heads, heads + 2 * kv_heads))
    )
    return q, k, v


def _normalised(node: OnnxNode, name: str, weight: int, epsilon: str) -> str:
    """Each head normalised for itself, if the node has weights for that (Qwen3)."""
    both = node.attr_float("qk_norm_epsilon", 1e-6)
    least = node.attr_float(epsilon, both)
    return node.emit("rms_norm", name, node.input(weight), axis=3, epsilon=least) if node.given(weight) else name


def _begin(node: OnnxNode, batch: int, length: int, total: int) -> str:
    """i64(batch): where the new rows of each batch begin. Those of a first prompt do at 0, however short it is."""
    if total == length:
        return node.new_constant(np.zeros(batch, np.int64))
    last = node.converted(node.reshaped(node.input(LAST), (batch,)), DType.i64)
    begin = node.emit("add", last, node.new_constant(np.asarray(1 - length)))
    node.must_lie(begin, (0,), (total - length + 1,), "the position of the first new token")
    return begin


def _positions(node: OnnxNode, begin: str, batch: int, length: int) -> str:
    if node.given(POSITIONS):
        return node.input(POSITIONS)
    first = node.reshaped(begin, (batch, 1))
    return node.emit("add", first, node.new_constant(np.arange(length, dtype=np.int64)[None, :]))


def _turned(node: OnnxNode, name: str, positions: str) -> str:
    rows, half = node.shape(COS)
    node.must_lie(positions, (0,), (rows,), "a position")
    return node.emit(
        "rotary", name, node.input(COS), node.input(COS + 1), positions,
        order="bshd", dim=2 * half, interleaved=node.attr_flag("rotary_interleaved"),
    )  # fmt: skip


def _present(node: OnnxNode, position: int, new: str, begin: str, missing: int) -> str:
    """The cache with the new rows in it; `missing` rows longer than it was, if that is more than none."""
    new = node.transposed(new, (0, 2, 1, 3))
    shape = node.builder.values[new].shape
    past = node.input(position) if node.given(position) else ""
    if not past or node.shape(position)[2] == 0:
        return new
    if missing > 0:
        rows = np.zeros((*shape[:2], missing, shape[3]), DType(node.value(position).dtype).numpy)
        past = node.emit("concat", past, node.new_constant(rows), axis=2)
    return node.emit("tensor_scatter", past, new, begin, axis=2, mode="linear")
