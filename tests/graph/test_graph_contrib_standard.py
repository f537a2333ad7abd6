"""Operators of ONNX Runtime's domain, and experimental ones, that ONNX has as others, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from autotune.errors import ModelError
from autotune.graph import load_model
from tests.graph.contrib_models import compare, numbers, theirs
from tests.graph.graph_models import Array, build, check, random


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantisation(dtype: Any) -> None:
    """Of 16 bits, too, which ONNX has since opset 21 only."""
    one = {"s": np.asarray(0.01, np.float32), "z": np.asarray(3, dtype)}
    compare("QuantizeLinear", {"x": random(3, 5)}, one)
    compare("DequantizeLinear", {"x": numbers(3, 5, dtype=dtype)}, one)
    each = {"s": np.abs(random(5)) + np.float32(0.01), "z": numbers(5, dtype=dtype)}
    compare("DequantizeLinear", {"x": numbers(3, 5, dtype=dtype)}, each, axis=1)


@pytest.mark.parametrize(
    ("op", "feeds", "tensors", "attrs"),
    [
        ("Trilu", {"x": random(2, 4, 5)}, {"k": np.asarray(-1)}, {"upper": 0}),
        ("Trilu", {"x": random(2, 4, 5)}, {}, {}),
        ("GridSample", {"x": random(1, 2, 4, 4), "g": random(1, 3, 3, 2)}, {}, {"padding_mode": "border"}),
        ("GatherND", {"x": random(2, 3), "i": np.asarray([[0, 1], [1, 2]])}, {}, {}),
        ("TransposeMatMul", {"a": random(4, 3), "b": random(4, 5)}, {}, {"transA": 1, "alpha": 0.5}),
    ],
)
def test_others(op: str, feeds: dict[str, Array], tensors: dict[str, Array], attrs: dict[str, Any]) -> None:
    compare(op, feeds, **attrs) if not tensors else _constant(op, feeds, tensors, attrs)


@pytest.mark.parametrize(
    ("op", "feeds", "tensors"),
    [
        ("Pad", {"x": random(2, 3)}, {"p": np.asarray([0, 1, 0, 1]), "v": np.asarray(2.5, np.float32)}),
        ("ExpandDims", {"x": random(2, 3)}, {"a": np.asarray(-2, np.int32)}),
        ("Range", {}, {n: np.asarray(v, np.float32) for n, v in (("a", 1), ("b", 5.5), ("c", 0.5))}),
    ],
)
def test_others_of_constants(op: str, feeds: dict[str, Array], tensors: dict[str, Array]) -> None:
    _constant(op, feeds, tensors, {})


def _constant(op: str, feeds: dict[str, Array], tensors: dict[str, Array], attrs: dict[str, Any]) -> None:
    """Against ONNX Runtime, where the second operand must be a constant."""
    node = helper.make_node(op, [*feeds, *tensors], ["y"], domain="com.microsoft", **attrs)
    model = build(node, feeds, tensors, opset=17)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.ir_version = 9
    check(model, feeds, theirs(model, feeds))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Affine", {"alpha": 2.0, "beta": 1.0}),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
        ("ImageScaler", {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
        ("Crop", {"border": [1, 2, 0, 1]}),
        ("Crop", {"border": [1, 2, 0, 1], "scale": [2, 3]}),
    ],
)
def test_experimental_operators(op: str, attrs: dict[str, Any]) -> None:
    """As WinML's converter wrote them."""
    feeds = {"x": random(1, 3, 6, 5)}
    model = build(helper.make_node(op, ["x"], ["y"], **attrs), feeds, {}, opset=8)
    model.ir_version = 3
    check(model, feeds, theirs(model, feeds))


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("ImageScaler", {"bias": [1.0]}, "1 biases for data of shape"),
        ("Crop", {"border": [1, 1]}, "border .* of data of shape"),
        ("Crop", {"border": [3, 0, 3, 0]}, "leave nothing of"),
    ],
)
def test_refusals(op: str, attrs: dict[str, Any], message: str) -> None:
    model = build(helper.make_node(op, ["x"], ["y"], "node", **attrs), {"x": random(1, 3, 6, 5)}, {}, opset=8)
    with pytest.raises(ModelError, match=rf"node 'node' \({op}\): .*{message}"):
        load_model(model.SerializeToString())
