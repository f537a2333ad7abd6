"""What each ONNX operator does with an open dimension that is padded; `movement` has more. Others may not read one.

A rule gives the facts of the results, such that their elements outside of the padding are those of the model without
padding, asks for masks where it takes that, and raises CannotPad where nothing helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autotune.graph.frontend.buckets.at import At, rule
from autotune.graph.frontend.buckets.computed import computed
from autotune.graph.frontend.buckets.facts import (
    ANYTHING,
    CannotPad,
    Extent,
    Fact,
    NeedsZeros,
    broadcast,
    joined_behind,
)


def _places(dims: Sequence[Extent], symbol: str) -> set[int]:
    """Where the open dimension is, counted from the end."""
    return {n - len(dims) for n, extent in enumerate(dims) if extent == symbol}


# Elementwise ---------------------------------------------------------------------------------------------


def _product(bounds: Sequence[float]) -> float:
    return ANYTHING if ANYTHING in bounds else math.prod(bounds)


def _bound(at: At, dims: Sequence[Extent]) -> float:
    """Of an elementwise result. Where an operand is not padded along an axis that is, its own elements count."""
    padded = _places(dims, at.symbol)
    alike = [fact is None or not fact.has(at.symbol) or _places(at.dims(n), at.symbol) == padded
             for n, fact in enumerate(at.facts)]  # fmt: skip
    if not all(alike):
        return ANYTHING
    op, bounds = at.node.op, [at.largest(n) for n, fact in enumerate(at.facts) if fact is not None]
    if op in ("Add", "Sub", "Sum"):
        return sum(bounds)
    if op == "Mul":
        return _product(bounds)
    if op == "Div":
        divisor = at.array(1)
        least = float(np.min(np.abs(divisor))) if divisor is not None and divisor.size else 0.0
        return bounds[0] / least if least > 0 else ANYTHING
    if op in ("Neg", "Abs", "Relu", "Identity", "Dropout", "Cast"):
        return bounds[0]
    if op in ("Tanh", "Erf", "Sigmoid"):
        return 1.0 if bounds[0] < ANYTHING else ANYTHING
    return ANYTHING


ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp",
    "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
    "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
)  # fmt: skip
"""Operators of ONNX that work element by element."""


@rule(*ELEMENTWISE)
def elementwise(at: At) -> list[Fact]:
    same = at.node.op in ("Identity", "Dropout", "Cast")
    given = [fact for fact in at.facts if fact is not None]
    training = at.array(2) if at.node.op == "Dropout" else None
    if at.node.op == "Dropout" and len(given) > 2 and (training is None or np.any(training)):
        raise CannotPad("it draws random numbers")
    if same:
        given = given[:1]
    elif (elements := computed(at.node.op, given, at.of_integers)) is not None:
        return [Fact((len(elements),) if any(fact.dims for fact in given) else (), elements=elements)]
    elif any(fact.tells(at.symbol) for fact in given):
        raise CannotPad("it computes with the extent of the open dimension")
    shapes = [at.dims(n) for n, fact in enumerate(at.facts) if fact is not None][: len(given)]
    dims = broadcast(shapes, at.symbol)
    fact = Fact(dims, _bound(at, dims))
    if same:
        fact = replace(fact, zeros=given[0].zeros, elements=given[0].elements)
    fact = replace(fact, behind=joined_behind(given, at.symbol))
    if at.node.op == "Where":
        fact = replace(fact, zeros=_zeros(at, 1, dims) & _zeros(at, 2, dims))
    return [fact]


def _zeros(at: At, position: int, dims: tuple[Extent, ...]) -> frozenset[int]:
    """Axes of the open dimension along which an operand of an elementwise result has zeros in the padding."""
    fact = at.fact(position)
    if at.array(position) is not None and at.largest(position) == 0.0:
        return frozenset(n for n, extent in enumerate(dims) if extent == at.symbol)
    return fact.zeros if fact.dims == dims else frozenset()


# Products ------------------------------------------------------------------------------------------------


def _contracted(at: At, first: int, second: int) -> None:
    """A sum along the open dimension, at these axes of the two operands: the padding must add zeros."""
    at.mixes = True
    one, other = at.fact(0), at.fact(1)
    zero = [fact.bound == 0.0 or axis in fact.zeros for fact, axis in ((one, first), (other, second))]
    if (zero[0] and other.is_finite) or (zero[1] and one.is_finite):
        return
    if not any(zero):
        raise NeedsZeros(at.source(at.names[0]))
    raise NeedsZeros(at.source(at.names[1 if zero[0] else 0]))


@rule("MatMul")
def matmul(at: At) -> list[Fact]:
    a, b = at.dims(0), at.dims(1)
    if len(a) < 2 or len(b) < 2:
        raise CannotPad("it multiplies a vector")
    if at.symbol in (a[-1], b[-2]):
        if a[-1] != b[-2]:
            raise CannotPad("the open dimension meets another extent")
        _contracted(at, len(a) - 1, len(b) - 2)
    dims = (*broadcast([a[:-2], b[:-2]], at.symbol), a[-2], b[-1])
    bound = ANYTHING
    if at.array(1) is not None and isinstance(b[-2], int):
        bound = 0.0 if at.fact(0).bound == 0.0 and at.largest(1) < ANYTHING else _product(
            [at.fact(0).bound, at.largest(1), float(b[-2])]
        )  # fmt: skip
    return [Fact(dims, bound)]


@rule("Gemm")
def gemm(at: At) -> list[Fact]:
    a = at.dims(0)[::-1] if at.node.attr_int("transA", 0) else at.dims(0)
    b = at.dims(1)[::-1] if at.node.attr_int("transB", 0) else at.dims(1)
    if len(a) != 2 or len(b) != 2:
        raise CannotPad("it multiplies other things than matrices")
    if at.symbol in (a[1], b[0]):
        raise CannotPad("it sums along the open dimension")
    shapes = [(a[0], b[1]), *([at.dims(2)] if len(at.facts) > 2 and at.facts[2] is not None else [])]
    return [Fact(broadcast(shapes, at.symbol))]


# Along an axis -------------------------------------------------------------------------------------------


@rule("Softmax", "LogSoftmax")
def softmax(at: At) -> list[Fact]:
    dims, new = at.dims(0), at.node.opset >= 13
    axis = at.axis(at.node.attr_int("axis", -1 if new else 1), len(dims))
    along = [axis] if new else list(range(axis, len(dims)))
    if not any(dims[n] == at.symbol for n in along):
        bound = 1.0 if at.node.op == "Softmax" and at.fact(0).is_finite else ANYTHING
        return [Fact(dims, bound, behind=at.fact(0).behind)]
    if len(along) > 1:
        raise CannotPad("it normalises over several dimensions")
    at.mixes, at.masks[0] = True, ((axis,), -math.inf)
    zeros = frozenset(along) if at.node.op == "Softmax" else frozenset[int]()
    return [Fact(dims, zeros=zeros, behind=at.fact(0).behind)]


_FILLS = {
    "ReduceSum": 0.0, "ReduceL1": 0.0, "ReduceL2": 0.0, "ReduceSumSquare": 0.0, "ReduceProd": 1.0,
    "ReduceMax": -math.inf, "ReduceMin": math.inf, "ReduceLogSumExp": -math.inf,
    "ArgMax": -math.inf, "ArgMin": math.inf,
}  # fmt: skip


@rule(*_FILLS, "ReduceMean", "ReduceLogSum")
def reduce(at: At) -> list[Fact]:
    dims, op = at.dims(0), at.node.op
    if op in ("ArgMax", "ArgMin"):
        axes: tuple[int, ...] | None = (at.node.attr_int("axis", 0),)
    else:
        axes = at.ints(1, "axes")
        if not axes and at.node.attr_int("noop_with_empty_axes", 0):
            return [Fact(dims)]
    along = {at.axis(axis, len(dims)) for axis in (axes or range(len(dims)))}
    open_ones = tuple(n for n in sorted(along) if dims[n] == at.symbol)
    if open_ones:
        if op not in _FILLS or at.node.attr_int("select_last_index", 0):
            raise CannotPad("how many elements there are matters")
        at.mixes, at.masks[0] = True, (open_ones, _FILLS[op])
    if not {place + len(dims) for place, _ in at.fact(0).behind} <= along:
        raise CannotPad("elements lie behind the padding")
    keep = at.node.attr_int("keepdims", 1)
    return [Fact(tuple(1 if n in along else extent for n, extent in enumerate(dims) if keep or n not in along))]


@rule("CumSum")
def cumsum(at: At) -> list[Fact]:
    dims, axis = at.dims(0), at.array(1)
    if axis is None:
        raise CannotPad("the axis is no constant")
    if dims[at.axis(int(axis.reshape(-1)[0]), len(dims))] == at.symbol:
        if at.node.attr_int("reverse", 0):
            raise CannotPad("it sums from the end of the open dimension")
        at.mixes = True
    return [Fact(dims)]


@rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def normalize(at: At) -> list[Fact]:
    dims = at.dims(0)
    axis = at.axis(at.node.attr_int("axis", -1), len(dims))
    if at.symbol in dims[axis:] or any(fact is not None and fact.has(at.symbol) for fact in at.facts[1:]):
        raise CannotPad("it normalises over the open dimension")
    for fact in at.facts[1:]:
        if fact is not None and broadcast([dims, fact.dims or ()], "") != dims:
            raise CannotPad("what it multiplies by is of another shape")
    reduced = tuple(1 if n >= axis else extent for n, extent in enumerate(dims))
    return [Fact(dims), Fact(reduced), Fact(reduced)]


@rule(
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
    "GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LpPool", "LRN", "MaxPool",
    "SpaceToDepth",
)  # fmt: skip
def by_image(at: At) -> list[Fact]:
    """What is done with each image of a batch."""
    dims = at.dims(0)
    if at.symbol in dims[1:] or any(fact is not None and fact.has(at.symbol) for fact in at.facts[1:]):
        raise CannotPad("it reads several elements along the open dimension")
    if at.node.op == "BatchNormalization" and at.node.attr_int("training_mode", 0):
        raise CannotPad("it trains: all images of a batch count")
    at.mixes |= at.node.op == "MaxPool" and len(at.node.proto.output) > 1  # places count all images before
    return [Fact((dims[0], *[None] * (len(dims) - 1))) for _ in at.node.proto.output]
