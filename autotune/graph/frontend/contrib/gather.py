"""Rows of tables that are kept in few bits: GatherBlockQuantized."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.packed import unpacked
from autotune.graph.ir import Array
from autotune.tensor import DType
from autotune.tensor.storage import INTEGER_BITS


@contributed("GatherBlockQuantized", inputs=4)
def gather_block_quantized(node: OnnxNode) -> str:
    """Elements of a constant at indices along an axis, dequantised: blocks of another axis have a scale each."""
    bits, block = node.attr_int("bits", 4), node.attr_int("block_size", 128)
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{node.label}: the attribute 'bits' is {bits}, not 2, 4 or 8")
    data = _numbers(node, 0, bits)
    rank = data.ndim
    along, axis = node.axis(node.attr_int("gather_axis", 0), rank), node.axis(node.attr_int("quantize_axis", 1), rank)
    scales = node.constant(2, "the scales")
    blocks = tuple(-(-extent // max(block, 1)) if d == axis else extent for d, extent in enumerate(data.shape))
    if along == axis or block < 16 or block & (block - 1) or scales.shape != blocks:
        raise ModelError(f"{node.label}: scales of shape {scales.shape} for data of shape {data.shape} in blocks of"
                         f" {block} along axis {axis}, read along axis {along}")  # fmt: skip
    # Bytes are unsigned numbers around their middle.
    middle = 1 << (bits - 1) if node.value(0).dtype == DType.u8.value else 0
    zero: Array = np.full((1,) * rank, middle, np.uint8).astype(data.dtype)
    if node.given(3):
        zero = _numbers(node, 3, bits)[tuple(map(slice, blocks))]
        if zero.shape != blocks:
            raise ModelError(f"{node.label}: zero points of shape {zero.shape} do not fit scales of shape {blocks}")
    indices = node.input(1)
    node.must_lie(indices, (-data.shape[along],), (data.shape[along],), f"an index into data of shape {data.shape}")
    moved = axis if axis < along else axis - 1 + node.rank(1)
    places = node.new_constant(np.arange(data.shape[axis]) // block)

    def rows(values: Array) -> str:
        """What belongs to the elements that are read."""
        if values.size == 1:
            return node.new_constant(values.reshape(()))
        found = node.emit("gather", node.new_constant(values), indices, axis=along)
        return found if values is data else node.emit("gather", found, places, axis=moved)

    return node.emit("dequantize", rows(data), rows(scales), rows(zero), to=node.value(2).dtype)


def _numbers(node: OnnxNode, position: int, bits: int) -> Array:
    """A constant of numbers of `bits` bits; bytes hold several along the last dimension."""
    array = node.constant(position, "the data" if position == 0 else "the zero points")
    dtype = DType.of(array.dtype)
    if dtype in INTEGER_BITS and INTEGER_BITS[dtype] == bits:
        return array
    if dtype is not DType.u8 or not array.ndim:
        raise ModelError(f"{node.label}: input {position} is {dtype}, not {bits}-bit numbers or bytes of them")
    if bits == 8:
        return array
    each = 8 // bits
    shape = (*array.shape[:-1], array.shape[-1] * each)
    return unpacked(np.ascontiguousarray(array), bits, array.size * each).view(DType(f"u{bits}").numpy).reshape(shape)
