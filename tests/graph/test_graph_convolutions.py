"""Converters of transposed and causal convolutions, and of Gemm's old forms, against the ONNX reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autotune.api.session import InferenceSession
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import load_model, optimize
from tests.graph.graph_models import build, check, random


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"strides": [2, 2], "pads": [1, 0, 0, 1]},
        {"strides": [2, 3], "output_padding": [1, 2]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [3, 2], "auto_pad": "SAME_LOWER"},
        {"dilations": [2, 1], "pads": [1, 1, 1, 1]},
    ],
)
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    feeds = {"x": random(2, 3, 4, 4)}
    tensors = {"w": random(3, 5, 3, 3, seed=1), "b": random(5, seed=2)}
    check(build(helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attrs), feeds, tensors), feeds)


def test_a_transposed_convolution_without_stride_is_a_convolution() -> None:
    feeds, tensors = {"x": random(1, 4, 5, 5)}, {"w": random(4, 6, 3, 2)}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], pads=[1, 0, 1, 0])
    model = build(node, feeds, tensors)
    assert [n.op for n in load_model(model.SerializeToString()).nodes] == ["conv2d"]
    check(model, feeds)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_scale_moves_into_transposed_weights(groups: int) -> None:
    feeds = {"x": random(1, 4, 5, 5)}
    tensors = {"w": random(4, 6 // groups, 2, 2), "s": random(1, 6, 1, 1, seed=1)}
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w"], ["t"], strides=[2, 2], group=groups),
        helper.make_node("Mul", ["t", "s"], ["y"]),
    ]
    model = build(nodes, feeds, tensors)
    graph = optimize(load_model(model.SerializeToString()), skip=["split-phases"])
    assert [n.op for n in graph.nodes] == ["conv_transpose2d"]
    assert "mul" not in [n.op for n in optimize(load_model(model.SerializeToString())).nodes]
    if groups == 1:  # the reference is wrong for groups of several outputs
        check(model, feeds)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [[10, 8], [13, 10]])
def test_the_shape_of_a_transposed_convolution_may_be_given(mode: str, shape: list[int]) -> None:
    """Against ONNX Runtime: the reference evaluator takes no padding here."""
    feeds, tensors = {"x": random(1, 3, 4, 4)}, {"w": random(3, 2, 3, 3)}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[3, 2], output_shape=shape, auto_pad=mode)
    model = build(node, feeds, tensors)
    model.ir_version = 8
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    check(model, feeds, session.run(None, feeds))


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("length", [1, 7])
def test_causal_convolution(past: bool, activation: str, length: int) -> None:
    x, w, b, state = random(2, 3, length), random(3, 1, 4, seed=1), random(3, seed=2), random(2, 3, 3, seed=3)
    feeds = {"x": x, "state": state} if past else {"x": x}
    inputs = ["x", "w", "b", "state" if past else ""]
    node = helper.make_node("CausalConvWithState", inputs, ["y", "present"], activation=activation)
    padded = np.concatenate([state if past else np.zeros_like(state), x], axis=2)
    windows = np.stack([padded[:, :, i : i + length] for i in range(4)], axis=-1)
    y = np.einsum("nclk,ck->ncl", windows, w[:, 0]) + b[:, None]
    if activation == "silu":
        y = y / (1 + np.exp(-y))
    model = build(node, feeds, {"w": w, "b": b}, ("y", "present"), opset=27)
    check(model, feeds, [y, padded[:, :, length:]])


def test_gemm_of_opset_6_broadcasts_where_it_says_so() -> None:
    feeds, tensors = {"x": random(3, 4)}, {"w": random(4, 5), "c": random(5)}
    model = build(helper.make_node("Gemm", ["x", "w", "c"], ["y"], broadcast=1), feeds, tensors, opset=6)
    check(model, feeds, [feeds["x"] @ tensors["w"] + tensors["c"]])
    model = build(helper.make_node("Gemm", ["x", "w", "c"], ["y"], broadcast=1, beta=0.0), feeds, tensors, opset=6)
    check(model, feeds, [feeds["x"] @ tensors["w"]])
    model = build(helper.make_node("Gemm", ["x", "w", "c"], ["y"]), feeds, tensors, opset=6)
    with pytest.raises(ModelError, match="does not fit the product"):
        load_model(model.SerializeToString())


def test_four_spatial_axes_are_refused() -> None:
    feeds = {"x": random(1, 2, 3, 3, 3, 3)}
    model = build(helper.make_node("Conv", ["x", "w"], ["y"]), feeds, {"w": random(2, 2, 1, 1, 1, 1)})
    with pytest.raises(UnsupportedError, match="4 spatial axes; 1 to 3 are supported"):
        load_model(model.SerializeToString())


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_other_ranks_run(rank: int) -> None:
    image = (6, 7, 9)[3 - rank :]
    feeds = {"x": random(1, 16, *image)}
    tensors = {"w": random(24, 16, *(3,) * rank), "b": random(24), "v": random(24, 8, *(4,) * rank)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], pads=[1] * (2 * rank)),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("ConvTranspose", ["r", "v"], ["y"], strides=[2] * rank, pads=[1] * (2 * rank)),
    ]
    model = build(nodes, feeds, tensors)
    (found,) = InferenceSession(model.SerializeToString(), database=False).run(None, feeds)
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-3, atol=1e-3)
