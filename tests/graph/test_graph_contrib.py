"""Operators of ONNX Runtime's own against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import autotune
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import evaluate_graph, load_model, optimize
from autotune.tensor import DType
from autotune.tensor.formats import integer_range
from tests.graph.graph_models import Array, build, random
from tests.peer import exactly

DOMAIN = "com.microsoft"


def model_of(
    op: str, feeds: Mapping[str, Array], tensors: Mapping[str, Array], outputs: Sequence[str] = ("y",),
    order: str = "", domain: str = DOMAIN, **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One node whose inputs are named in `order`, "-" for one that is left out; all there are without."""
    names = ["" if name == "-" else name for name in order.split()] or [*feeds, *tensors]
    node = helper.make_node(op, names, outputs, "node", domain=domain, **attrs)
    model = build(node, feeds, tensors, [name for name in outputs if name], 17)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    model.ir_version = 9
    return model


def theirs(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def compare(
    op: str,
    feeds: dict[str, Array],
    tensors: dict[str, Array] | None = None,
    within: float = 2e-5,
    exact: bool = False,
    **rest: Any,
) -> None:
    """Ours, optimised or not, with constants as such and as inputs, is what ONNX Runtime computes.

    Its sums of products of bytes are as it computes them on this CPU, unless `exact`.
    """
    given = tensors or {}
    model = model_of(op, feeds, given, **rest)
    expected = exactly(model.SerializeToString(), feeds) if exact else theirs(model, feeds)
    open_ = model_of(op, feeds | given, {}, **rest)
    for variant, values in ((model, feeds), (open_, feeds | given)) if given else ((model, feeds),):
        graph = load_model(variant.SerializeToString())
        for form in (graph, optimize(graph)):
            found = evaluate_graph(form, values)
            for array, wanted in zip(found.values(), expected, strict=True):
                assert array.dtype == wanted.dtype
                assert array.shape == wanted.shape
                np.testing.assert_allclose(array.astype(np.float64), wanted, rtol=min(within, 1e-4), atol=within)


def refusal(*args: Any, kind: type[Exception] = UnsupportedError, **rest: Any) -> str:
    with pytest.raises(kind) as raised:
        load_model(model_of(*args, **rest).SerializeToString())
    said = str(raised.value)
    assert f"node 'node' (com.microsoft.{args[0]})" in said
    assert "\n" not in said
    return said


# Activations and products ------------------------------------------------------------------------------


def test_gelus() -> None:
    feeds, bias = {"x": random(2, 3, 8)}, {"b": random(8, seed=1)}
    compare("Gelu", feeds)
    compare("BiasGelu", feeds, bias)
    compare("FastGelu", feeds)
    compare("FastGelu", feeds, bias)
    compare("QuickGelu", feeds)
    compare("QuickGelu", feeds, alpha=0.5)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_fused_matmul(trans_a: int, trans_b: int, lead: tuple[int, ...]) -> None:
    feeds = {"a": random(*lead, *((5, 4) if trans_a else (4, 5)))}
    tensors = {"b": random(*lead, *((6, 5) if trans_b else (5, 6)), seed=1)}
    compare("FusedMatMul", feeds, tensors, transA=trans_a, transB=trans_b, alpha=0.25)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("batch", [(1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_fused_matmul_of_turned_batches(
    trans_a: int, trans_b: int, batch: tuple[int, int], lead: tuple[int, ...]
) -> None:
    """A turned operand is (rows, batch..., columns)."""
    shapes = ((5, 4) if trans_a else (4, 5)), ((6, 5) if trans_b else (5, 6))
    a, b = ((s[0], *lead, s[1]) if turned else (*lead, *s) for s, turned in zip(shapes, batch, strict=True))
    compare("FusedMatMul", {"a": random(*a)}, {"b": random(*b, seed=1)}, transA=trans_a, transB=trans_b,
            transBatchA=batch[0], transBatchB=batch[1], alpha=0.5)  # fmt: skip


@pytest.mark.parametrize(
    ("activation", "attrs"),
    [("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.3}),
     ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}), ("Elu", {"activation_alpha": 0.7})],
)  # fmt: skip
def test_fused_gemm(activation: str, attrs: dict[str, Any]) -> None:
    tensors = {"b": random(6, 4, seed=1), "c": random(6, seed=2)}
    compare("FusedGemm", {"a": random(3, 4)}, tensors, activation=activation, transB=1, alpha=0.5, beta=2.0, **attrs)


@pytest.mark.parametrize(
    ("activation", "params"),
    [("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.1]), ("Clip", [0.0, 0.5]),
     ("HardSigmoid", [0.3, 0.4]), ("HardSwish", None)],
)  # fmt: skip
def test_fused_conv(activation: str, params: list[float] | None) -> None:
    attrs: dict[str, Any] = {} if params is None else {"activation_params": params}
    feeds, tensors = {"x": random(1, 4, 6, 6)}, {"w": random(8, 4, 3, 3, seed=1), "b": random(8, seed=2)}
    compare("FusedConv", feeds, tensors, pads=[1, 1, 1, 1], activation=activation, **attrs)
    compare(
        "FusedConv", feeds, tensors | {"z": random(1, 8, 6, 6, seed=3)}, pads=[1] * 4, activation=activation, **attrs
    )


def test_fused_conv_with_silu() -> None:
    """Of ONNX Runtimes newer than 1.32: x * sigmoid(x)."""
    feeds, tensors = {"x": random(1, 4, 6, 6)}, {"w": random(8, 4, 3, 3, seed=1), "b": random(8, seed=2)}
    model = model_of("FusedConv", feeds, tensors, activation="Silu")
    found = evaluate_graph(load_model(model.SerializeToString()), feeds)["y"]
    (plain,) = theirs(model_of("FusedConv", feeds, tensors), feeds)
    np.testing.assert_allclose(found, plain / (1 + np.exp(-plain)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zeros", ["", "packed", "real"])
@pytest.mark.parametrize(("depth", "block"), [(32, 16), (40, 16), (96, 32)])
def test_matmul_nbits(depth: int, block: int, zeros: str) -> None:
    rng, rows, blocks = np.random.default_rng(0), 6, -(-depth // block)
    feeds = {"a": random(2, 3, depth)}
    tensors: dict[str, Array] = {
        "b": rng.integers(0, 256, (rows, blocks, block // 2), np.uint8),
        "s": random(rows * blocks, seed=1, low=0.1),
    }
    if zeros:
        tensors["z"] = rng.integers(0, 256, rows * -(-blocks // 2), np.uint8)
        if zeros == "real":
            tensors["z"] = random(rows * blocks, seed=2, low=0, high=15)
    attrs: dict[str, Any] = {"K": depth, "N": rows, "bits": 4, "block_size": block}
    model = model_of("MatMulNBits", feeds, tensors, **attrs)
    found = evaluate_graph(load_model(model.SerializeToString()), feeds)["y"]
    np.testing.assert_allclose(found, theirs(model, feeds)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("depth", "block"), [(64, 16), (96, 32), (48, 32), (33, 16)])
def test_matmul_bnb4(depth: int, block: int, kind: int) -> None:
    """Blocks that end within a row of the weight are nobody's columns: such weights are unpacked."""
    rows = 5
    feeds = {"a": random(2, 3, depth)}
    tensors: dict[str, Array] = {
        "b": np.random.default_rng(0).integers(0, 256, -(-rows * depth // 2), np.uint8),
        "s": random(-(-rows * depth // block), seed=1, low=0.1),
    }
    model = model_of("MatMulBnb4", feeds, tensors, K=depth, N=rows, block_size=block, quant_type=kind)
    graph = load_model(model.SerializeToString())
    found = evaluate_graph(graph, feeds)["y"]
    np.testing.assert_allclose(found, theirs(model, feeds)[0], rtol=1e-4, atol=1e-4)
    assert ("matmul_coded" in {node.op for node in graph.nodes}) == (depth % block == 0)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("dtype", "bits"), [("u4", 4), ("i4", 4), ("u8", 4), ("u8", 8)])
def test_gather_block_quantized(dtype: str, bits: int, zeros: bool) -> None:
    """Bytes hold two numbers each, or one, around their middle; the last block may not be full."""
    rng, kind, count = np.random.default_rng(0), DType(dtype).numpy, 40 if dtype == "u8" and bits == 4 else 80
    whole = (7, count)
    low, high = (0, 255) if dtype == "u8" else integer_range(DType(dtype))
    data = rng.integers(low, high, whole, np.int16, endpoint=True).astype(kind)
    tensors = {"d": data, "i": np.array([[3, 0], [-1, 6]]), "s": random(7, 3, seed=1, low=0.1)}
    if zeros:
        width = 2 if dtype == "u8" and bits == 4 else 3
        tensors["z"] = rng.integers(low, high, (7, width), np.int16, endpoint=True).astype(kind)
    feeds = {"i": tensors.pop("i")}
    order = f"d i s {'z' if zeros else ''}"
    model = model_of("GatherBlockQuantized", feeds, tensors, order=order, block_size=32, bits=bits, quantize_axis=1)
    model.opset_import[0].version, model.ir_version = 21, 10
    expected = theirs(model, feeds)[0]
    graph = load_model(model.SerializeToString())
    for form in (graph, optimize(graph)):
        np.testing.assert_allclose(evaluate_graph(form, feeds)["y"], expected, rtol=1e-6, atol=1e-6)
    (found,) = autotune.InferenceSession(model.SerializeToString(), database=False).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


# Normalisations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("beta", [False, True])
def test_skip_layer_normalization(bias: bool, beta: bool) -> None:
    feeds = {"x": random(2, 3, 16), "s": random(2, 3, 16, seed=1)}
    tensors = {"g": random(16, seed=2)} | ({"b": random(16, seed=3)} if beta else {})
    tensors |= {"more": random(16, seed=4)} if bias else {}
    order = f"x s g {'b' if beta else '-'} {'more' if bias else ''}"
    compare("SkipLayerNormalization", feeds, tensors, outputs=["y", "", "", "sum"], order=order, epsilon=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_rms_normalizations(bias: bool) -> None:
    feeds = {"x": random(2, 3, 16), "s": random(2, 3, 16, seed=1)}
    tensors = {"g": random(16, seed=2)} | ({"more": random(16, seed=4)} if bias else {})
    outputs = ["y", "", "", "sum"]
    compare("SkipSimplifiedLayerNormalization", feeds, tensors, outputs=outputs, epsilon=1e-5)
    compare("SimplifiedLayerNormalization", {"x": feeds["x"]}, {"g": tensors["g"]}, domain="", epsilon=1e-5)


@pytest.mark.parametrize("form", ["w p s g b m", "w p - g b", "w p s g b - n"])
def test_embed_layer_normalization(form: str) -> None:
    rng = np.random.default_rng(0)
    tokens: dict[str, Array] = {"i": rng.integers(0, 9, (2, 4)).astype(np.int32)}
    tables = {"w": random(9, 8), "p": random(6, 8, seed=1), "s": random(2, 8, seed=2)}
    tables |= {"g": random(8, seed=3), "b": random(8, seed=4)}
    names = form.split()
    if "s" in names:
        tokens["j"] = rng.integers(0, 2, (2, 4)).astype(np.int32)
    if "m" in names:
        tokens["m"] = np.asarray([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    if "n" in names:
        tokens["n"] = np.asarray([[3, 2, 1, 0], [5, 5, 4, 4]], np.int32)
    order = f"i {'j' if 's' in names else '-'} {form}"
    compare("EmbedLayerNormalization", tokens, {n: t for n, t in tables.items() if n in names},
            outputs=["y", "count", "sum"], order=order)  # fmt: skip


# Attention ---------------------------------------------------------------------------------------------

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


# Quantised ---------------------------------------------------------------------------------------------


def numbers(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> Array:
    ends = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(ends.min, ends.max + 1, shape).astype(dtype)


def scale(value: float) -> Array:
    return np.asarray(value, np.float32)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("other", [(3, 4), (4,), ()])
def test_sums_and_products_of_bytes(op: str, dtype: Any, other: tuple[int, ...]) -> None:
    feeds = {"a": numbers(3, 4, dtype=dtype), "b": numbers(*other, dtype=dtype, seed=1)}
    tensors = {"as": scale(0.1), "az": dtype(3), "bs": scale(0.02), "bz": dtype(7), "cs": scale(0.15), "cz": dtype(9)}
    compare(op, feeds, {n: np.asarray(t) for n, t in tensors.items()}, order="a as az b bs bz cs cz", within=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2}), ("QLinearGlobalAveragePool", {}),
     ("QLinearSoftmax", {"opset": 13, "axis": -1}), ("QLinearSoftmax", {"opset": 11, "axis": 2}),
     ("QLinearGlobalAveragePool", {"channels_last": 1}),
     ("QLinearAveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
     ("QLinearAveragePool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "channels_last": 1}),
     ("QLinearAveragePool", {"kernel_shape": [2, 2], "count_include_pad": 1, "pads": [1, 0, 0, 1]})],
)  # fmt: skip
def test_functions_and_pools_of_bytes(op: str, attrs: dict[str, Any], dtype: Any) -> None:
    """A step apart where it is a near tie: ONNX Runtime multiplies by a quotient of scales."""
    tensors = {"xs": scale(0.05), "xz": np.asarray(3, dtype), "ys": scale(0.04), "yz": np.asarray(9, dtype)}
    compare(op, {"x": numbers(2, 3, 7, 7, dtype=dtype)}, tensors, within=1.0, **attrs)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_chosen_bytes(dtype: Any) -> None:
    feeds = {"c": numbers(3, 5) > 0, "a": numbers(2, 3, 5, dtype=dtype), "b": numbers(2, 3, 5, dtype=dtype, seed=1)}
    tensors = {"as": scale(0.1), "az": np.asarray(3, dtype), "bs": scale(0.05), "bz": np.asarray(9, dtype),
               "ys": scale(0.1), "yz": np.asarray(3, dtype)}  # fmt: skip
    compare("QLinearWhere", feeds, tensors, within=1.0, order="c a as az b bs bz ys yz")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_joined_bytes(dtype: Any) -> None:
    feeds = {"a": numbers(2, 3, dtype=dtype), "b": numbers(2, 5, dtype=dtype, seed=1)}
    tensors = {"ys": scale(0.2), "yz": np.asarray(3, dtype), "as": scale(0.2), "az": np.asarray(3, dtype),
               "bs": scale(0.07), "bz": np.asarray(9, dtype)}  # fmt: skip
    compare("QLinearConcat", feeds, tensors, order="ys yz a as az b bs bz", axis=1)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qgemm(dtype: Any, per_column: bool, real: bool) -> None:
    columns = (6,) if per_column else ()
    tensors: dict[str, Array] = {
        "as": scale(0.1), "az": np.asarray(3, dtype), "b": numbers(6, 5, dtype=np.int8, seed=1),
        "bs": np.full(columns, 0.02, np.float32), "bz": np.zeros(columns, np.int8),
        "c": np.arange(6, dtype=np.int32) * 100, "ys": scale(1.5), "yz": np.asarray(11, dtype),
    }  # fmt: skip
    if real:
        del tensors["ys"], tensors["yz"]
    order = "a as az b bs bz c" + ("" if real else " ys yz")
    compare("QGemm", {"a": numbers(4, 5, dtype=dtype)}, tensors, exact=True, order=order, transB=1, alpha=0.5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("per_column", [False, True])
def test_products_of_bytes_with_real_results(dtype: Any, per_column: bool) -> None:
    columns = (6,) if per_column else ()
    tensors: dict[str, Array] = {"b": numbers(5, 6, dtype=dtype, seed=1), "bs": np.full(columns, 0.02, np.float32),
                                 "bz": np.full(columns, 4, dtype), "bias": random(6, seed=2)}  # fmt: skip
    real, more = {"a": random(2, 4, 5)}, tensors | {"as": scale(0.1), "az": np.asarray(7, np.uint8)}
    compare("DynamicQuantizeMatMul", real, tensors, 1e-4, exact=True, order="a b bs bz bias")
    compare("DynamicQuantizeMatMul", real, tensors, 1e-4, exact=True, order="a b bs")
    compare("MatMulIntegerToFloat", {"a": numbers(4, 5)}, more, 1e-4, exact=True, order="a b as bs az bz bias")


def byte_lstm(
    directions: int, dtype: Any, per_column: bool, seed: int = 0
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Feeds of an LSTM of 7 features and 6 units over 4 steps of 3 sequences, and its tensors of bytes."""
    signed = np.issubdtype(dtype, np.signedinteger)
    feeds = {
        "x": random(4, 3, 7, seed=seed),
        "h": random(directions, 3, 6, seed=1),
        "c": random(directions, 3, 6, seed=2),
    }
    tensors: dict[str, Array] = {
        "w": numbers(directions, 7, 24, dtype=dtype, seed=3), "r": numbers(directions, 6, 24, dtype=dtype, seed=4),
        "b": random(directions, 48, seed=5),
    }  # fmt: skip
    for name, n in (("w", 6), ("r", 7)):
        shape = (directions, 24) if per_column else (directions,)
        tensors[f"{name}s"] = random(*shape, seed=n, low=0.002, high=0.008)
        tensors[f"{name}z"] = np.full(shape, 0 if signed else 120 + n, dtype)
    return feeds, tensors


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("starts", [False, True])
def test_lstm_of_bytes(direction: str, dtype: Any, per_column: bool, starts: bool) -> None:
    """Near what ONNX Runtime computes, which quantises the states; and what its LSTM of real states computes."""
    directions = 2 if direction == "bidirectional" else 1
    feeds, tensors = byte_lstm(directions, dtype, per_column)
    feeds |= {"lengths": np.asarray([4, 2, 3], np.int32)}
    order = f"x w r b lengths {'h c' if starts else '- -'} - ws wz rs rz"
    if not starts:
        del feeds["h"], feeds["c"]
    attrs: dict[str, Any] = {"outputs": ["Y", "H", "C"], "hidden_size": 6, "direction": direction}
    compare("DynamicQuantizeLSTM", feeds, tensors, 0.03, order=order, **attrs)
    model = model_of("DynamicQuantizeLSTM", feeds, tensors, order=order, **attrs)
    graph = load_model(model.SerializeToString())
    assert [node.output.dtype for node in graph.nodes if node.op == "matmul"] == ["i32"]
    data, weights = in_real_numbers(feeds["x"], tensors)
    feeds |= {"x": data}
    expected = theirs(model_of("LSTM", feeds, weights, order=" ".join(order.split()[:7]), domain="", **attrs), feeds)
    for array, wanted in zip(evaluate_graph(graph, feeds).values(), expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)


def in_real_numbers(data: Array, tensors: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
    """What the bytes of data, once quantised by its range, and of weights stand for: operands of LSTM."""
    low, high = min(0.0, data.min()), max(0.0, data.max())
    step = np.float32((high - low) / 255)
    zero = np.rint(-low / step)
    weights = {"b": tensors["b"]}
    for name in "wr":
        codes, grid, origin = (tensors[n].astype(np.float32) for n in (name, f"{name}s", f"{name}z"))
        each = (len(codes), 1, -1)
        weights[name] = ((codes - origin.reshape(each)) * grid.reshape(each)).swapaxes(1, 2)
    return ((np.clip(np.rint(data / step) + zero, 0, 255) - zero) * step).astype(np.float32), weights


def test_compiled_lstm_of_bytes() -> None:
    feeds, tensors = byte_lstm(2, np.int8, True)
    attrs: dict[str, Any] = {"outputs": ("Y", "H", "C"), "hidden_size": 6, "direction": "bidirectional"}
    model = model_of("DynamicQuantizeLSTM", feeds, tensors, order="x w r b - h c - ws wz rs rz", **attrs)
    found = autotune.InferenceSession(model.SerializeToString(), database=False).run(None, feeds)
    for array, wanted in zip(found, theirs(model, feeds), strict=True):
        np.testing.assert_allclose(array, wanted, atol=0.03)


# Caches --------------------------------------------------------------------------------------------------


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
        for cache, wanted in zip(found[1:], expected[1:], strict=True):
            assert cache.shape == wanted.shape
            for rows, theirs_, end in zip(cache, wanted, last, strict=True):  # what lies behind the end is nobody's
                np.testing.assert_allclose(rows[:, : end + 1], theirs_[:, : end + 1], rtol=1e-4, atol=2e-5)


# Refusals ----------------------------------------------------------------------------------------------


def test_what_is_not_supported_is_named() -> None:
    x, rows = {"x": random(2, 5, 8)}, {name: random(2, 5, 8) for name in "qkv"}
    weights = {"w": random(8, 24), "b": random(24)}
    assert "the attribute 'colour' is not supported" in refusal("Gelu", x, {}, colour=1)
    assert "input 1 and those behind it" in refusal("Gelu", x, {"b": random(8)})
    said = refusal("FusedMatMul", x, {"b": random(8, 8)}, kind=ModelError, transBatchA=1)
    assert "operands (2, 5, 8) and (8, 8) of a batch to be turned must have one rank, 3 or more" in said
    assert "'activation' is 'Odd'" in refusal("FusedGemm", {"a": random(2, 3)}, {"b": random(3, 3)}, activation="Odd")
    past: dict[str, Any] = {"order": "x w b - p", "kind": ModelError, "num_heads": 2}
    said = refusal("Attention", x, weights | {"p": random(2, 2, 2, 3, 5)}, **past)
    assert "input 4, a past of shape (2, 2, 2, 3, 5), has no room for rows of (2, 2, 2, 5, 4)" in said
    uneven = {"w": random(8, 20), "b": random(20), "p": random(2, 2, 2, 3, 4)}
    said = refusal("Attention", x, uneven, qkv_hidden_sizes=[8, 8, 4], **past)
    assert "hidden sizes (8, 8, 4) must be alike where there is a past or present" in said
    assert "attribute 'do_rotary'" in refusal("Attention", x, weights, num_heads=2, do_rotary=1)
    keys: dict[str, Any] = {"kind": ModelError, "order": "q k v - - - p", "num_heads": 2}
    said = refusal("MultiHeadAttention", rows, {"p": random(2, 2, 3, 4)}, **keys)
    assert "past_key and past_value go together" in said
    said = refusal("MultiHeadAttention", rows, {"p": random(2, 2, 5, 4)}, **(keys | {"order": "q k v - - p"}))
    assert "input 5, a bias of shape (2, 2, 5, 4) for scores of 5 keys" in said
    grouped: dict[str, Array] = {"last": np.zeros(2, np.int32), "total": np.asarray(9, np.int32)}
    order = "q k v - - last total"
    odd_heads: dict[str, Any] = {"num_heads": 2, "kv_num_heads": 2, "order": order}
    said = refusal("GroupQueryAttention", rows, grouped, kind=ModelError, **odd_heads)
    assert "a total length of 9 for 5 tokens behind a cache of 0" in said
    assert "'smooth_softmax'" in refusal("GroupQueryAttention", rows, grouped, smooth_softmax=1, **odd_heads)
    mask = {"m": np.ones((2, 1, 5, 9), np.int32)}
    assert "a mask of shape (2, 1, 5, 9)" in refusal("Attention", x, weights | mask, order="x w b m", num_heads=2)
    packed: dict[str, Array] = {"b": numbers(6, 1, 8), "s": random(6)}
    attrs: dict[str, Any] = {"K": 16, "N": 6, "block_size": 16}
    assert "'bits' is 3" in refusal("MatMulNBits", {"a": random(2, 16)}, packed, bits=3, **attrs)
    said = refusal("MatMulNBits", {"a": random(2, 16)}, packed, kind=ModelError, bits=8, **attrs)
    assert "do not fit N=6, K=16, block_size=16" in said
    wide = {"a": random(2, 32)}
    said = refusal("MatMulBnb4", wide, packed, kind=ModelError, quant_type=1, **(attrs | {"K": 32}))
    assert "do not fit N=6, K=32, block_size=16" in said
    assert "quant_type of 0 or 1" in refusal("MatMulBnb4", {"a": random(2, 16)}, packed, quant_type=2, **attrs)
    index = packed | {"g": np.arange(16, dtype=np.int32)}
    assert "g_idx" in refusal("MatMulNBits", {"a": random(2, 16)}, index, order="a b s - g", bits=4, **attrs)
    odd: dict[str, Any] = {"K": 16, "N": 6, "bits": 4, "block_size": 24}
    assert "blocks are of 16, 32, 64" in refusal("MatMulNBits", {"a": random(2, 16)}, packed, kind=ModelError, **odd)
    said = refusal("MatMulNBits", {"a": random(2, 12)}, packed, kind=ModelError, bits=4, **attrs)
    assert "A of shape (2, 12) has no rows of K=16" in said
    table = {"d": numbers(7, 40), "i": np.array([1]), "s": random(7, 2)}
    said = refusal("GatherBlockQuantized", {}, table, kind=ModelError, block_size=32)
    assert "scales of shape (7, 2) for data of shape (7, 80) in blocks of 32" in said
    feeds, tensors = byte_lstm(1, np.uint8, False)
    bytes_lstm: dict[str, Any] = {"order": "x w r b - - - - ws wz rs rz", "kind": ModelError}
    said = refusal("DynamicQuantizeLSTM", {"x": feeds["x"]}, tensors | {"rs": random(3)}, **bytes_lstm)
    assert "input 10 has shape (3,), needs (1,) or (1, 24)" in said
    said = refusal("DynamicQuantizeLSTM", {"x": random(4, 3, 9)}, tensors, **bytes_lstm)
    assert "weights of shape (1, 7, 24) for data of shape (4, 3, 9)" in said
    said = refusal("DynamicQuantizeLSTM", {"x": feeds["x"]}, tensors | {"r": random(1, 6, 24)}, **bytes_lstm)
    assert "is no 3-D tensor of bytes" in said
    no_heads = refusal("Attention", x, weights, kind=ModelError, num_heads=5)
    assert "hidden sizes (8, 8, 8) of 5 heads" in no_heads


def test_operators_that_nobody_knows_are_listed() -> None:
    model = model_of("Imaginary", {"x": random(2)}, {})
    with pytest.raises(UnsupportedError, match=r"com\.microsoft\.Imaginary ×1"):
        load_model(model.SerializeToString())
    model = model_of("Gelu", {"x": random(2)}, {}, domain="com.example")
    with pytest.raises(UnsupportedError, match=r"com\.example\.Gelu ×1"):
        load_model(model.SerializeToString())


def test_a_model_that_onnx_runtime_has_rewritten(tmp_path: Path) -> None:
    """A transformer's feed-forward part: what its optimiser makes of it runs here as compiled code."""
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Gelu", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["f"]),
        helper.make_node("LayerNormalization", ["f", "g", "h"], ["y"], axis=-1),
    ]
    feeds = {"x": random(2, 6, 8)}
    tensors = {"w": random(8, 32, seed=1), "b": random(32, seed=2), "v": random(32, 8, seed=3),
               "g": random(8, seed=4), "h": random(8, seed=5)}  # fmt: skip
    plain = build(nodes, feeds, tensors, opset=20)
    plain.ir_version = 9
    options, path = onnxruntime.SessionOptions(), tmp_path / "rewritten.onnx"
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    session = onnxruntime.InferenceSession(plain.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    assert any(node.domain == DOMAIN for node in onnx.load(path).graph.node)
    (found,) = autotune.InferenceSession(path, target="native -num-cores=1").run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
