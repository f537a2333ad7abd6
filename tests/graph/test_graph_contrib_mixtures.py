"""Mixtures of experts against ONNX Runtime, or what their specification says where its CPU kernels refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelError
from autotune.graph import evaluate_graph, load_model, open_model, optimize, partition
from autotune.graph.frontend.buckets import CannotPad, padding_of
from autotune.graph.frontend.contrib.routing import blocks_at_most, rows_of_a_block
from tests.graph.contrib_models import compare, model_of, refusal, theirs
from tests.graph.graph_models import Array, random

EXPERTS, WIDTH, HIDDEN = 3, 6, 4
BIASES = "x r w b v c"
NONE = "x r w - v"


def operands(*lead: int, rows: int = HIDDEN, experts: int = EXPERTS) -> tuple[dict[str, Array], dict[str, Array]]:
    """Tokens and the router's output; matrices and biases of experts."""
    feeds = {"x": random(*lead, WIDTH, seed=1), "r": 2 * random(math.prod(lead), experts, seed=2)}
    return feeds, {"w": random(experts, rows, WIDTH, seed=3), "b": random(experts, rows, seed=4),
                   "v": random(experts, WIDTH, HIDDEN, seed=5), "c": random(experts, WIDTH, seed=6)}  # fmt: skip


def given(tensors: dict[str, Array], order: str) -> dict[str, Array]:
    return {name: array for name, array in tensors.items() if name in order.split()}


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize(("normalize", "k"), [(0, 1), (0, 2), (1, 2), (1, 3)])
@pytest.mark.parametrize("order", [BIASES, NONE])
def test_activations_and_routing(activation: str, normalize: int, k: int, order: str) -> None:
    feeds, tensors = operands(5)
    compare("MoE", feeds, given(tensors, order), order=order, activation_type=activation, k=k,
            normalize_routing_weights=normalize)  # fmt: skip


@pytest.mark.parametrize("lead", [(1,), (2, 3), (3, 20), (1, 64)])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_pairs_of_rows(lead: tuple[int, ...], limit: float | None) -> None:
    """Gate and up in turns; tokens one by one, and in blocks for an expert each."""
    feeds, tensors = operands(*lead, rows=2 * HIDDEN)
    attrs: dict[str, Any] = {} if limit is None else {"swiglu_limit": limit}
    compare("MoE", feeds, tensors, activation_type="swiglu", swiglu_fusion=1, k=2, activation_alpha=1.702,
            activation_beta=1.0, normalize_routing_weights=1, **attrs)  # fmt: skip


def test_no_tokens_for_an_expert() -> None:
    """All tokens choose one expert, in blocks; the others have none."""
    feeds, tensors = operands(40)
    feeds["r"] = feeds["r"] * 0 + np.asarray([0, 30, 0], np.float32)
    compare("MoE", feeds, tensors, k=1)


def by_hand(feeds: dict[str, Array], tensors: dict[str, Array], gate: Any, up: Any, k: int = 1) -> Array:
    """What the specification says: `gate` and `up` pick rows of the first matrix, or it is the third one."""
    probabilities = np.exp(feeds["r"]) / np.exp(feeds["r"]).sum(1, keepdims=True)
    result = np.zeros_like(feeds["x"])
    for token, x in enumerate(feeds["x"]):
        for expert in np.argsort(-probabilities[token])[:k]:
            rows = tensors["w"][expert] @ x + tensors["b"][expert]
            other = tensors["u"][expert] @ x if "u" in tensors else rows
            found = tensors["v"][expert] @ (gate(rows) * up(other)) + tensors["c"][expert]
            result[token] += probabilities[token, expert] * found
    return result


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def tanh_gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


