"""Attention of ONNX Runtime's own against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import autotune
from autotune.errors import InputError, ModelError
from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.contrib_models import compare, model_of, refusal, theirs
from tests.graph.graph_models import Array, random

MASKS: dict[str, Array] = {
    "-": np.zeros(0, np.int32),
    "raw": np.asarray([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32),
    "full": (np.random.default_rng(0).random((2, 5, 5)) < 0.7).astype(np.int32),
    "ends": np.asarray([5, 3], np.int32),
    "ends and begins": np.asarray([5, 3, 1, 0], np.int32),
}


@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_attention(mask: str, causal: int, bias: bool) -> None:
    feeds, tensors = {"x": random(2, 5, 12)}, {"w": random(12, 24, seed=1), "b": random(24, seed=2)}
    if mask != "-":
        feeds["m"] = MASKS[mask]
    if bias:
        feeds["more"] = random(2, 2, 5, 5, seed=3)
    order = f"x w b {'m' if 'm' in feeds else '-'} - {'more' if bias else ''}"
    compare("Attention", feeds, tensors, order=order, num_heads=2, unidirectional=causal)


def test_attention_of_values_of_another_width() -> None:
    feeds, tensors = {"x": random(2, 5, 12)}, {"w": random(12, 8 + 8 + 12, seed=1), "b": random(28, seed=2)}
    compare("Attention", feeds, tensors, num_heads=2, qkv_hidden_sizes=[8, 8, 12], scale=0.3)


@pytest.mark.parametrize("mask", ["-", "raw", "ends"])
@pytest.mark.parametrize("keys", [5, 7])
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention(mask: str, keys: int, bias: bool) -> None:
    feeds = {"q": random(2, 5, 8), "k": random(2, keys, 8, seed=1), "v": random(2, keys, 12, seed=2)}
    tensors = {"b": random(28, seed=3)} if bias else {}
    if mask != "-":
        if mask == "raw" and keys == 7:
            feeds["m"] = np.asarray([[1, 1, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0, 0]], np.int32)
        else:
            feeds["m"] = MASKS[mask]
    order = f"q k v {'b' if bias else '-'} {'m' if 'm' in feeds else ''}"
    compare("MultiHeadAttention", feeds, tensors, order=order, num_heads=2)


def test_forms_of_multi_head_attention() -> None:
    attrs: dict[str, Any] = {"num_heads": 2, "scale": 0.4}
    # ONNX Runtime has the packed forms on other devices only: the same as with the parts apart.
    together = random(2, 5, 2, 3, 4)
    parts = {name: together[:, :, :, n].reshape(2, 5, 8) for n, name in enumerate("qkv")}
    for packed in ({"q": together}, {"q": parts["q"], "k": np.ascontiguousarray(together[:, :, :, 1:])}):
        graph = load_model(model_of("MultiHeadAttention", packed, {}, **attrs).SerializeToString())
        (expected,) = theirs(model_of("MultiHeadAttention", parts, {}, **attrs), parts)
        np.testing.assert_allclose(evaluate_graph(graph, packed)["y"], expected, rtol=2e-5, atol=2e-5)
    apart = {"q": random(2, 5, 8), "k": random(2, 2, 7, 4, seed=1), "v": random(2, 2, 7, 4, seed=2)}
    compare("MultiHeadAttention", apart, **attrs)
    compare("MultiHeadAttention", apart, {"b": random(24, seed=3)}, order="q k v b", **attrs)  # q's bias alone counts
    rows = {name: random(2, 5, 8, seed=n) for n, name in enumerate("qkv")}
    compare("MultiHeadAttention", rows, outputs=["y", "key", "value"], unidirectional=1, **attrs)
    biased = rows | {"more": random(1, 2, 5, 5, seed=4)}
    compare("MultiHeadAttention", biased, order="q k v - - more", **attrs)


LATER_MASKS: dict[str, Array] = {  # of 5 queries and, with 4 of the past, 9 keys
    "-": np.zeros(0, np.int32),
    "raw": np.asarray([[1, 1, 0, 1, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1, 1, 0, 1]], np.int32),
    "full": (np.random.default_rng(0).random((2, 5, 9)) < 0.7).astype(np.int32),
    "ends": np.asarray([9, 6], np.int32),
    "ends and places": np.asarray([9, 6, 0, 5, 10, 0, 9, 15], np.int32),
}


@pytest.mark.parametrize("mask", list(LATER_MASKS))
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_behind_a_past(mask: str, causal: int) -> None:
    """Keys and values are one tensor; an empty past and none at all are the same."""
    tensors = {"w": random(12, 24, seed=1), "b": random(24, seed=2)}
    attrs: dict[str, Any] = {"outputs": ["y", "present"], "num_heads": 2, "unidirectional": causal}
    for batch, length, rows in ((2, 5, 4), (1, 5, 4), (2, 1, 4), (2, 5, 0)):
        feeds = {"x": random(batch, length, 12), "p": random(2, batch, 2, rows, 4, seed=3)}
        masked = mask != "-" and (batch, length, rows) == (2, 5, 4)
        feeds |= {"m": LATER_MASKS[mask]} if masked else {}
        compare("Attention", feeds, tensors, order=f"x w b {'m' if masked else '-'} p", **attrs)
    compare("Attention", {"x": random(2, 5, 12)}, tensors, **attrs)


@pytest.mark.parametrize("mask", list(LATER_MASKS))
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention_behind_a_past(mask: str, causal: int, bias: bool) -> None:
    attrs: dict[str, Any] = {"outputs": ["y", "K", "V"], "num_heads": 2, "unidirectional": causal}
    for length, rows in ((5, 4), (1, 4), (5, 0)):
        masked = mask != "-" and (length, rows) == (5, 4)
        feeds = {name: random(2, length, 8, seed=n) for n, name in enumerate("qkv")}
        feeds |= {"pk": random(2, 2, rows, 4, seed=5), "pv": random(2, 2, rows, 4, seed=6)}
        feeds |= {"m": LATER_MASKS[mask]} if masked else {}
        feeds |= {"more": random(1, 2, length, length + rows, seed=7)} if bias else {}
        tensors = {"b": random(24, seed=3)} if bias else {}
        order = f"q k v {'b' if bias else '-'} {'m' if masked else '-'} {'more' if bias else '-'} pk pv"
        compare("MultiHeadAttention", feeds, tensors, order=order, **attrs)


def test_compiled_attention_behind_a_past() -> None:
    """Steps of one token, each behind what the steps before gave out, are the whole at once."""
    tensors, whole = {"w": random(12, 24, seed=1), "b": random(24, seed=2)}, random(1, 3, 12)
    attrs: dict[str, Any] = {"num_heads": 2, "unidirectional": 1, "outputs": ("y", "present")}
    (expected, _) = theirs(model_of("Attention", {"x": whole}, tensors, **attrs), {"x": whole})
    past, rows = np.zeros((2, 1, 2, 0, 4), np.float32), []
    for step in range(3):
        feeds = {"x": whole[:, step : step + 1], "p": past}
        model = model_of("Attention", feeds, tensors, order="x w b - p", **attrs)
        row, past = autotune.InferenceSession(model.SerializeToString(), database=False).run(None, feeds)
        rows.append(row)
    np.testing.assert_allclose(np.concatenate(rows, 1), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_scores_of_multi_head_attention(bias: bool) -> None:
    rows = {name: random(2, 5, 8, seed=n) for n, name in enumerate("qkv")}
    rows |= {"more": random(1, 2, 5, 5, seed=4)} if bias else {}
    outputs, order = ("y", "", "", "scores"), f"q k v - - {'more' if bias else ''}"
    model = model_of("MultiHeadAttention", rows, {}, outputs, order, num_heads=2)
    found = evaluate_graph(load_model(model.SerializeToString()), rows)
    model.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT  # ONNX Runtime does not infer it
    for array, wanted in zip(found.values(), theirs(model, rows), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 5, 16), (2, 2, 5, 8)])
@pytest.mark.parametrize("places", [[3], [[4, 3, 2, 1, 0], [5, 6, 7, 8, 9]]])
def test_rotary_embedding(interleaved: int, shape: tuple[int, ...], places: Any) -> None:
    feeds = {"x": random(*shape), "p": np.asarray(places)}
    tensors = {"c": random(12, 4, seed=1), "s": random(12, 4, seed=2)}
    compare("RotaryEmbedding", feeds, tensors, interleaved=interleaved)
    compare("RotaryEmbedding", feeds, tensors, interleaved=interleaved, scale=2.0)  # without effect there, too
    if len(shape) == 3:
        part = {"c": random(12, 2, seed=1), "s": random(12, 2, seed=2)}
        compare("RotaryEmbedding", feeds, part, num_heads=2, rotary_embedding_dim=4, interleaved=interleaved)


# Caches --------------------------------------------------------------------------------------------------


def check_caches(found: Sequence[Array], expected: Sequence[Array], last: Sequence[int]) -> None:
    """Equal up to the last row of each batch; what lies behind it is nobody's."""
    for cache, wanted in zip(found, expected, strict=True):
        assert cache.shape == wanted.shape
        for rows, theirs_, end in zip(cache, wanted, last, strict=True):
            np.testing.assert_allclose(rows[:, : end + 1], theirs_[:, : end + 1], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("batch", "length", "past", "last", "total"),
    [(2, 1, 12, (7, 4), 8), (2, 1, 12, (7, 4), 12), (1, 1, 7, (7,), 8), (2, 1, 7, (7, 4), 8), (1, 3, 12, (8,), 9),
     (2, 4, 0, (3, 3), 4), (2, 4, 12, (3, 3), 4), (1, 3, 12, (2,), 12)],
)  # fmt: skip
@pytest.mark.parametrize(
    "attrs", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 3}, {"softcap": 0.7}]
)
@pytest.mark.parametrize("packed", [False, True])
def test_group_query_attention(
    batch: int, length: int, past: int, last: tuple[int, ...], total: int, attrs: dict[str, Any], packed: bool
) -> None:
    """Caches with room to spare and without, one token and several, batches of equal and of other lengths."""
    q, k, v = (random(batch, length, n * 16, seed=n) for n in (4, 2, 1))
    v = np.concatenate([v, -v], 2)
    feeds = {"q": np.concatenate([q, k, v], 2)} if packed else {"q": q, "k": k, "v": v}
    feeds |= {"pk": random(batch, 2, past, 16, seed=5), "pv": random(batch, 2, past, 16, seed=6)}
    feeds["last"] = np.asarray(last, np.int32)
    tensors = {"total": np.asarray([total], np.int32), "c": random(12, 8, seed=7), "s": random(12, 8, seed=8)}
    order = f"q {'- -' if packed else 'k v'} pk pv last total {'c s' if attrs.get('do_rotary') else ''}"
    if "do_rotary" not in attrs:
        del tensors["c"], tensors["s"]
    model = model_of("GroupQueryAttention", feeds, tensors, ("y", "K", "V"), order, num_heads=4, kv_num_heads=2,
                     **attrs)  # fmt: skip
    expected = theirs(model, feeds)
    graph = load_model(model.SerializeToString())
    for form in (graph, optimize(graph)):
        found = list(evaluate_graph(form, feeds).values())
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=2e-5)
        check_caches(found[1:], expected[1:], last)


