"""Operators of ONNX Runtime's own against ONNX Runtime."""

from __future__ import annotations

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
from autotune.tensor.storage import integer_range
from tests.graph.contrib_models import DOMAIN, compare, model_of, numbers, refusal, theirs
from tests.graph.graph_models import Array, build, random

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


@pytest.mark.parametrize("zeros", [False, True])
def test_matmul_nbits_whose_groups_are_mixed(zeros: bool) -> None:
    """As GPTQ writes it: rows are turned, and weights stay packed. Real zero points: packed ones of mixed groups are
    others to ONNX Runtime's kernel."""
    rng, rows, depth, block = np.random.default_rng(0), 6, 64, 16
    feeds = {"a": random(2, 3, depth)}
    tensors: dict[str, Array] = {
        "b": rng.integers(0, 256, (rows, depth // block, block // 2), np.uint8),
        "s": random(rows * depth // block, seed=1, low=0.1),
        "g": rng.permutation(np.repeat(np.arange(depth // block), block)).astype(np.int32),
    }
    if zeros:
        tensors["z"] = rng.integers(0, 16, rows * depth // block).astype(np.float32)
    attrs: dict[str, Any] = {"K": depth, "N": rows, "bits": 4, "block_size": block}
    model = model_of("MatMulNBits", feeds, tensors, order=f"a b s {'z' if zeros else '-'} g", **attrs)
    graph = load_model(model.SerializeToString())
    assert "matmul_coded" in {node.op for node in graph.nodes}
    for form in (graph, optimize(graph)):
        found = evaluate_graph(form, feeds)["y"]
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
@pytest.mark.parametrize(("dtype", "bits"), [("u4", 4), ("i4", 4), ("u8", 2), ("u8", 4), ("u8", 8)])
def test_gather_block_quantized(dtype: str, bits: int, zeros: bool) -> None:
    """Bytes hold two numbers each, or one, around their middle; the last block may not be full."""
    rng, kind, count = np.random.default_rng(0), DType(dtype).numpy, 10 * bits if dtype == "u8" else 80
    whole = (7, count)
    low, high = (0, 255) if dtype == "u8" else integer_range(DType(dtype))
    data = rng.integers(low, high, whole, np.int16, endpoint=True).astype(kind)
    tensors = {"d": data, "i": np.array([[3, 0], [-1, 6]]), "s": random(7, 3, seed=1, low=0.1)}
    if zeros:
        width = -(-3 * bits // 8) if dtype == "u8" else 3
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
    assert "'qk_output'" in refusal("GroupQueryAttention", rows, grouped, qk_output=1, **odd_heads)
    sinks = grouped | {"total": np.asarray(5, np.int32), "h": random(3)}
    said = refusal("GroupQueryAttention", rows, sinks, kind=ModelError, **(odd_heads | {"order": f"{order} - - - - h"}))
    assert "sinks of shape (3,) for 2 heads" in said
    said = refusal("GroupQueryAttention", rows, sinks, kind=ModelError, causal=0, local_window_size=3, **odd_heads)
    assert "a window of 3 tokens of attention that is not causal" in said
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
    assert "weight_prepacked is not 0" in refusal(
        "MatMulNBits", {"a": random(2, 16)}, packed, weight_prepacked=1, **attrs
    )
    assert "(g_idx), whose groups are not of 16 numbers each" in refusal(
        "MatMulNBits", {"a": random(2, 16)}, index, order="a b s - g", bits=4, **attrs
    )
    odd: dict[str, Any] = {"K": 16, "N": 6, "bits": 4, "block_size": 24}
    assert "blocks are of 16, 32, 64" in refusal("MatMulNBits", {"a": random(2, 16)}, packed, kind=ModelError, **odd)
    said = refusal("MatMulNBits", {"a": random(2, 12)}, packed, kind=ModelError, bits=4, **attrs)
    assert "A of shape (2, 12) has no rows of K=16" in said
    table = {"d": numbers(7, 40), "i": np.array([1]), "s": random(7, 2)}
    said = refusal("GatherBlockQuantized", {}, table, kind=ModelError, block_size=32)
    assert "scales of shape (7, 2) for data of shape (7, 80) in blocks of 32" in said
    no_heads = refusal("Attention", x, weights, kind=ModelError, num_heads=5)
    assert "hidden sizes (8, 8, 8) of 5 heads" in no_heads


def test_operators_that_nobody_knows_are_listed() -> None:
    model = model_of("Imaginary", {"x": random(2)}, {})
    with pytest.raises(UnsupportedError, match=r"com\.microsoft\.Imaginary ×1"):
        load_model(model.SerializeToString())
    model = model_of("Gelu", {"x": random(2)}, {}, domain="com.example")
    with pytest.raises(UnsupportedError, match=r"com\.example\.Gelu ×1"):
        load_model(model.SerializeToString())
    model = model_of("Conv", {"x": random(2)}, {}, domain="com.microsoft.nchwc")
    with pytest.raises(UnsupportedError, match=r"com\.microsoft\.nchwc\.Conv ×1 .*: save the model with"):
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
