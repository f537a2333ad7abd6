"""Products with something before or behind them: FusedMatMul, FusedGemm, FusedConv, MatMulNBits."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.contrib.activation import activated
from autotune.graph.frontend.convolution import conv
from autotune.graph.frontend.matrix import gemm, product
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.ir import Array


@contributed("FusedMatMul", inputs=2)
def fused_matmul(node: OnnxNode) -> str:
    """alpha * A' @ B', the last two dimensions of either turned where it says so."""
    for name in ("transBatchA", "transBatchB"):
        if node.attr_flag(name):
            raise UnsupportedError(f"{node.label}: the attribute '{name}' is 1, only 0 is supported")
    alpha = node.attr_float("alpha", 1.0)
    flags = [node.attr_flag(name) and node.rank(n) > 1 for n, name in enumerate(("transA", "transB"))]
    if any(flags) and min(node.rank(0), node.rank(1)) > 1:
        result = node.emit("matmul", node.input(0), node.input(1), trans_a=flags[0], trans_b=flags[1])
    else:
        a, b = (_turned(node, n) if turned else node.input(n) for n, turned in enumerate(flags))
        result = product(node, a, b)
    return result if alpha == 1.0 else node.emit("mul", result, node.scalar(alpha, result))


def _turned(node: OnnxNode, position: int) -> str:
    rank = node.rank(position)
    return node.transposed(node.input(position), (*range(rank - 2), rank - 1, rank - 2))


@contributed("FusedGemm", inputs=3)
def fused_gemm(node: OnnxNode) -> str:
    numbers = [node.attr_float(f"activation_{n}", 0.0) for n in ("alpha", "beta") if node.has(f"activation_{n}")]
    return activated(node, gemm(node), node.attr_string("activation", ""), numbers)


@contributed("FusedConv", inputs=4)
def fused_conv(node: OnnxNode) -> str:
    """A convolution with its bias, plus another tensor, through an activation."""
    result = conv(node)
    if node.given(3):
        result = node.emit("add", result, node.input(3))
    return activated(node, result, node.attr_string("activation", ""), node.attr_floats("activation_params") or ())


@contributed("MatMulNBits", inputs=6)
def matmul_nbits(node: OnnxNode) -> str:
    """A @ B', where B is constant and packed: a scale, and perhaps a zero point, for each block of a column's numbers.

    The product is one of real numbers; `accuracy_level`, which lets others compute in fewer bits, is no demand.
    """
    if node.given(4):
        raise UnsupportedError(f"{node.label}: input 4 (g_idx) is not supported")
    node.attr_int("accuracy_level", 0)
    result = product(node, node.input(0), node.new_constant(_unpacked(node).T))
    return node.emit("add", result, node.input(5)) if node.given(5) else result


def _unpacked(node: OnnxNode) -> Array:
    """The weight, (N, K)."""
    rows, depth, bits = node.attr_int("N", 0), node.attr_int("K", 0), node.attr_int("bits", 4)
    block = node.attr_int("block_size", 0)
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{node.label}: the attribute 'bits' is {bits}, not 2, 4 or 8")
    if rows < 1 or depth < 1 or block < 1 or block * bits % 8:
        raise ModelError(f"{node.label}: N={rows}, K={depth} and block_size={block} are impossible")
    blocks = -(-depth // block)
    packed, scales = node.constant(1, "the weight"), node.constant(2, "the scales")
    if packed.dtype != np.uint8 or packed.size != rows * blocks * block * bits // 8 or scales.size != rows * blocks:
        raise ModelError(f"{node.label}: a weight of {packed.dtype}{packed.shape} and {scales.size} scales do not fit "
                         f"N={rows}, K={depth}, block_size={block}")  # fmt: skip
    numbers = _fields(packed.reshape(rows, -1), bits).reshape(rows, blocks, block)
    zero = _zero_points(node, rows, blocks, bits)
    weight = (numbers.astype(np.float32) - zero) * scales.reshape(rows, blocks, 1).astype(np.float32)
    return weight.reshape(rows, -1)[:, :depth].astype(scales.dtype)


def _zero_points(node: OnnxNode, rows: int, blocks: int, bits: int) -> Array | np.float32:
    """(N, blocks, 1); half of the range where there are none."""
    if not node.given(3):
        return np.float32(1 << (bits - 1))
    given = node.constant(3, "the zero points")
    packed = given.dtype == np.uint8
    width = -(-blocks * bits // 8) if packed else blocks
    if given.size != rows * width:
        raise ModelError(f"{node.label}: {given.size} zero points for {rows} rows of {blocks} blocks")
    values = _fields(given.reshape(rows, width), bits)[:, :blocks] if packed else given.reshape(rows, blocks)
    return values.astype(np.float32)[..., None]


def _fields(packed: Array, bits: int) -> Array:
    """The numbers in rows of bytes, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)
