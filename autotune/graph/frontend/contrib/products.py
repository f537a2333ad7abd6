"""Products with something before or behind them, or with packed weights: FusedMatMul, MatMulNBits, MatMulBnb4, ..."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.coded import CodedWeight, coded_weight
from autotune.graph.frontend.contrib.activation import activated
from autotune.graph.frontend.convolution import conv
from autotune.graph.frontend.matrix import gemm, product
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.packed import unpacked
from autotune.graph.ir import Array
from autotune.ops.coded import code_values
from autotune.tensor import DType


@contributed("FusedMatMul", inputs=2)
def fused_matmul(node: OnnxNode) -> str:
    """alpha * A' @ B': the first dimension goes behind those of the batch, then the last two turn, where it says so."""
    alpha = node.attr_float("alpha", 1.0)
    a, b = (_batch_first(node, n) if node.attr_flag(f"transBatch{'AB'[n]}") else node.input(n) for n in range(2))
    flags = [node.attr_flag(name) and node.rank(n) > 1 for n, name in enumerate(("transA", "transB"))]
    if any(flags) and min(node.rank(0), node.rank(1)) > 1:
        result = node.emit("matmul", a, b, trans_a=flags[0], trans_b=flags[1])
    else:
        a, b = (_turned(node, name) if turned else name for name, turned in zip((a, b), flags, strict=True))
        result = product(node, a, b)
    return result if alpha == 1.0 else node.emit("mul", result, node.scalar(alpha, result))


def _batch_first(node: OnnxNode, position: int) -> str:
    """(batch..., rows, columns) of (rows, batch..., columns)."""
    rank = node.rank(position)
    if rank < 3 or rank != node.rank(1 - position):
        shapes = f"{node.shape(0)} and {node.shape(1)}"
        raise ModelError(f"{node.label}: operands {shapes} of a batch to be turned must have one rank, 3 or more")
    return node.transposed(node.input(position), (*range(1, rank - 1), 0, rank - 1))


def _turned(node: OnnxNode, name: str) -> str:
    rank = len(node.builder.values[name].shape)
    return node.transposed(name, (*range(rank - 2), rank - 1, rank - 2))


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
    if node.attr_int("weight_prepacked", 0):
        raise UnsupportedError(f"{node.label}: weight_prepacked is not 0: its weight is laid out for one kind of GPU")
    node.attr_int("accuracy_level", 0)
    order = _group_order(node) if node.given(4) else None
    result = _product(node if order is None else _turned_columns(node, order), _coded(node, order))
    return node.emit("add", result, node.input(5)) if node.given(5) else result


@contributed("MatMulBnb4", inputs=3)
def matmul_bnb4(node: OnnxNode) -> str:
    """A @ B', where B is packed as bitsandbytes does: row after row in blocks, the first number in the higher bits."""
    rows, depth, block = (node.attr_int(name, 0) for name in ("N", "K", "block_size"))
    kind = node.attr_int("quant_type", 0)
    node.attr_int("training_mode", 0)
    if not node.attr_int("transB", 1) or kind not in (0, 1):
        raise UnsupportedError(f"{node.label}: only transB=1 and a quant_type of 0 or 1 are supported")
    packed, scales = node.constant(1, "the weight"), node.constant(2, "the scales")
    count = rows * depth
    fits = min(rows, depth) > 0 and block >= 16 and not block & (block - 1)
    if not fits or packed.dtype != np.uint8 or packed.size != -(-count // 2) or scales.size != -(-count // block):
        raise ModelError(f"{node.label}: a weight of {packed.dtype}{packed.shape} and {scales.size} scales do not fit "
                         f"N={rows}, K={depth}, block_size={block}")  # fmt: skip
    form = ("fp4", "nf4")[kind]
    turned = (packed >> np.uint8(4)) | (packed << np.uint8(4))
    numbers = unpacked(turned, 4, count).reshape(rows, depth)
    if depth % block == 0:
        made = coded_weight(numbers.T, form, scales.reshape(rows, -1).T, None, block)
        assert made is not None  # such blocks are whole words
        return _product(node, made)
    real = np.array(code_values(form), np.float32)[numbers].reshape(-1) * np.repeat(scales, block)[:count]
    return product(node, node.input(0), node.new_constant(real.reshape(rows, depth).astype(scales.dtype).T))


def _product(node: OnnxNode, weight: CodedWeight) -> str:
    """A times a weight that is kept as codes."""
    shape = node.shape()
    if not shape or shape[-1] != node.attr_int("K", 0):
        raise ModelError(f"{node.label}: A of shape {shape} has no rows of K={node.attr_int('K', 0)}")
    constants = [x for x in (weight.codes, weight.scale, weight.zero) if x is not None]
    rows = node.reshaped(node.input(0), (math.prod(shape[:-1]), shape[-1]))
    operands = [node.new_constant(np.ascontiguousarray(x)) for x in constants]
    result = node.emit("matmul_coded", rows, *operands, block=weight.block, format=weight.form)
    return node.reshaped(result, (*shape[:-1], weight.scale.shape[1]))


def _group_order(node: OnnxNode) -> Array:
    """The numbers of a column group after group, which share a scale (GPTQ with act_order)."""
    groups, block = node.constant(4, "g_idx").reshape(-1), max(node.attr_int("block_size", 0), 1)
    depth = node.attr_int("K", 0)
    order = np.argsort(groups, kind="stable")
    if groups.size != depth or not np.array_equal(groups[order], np.arange(depth) // block):
        raise UnsupportedError(f"{node.label}: input 4 (g_idx), whose groups are not of {block} numbers each")
    return order


def _turned_columns(node: OnnxNode, order: Array) -> OnnxNode:
    """The node of rows whose numbers are in another order."""
    if not node.rank() or node.shape()[-1] != len(order):
        raise ModelError(f"{node.label}: A of shape {node.shape()} has no rows of K={len(order)}")
    turned = node.emit("gather", node.input(0), node.new_constant(order), axis=node.rank() - 1)
    return replace(node, inputs=(turned, *node.inputs[1:]))


def _coded(node: OnnxNode, order: Array | None = None) -> CodedWeight:
    """The weight, the numbers of its columns in another order if one is given."""
    rows, depth, bits = node.attr_int("N", 0), node.attr_int("K", 0), node.attr_int("bits", 4)
    block = node.attr_int("block_size", 0)
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{node.label}: the attribute 'bits' is {bits}, not 2, 4 or 8")
    if rows < 1 or depth < 1 or block < 16 or block & (block - 1):
        said = f"N={rows}, K={depth} and block_size={block}"
        raise ModelError(f"{node.label}: {said} are impossible; blocks are of 16, 32, 64, ... numbers")
    blocks = -(-depth // block)
    packed, scales = node.constant(1, "the weight"), node.constant(2, "the scales")
    if packed.dtype != np.uint8 or packed.size != rows * blocks * block * bits // 8 or scales.size != rows * blocks:
        raise ModelError(f"{node.label}: a weight of {packed.dtype}{packed.shape} and {scales.size} scales do not fit "
                         f"N={rows}, K={depth}, block_size={block}")  # fmt: skip
    numbers = unpacked(packed, bits, rows * blocks * block).view(DType(f"u{bits}").numpy)
    zero = _zero_points(node, rows, blocks, bits).T
    columns = numbers.reshape(rows, -1)[:, :depth]
    columns = columns if order is None else columns[:, order]
    made = coded_weight(columns.T, f"u{bits}", scales.reshape(rows, blocks).T, zero, block)
    assert made is not None  # such blocks are whole words
    return made


def _zero_points(node: OnnxNode, rows: int, blocks: int, bits: int) -> Array:
    """(N, blocks); half of the range where there are none."""
    if not node.given(3):
        return np.broadcast_to(np.uint8(1 << (bits - 1)), (rows, blocks))
    given = node.constant(3, "the zero points")
    packed = given.dtype == np.uint8
    width = -(-blocks * bits // 8) if packed else blocks
    if given.size != rows * width:
        raise ModelError(f"{node.label}: {given.size} zero points for {rows} rows of {blocks} blocks")
    each = unpacked(given, bits, given.size * 8 // bits) if packed else given
    return each.reshape(rows, -1)[:, :blocks]


@contributed("GemmFastGelu", inputs=3)
def gemm_fast_gelu(node: OnnxNode) -> str:
    """A product, plus a bias, through Gelu as tanh has it."""
    result = product(node, node.input(0), node.input(1))
    if node.given(2):
        result = node.emit("add", result, node.input(2))
    return node.emit("gelu", result, approximate="tanh")


@contributed("MatMulInteger16", inputs=2)
def matmul_integer16(node: OnnxNode) -> str:
    """A product of integers of 16 bits, summed in 32."""
    signed = any(DType(node.value(n).dtype) is DType.i16 for n in range(2))
    return product(node, *(node.converted(node.input(n), DType.i32 if signed else DType.u32) for n in range(2)))