@pytest.mark.parametrize(("past", "last", "length"), [(0, (4, 4), 5), (12, (4, 4), 5), (12, (8, 6), 1), (8, (8, 6), 1)])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize(
    "attrs",
    [{"smooth_softmax": 1}, {"do_rotary": 1, "softcap": 5.0}, {"local_window_size": 3}, {"causal": 0}],
)  # fmt: skip
def test_heads_with_sinks(past: int, last: tuple[int, ...], length: int, sinks: bool, attrs: dict[str, Any]) -> None:
    """What takes a share of the softmax away: a number for each head, or 0."""
    feeds = {name: random(2, length, n * 16, seed=n) for name, n in (("q", 4), ("k", 2), ("v", 2))}
    feeds |= {"pk": random(2, 2, past, 16, seed=5), "pv": random(2, 2, past, 16, seed=6)}
    feeds["last"] = np.asarray(last, np.int32)
    tensors = {"total": np.asarray([max(last) + 1], np.int32), "c": random(12, 8, seed=7), "s": random(12, 8, seed=8),
               "h": random(4, seed=9)}  # fmt: skip
    order = f"q k v pk pv last total {'c s' if attrs.get('do_rotary') else '- -'} - - {'h' if sinks else '-'}"
    given = {name: array for name, array in tensors.items() if name in order.split()}
    model = model_of("GroupQueryAttention", feeds, given, ("y", "K", "V"), order, num_heads=4, kv_num_heads=2, **attrs)
    expected, graph = theirs(model, feeds), load_model(model.SerializeToString())
    for form in (graph, optimize(graph)):
        found = list(evaluate_graph(form, feeds).values())
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=2e-5)
        check_caches(found[1:], expected[1:], last)


