"""Quantised operators of ONNX Runtime's own against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelError
from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.contrib_models import compare, model_of, numbers, refusal, theirs
from tests.graph.graph_models import Array, random


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
    # Signed ones of 7 bits: two products by larger ones do not fit where ONNX Runtime adds them without VNNI.
    part = 2 if signed else 1
    tensors: dict[str, Array] = {
        "w": numbers(directions, 7, 24, dtype=dtype, seed=3) // dtype(part),
        "r": numbers(directions, 6, 24, dtype=dtype, seed=4) // dtype(part),
        "b": random(directions, 48, seed=5),
    }
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


def test_lstms_of_bytes_that_do_not_fit_are_refused() -> None:
    feeds, tensors = byte_lstm(1, np.uint8, False)
    bytes_lstm: dict[str, Any] = {"order": "x w r b - - - - ws wz rs rz", "kind": ModelError}
    said = refusal("DynamicQuantizeLSTM", {"x": feeds["x"]}, tensors | {"rs": random(3)}, **bytes_lstm)
    assert "input 10 has shape (3,), needs (1,) or (1, 24)" in said
    said = refusal("DynamicQuantizeLSTM", {"x": random(4, 3, 9)}, tensors, **bytes_lstm)
    assert "weights of shape (1, 7, 24) for data of shape (4, 3, 9)" in said
    said = refusal("DynamicQuantizeLSTM", {"x": feeds["x"]}, tensors | {"r": random(1, 6, 24)}, **bytes_lstm)
    assert "is no 3-D tensor of bytes" in said


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("form", ["plain", "masked", "past"])
def test_attention_of_bytes(form: str, each: bool) -> None:
    """One scale for the projection, or one for each of its columns."""
    feeds: dict[str, Array] = {"x": numbers(2, 4, 8) // 2}  # two products fit 16 bits, in which it may add them
    scale = np.abs(random(24, seed=3)) / 50 if each else np.asarray(0.01, np.float32)
    tensors = {
        "w": numbers(8, 24, dtype=np.int8, seed=1), "b": random(24, seed=2), "xs": np.asarray(0.02, np.float32),
        "ws": scale, "xz": np.asarray(128, np.uint8), "wz": np.zeros(24 if each else (), np.int8),
    }  # fmt: skip
    attrs: dict[str, Any] = {"num_heads": 2, "order": "x w b xs ws - xz wz"}
    if form == "masked":
        feeds["m"] = np.asarray([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
        attrs |= {"order": "x w b xs ws m xz wz"}
    if form == "past":
        feeds["p"] = random(2, 2, 2, 3, 4, seed=4)
        attrs |= {"order": "x w b xs ws - xz wz p", "outputs": ("y", "present"), "unidirectional": 1}
    model = model_of("QAttention", feeds, tensors, **attrs)
    expected = theirs(model, feeds)
    graph = load_model(model.SerializeToString())
    for variant in (graph, optimize(graph)):
        for found, wanted in zip(evaluate_graph(variant, feeds).values(), expected, strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
