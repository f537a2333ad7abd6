"""Convolutions of data with its channels last, against ONNX Runtime; or its others, where CPUs have no such kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import autotune
from autotune.errors import ModelError
from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.contrib_models import compare, model_of, numbers, refusal, theirs
from tests.graph.graph_models import Array, build, random


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("spatial", [(7,), (6, 7)])
def test_convolutions_of_bytes(dtype: Any, last: int, groups: int, spatial: tuple[int, ...]) -> None:
    """With weights of 7 bits: two products by larger ones do not fit where ONNX Runtime adds them without VNNI."""
    x = numbers(2, *spatial, 4, dtype=dtype) if last else numbers(2, 4, *spatial, dtype=dtype)
    kernel = (3, 2)[-len(spatial) :]
    tensors: dict[str, Array] = {
        "xs": np.asarray(0.1, np.float32), "xz": np.asarray(3, dtype),
        "w": numbers(6, 4 // groups, *kernel, dtype=np.int8, seed=1) // np.int8(2),
        "ws": random(6, seed=2, low=0.01, high=0.02), "wz": np.zeros(6, np.int8),
        "ys": np.asarray(3, np.float32), "yz": np.asarray(5, dtype), "b": np.arange(6, dtype=np.int32) * 50,
    }  # fmt: skip
    compare("QLinearConv", {"x": x}, tensors, within=1.0, channels_last=last, group=groups,
            pads=[1, 0, 1, 1][-2 * len(spatial) :], strides=[2, 1][-len(spatial) :])  # fmt: skip


def plain(op: str, feeds: dict[str, Array], tensors: dict[str, Array], **attrs: Any) -> Array:
    """What ONNX Runtime computes of the operator with the channels first, its result with the channels last."""
    if op == "Conv":
        model = build(helper.make_node(op, [*feeds, *tensors], ["y"], **attrs), feeds, tensors)
        model.ir_version = 9
    else:
        model = model_of(op, feeds, tensors, **attrs)
    return np.moveaxis(theirs(model, feeds)[0], 1, -1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"group": 2, "pads": [1, 0, 1, 1]}, {"strides": [2, 1], "dilations": [1, 2]}])
def test_nhwc_conv(attrs: dict[str, Any], bias: bool) -> None:
    x = random(2, 4, 6, 7)
    tensors = {"w": random(6, 4 // attrs.get("group", 1), 3, 2, seed=1)} | ({"b": random(6, seed=2)} if bias else {})
    expected = plain("Conv", {"x": x}, tensors, kernel_shape=[3, 2], **attrs)
    feeds, last = {"x": np.moveaxis(x, 1, -1)}, tensors | {"w": np.moveaxis(tensors["w"], 1, -1)}
    graph = load_model(model_of("NhwcConv", feeds, last, kernel_shape=[3, 2], **attrs).SerializeToString())
    for form in (graph, optimize(graph)):
        np.testing.assert_allclose(evaluate_graph(form, feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["", "Relu", "HardSwish"])
@pytest.mark.parametrize("order", ["x w", "x w b", "x w b z"])
def test_nhwc_fused_conv(activation: str, order: str) -> None:
    x, z = random(1, 4, 6, 6), random(1, 8, 6, 6, seed=3)
    attrs: dict[str, Any] = {"pads": [1, 1, 1, 1]} | ({"activation": activation} if activation else {})
    given = {"w": random(8, 4, 3, 3, seed=1), "b": random(8, seed=2), "z": z}
    tensors = {name: array for name, array in given.items() if name in order.split()}
    expected = plain("FusedConv", {"x": x}, tensors, **attrs)
    feeds = {"x": np.moveaxis(x, 1, -1)}
    last = tensors | ({"z": np.moveaxis(z, 1, -1)} if "z" in tensors else {})
    model = model_of("NhwcFusedConv", feeds, last, **attrs)
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-5)


def test_refusals() -> None:
    said = refusal("NhwcConv", {"x": random(3, 4)}, {"w": random(6, 3, 2, 4)}, kind=ModelError)
    assert "data of shape (3, 4) has no windows" in said
