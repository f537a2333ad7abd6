"""Fourier transforms and what comes with them: frames, mel filters.

A transform is a product with the matrix of its roots of unity, kept and summed in float64; long ones are split at a
divisor of their length (Cooley and Tukey 1965). Complex numbers are pairs in the last dimension.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.graph.ir import Array

MAX_DIRECT = 512  # longer transforms are split where their length can be
MAX_MATRIX = 2**26  # elements of a matrix of roots of unity


@converts("DFT")
def dft(node: OnnxNode) -> str:
    """Opset 17 has the axis as an attribute (default 1), later ones as an input (default: the last before the pair)."""
    rank = node.rank()
    if rank < 2 or node.shape()[-1] not in (1, 2):
        raise ModelError(f"{node.label}: the last dimension of {node.shape()} must be 1 (real) or 2 (complex)")
    axis = node.attr_int("axis", 1) if node.opset < 20 else -2
    if node.given(2):
        axis = node.constant_int(2, "the axis")
    axis = node.axis(axis, rank)
    if axis == rank - 1:
        raise ModelError(f"{node.label}: axis {axis} holds the parts of complex numbers")
    inverse, onesided = node.attr_flag("inverse"), node.attr_flag("onesided")
    given = node.shape()[axis]
    length = 2 * (given - 1) if inverse and onesided else given
    if node.given(1):
        length = node.constant_int(1, "the length")
    if length < 1:
        raise ModelError(f"{node.label}: a transform of length {length}")
    if onesided and not inverse and node.shape()[-1] == 2:
        raise ModelError(f"{node.label}: a one-sided transform needs real numbers")
    # The transformed axis last but one, of the length asked for.
    order = (*(d for d in range(rank) if d not in (axis, rank - 1)), axis, rank - 1)
    x = node.emit("cast", node.input(0), to="f64")
    x = node.transposed(x, order)
    x = _resized(node, x, length // 2 + 1 if inverse and onesided else length)
    y = transform(node, x, length, inverse, onesided)
    y = node.transposed(y, [order.index(d) for d in range(rank)])
    return node.emit("cast", y, to=node.value().dtype)


@converts("STFT")
def stft(node: OnnxNode) -> str:
    """The spectrum of overlapping frames of a signal, each times a window."""
    step = node.constant_int(1, "the step")
    if node.given(3):
        size = node.constant_int(3, "the frame length")
    elif node.given(2) and node.rank(2) == 1:
        (size,) = node.shape(2)
    else:
        size = node.shape()[1] if node.rank() > 1 else 0
    signal, shape = node.input(0), node.shape()
    signal = node.reshaped(signal, (*shape, 1)) if len(shape) == 2 else signal
    complex_signal = len(shape) == 3 and shape[-1] == 2
    x = node.emit("frames", node.emit("cast", signal, to="f64"), size=size, step=step)
    if node.given(2):
        if node.shape(2) != (size,):
            raise ModelError(f"{node.label}: a window of shape {node.shape(2)} for frames of {size}")
        window = node.emit("cast", node.reshaped(node.input(2), (size, 1)), to="f64")
        x = node.emit("mul", x, window)
    onesided = node.attr_flag("onesided", default=True) and not complex_signal
    return node.emit("cast", transform(node, x, size, inverse=False, onesided=onesided), to=node.value().dtype)


def _resized(node: OnnxNode, x: str, length: int) -> str:
    """The signal cut or padded with zeros to a length."""
    shape = node.builder.values[x].shape
    pads = [0] * (2 * len(shape))
    pads[-2] = length - shape[-2]
    return node.emit("pad", x, pads=tuple(pads), value=0.0) if pads[-2] else x


def transform(node: OnnxNode, x: str, length: int, inverse: bool, onesided: bool) -> str:
    """The transform of the dimension before the last: (..., given, parts) --> (..., bins, parts).

    An inverse one-sided transform takes the first half of a symmetric spectrum and gives real numbers.
    """
    *lead, given, parts = node.builder.values[x].shape
    first = _divisor(length)
    if length > MAX_DIRECT and first > 1 and inverse and onesided:
        y = transform(node, _mirrored(node, x, length), length, inverse, False)
        return node.sliced(y, [*map(range, (*lead, length)), range(1)])
    if length > MAX_DIRECT and first > 1:
        y = _split(node, node.reshaped(x, (math.prod(lead), given, parts)), first, length // first, inverse)
        y = node.reshaped(y, (*lead, length, 2))
        return _resized(node, y, length // 2 + 1) if onesided else y
    bins = length // 2 + 1 if onesided and not inverse else length
    out_parts = 1 if inverse and onesided else 2
    if given * parts * bins * out_parts > MAX_MATRIX:
        raise UnsupportedError(f"{node.label}: a transform of length {length}, which has no divisors to split it at")
    matrix = _roots(length, given, bins, inverse, onesided)[:, :parts, :, :out_parts]
    flat = node.reshaped(x, (math.prod(lead), given * parts))
    weights = node.new_constant(matrix.reshape(given * parts, bins * out_parts))
    y = node.emit("matmul", flat, weights, trans_a=False, trans_b=False)
    return node.reshaped(y, (*lead, bins, out_parts))


def _mirrored(node: OnnxNode, x: str, length: int) -> str:
    """The whole spectrum of a real signal from its first half: the rest is the mirror image, conjugated."""
    *lead, _, parts = node.builder.values[x].shape
    back = node.sliced(x, [*map(range, lead), range((length - 1) // 2, 0, -1), range(parts)])
    conjugated = node.emit("mul", back, node.new_constant(np.array([1.0, -1.0][:parts])))
    return node.emit("concat", x, conjugated, axis=len(lead))


def _split(node: OnnxNode, x: str, first: int, second: int, inverse: bool) -> str:
    """A transform of length first * second as transforms of both lengths, with a twiddle in between.

    With n = n1 * second + n2 and k = k1 + first * k2: sum over n1, times w^(n2 * k1), sum over n2.
    """
    batch, length, parts = node.builder.values[x].shape
    x = node.transposed(node.reshaped(x, (batch, first, second, parts)), (0, 2, 1, 3))
    y = transform(node, x, first, inverse, False)  # (batch, n2, k1, 2)
    turns = np.outer(np.arange(second), np.arange(first)) / length
    sign = 1.0 if inverse else -1.0
    cosine, sine = np.cos(2 * math.pi * turns), sign * np.sin(2 * math.pi * turns)
    straight = node.emit("mul", y, node.new_constant(np.stack([cosine, cosine], -1)))
    shape = node.builder.values[y].shape
    swapped = node.sliced(y, [*map(range, shape[:-1]), range(1, -1, -1)])
    crossed = node.emit("mul", swapped, node.new_constant(np.stack([-sine, sine], -1)))
    y = node.transposed(node.emit("add", straight, crossed), (0, 2, 1, 3))
    y = transform(node, y, second, inverse, False)  # (batch, k1, k2, 2)
    return node.reshaped(node.transposed(y, (0, 2, 1, 3)), (batch, length, 2))


def _divisor(length: int) -> int:
    """The largest divisor up to the square root."""
    return next(d for d in range(math.isqrt(length), 0, -1) if length % d == 0)


def _roots(length: int, given: int, bins: int, inverse: bool, onesided: bool) -> Array:
    """[n, part of x, k, part of y]: what each part of x[n] adds to each part of y[k]."""
    # The product modulo the length first: sine and cosine of small angles are exact to the last place.
    angle = 2 * math.pi * (np.outer(np.arange(given), np.arange(bins)) % length) / length
    cosine, sine = np.cos(angle), np.sin(angle) * (1.0 if inverse else -1.0)
    matrix = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    if inverse and onesided:  # all but the ends stand for their mirror image too
        mirrored = np.ones(given)
        mirrored[1 : (length + 1) // 2] = 2.0
        matrix *= mirrored[:, None, None, None]
    return matrix / length if inverse else matrix


@converts("MelWeightMatrix")
def mel_weight_matrix(node: OnnxNode) -> str:
    """Triangular filters, evenly spaced in mel, over the bins of a spectrum: [spectrogram bins, mel bins]."""
    numbers = [node.constant_number(n, "a number of the filters") for n in range(5)]
    bands, length, rate, low, high = int(numbers[0]), int(numbers[1]), numbers[2], numbers[3], numbers[4]
    bins = length // 2 + 1
    if bands < 1 or length < 1 or rate <= 0 or not 0 <= low < high or bands * bins > MAX_MATRIX:
        raise ModelError(f"{node.label}: impossible filters: {bands} of length {length} from {low} to {high} Hz")
    mel = np.linspace(2595 * np.log10(1 + low / 700), 2595 * np.log10(1 + high / 700), bands + 2, endpoint=False)
    hertz = 700 * (10 ** (mel / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(np.int64)
    place = np.arange(bins)[:, None]
    lower, centre, upper = edges[None, :-2], edges[None, 1:-1], edges[None, 2:]
    rising = np.where(centre > lower, (place - lower) / np.maximum(centre - lower, 1), (place == centre) * 1.0)
    falling = (upper - place) / np.maximum(upper - centre, 1)
    up, down = (lower <= place) & (place <= centre), (centre < place) & (place < upper)
    values = np.where(up, rising, np.where(down, falling, 0.0))
    return node.new_constant(values.astype(dtype_of(node.attr_int("output_datatype", 1), node.label).numpy))
