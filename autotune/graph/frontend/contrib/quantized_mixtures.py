"""QMoE: a mixture of experts whose matrices are kept in a few bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.contrib.matrices import CodedMatrices, Projection
from autotune.graph.frontend.contrib.mixtures import mixture
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.packed import unpacked
from autotune.graph.ir import Array
from autotune.tensor import DType

WIDTHS = (2, 3, 4, 8)


@contributed("QMoE", inputs=15)
def quantized_mixture_of_experts(node: OnnxNode) -> str:
    """MoE with matrices of integers, which products decode.

    Weights of the chosen experts are normalised where the node says so; ONNX Runtime's CPU kernel does always.
    """
    if node.attr_string("quant_type", "int") != "int" or node.attr_int("weights_prepacked", -1) == 1:
        raise UnsupportedError(f"{node.label}: only quant_type='int' and weights_prepacked=0 or -1 are supported")
    node.attr_int("accuracy_level", 0)  # which lets others compute in fewer bits: no demand
    bits = node.attr_int("expert_weight_bits", 4)
    widths = [node.attr_int(f"fc{n}_expert_weight_bits", bits) for n in (1, 2, 3)]
    first, down, third = (
        _projection(node, 2 + 3 * n, 11 + n, widths[n]) if node.given(2 + 3 * n) else None for n in range(3)
    )
    assert first is not None and down is not None  # the inputs 2 and 5 are not optional
    x, router = (node.converted(node.input(n), DType.f32) for n in (0, 1))
    mixing = node.converted(node.input(14), DType.f32) if node.given(14) else None
    result = mixture(replace(node, inputs=(x, router)), first, down, third, mixing)
    return node.converted(result, DType(node.value().dtype))


def _projection(node: OnnxNode, weight: int, zero: int, bits: int) -> Projection:
    """Of the input at `weight`, the scales and the bias behind it, and the zero points at `zero`."""
    bias = node.converted(node.input(weight + 2), DType.f32) if node.given(weight + 2) else None
    return Projection(_matrices(node, weight, zero, bits), bias)


def _matrices(node: OnnxNode, weight: int, zero: int, bits: int) -> CodedMatrices:
    """Of rows of packed numbers: a scale for each row, or each block of a row."""
    packed, scales = node.constant(weight, "a matrix"), node.constant(weight + 1, "its scales")
    if bits not in WIDTHS or packed.ndim != 3 or packed.dtype != np.uint8:
        raise ModelError(f"{node.label}: a matrix of {packed.dtype}{packed.shape} in numbers of {bits} bits")
    experts, outputs, row = packed.shape
    depth = row * 8 // bits
    blocks = depth // (node.attr_int("block_size", 0) or max(depth, 1))
    shape = (experts, outputs) if scales.ndim == 2 else (experts, outputs, blocks)
    if scales.shape != shape or not blocks or depth % blocks or (scales.ndim == 2 and blocks > 1):
        raise ModelError(f"{node.label}: scales {scales.shape} of a matrix {(experts, outputs, depth)} in blocks of"
                         f" block_size={node.attr_int('block_size', 0)}")  # fmt: skip
    numbers, zeros = _unpacked_rows(packed, bits, depth), _zero_points(node, zero, bits, shape)
    zeros = zeros.reshape(experts, outputs, blocks)
    if bits == 3:  # those of four bits that lie as far from the middle
        bits, numbers, zeros = 4, numbers + np.uint8(4), zeros + np.uint8(4)
    return CodedMatrices(node, numbers, scales.astype(np.float32).reshape(experts, outputs, blocks), zeros, bits)


def _zero_points(node: OnnxNode, position: int, bits: int, shape: tuple[int, ...]) -> Array:
    """Of the shape of the scales; the middle where there are none."""
    if not node.given(position):
        return np.full(shape, 1 << (bits - 1), np.uint8)
    given = node.constant(position, "the zero points")
    if given.dtype != np.uint8 or given.shape != (*shape[:-1], -(-shape[-1] * bits // 8)):
        raise ModelError(f"{node.label}: zero points of {given.dtype}{given.shape} for scales of shape {shape}")
    return _unpacked_rows(given, bits, shape[-1])


def _unpacked_rows(packed: Array, bits: int, count: int) -> Array:
    """`count` numbers of each row of bytes, whose last byte may not be full."""
    rows, width = packed.shape[:-1], packed.shape[-1]
    if width * 8 % bits:
        packed = np.pad(packed, [(0, 0)] * len(rows) + [(0, -width % bits)])
    numbers = unpacked(np.ascontiguousarray(packed), bits, packed.size * 8 // bits)
    return numbers.reshape(*rows, packed.shape[-1] * 8 // bits)[..., :count]
