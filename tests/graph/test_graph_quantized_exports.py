"""Quantised models as exporters write them: every product is one of bytes, and results are ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import NodeProto, helper

from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.graph_models import build, random

Array = NDArray[Any]
RNG = np.random.default_rng(0)


class Writer:
    """Nodes and tensors of a model; methods give the name of their result."""

    def __init__(self, kind: Any = np.uint8) -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: dict[str, Array] = {}
        self.kind = kind

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def tensor(self, array: Any, dtype: Any) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = np.asarray(array, dtype)
        return name

    def q(self, x: str, scale: float = 0.043, zero: int = 3) -> str:
        s, z = self.tensor(scale, np.float32), self.tensor(zero, self.kind)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, s, z), s, z)

    def weight(self, *shape: int, axis: int = 0) -> str:
        """Of bytes, with a scale per element of the axis."""
        s = self.tensor(RNG.uniform(0.001, 0.01, shape[axis]), np.float32)
        z = self.tensor(np.zeros(shape[axis]), np.int8)
        return self.node("DequantizeLinear", self.tensor(RNG.integers(-127, 128, shape), np.int8), s, z, axis=axis)


def convolution_with_a_weight_quantised_in_the_graph(w: Writer) -> str:
    s, z = w.tensor(RNG.uniform(0.01, 0.02, 8), np.float32), w.tensor(np.zeros(8), np.int8)
    weight = w.tensor(RNG.standard_normal((8, 4, 3, 3)), np.float32)
    weight = w.node("DequantizeLinear", w.node("QuantizeLinear", weight, s, z, axis=0), s, z, axis=0)
    bias = w.tensor(RNG.standard_normal(8), np.float32)
    return w.node("Relu", w.node("Conv", w.q("x"), weight, bias, pads=[1, 1, 1, 1]))


def linear_with_a_turned_weight(w: Writer) -> str:
    flat = w.node("Flatten", w.q(w.node("Relu", w.q("x"))))
    return w.node("MatMul", flat, w.node("Transpose", w.weight(10, 144), perm=[1, 0]))


def linear_as_gemm(w: Writer) -> str:
    flat = w.q(w.node("Reshape", w.q("x"), w.tensor([1, -1], np.int64)))
    return w.node("Gemm", flat, w.weight(10, 144), w.tensor(RNG.standard_normal(10), np.float32), transB=1)


def image_turned_there_and_back(w: Writer) -> str:
    """As converters from TensorFlow write it: channels last outside, padding apart, a bias of the sum."""
    x = w.node("Transpose", w.q(w.node("Transpose", "x", perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2])
    x = w.q(w.node("Pad", x, w.tensor([0, 0, 1, 1, 0, 0, 1, 1], np.int64), w.tensor(0, np.float32)))
    weight = w.weight(8, 4, 3, 3)
    scale = next(array for array in w.tensors.values() if array.shape == (8,) and array.dtype == np.float32)
    s, z = w.tensor(scale * np.float32(0.043), np.float32), w.tensor(np.zeros(8), np.int32)
    bias = w.node("DequantizeLinear", w.tensor(RNG.integers(-999, 999, 8), np.int32), s, z, axis=0)
    x = w.node("Clip", w.node("Conv", x, weight, bias), w.tensor(0, np.float32), w.tensor(6, np.float32))
    return w.node("Transpose", w.q(x), perm=[0, 2, 3, 1])


def depthwise_and_pointwise_with_hard_swish(w: Writer) -> str:
    x = w.q(w.node("HardSwish", w.q(w.node("Conv", w.q("x"), w.weight(4, 1, 3, 3), group=4, pads=[1, 1, 1, 1]))))
    return w.node("Conv", x, w.weight(6, 4, 1, 1))


def squeeze_and_excitation(w: Writer) -> str:
    x = w.q(w.node("Conv", w.q("x"), w.weight(8, 4, 1, 1)))
    gate = w.q(w.node("GlobalAveragePool", x))
    gate = w.q(w.node("Relu", w.node("Conv", gate, w.weight(2, 8, 1, 1))))
    gate = w.q(w.node("HardSigmoid", w.q(w.node("Conv", gate, w.weight(8, 2, 1, 1)))), 1 / 255, 0)
    return w.node("Conv", w.q(w.node("Mul", x, gate)), w.weight(4, 8, 1, 1))


def upsampled_and_joined(w: Writer) -> str:
    x = w.q(w.node("Conv", w.q("x"), w.weight(4, 4, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]))
    sizes = w.tensor([1.0, 1.0, 2.0, 2.0], np.float32)
    up = w.node("Resize", x, "", sizes, mode="nearest", coordinate_transformation_mode="asymmetric",
                nearest_mode="floor")  # fmt: skip
    joined = w.node("Concat", w.q(up), w.q("x"), axis=1)
    return w.node("Conv", w.q(joined), w.weight(4, 8, 3, 3), pads=[1, 1, 1, 1])


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "write",
    [
        convolution_with_a_weight_quantised_in_the_graph,
        linear_with_a_turned_weight,
        linear_as_gemm,
        image_turned_there_and_back,
        depthwise_and_pointwise_with_hard_swish,
        squeeze_and_excitation,
        upsampled_and_joined,
    ],
    ids=lambda write: write.__name__,
)
def test_exports(write: Callable[[Writer], str], kind: Any) -> None:
    w = Writer(kind)
    step = 0.05
    w.nodes.append(helper.make_node("Identity", [w.q(write(w), step)], ["y"]))
    feeds = {"x": random(1, 4, 6, 6)}
    proto = build(w.nodes, feeds, w.tensors, opset=17)
    proto.ir_version = 8
    graph = optimize(load_model(proto.SerializeToString()))
    products = [node for node in graph.nodes if node.op in ("conv2d", "matmul")]
    assert products
    assert {node.output.dtype for node in products} == {"i32"}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (theirs,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)
    off = np.rint((evaluate_graph(graph, feeds)["y"] - theirs) / step)
    assert np.abs(off).max() <= 1
    assert (off != 0).mean() < 0.03
