"""Rfft, Irfft, ComplexMul, ComplexMulConj: transforms of real signals, as exporters of physics models write them.

Complex numbers are pairs in the last dimension. ONNX Runtime has kernels for GPUs only.
"""

from __future__ import annotations

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.spectrum import transform
from autotune.tensor import DType


@contributed("Rfft", inputs=1)
def rfft(node: OnnxNode) -> str:
    """The spectrum of the last `signal_ndim` dimensions, of the last one up to half of the sampling frequency."""
    count, shape = _signal(node, node.rank()), node.shape()
    x = node.reshaped(node.converted(node.input(0), DType.f64), (*shape, 1))
    x = transform(node, x, shape[-1], False, True)
    for axis in range(len(shape) - count, len(shape) - 1):
        x = _along(node, x, axis, inverse=False)
    return node.converted(x, DType(node.value().dtype))


@contributed("Irfft", inputs=1)
def irfft(node: OnnxNode) -> str:
    """The real signal of such a spectrum, an even number of samples, divided by the number of all."""
    rank, shape = node.rank() - 1, node.shape()
    count = _signal(node, rank)
    if shape[-1] != 2 or shape[-2] < 2:
        raise ModelError(f"{node.label}: a spectrum of shape {shape}; pairs of at least two frequencies are needed")
    x = node.converted(node.input(0), DType.f64)
    for axis in range(rank - count, rank - 1):
        x = _along(node, x, axis, inverse=True)
    samples = 2 * (shape[-2] - 1)
    x = transform(node, x, samples, True, True)
    return node.converted(node.reshaped(x, (*shape[:-2], samples)), DType(node.value().dtype))


def _signal(node: OnnxNode, rank: int) -> int:
    """How many dimensions are the signal."""
    count = node.attr_int("signal_ndim", 1)
    if node.attr_int("normalized", 0) or node.attr_int("onesided", 1) != 1:
        raise UnsupportedError(f"{node.label}: only normalized=0 and onesided=1 are supported")
    if not 1 <= count <= min(rank, 3) or 0 in node.shape():
        raise ModelError(f"{node.label}: signal_ndim={count} of data of shape {node.shape()}")
    return count


def _along(node: OnnxNode, x: str, axis: int, *, inverse: bool) -> str:
    """Complex numbers, transformed along another dimension than that before the pair."""
    shape = node.builder.values[x].shape
    rank = len(shape)
    order = (*(d for d in range(rank) if d not in (axis, rank - 1)), axis, rank - 1)
    found = transform(node, node.transposed(x, order), shape[axis], inverse, False)
    return node.transposed(found, tuple(order.index(d) for d in range(rank)))


@contributed("ComplexMul", inputs=2)
def complex_mul(node: OnnxNode) -> str:
    """(a + bi) (c + di)"""
    return _product(node, "sub", "add")


@contributed("ComplexMulConj", inputs=2)
def complex_mul_conj(node: OnnxNode) -> str:
    """(a + bi) (c - di)"""
    return _product(node, "add", "sub")


def _product(node: OnnxNode, real: str, imaginary: str) -> str:
    """(ac and bd by `real`, bc and ad by `imaginary`)"""
    (a, b), (c, d) = (_parts(node, position) for position in range(2))
    pairs = ((real, (a, c), (b, d)), (imaginary, (b, c), (a, d)))
    found = [node.emit(op, node.emit("mul", *one), node.emit("mul", *other)) for op, one, other in pairs]
    return node.emit("concat", *found, axis=len(node.builder.values[found[0]].shape) - 1)


def _parts(node: OnnxNode, position: int) -> list[str]:
    shape = node.shape(position)
    if not shape or shape[-1] != 2:
        raise ModelError(f"{node.label}: input {position} of shape {shape} has no pairs")
    return [node.sliced(node.input(position), (*map(range, shape[:-1]), range(n, n + 1))) for n in range(2)]
