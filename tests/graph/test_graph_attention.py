"""Attention, RotaryEmbedding and LinearAttention against the ONNX reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

from autotune.errors import ModelError
from autotune.graph import load_model
from tests.graph.graph_models import FEW, Array, build, check, random

QUERIES, KEYS, FEATURES, VALUES = 3, 5, 4, 6


def operands(packed: bool, heads: int, group: int) -> dict[str, Array]:
    """Q, K, V of two batches; 4-D, or with the heads packed."""
    found: dict[str, Array] = {}
    for name, count, length, width in (
        ("q", heads * group, QUERIES, FEATURES), ("k", heads, KEYS, FEATURES), ("v", heads, KEYS, VALUES),
    ):  # fmt: skip
        shape = (2, length, count * width) if packed else (2, count, length, width)
        found[name] = random(*shape, seed=len(found))
    return found


def mask(kind: str, rank: int, heads: int, keys: int) -> Array:
    shape = (2, heads, QUERIES, keys)[4 - rank :]
    chosen = np.random.default_rng(3).random(shape) < 0.6
    return chosen if kind == "bool" else np.where(chosen, random(*shape, seed=4), -np.inf).astype(np.float32)


@FEW
@given(
    data=st.data(), packed=st.booleans(), group=st.sampled_from([1, 2]), extra=st.sampled_from(["", "past", "lengths"])
)
def test_attention(data: st.DataObject, packed: bool, group: int, extra: str) -> None:
    """All inputs, attributes and outputs; rows of which every key is masked are among the masks drawn."""
    heads = data.draw(st.sampled_from([1, 2]))
    feeds = operands(packed, heads, group)
    total = KEYS + 2 if extra == "past" else KEYS
    attrs: dict[str, Any] = {"is_causal": data.draw(st.integers(0, 1))}
    attrs["softcap"] = data.draw(st.sampled_from([0.0, 1.5]))
    attrs["qk_matmul_output_mode"] = data.draw(st.integers(0, 3))
    attrs["left_window_size"] = data.draw(st.sampled_from([-1, 0, 2]))
    attrs["right_window_size"] = data.draw(st.sampled_from([-1, 1]))
    if packed:
        attrs |= {"q_num_heads": heads * group, "kv_num_heads": heads}
    if data.draw(st.booleans()):
        attrs["scale"] = 0.3
    inputs, outputs = ["q", "k", "v", ""], ["y"]
    kind = data.draw(st.sampled_from(["", "bool", "float"]))
    if kind:
        feeds["mask"] = mask(
            kind, data.draw(st.integers(2, 4)), heads * group, data.draw(st.sampled_from([total, KEYS - 1]))
        )
        inputs[3] = "mask"
    if extra == "past":
        feeds |= {"pk": random(2, heads, 2, FEATURES, seed=7), "pv": random(2, heads, 2, VALUES, seed=8)}
        inputs += ["pk", "pv"]
        outputs += ["present_k", "present_v"]
    elif extra == "lengths":
        feeds["n"] = np.asarray([2, 4], np.int64)
        inputs += ["", "", "n"]
    if data.draw(st.booleans()):
        outputs += [""] * (3 - len(outputs)) + ["scores"]
    raw = attrs["qk_matmul_output_mode"] == 0
    assume(raw or "scores" in outputs)
    assume(not raw or not attrs["softcap"])  # the reference caps them there too, the specification says raw
    node = helper.make_node("Attention", inputs, outputs, **attrs)
    check(build(node, feeds, outputs=[name for name in outputs if name], opset=25), feeds)


@pytest.mark.parametrize("precision", [1, 10, 11])
def test_softmax_precision(precision: int) -> None:
    feeds = operands(False, 2, 1)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], softmax_precision=precision)
    expected = None if precision != 10 else [half_precision(feeds)]
    check(build(node, feeds, opset=23), feeds, expected)


def half_precision(feeds: dict[str, Array]) -> Array:
    """Logits rounded to f16, all else exact (the reference also sums the row in f16)."""
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    logits = (q @ k.swapaxes(-1, -2) / np.sqrt(FEATURES)).astype(np.float16).astype(np.float64)
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray((powers / powers.sum(-1, keepdims=True)) @ v, np.float32)


@pytest.mark.parametrize(
    ("attrs", "complaint"),
    [
        ({"q_num_heads": 3, "kv_num_heads": 2}, "has no 3 heads"),
        ({"q_num_heads": 2}, "has no 0 heads"),
        ({"q_num_heads": 2, "kv_num_heads": 4}, "2 query heads for 4 key heads"),
    ],
)
def test_impossible_heads_are_refused(attrs: dict[str, Any], complaint: str) -> None:
    feeds = {name: random(1, 3, 8) for name in "qkv"}
    model = build(helper.make_node("Attention", ["q", "k", "v"], ["y"], **attrs), feeds, opset=23)
    with pytest.raises(ModelError, match=complaint):
        load_model(model.SerializeToString())


@FEW
@given(data=st.data(), packed=st.booleans(), interleaved=st.integers(0, 1), dim=st.sampled_from([0, 2, 4]))
def test_rotary_embedding(data: st.DataObject, packed: bool, interleaved: int, dim: int) -> None:
    feeds = {"x": random(2, 5, 18) if packed else random(2, 3, 5, 6)}
    chosen, half = data.draw(st.booleans()), (dim or 6) // 2
    rows = (9,) if chosen else (2, 5)
    feeds |= {"cos": random(*rows, half, seed=1), "sin": random(*rows, half, seed=2)}
    if chosen:
        feeds["at"] = np.random.default_rng(3).integers(0, 9, (2, 5))
    attrs: dict[str, Any] = {"num_heads": 3} if packed else {}
    attrs |= {"interleaved": interleaved, "rotary_embedding_dim": dim}
    node = helper.make_node("RotaryEmbedding", list(feeds), ["y"], **attrs)
    check(build(node, feeds, opset=23), feeds)


@FEW
@given(data=st.data(), rule=st.sampled_from(["linear", "gated", "delta", "gated_delta"]), group=st.sampled_from([1, 2]))
def test_linear_attention(data: st.DataObject, rule: str, group: int) -> None:
    heads, tokens = data.draw(st.sampled_from([1, 2])), data.draw(st.sampled_from([1, 4]))
    attrs: dict[str, Any] = {"q_num_heads": heads * group, "kv_num_heads": heads, "update_rule": rule}
    feeds = {"q": random(2, tokens, heads * group * 4), "k": random(2, tokens, heads * 4, seed=1, low=-0.5, high=0.5)}
    feeds["v"] = random(2, tokens, heads * 3, seed=2)
    inputs = ["q", "k", "v", "", "", ""]
    if data.draw(st.booleans()):
        inputs[3], feeds["past"] = "past", random(2, heads, 4, 3, seed=3)
    if "gated" in rule:
        inputs[4], feeds["decay"] = "decay", random(2, tokens, heads * data.draw(st.sampled_from([1, 4])), seed=4)
    if "delta" in rule:
        inputs[5], feeds["beta"] = "beta", random(2, tokens, data.draw(st.sampled_from([1, heads])), seed=5)
    if data.draw(st.booleans()):
        attrs["scale"] = 0.7
    node = helper.make_node("LinearAttention", inputs, ["y", "state"], **attrs)
    check(build(node, feeds, outputs=["y", "state"], opset=27), feeds)


def test_linear_attention_without_its_gate_is_refused() -> None:
    feeds = {name: random(1, 3, 8) for name in "qkv"}
    node = helper.make_node(
        "LinearAttention", ["q", "k", "v"], ["y"], q_num_heads=2, kv_num_heads=2, update_rule="gated"
    )
    with pytest.raises(ModelError, match="'gated' needs decay"):
        load_model(build(node, feeds, opset=27).SerializeToString())