@pytest.mark.parametrize("epsilons", [{}, {"qk_norm_epsilon": 0.1, "k_norm_epsilon": 0.5}])
def test_heads_that_are_normalised(epsilons: dict[str, Any]) -> None:
    """The same as with heads that come so: no CPU of ONNX Runtime normalises them itself."""
    feeds = {name: random(1, 3, n * 16, seed=n) for name, n in (("q", 4), ("k", 2), ("v", 2))}
    feeds |= {"pk": random(1, 2, 6, 16, seed=5), "pv": random(1, 2, 6, 16, seed=6)}
    feeds["last"] = np.asarray([8], np.int32)
    tensors = {"total": np.asarray([9], np.int32), "c": random(12, 8, seed=7), "s": random(12, 8, seed=8)}
    norms = {"a": random(16, seed=9), "b": random(16, seed=10)}
    order = "q k v pk pv last total c s"
    attrs: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}

    def normalised(x: Array, weight: Array, epsilon: float) -> Array:
        heads = x.reshape(1, 3, -1, 16)
        means = np.mean(heads**2, axis=-1, keepdims=True)
        return np.asarray(heads / np.sqrt(means + epsilon) * weight, np.float32).reshape(x.shape)

    least = [epsilons.get(name, epsilons.get("qk_norm_epsilon", 1e-6)) for name in ("q_norm_epsilon", "k_norm_epsilon")]
    ready = {name: normalised(feeds[name], norms[weight], epsilon)
             for name, weight, epsilon in zip("qk", "ab", least, strict=True)}  # fmt: skip
    expected = theirs(model_of("GroupQueryAttention", feeds | ready, tensors, ("y", "K", "V"), order, **attrs),
                      feeds | ready)  # fmt: skip
    model = model_of("GroupQueryAttention", feeds, tensors | norms, ("y", "K", "V"), f"{order} - - - - - a b", **attrs,
                     **epsilons)  # fmt: skip
    found = evaluate_graph(load_model(model.SerializeToString()), feeds)
    for array, wanted in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mask", ["-", "raw", "bias"])
