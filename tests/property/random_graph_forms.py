"""Nodes of opset 18 as older opsets write them: attributes instead of inputs, broadcasting said aloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import helper

MODERN = 18
"""Newer opsets have no other forms of the operators that are drawn."""

EVALUATED = 21
"""The least opset in which onnx.reference has them all, and right."""

REDUCTIONS = ("Max", "Min", "Mean", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
MOVED: dict[str, tuple[int, tuple[str, ...]]] = {
    **{f"Reduce{name}": (18, ("axes",)) for name in REDUCTIONS},
    "ReduceSum": (13, ("axes",)), "Unsqueeze": (13, ("axes",)), "Squeeze": (13, ("axes",)), "Split": (13, ("split",)),
    "Pad": (11, ("pads",)), "Clip": (11, ("min", "max")), "TopK": (10, ("k",)),
    "Slice": (10, ("starts", "ends", "axes", "steps")),
}  # fmt: skip
"""Operators whose inputs after the first were attributes before some opset."""

SCALARS = ("min", "max", "k")
BINARY = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less", "Equal", "And", "Or", "Xor"))


class Unfit(Exception):
    """There is no such node here; the model grows in another way."""


def at_opset(node: onnx.NodeProto, values: Mapping[str, Any], opset: int) -> onnx.NodeProto:
    """The node with the same meaning in `opset`.

    Raises:
        Unfit: there is none, as far as is known here.
    """
    if opset >= MODERN:
        return node
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    inputs = list(node.input)
    since, moved = MOVED.get(node.op_type, (0, ()))
    if opset < since:
        for name, source in zip(moved, inputs[1:]):
            value = values[source].reshape(-1).tolist()
            if name == "steps":
                _require(all(v == 1 for v in value), "Slice has no steps")
            else:
                attributes[name] = value[0] if name in SCALARS else value
        inputs = inputs[:1]
    old = OLD.get(node.op_type)
    if old is not None:
        old(opset, inputs, attributes, values)
    elif node.op_type in BINARY:
        _binary(opset, inputs, attributes, values)
    if opset < 11:
        numbers = attributes.get("axes", []) + [attributes.get("axis", 0)]
        _require(all(n >= 0 for n in numbers), "axes are counted from the front")
    return helper.make_node(node.op_type, inputs, list(node.output), **attributes)


Old = Callable[[int, list[str], dict[str, Any], Mapping[str, Any]], None]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Unfit(message)


def _binary(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Before opset 7 the second operand is spread over trailing axes of the first, and only when the node says so."""
    a, b = (values[name].shape for name in inputs)
    if opset < 7 and a != b:
        _require(len(b) <= len(a) and a[len(a) - len(b) :] == b, "only trailing axes are shared")
        attributes["broadcast"] = 1


def _equal_shapes_before(version: int) -> Old:
    def check(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
        _require(opset >= version or len({values[name].shape for name in inputs}) == 1, "shapes are equal")

    return check


def _softmax(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Before opset 13 the axes from `axis` on are taken together, which is the same for the last one."""
    last = values[inputs[0]].ndim - 1
    if opset < 13:
        _require(attributes.get("axis", -1) in (-1, last), "the axes behind are taken together")
        attributes["axis"] = last


def _batch_norm(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
    if opset < 7:
        attributes["is_test"] = 1


def _gemm(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
    _require(opset >= 11 or len(inputs) == 3, "Gemm has a bias")
    if opset < 7:
        attributes["broadcast"] = 1


def _gather(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
    _require(opset >= 11 or bool((values[inputs[1]] >= 0).all()), "indices are counted from the front")


def _concat(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
    _require(opset >= 11 or attributes["axis"] >= 0, "axes are counted from the front")


def _since(version: int) -> Old:
    def check(opset: int, inputs: list[str], attributes: dict[str, Any], values: Mapping[str, Any]) -> None:
        _require(opset >= version, "it meant something else")

    return check


OLD: dict[str, Old] = {
    "Softmax": _softmax, "LogSoftmax": _softmax, "Hardmax": _softmax, "BatchNormalization": _batch_norm,
    "Gemm": _gemm, "Gather": _gather, "Concat": _concat, "PRelu": _equal_shapes_before(7),
    "Min": _equal_shapes_before(8), "Max": _equal_shapes_before(8), "Sum": _equal_shapes_before(8),
    "Mean": _equal_shapes_before(8), "Resize": _since(13), "ScatterND": _since(18), "GroupNormalization": _since(21),
    "DequantizeLinear": _since(13), "QuantizeLinear": _since(13),
}  # fmt: skip
