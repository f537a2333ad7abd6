"""Operators of hybrid decoders (linear attention, gates, positions of three axes) against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelError
from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.contrib_models import compare, model_of, refusal, theirs
from tests.graph.graph_models import Array, random


def attention_feeds(heads: tuple[int, int, int], rule: str, per_feature: bool = False) -> dict[str, Array]:
    """Two sequences of five tokens for heads of queries, keys and states; 4 features to compare, 3 to add."""
    q, k, states = heads
    feeds = {"q": random(2, 5, 4 * q), "k": random(2, 5, 4 * k, seed=1) / 2, "v": random(2, 5, 3 * states, seed=2)}
    if "gated" in rule:
        feeds["g"] = random(2, 5, states * (4 if per_feature else 1), seed=3, low=-1, high=0)
    if "delta" in rule:
        feeds["b"] = random(2, 5, states, seed=4, low=0, high=1)
    return feeds


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("heads", [(2, 2, 2), (4, 2, 2), (2, 4, 4), (2, 2, 4)])
@pytest.mark.parametrize("past", [False, True])
def test_linear_attention(rule: str, heads: tuple[int, int, int], past: bool) -> None:
    """More queries than states, and more states than queries or keys."""
    feeds = attention_feeds(heads, rule) | ({"p": random(2, heads[2], 4, 3, seed=5)} if past else {})
    order = " ".join(name if name in feeds else "-" for name in "qkvpgb").rstrip(" -")
    compare("LinearAttention", feeds, outputs=["y", "state"], order=order, update_rule=rule,
            q_num_heads=heads[0], kv_num_heads=heads[2], scale=0.3 if past else 0.0)  # fmt: skip


def test_decay_per_feature_compiled() -> None:
    feeds = attention_feeds((2, 2, 4), "gated_delta", per_feature=True)
    attrs: dict[str, Any] = {"order": "q k v - g b", "outputs": ["y", "state"], "q_num_heads": 2, "kv_num_heads": 4}
    model = model_of("LinearAttention", feeds, {}, **attrs)
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    for found, wanted in zip(session.run(None, feeds), theirs(model, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("trailing", [(), (6,), (2, 3)])
@pytest.mark.parametrize(("past", "bias", "activation"), [(False, False, "none"), (True, True, "silu")])
def test_causal_convolution(dilation: int, trailing: tuple[int, ...], past: bool, bias: bool, activation: str) -> None:
    """Channels first where nothing trails, else last, in one dimension or two."""
    feeds = {"x": random(2, 5, *trailing) if trailing else random(2, 6, 5)}
    length = 2 * dilation
    tensors = {"w": random(6, 1, 3, seed=1)} | ({"b": random(6, seed=2)} if bias else {})
    if past:
        feeds["p"] = random(2, length, *trailing, seed=3) if trailing else random(2, 6, length, seed=3)
    order = f"x w {'b' if bias else '-'} {'p' if past else ''}"
    compare("CausalConvWithState", feeds, tensors, outputs=["y", "state"], order=order, dilation=dilation,
            channels_last=int(bool(trailing)), activation=activation)  # fmt: skip


@pytest.mark.parametrize("order", ["a d s b", "a d s"])
def test_gates_of_linear_attention(order: str) -> None:
    feeds = {"a": random(2, 5, 3), "b": random(2, 5, 3, seed=1)}
    tensors = {"d": random(3, seed=2), "s": random(3, seed=3)}
    given = {name: array for name, array in feeds.items() if name in order.split()}
    outputs = ["decay", "beta"] if "b" in given else ["decay"]
    compare("LinearAttentionGate", given, tensors, order=order, outputs=outputs)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
@pytest.mark.parametrize("heads", [1, 3])
def test_gated_rms_norm(activation: str, heads: int) -> None:
    feeds = {"x": random(2, 5, heads * 8), "g": random(2, 5, heads * 8, seed=1)}
    compare("GatedRMSNorm", feeds, {"s": random(8, seed=2)}, order="x s g", activation=activation, epsilon=1e-3)


@pytest.mark.parametrize("scale", [None, (8,), (3, 8), (24,)])
@pytest.mark.parametrize("branches", [0, 3])
def test_branchwise_rms_norm(scale: tuple[int, ...] | None, branches: int) -> None:
    tensors = {} if scale is None else {"s": random(*scale, seed=1)}
    compare("BranchwiseRMSNorm", {"x": random(2, 5, 24) if branches else random(2, 3, 8)}, tensors,
            num_branches=branches)  # fmt: skip


def test_sums_and_activations_with_gates() -> None:
    compare("GatedAdd", {"x": random(2, 5, 8), "z": random(2, 5, 8, seed=1), "g": random(2, 5, 1, seed=2)})
    compare("ScaledSiLU", {"x": random(2, 8)})
    compare("ScaledSiLU", {"x": random(2, 8)}, alpha=1.5)
    compare("ScaledSiLU", {"x": random(2, 8)}, {"s": np.asarray(0.7, np.float32)})


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_halves(dtype: Any) -> None:
    """Computed in f32, as ONNX Runtime does."""
    x, gate, scale = (random(2, 8, seed=n).astype(dtype) for n in range(3))
    near = 1e-5 if dtype is np.float32 else 5e-3
    compare("GatedRMSNorm", {"x": x, "g": gate}, {"s": scale[0]}, order="x s g", within=near)
    compare("BranchwiseRMSNorm", {"x": x}, {"s": scale[0]}, within=near)


@pytest.mark.parametrize("limit", [0.0, 0.5])
@pytest.mark.parametrize("halves", [False, True])
def test_swiglu(limit: float, halves: bool) -> None:
    """As its specification says: no CPU has it."""
    gate, up = random(2, 3, 4), random(2, 3, 4, seed=1)
    feeds = {"x": np.concatenate((gate, up), 2)} if halves else {"g": gate, "u": up}
    attrs: dict[str, Any] = {"activation_alpha": 1.702, "activation_beta": 1.0, "limit": limit}
    graph = load_model(model_of("SwiGLU", feeds, {}, **attrs).SerializeToString())
    if limit:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    expected = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    for form in (graph, optimize(graph)):
        np.testing.assert_allclose(evaluate_graph(form, feeds)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("section", [(2, 2, 2), (4, 1, 1), (3, 2, 1), (6, 0, 0)])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_positions_of_three_axes(layout: int, section: tuple[int, ...], interleaved: int) -> None:
    positions = np.random.default_rng(0).integers(0, 9, (3, 2, 5))
    tensors = {"c": random(9, 6, seed=1), "s": random(9, 6, seed=2)}
    attrs: dict[str, Any] = {"mrope_section": section, "mrope_layout": layout, "interleaved": interleaved}
    compare("MRotaryEmbedding", {"x": random(2, 5, 36), "p": positions}, tensors, num_heads=3, **attrs)
    compare("MRotaryEmbedding", {"x": random(2, 3, 5, 12), "p": positions}, tensors, **attrs)
    wide = {"x": random(2, 3, 5, 16), "p": positions}
    compare("MRotaryEmbedding", wide, tensors, num_heads=3, rotary_embedding_dim=12, **attrs)


@pytest.mark.parametrize(
    "attrs",
    [{"top_k": 2}, {"top_k": 3, "n_group": 4, "topk_group": 2}, {"top_k": 2, "n_group": 2, "group_topk": 1},
     {"top_k": 4, "n_group": 4, "topk_group": 2, "group_topk": 5, "router_sentinel": -50.0}],
)  # fmt: skip
def test_routers_by_groups(attrs: dict[str, Any]) -> None:
    feeds, bias = {"x": random(2, 5, 8)}, {"b": random(8, seed=1)}
    compare("MoEGroupRouter", feeds, bias, **attrs)
    if "n_group" not in attrs:
        compare("MoEGroupRouter", feeds, bias, outputs=["", "scores", "weights"], **attrs)


def test_refusals() -> None:
    wrong: dict[str, Any] = {"kind": ModelError}
    feeds = attention_feeds((2, 2, 2), "linear")
    heads: dict[str, Any] = {"q_num_heads": 2, "kv_num_heads": 2}
    assert "the attribute 'state_window' is not supported" in refusal(
        "LinearAttention", feeds, {}, state_window=2, **heads
    )
    assert "only ndim=1" in refusal("CausalConvWithState", {"x": random(2, 6, 4, 5)}, {"w": random(6, 1, 3, 3)}, ndim=2)
    said = refusal("CausalConvWithState", {"x": random(2, 6, 5)}, {"w": random(6, 1, 3)}, dilation=0, **wrong)
    assert "dilation=0 must be positive" in said
    gated = {"x": random(2, 8), "z": random(2, 8), "g": random(2, 4), "w": random(4, 1)}
    assert "gate_weight" in refusal("GatedAdd", gated, {})
    turned = {"x": random(2, 5, 36), "p": np.zeros((3, 2, 5), np.int64), "c": random(9, 6), "s": random(9, 6)}
    said = refusal("MRotaryEmbedding", turned, {}, mrope_section=[2, 2, 1], **wrong)
    assert "mrope_section=(2, 2, 1) and mrope_layout=0 of 6 angles" in said
    said = refusal("MoEGroupRouter", {"x": random(5, 8), "b": random(8)}, {}, top_k=3, n_group=4, **wrong)
    assert "top_k=3 of 8 experts, n_group=4, topk_group=1 and group_topk=2 do not fit" in said
    assert "has no halves" in refusal("SwiGLU", {"x": random(2, 7)}, {}, **wrong)
    said = refusal("BranchwiseRMSNorm", {"x": random(2, 7)}, {}, num_branches=2, **wrong)
    assert "num_branches=2 of data of shape (2, 7)" in said