@pytest.mark.parametrize(
    ("op", "length", "rows"),
    [(op, 1, rows) for op in ("MultiHeadAttention", "DecoderMaskedMultiHeadAttention") for rows in (3, 7)]
    + [("MultiHeadAttention", 2, 0)],
)
def test_attention_to_a_past_with_room(op: str, length: int, rows: int, mask: str) -> None:
    """The new rows are written where past_sequence_length says."""
    feeds = {name: random(2, length, 8, seed=n) for n, name in enumerate("qkv")}
    feeds |= {"pk": random(2, 2, 8, 4, seed=5), "pv": random(2, 2, 8, 4, seed=6), "end": np.asarray([rows], np.int32)}
    if mask == "raw":
        feeds["m"] = (np.arange(2 * (length + rows)).reshape(2, -1) % 3 != 1).astype(np.int32)
    if mask == "bias":
        feeds["more"] = random(1, 2, length, length + rows, seed=7)
    m, more = ("m" if mask == "raw" else "-"), ("more" if mask == "bias" else "-")
    tensors = {"b": random(24, seed=3)}
    attrs: dict[str, Any] = {"num_heads": 2, "outputs": ["y", "K", "V"]}
    if op == "MultiHeadAttention":
        order = f"q k v b {m} {more} pk pv end"
    else:
        order, attrs = f"q k v {m} {more} pk pv end - - b", attrs | {"past_present_share_buffer": 1}
    compare(op, feeds, tensors, order=order, **attrs)


