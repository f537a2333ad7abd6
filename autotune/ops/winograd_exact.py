"""Winograd's filtering of bytes, without any error.

Transforms of whole numbers at whole points stay below 16 bits, of which one instruction multiplies pairs. Their sums,
and what is made of them, are right modulo 2^32. What the transforms multiply outputs by is taken away at the end: an
odd factor by its inverse modulo 2^32, a power of two by a shift, which leaves the output where that had bits to spare.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import factors, require
from autotune.ops.conv import Conv
from autotune.ops.registry import algorithm
from autotune.ops.winograd import (
    OPERATORS,
    Arithmetic,
    Side,
    Tile,
    applies,
    convolved,
    multiplications,
    taps,
    transposed,
)
from autotune.ops.winograd_transforms import WHOLE_POINTS, Integers, halves, whole
from autotune.ops.workload import TensorType
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, binary, const
from autotune.tensor.stage import Tensor

TILES = {
    "winograd_exact_f2": Tile(2, 2),
    "winograd_exact_f4": Tile(4, 4),
    "winograd_exact_f4x2": Tile(4, 2),
}
"""The algorithms. What larger tiles' transforms make of bytes does not fit into 16 bits."""

LARGEST = {DType.u8: 255, DType.i8: 128}
"""Absolute values of what is multiplied."""

FACTOR, TOTAL = DType.i16, DType.i32
"""What bytes are transformed to, and what sums of products are."""


def applies_exactly(size: Conv, tile: Tile, data: DType, weight: DType) -> bool:
    """Whether such tiles compute this convolution, of data and weights of these types, and nothing becomes too large
    on the way, whatever the bytes are."""
    points = {m + taps(size) - 2 for m in tile}
    known = {data, weight} <= LARGEST.keys() and points <= WHOLE_POINTS.keys()
    if not known or not applies(size, tile) or set(size.stride[-2:]) != {1}:
        return False
    sides = [whole(m, taps(size)) for m in tile]
    inputs = LARGEST[data] * math.prod(_growth(side.BT) for side in sides)
    weights = LARGEST[weight] * math.prod(_growth(side.G) for side in sides)
    largest = LARGEST[data] * LARGEST[weight] * size.c * size.taps
    enough = min(size.sum_bits, largest.bit_length() + 1) <= _bits_left(tile, taps(size))
    return enough and max(inputs, weights) < 1 << FACTOR.bits - 1


def _bits_left(tile: Tile, taps: int) -> int:
    """In which an output fits that has not lost its sign when the transforms' power of two is shifted out."""
    return TOTAL.bits - _split(math.prod(whole(m, taps).scale for m in tile))[0]


def _growth(matrix: Integers) -> int:
    """How many times as large as its operands a product with the matrix may be."""
    return max(sum(map(abs, row)) for row in matrix)


def _split(number: int) -> tuple[int, int]:
    """How often 2 divides a positive number, and what is left."""
    twos = (number & -number).bit_length() - 1
    return twos, number >> twos


def _exact(size: Conv, tile: Tile) -> Arithmetic:
    sides = [whole(m, taps(size)) for m in tile]
    down, across = (Side(side.G, halves(side.BT), halves(transposed(side.AT))) for side in sides)
    twos, odd = _split(math.prod(side.scale for side in sides))
    inverse = pow(odd, -1, 2**TOTAL.bits)
    signed = inverse - 2**TOTAL.bits if inverse >> (TOTAL.bits - 1) else inverse

    def output(y: Expr) -> Expr:
        return binary("shr", y * const(signed, TOTAL), const(twos, TOTAL))

    return Arithmetic(FACTOR, TOTAL, down, across, output)


def _winograd(op: str, name: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    x, weight = inputs
    factors(op, x, weight)
    size, tile = Conv.of(op, x.shape, weight.shape, attrs), TILES[name]
    require(
        applies_exactly(size, tile, x.dtype, weight.dtype),
        f"{op}: {name} needs bytes, a square kernel of 3 taps without strides, dilation or groups, and so few "
        "channels that no output can lose its sign",
    )
    return convolved(x, weight, size, tile, _exact(size, tile))


def _count(op: str, name: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
    data, weight = (DType(entry.dtype) for entry in types[:2])
    size, tile = Conv.of(op, types[0].shape, types[1].shape, attrs), TILES[name]
    return multiplications(size, tile) if applies_exactly(size, tile, data, weight) else None


for _op, _name in itertools.product(OPERATORS, TILES):
    algorithm(_op, _name, multiplications=functools.partial(_count, _op, _name), factor=FACTOR, prepared=(1,))(
        functools.partial(_winograd, _op, _name)
    )

BITS_LEFT = tuple(sorted({_bits_left(tile, 3) for tile in TILES.values()}))
"""Bits that sums of 3x3 windows may have, by the tiles."""
