"""Operators that ONNX has, too, as others: of ONNX Runtime's domain, or of ONNX's first opsets."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.contrib.products import fused_matmul
from autotune.graph.frontend.indexing import gather_nd, trilu
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.padding import pad
from autotune.graph.frontend.quantization import dequantize_linear, quantize_linear
from autotune.graph.frontend.sampling import grid_sample
from autotune.graph.frontend.shapes import range_
from autotune.tensor import DType

FIRST = ("",)
"""The domain of operators that ONNX called experimental, and ONNX Runtime still knows."""

contributed("DequantizeLinear", inputs=3)(dequantize_linear)
contributed("GatherND", inputs=2)(gather_nd)
contributed("GridSample", inputs=2)(grid_sample)
contributed("Pad", inputs=3)(pad)
contributed("QuantizeLinear", inputs=3)(quantize_linear)
contributed("Range", inputs=3)(range_)
contributed("TransposeMatMul", inputs=2)(fused_matmul)
contributed("Trilu", inputs=2)(trilu)


@contributed("ExpandDims", inputs=2)
def expand_dims(node: OnnxNode) -> str:
    axis = node.axis(node.constant_int(1, "the axis"), node.rank() + 1)
    return node.reshaped(node.input(0), (*node.shape()[:axis], 1, *node.shape()[axis:]))


@contributed("Affine", inputs=1, domains=FIRST)
def affine(node: OnnxNode) -> str:
    """alpha x + beta"""
    return _plus(node, _times(node, node.input(0), "alpha"), "beta")


@contributed("ScaledTanh", inputs=1, domains=FIRST)
def scaled_tanh(node: OnnxNode) -> str:
    """alpha tanh(beta x)"""
    return _times(node, node.emit("tanh", _times(node, node.input(0), "beta")), "alpha")


@contributed("ParametricSoftplus", inputs=1, domains=FIRST)
def parametric_softplus(node: OnnxNode) -> str:
    """alpha softplus(beta x)"""
    return _times(node, node.emit("softplus", _times(node, node.input(0), "beta")), "alpha")


@contributed("ImageScaler", inputs=1, domains=FIRST)
def image_scaler(node: OnnxNode) -> str:
    """scale x + bias, a bias for each channel."""
    bias = node.attr_floats("bias") or ()
    if node.rank() != 4 or len(bias) != node.shape()[1]:
        raise ModelError(f"{node.label}: {len(bias)} biases for data of shape {node.shape()}")
    scaled = node.emit("mul", node.input(0), node.scalar(node.attr_float("scale", 1.0), node.input(0)))
    biases = np.asarray(bias, DType(node.value().dtype).numpy).reshape(1, -1, 1, 1)
    return node.emit("add", scaled, node.new_constant(biases))


@contributed("Crop", inputs=1, domains=FIRST)
def crop(node: OnnxNode) -> str:
    """An image without its border (left, top, right, bottom), or, with `scale`, so high and wide a part of it."""
    border, scale = node.attr_ints("border") or (), node.attr_ints("scale")
    if node.rank() != 4 or len(border) != 4 or (scale is not None and len(scale) != 2):
        raise ModelError(f"{node.label}: border {border} and scale {scale} of data of shape {node.shape()}")
    height, width = node.shape()[2:]
    left, top, right, bottom = border
    rows, columns = range(top, height - bottom), range(left, width - right)
    if scale is not None:
        rows, columns = range(top, top + scale[0]), range(left, left + scale[1])
    if min(border) < 0 or not rows or not columns or rows[-1] >= height or columns[-1] >= width:
        raise ModelError(f"{node.label}: border {border} and scale {scale} leave nothing of {node.shape()}, or more")
    return node.sliced(node.input(0), (*map(range, node.shape()[:2]), rows, columns))


def _times(node: OnnxNode, name: str, attribute: str) -> str:
    return node.emit("mul", name, node.scalar(node.attr_float(attribute, 1.0), name))


def _plus(node: OnnxNode, name: str, attribute: str) -> str:
    return node.emit("add", name, node.scalar(node.attr_float(attribute, 0.0), name))