ELSEWHERE: list[tuple[dict[str, Any], int, bool, Any, Any]] = [
    ({"activation_type": "silu"}, HIDDEN, True, lambda g: g * sigmoid(g), lambda u: u),
    ({"activation_type": "swiglu"}, HIDDEN, True, lambda g: g * sigmoid(g), lambda u: u),
    ({"activation_type": "relu2"}, HIDDEN, False, lambda g: np.maximum(g, 0) ** 2, np.ones_like),
    ({"activation_type": "swiglu", "swiglu_fusion": 2, "activation_beta": 0.5}, 2 * HIDDEN, False,
     lambda g: g[:HIDDEN] * sigmoid(g[:HIDDEN]), lambda u: u[HIDDEN:] + 0.5),
    ({"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 0.2, "swiglu_limit_after_activation": 1},
     2 * HIDDEN, False, lambda g: np.minimum(g[::2] * sigmoid(g[::2]), 0.2), lambda u: np.clip(u[1::2], -0.2, 0.2)),
    ({"activation_type": "geglu", "swiglu_fusion": 1}, 2 * HIDDEN, False, lambda g: tanh_gelu(g[::2]),
     lambda u: u[1::2]),
]  # fmt: skip


@pytest.mark.parametrize(("attrs", "rows", "third", "gate", "up"), ELSEWHERE)
def test_what_only_its_kernels_of_gpus_take(attrs: dict[str, Any], rows: int, third: bool, gate: Any, up: Any) -> None:
    feeds, tensors = operands(5, rows=rows)
    if third:
        tensors["u"] = random(EXPERTS, HIDDEN, WIDTH, seed=7)
    graph = load_model(model_of("MoE", feeds, tensors, k=2, **attrs).SerializeToString())
    expected = by_hand(feeds, tensors, gate, up, k=2)
    for form in (graph, optimize(graph)):
        np.testing.assert_allclose(evaluate_graph(form, feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_halves() -> None:
    feeds, tensors = operands(5)
    half = {name: array.astype(np.float16) for name, array in (feeds | tensors).items()}
    graph = load_model(model_of("MoE", half, {}, k=2, activation_type="silu").SerializeToString())
    (expected,) = theirs(model_of("MoE", feeds, tensors, k=2, activation_type="silu"), feeds)
    found = evaluate_graph(graph, half)["y"]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=2e-2, atol=2e-2)


def test_rows_of_a_block() -> None:
    """Blocks where routes must meet at an expert; no choice of the tokens takes more blocks than there are."""
    assert [rows_of_a_block(tokens, 2, 8) for tokens in (1, 4, 5, 8, 33, 512)] == [1, 1, 4, 4, 32, 32]
    for tokens, k, experts in ((5, 2, 8), (40, 1, 3), (40, 3, 3), (33, 2, 3), (200, 4, 16)):
        size, routes = rows_of_a_block(tokens, k, experts), tokens * k
        most = blocks_at_most(tokens, k, experts, size)
        uneven = [tokens] * k + [0] * (experts - k)
        rest = max(routes - experts, 0)
        one_each = [1 + min(max(rest - n * (tokens - 1), 0), tokens - 1) for n in range(experts)]
        for counts in (uneven, one_each):
            assert sum(counts) == routes
            assert sum(-(-count // size) for count in counts) <= most


@pytest.mark.parametrize("tokens", [17, 70])
def test_blocks_end_behind_the_rows_of_their_expert(tokens: int) -> None:
    """Compiled kernels leave out the rows behind it, and what they do not write is not read: all choose few experts."""
    feeds, tensors = operands(tokens, rows=2 * HIDDEN, experts=8)
    attrs: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2}
    model = model_of("MoE", feeds, tensors, **attrs)
    groups = partition(optimize(load_model(model.SerializeToString())))
    ended = [group for group in groups if ("rest", "any") in group.workload.nodes[-1].attrs]
    assert sum(node.op == "matmul" for group in ended for node in group.workload.nodes) == 3
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    for seed in range(4):
        logits = 2 * random(tokens, 8, seed=seed) + 9 * (np.arange(8) < 2 * seed)
        given = {"x": random(tokens, WIDTH, seed=10 + seed), "r": logits.astype(np.float32)}
        np.testing.assert_allclose(session.run(None, given)[0], theirs(model, given)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [3, 48])
def test_compiled_products_read_matrices_where_they_are(tokens: int) -> None:
    feeds, tensors = operands(tokens, rows=2 * HIDDEN)
    attrs: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2}
    model = model_of("MoE", feeds, tensors, **attrs)
    groups = partition(optimize(load_model(model.SerializeToString())))
    ops = [[node.op for node in group.workload.nodes] for group in groups]
    assert sum(names[:2] == ["gather", "matmul"] for names in ops) == 3
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    np.testing.assert_allclose(session.run(None, feeds)[0], theirs(model, feeds)[0], rtol=1e-4, atol=1e-5)


def with_open_tokens(lead: tuple[int, ...], axis: int) -> tuple[bytes, dict[str, Array]]:
    """A mixture of any number of tokens, and its matrices."""
    feeds, tensors = operands(*lead)
    model = model_of("MoE", feeds, tensors, k=2, activation_type="silu")
    for value, place in zip(model.graph.input, (axis, 0), strict=True):
        value.type.tensor_type.shape.dim[place].dim_param = "n"
    return model.SerializeToString(), tensors


@pytest.mark.parametrize(("lead", "axis"), [((5,), 0), ((1, 5), 1)])
def test_open_numbers_of_tokens(lead: tuple[int, ...], axis: int) -> None:
    """Padding is tokens of its own: lengths share programs."""
    model, tensors = with_open_tokens(lead, axis)
    assert padding_of(open_model(model), "n").outputs == {"y": (axis,)}
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    for tokens in (5, 1, 40, 7):
        feeds, _ = operands(*lead[:axis], tokens)
        (expected,) = theirs(model_of("MoE", feeds, tensors, k=2, activation_type="silu"), feeds)
        np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-5)


def test_what_padding_does_not_prove() -> None:
    for lead, why in (((3, 5), "joins the open dimension"), ((5,), "multiplies along")):
        feeds, tensors = operands(*lead)
        model = model_of("MoE", feeds, tensors, k=2)
        places = (1, 0) if len(lead) == 2 else (1, 1)
        for value, place in zip(model.graph.input, places, strict=True):
            value.type.tensor_type.shape.dim[place].dim_param = "n"
        with pytest.raises(CannotPad, match=why):
            padding_of(open_model(model.SerializeToString()), "n")


def test_refusals() -> None:
    feeds, tensors = operands(5)
    assert "use_sparse_mixer=1 is not supported" in refusal("MoE", feeds, tensors, k=2, use_sparse_mixer=1)
    assert "activation_type='selu' is none of relu" in refusal("MoE", feeds, tensors, activation_type="selu")
    wrong: dict[str, Any] = {"kind": ModelError}
    assert "k=4 of 3 experts" in refusal("MoE", feeds, tensors, k=4, **wrong)
    assert "swiglu without swiglu_fusion needs a third matrix" in refusal(
        "MoE", feeds, tensors, activation_type="swiglu", **wrong
    )
    said = refusal("MoE", feeds, tensors, activation_type="geglu", **wrong)
    assert "geglu with swiglu_fusion=0 and 2 matrices" in said
    fewer = tensors | {"w": tensors["w"][:2]}
    assert "matrices (2, 4, 6) and biases (3, 4) of experts, (3, 4, 6) are needed" in refusal(
        "MoE", feeds, fewer, **wrong
    )
    short = feeds | {"r": feeds["r"][:4]}
    assert "a router's output of shape (4, 3) for 5 tokens" in refusal("MoE", short, tensors, **wrong)