@pytest.mark.parametrize(("length", "rows"), [(1, 3), (3, 4)])
@pytest.mark.parametrize("batch", [1, 2])
def test_attention_that_shares_past_and_present(batch: int, length: int, rows: int) -> None:
    """ONNX Runtime has that on other devices only: the same as with a past that ends where the new rows begin."""
    tensors = {"w": random(12, 24, seed=1), "b": random(24, seed=2)}
    feeds = {"x": random(batch, length, 12), "p": random(2, batch, 2, 8, 4, seed=3)}
    attrs: dict[str, Any] = {"num_heads": 2, "unidirectional": 1, "outputs": ("y", "present")}
    whole = feeds | {"p": np.ascontiguousarray(feeds["p"][:, :, :, :rows])}
    y, present = theirs(model_of("Attention", whole, tensors, order="x w b - p", **attrs), whole)
    feeds["end"] = np.asarray([rows], np.int32)
    model = model_of("Attention", feeds, tensors, order="x w b - p - end", past_present_share_buffer=1, **attrs)
    found = evaluate_graph(load_model(model.SerializeToString()), feeds)
    np.testing.assert_allclose(found["y"], y, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(found["present"][..., : rows + length, :], present, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(found["present"][..., rows + length :, :], feeds["p"][..., rows + length :, :])
    session = autotune.InferenceSession(model.SerializeToString(), database=False, target="native -num-cores=1")
    np.testing.assert_allclose(session.run(None, feeds)[0], y, rtol=2e-5, atol=2e-5)
    with pytest.raises(InputError, match=rf"past_sequence_length is outside of 0\.\.{8 - length}"):
        session.run(None, feeds | {"end": np.asarray([9 - length], np.int32)})


def test_refusals_of_a_past_with_room() -> None:
    rows = {name: random(2, 1, 8) for name in "qkv"}
    room = {"pk": random(2, 2, 8, 4), "pv": random(2, 2, 8, 4), "end": np.asarray([3, 3], np.int32)}
    order = "q k v - - - pk pv end"
    said = refusal("MultiHeadAttention", rows | room, {}, order=order, num_heads=2, kind=ModelError)
    assert "past_sequence_length of shape (2,) is not one number" in said
    masked = rows | room | {"end": np.asarray([3], np.int32), "m": np.ones((2, 3), np.int32)}
    model = model_of("MultiHeadAttention", masked, {}, order="q k v - m - pk pv end", num_heads=2)
    session = autotune.InferenceSession(model.SerializeToString(), database=False, target="native -num-cores=1")
    with pytest.raises(InputError, match="of 3 keys is not as long as"):
        session.run(None, masked)
    tensors = {"w": random(12, 24, seed=1), "b": random(24, seed=2)}
    feeds = {"x": random(2, 1, 12), "p": random(2, 2, 2, 8, 4, seed=3)}
    attrs: dict[str, Any] = {"num_heads": 2, "past_present_share_buffer": 1, "kind": ModelError}
    said = refusal("Attention", feeds, tensors, order="x w b - p", **attrs)
    assert "past_present_share_buffer=1 needs a past and past_sequence_length" in said
