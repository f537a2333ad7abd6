"""Products of quantised operands as integer products with exact i32 sums: the one definition of them.

Products with constant weights become u8 x i8, what CPUs multiply: sum (x - z)(w - v) = sum x w' - z sum w', w' = w - v.
Where the data's zero point is a constant, all that does not depend on the data is one constant, the bias included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from autotune.graph.ir import Array, Value
from autotune.ops.workload import AttrValue
from autotune.tensor import DType

SHIFT = 128
"""Between a signed byte and the unsigned one that stands for it."""


class Writer(Protocol):
    """Where a graph grows: a converter's, or a pass's."""

    def emit(self, op: str, *inputs: str, **attrs: AttrValue) -> str: ...

    def constant(self, array: Array) -> str: ...

    def array(self, name: str) -> Array | None: ...

    def value(self, name: str) -> Value: ...


class Operand(NamedTuple):
    """Bytes, and what stands for 0 in them, which broadcasts to them; None for 0 itself."""

    value: str
    zero: str | None = None


class Weights(NamedTuple):
    """Constant weights less their zero point: the sum of `parts`, which are i8, and of `common` everywhere."""

    parts: tuple[Array, ...]
    common: int = 0


def matrix_product(write: Writer, a: Operand, b: Operand, bias: str | None = None) -> str:
    """The i32 product of two operands of two dimensions or more, each less its zero point; plus a bias in i32."""
    weights = constant_weights(write, b, True)
    attrs: dict[str, AttrValue] = {"trans_a": False, "trans_b": False}
    if weights is None and _is_plain(write, a) and _is_plain(write, b):
        return plus(write, _of_two_values(write, unsigned(write, a), signed(write, b)), bias)
    if weights is None:
        return plus(write, write.emit("matmul", centred(write, a), centred(write, b), **attrs), bias)
    data = unsigned(write, a)
    total = _sum(write, [write.emit("matmul", data.value, write.constant(w), **attrs) for w in weights.parts])
    if weights.common:
        last = len(write.value(a.value).shape) - 1
        rows = write.emit("reduce_sum", centred(write, a), axes=(last,), keepdims=True)
        total = write.emit("add", total, _times(write, rows, weights.common))
    sums = sum(w.sum(axis=-2, dtype=np.int32, keepdims=True) for w in weights.parts)
    return _moved(write, total, data.zero, np.asarray(sums), bias)


def convolution(
    write: Writer, op: str, x: Operand, weight: Operand, attrs: Mapping[str, AttrValue], bias: str | None = None
) -> str:
    """The i32 convolution `op` of the same, with those attributes, which name no border.

    Outside of the data x less its zero point is 0. The bias has the shape (1, C, 1, ...).
    """
    dense = attrs["groups"] == 1
    weights = constant_weights(write, weight, dense)
    if weights is None or (x.zero is not None and write.value(x.zero).shape not in ((), (1,))):
        return plus(write, write.emit(op, centred(write, x), centred(write, weight), **attrs), bias)
    data = unsigned(write, x)
    image, inside = _surrounded(write, data, attrs)
    total = _sum(write, [write.emit(op, image, write.constant(w), **inside) for w in weights.parts])
    window = weights.parts[0].shape[2:]
    if weights.common:
        summed = write.emit("reduce_sum", centred(write, x), axes=(1,), keepdims=True)
        ones = write.constant(np.ones((1, 1, *window), np.int32))
        total = write.emit("add", total, _times(write, write.emit(op, summed, ones, **attrs), weights.common))
    axes = tuple(range(1, 2 + len(window)))
    sums = np.asarray(sum(w.sum(axis=axes, dtype=np.int32) for w in weights.parts))
    return _moved(write, total, data.zero, sums.reshape(1, -1, *(1,) * len(window)), bias)


def _surrounded(write: Writer, x: Operand, attrs: Mapping[str, AttrValue]) -> tuple[str, dict[str, AttrValue]]:
    """An image of u8 and the attributes of its convolution, outside of which lies its zero point.

    The convolution surrounds it with a constant; a zero point of the run is part of the image.
    """
    pad = attrs["pad"]
    assert isinstance(pad, tuple)
    if x.zero is None or not any(pad):
        return x.value, dict(attrs)
    zero = write.array(x.zero)
    if zero is not None:
        return x.value, {**attrs, "pad_value": int(zero.reshape(()))}
    shape, rank = write.value(x.value).shape, len(pad) // 2
    sides = [(int(before), int(after)) for before, after in zip(pad[:rank], pad[rank:], strict=True)]
    outside = np.pad(np.zeros(shape[2:], np.uint8), sides, constant_values=1)
    around = write.emit("mul", write.constant(outside), write.emit("cast", x.zero, to="u8"))
    padded = write.emit("pad", x.value, pads=(0, 0, *pad[:rank], 0, 0, *pad[rank:]), value=0)
    return write.emit("add", padded, around), {**attrs, "pad": (0,) * len(pad)}


def constant_weights(write: Writer, weight: Operand, dense: bool) -> Weights | None:
    """What weights are made of; None if they are not constant.

    Weights that do not fit i8 have a number in common where that is one sum of the data for all of them (`dense`), else
    they are several.
    """
    array, zero = write.array(weight.value), None if weight.zero is None else write.array(weight.zero)
    if array is None or (weight.zero is not None and zero is None):
        return None
    wide = array.astype(np.int32)
    if zero is not None:
        wide = wide - zero.astype(np.int32)
    low, high = (int(wide.min()), int(wide.max())) if wide.size else (0, 0)
    common = max(high - 127, 0) or min(low + 128, 0)
    if dense and high - low <= 255:
        return Weights(((wide - common).astype(np.int8),), common)
    parts: list[Array] = []
    while not parts or wide.any():
        near = np.clip(wide, -128, 127)
        parts.append(near.astype(np.int8))
        wide = wide - near
    return Weights(tuple(parts))


def unsigned(write: Writer, operand: Operand) -> Operand:
    """The operand as u8 and its zero point in i32, None for 0: signed bytes are moved up by 128."""
    zero = operand.zero
    if zero is not None:
        zero = in_i32(write, zero) if is_nonzero(write, zero) else None
    if write.value(operand.value).dtype == DType.u8.value:
        return Operand(operand.value, zero)
    turned = write.emit(
        "bitwise_xor", write.emit("bit_cast", operand.value, to="u8"), write.constant(np.asarray(SHIFT, np.uint8))
    )
    array = None if zero is None else write.array(zero)
    if zero is None or array is not None:
        moved = np.asarray(SHIFT, np.int32) if array is None else (array + SHIFT).astype(np.int32)
        return Operand(turned, write.constant(moved) if moved.any() else None)
    return Operand(turned, write.emit("add", zero, write.constant(np.asarray(SHIFT, np.int32))))


def signed(write: Writer, operand: Operand) -> Operand:
    """The operand as i8 and its zero point in i32, None for 0: unsigned bytes are moved down by 128."""
    zero = None if operand.zero is None else in_i32(write, operand.zero)
    if write.value(operand.value).dtype == DType.i8.value:
        return Operand(operand.value, zero if zero is not None and is_nonzero(write, zero) else None)
    turned = write.emit("bitwise_xor", operand.value, write.constant(np.asarray(SHIFT, np.uint8)))
    shift = np.asarray(-SHIFT, np.int32)
    moved = write.constant(shift) if zero is None else _known_sum(write, zero, shift)
    return Operand(write.emit("bit_cast", turned, to="i8"), moved if is_nonzero(write, moved) else None)


def centred(write: Writer, operand: Operand) -> str:
    """An operand less its zero point, in i32."""
    wide = in_i32(write, operand.value)
    if operand.zero is None or not is_nonzero(write, operand.zero):
        return wide
    return write.emit("sub", wide, in_i32(write, operand.zero))


def plus(write: Writer, total: str, addend: str | None) -> str:
    """A sum with another i32 addend, if there is one."""
    return total if addend is None else write.emit("add", total, addend)


def in_i32(write: Writer, name: str) -> str:
    """A value in i32; constants are converted at once."""
    if write.value(name).dtype == DType.i32.value:
        return name
    array = write.array(name)
    return write.emit("cast", name, to="i32") if array is None else write.constant(array.astype(np.int32))


def is_nonzero(write: Writer, name: str) -> bool:
    """Whether a value may be other than 0."""
    array = write.array(name)
    return array is None or bool(np.any(array))


def _sum(write: Writer, totals: list[str]) -> str:
    first, *others = totals
    for other in others:
        first = write.emit("add", first, other)
    return first


def _known_sum(write: Writer, value: str, addend: Array) -> str:
    """A sum with a constant, at once where both are."""
    array = write.array(value)
    return write.emit("add", value, write.constant(addend)) if array is None else write.constant(array + addend)


def _is_plain(write: Writer, operand: Operand) -> bool:
    """Whether these are bytes with one zero point."""
    single = operand.zero is None or write.value(operand.zero).shape in ((), (1,))
    return single and DType(write.value(operand.value).dtype).bytes == 1


def _of_two_values(write: Writer, a: Operand, b: Operand) -> str:
    """The product of u8 and i8, both of the run: sum a b - v sum a - z sum b + K z v."""
    total = write.emit("matmul", a.value, b.value, trans_a=False, trans_b=False)
    rank = len(write.value(b.value).shape)
    last = len(write.value(a.value).shape) - 1
    for zero, other, axis in ((b.zero, a.value, last), (a.zero, b.value, rank - 2)):
        if zero is not None:
            sums = write.emit("reduce_sum", in_i32(write, other), axes=(axis,), keepdims=True)
            total = write.emit("sub", total, write.emit("mul", sums, zero))
    if a.zero is None or b.zero is None:
        return total
    both = _product(write, _product(write, a.zero, b.zero), _number(write, write.value(b.value).shape[-2]))
    return write.emit("add", total, both)


def _number(write: Writer, number: int) -> str:
    return write.constant(np.asarray(number, np.int32))


def _product(write: Writer, a: str, b: str) -> str:
    """A product of two numbers, at once where both are constants."""
    first, second = write.array(a), write.array(b)
    return write.emit("mul", a, b) if first is None or second is None else write.constant(first * second)


def _times(write: Writer, value: str, number: int) -> str:
    return write.emit("mul", value, _number(write, number))


def _moved(write: Writer, total: str, zero: str | None, sums: Array, bias: str | None) -> str:
    """The total of x * w as that of (x - zero) * w, given the sums of w; plus the bias."""
    if zero is None:
        return plus(write, total, bias)
    known, addend = write.array(zero), None if bias is None else write.array(bias)
    if known is None:
        return plus(write, write.emit("add", total, write.emit("mul", zero, write.constant(-sums))), bias)
    moved = -sums * known.astype(np.int32)
    if addend is not None:
        return _plus_constant(write, total, np.asarray(moved + addend, np.int32))
    return plus(write, _plus_constant(write, total, np.asarray(moved, np.int32)), bias)


def _plus_constant(write: Writer, total: str, array: Array) -> str:
    return write.emit("add", total, write.constant(array)) if array.any() else total
