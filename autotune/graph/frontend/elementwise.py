"""Arithmetic, comparison, logic and conversion: unary, binary with broadcasting old and new, n-ary as chains."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.graph.frontend.source import dtype_of
from autotune.tensor import DType

_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "And": "and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Div": "div",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}
_NARY = {"Sum": "add", "Min": "min", "Max": "max"}


@converts(*_UNARY)
def unary(node: OnnxNode) -> str:
    return node.emit(_UNARY[node.op], node.input(0))


@converts(*_BINARY)
def binary(node: OnnxNode) -> str:
    return node.emit(_BINARY[node.op], node.input(0), second_operand(node))


def second_operand(node: OnnxNode) -> str:
    """Input 1, shaped so that NumPy's broadcasting means what the opset's did.

    Before opset 7 nothing broadcasts unless `broadcast` is 1; the second operand's axes are then those of the first
    from `axis` on, or its last ones.
    """
    b = node.input(1)
    if node.opset >= 7:
        return b
    left, right = node.shape(0), node.shape(1)
    if not node.attr_flag("broadcast"):
        if left != right:
            raise ModelError(f"{node.label}: shapes {left} and {right} differ, and broadcast is not 1")
        return b
    if not node.has("axis"):
        return b
    axis = node.axis(node.attr_int("axis", 0), max(len(left), 1))
    if axis + len(right) > len(left):
        raise ModelError(f"{node.label}: shape {right} does not fit {left} from axis {axis} on")
    return node.reshaped(b, (*right, *(1,) * (len(left) - axis - len(right))))


@converts("Mod")
def mod(node: OnnxNode) -> str:
    fmod = node.attr_flag("fmod")
    return node.emit("mod", node.input(0), node.input(1), fmod=fmod)


@converts("BitShift")
def bit_shift(node: OnnxNode) -> str:
    direction = node.attr_string("direction", "").lower()
    return node.emit("bit_shift", node.input(0), node.input(1), direction=direction)


@converts(*_NARY, "Mean")
def nary(node: OnnxNode) -> str:
    result, *others = node.all_inputs()
    for other in others:
        result = node.emit(_NARY.get(node.op, "add"), result, other)
    if node.op == "Mean" and others:
        result = node.emit("div", result, node.scalar(len(others) + 1, result))
    return result


@converts("Pow")
def power(node: OnnxNode) -> str:
    """The exponent may have another dtype; the result has that of the base."""
    base, exponent = node.value(0), node.value(1)
    if base.dtype == exponent.dtype:
        return node.emit("pow", base.name, second_operand(node))
    kinds = DType(base.dtype), DType(exponent.dtype)
    if kinds[0].is_float:
        common = kinds[0]
    else:  # integers modulo 2 ** 64 keep what any narrower base needs
        common = DType.f64 if kinds[1].is_float else DType.i64
    result = node.emit("pow", *(node.converted(value.name, common) for value in (base, exponent)))
    return result if common is kinds[0] else _as_integer(node, result, kinds[0])


def _as_integer(node: OnnxNode, power: str, dtype: DType) -> str:
    """A power in a base's own integers. What is no such number (a root of a negative one) is their least."""
    if not DType(node.builder.values[power].dtype).is_float:
        return node.converted(power, dtype)
    least = np.iinfo(dtype.numpy).min
    above = node.emit("greater_or_equal", power, node.scalar(float(least), power))
    below = node.emit("less", power, node.scalar(-float(least), power))
    whole = node.converted(power, dtype)
    return node.emit("where", node.emit("and", above, below), whole, node.scalar(least, whole))


@converts("IsInf")
def isinf(node: OnnxNode) -> str:
    """Both signs, or one of them by comparison."""
    x = node.input(0)
    positive, negative = node.attr_int("detect_positive", 1), node.attr_int("detect_negative", 1)
    if positive and negative:
        return node.emit("isinf", x)
    if not positive and not negative:
        return node.new_constant(np.broadcast_to(np.False_, node.shape()))
    return node.emit("equal", x, node.scalar(math.inf if positive else -math.inf, x))


@converts("Where")
def where(node: OnnxNode) -> str:
    return node.emit("where", node.input(0), node.input(1), node.input(2))


@converts("Cast", "CastLike", "BitCast")
def cast(node: OnnxNode) -> str:
    if node.op == "CastLike":
        target = DType(node.value(1).dtype)
    elif node.op == "Cast" and node.opset < 6:  # the name of an element type
        name = node.attr_string("to", "").upper()
        known = TensorProto.DataType.keys()
        target = dtype_of(TensorProto.DataType.Value(name) if name in known else -1, node.label)
    else:
        target = dtype_of(node.attr_int("to", 0), node.label)
    # These two are about 8-bit floats only.
    saturate = node.op == "BitCast" or bool(node.attr_int("saturate", 1))
    rounding = "up" if node.op == "BitCast" else node.attr_string("round_mode", "up")
    if target.value == node.value().dtype:
        return node.input(0)
    if target.is_storage and node.op != "BitCast":
        return node.emit("encode", node.input(0), to=target.value, saturate=saturate, rounding=rounding)
    return node.emit("bit_cast" if node.op == "BitCast" else "cast", node.input(0), to=target.value)
