"""Scan over a known number of steps: its body once per step."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import AttributeProto, helper

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.expand import Node, renamed
from autotune.graph.ir import Value

MAX_STEP_NODES = 20_000
_OPSET = 17  # of the nodes that cut and join sequences


def scan_body(
    node: NodeAttributes, inputs: Sequence[Value | None], prefix: str
) -> tuple[list[Node], list[onnx.TensorProto]]:
    """The nodes of a Scan, and the initializers of its body.

    Raises:
        ModelError: body, inputs and axes do not fit together.
        UnsupportedError: too many steps to write them out, none at all, or the form of opset 8.
    """
    body = next((a.g for a in node.proto.attribute if a.name == "body" and a.type == AttributeProto.GRAPH), None)
    count = node.attr_int("num_scan_inputs", 0)
    if node.opset < 9:
        raise UnsupportedError(f"{node.label}: the form of opset {node.opset}; export with opset 9 or later")
    values = [value for value in inputs if value is not None]
    states = len(inputs) - count
    if body is None or not 0 < count <= len(values) == len(inputs) == len(body.input):
        raise ModelError(f"{node.label}: {len(inputs)} inputs, {count} of them scanned, do not fit the body")
    if len(body.output) < max(len(node.proto.output), states):
        raise ModelError(f"{node.label}: the body has {len(body.output)} outputs, too few")
    joined = len(body.output) - states
    axes = _ints(node, "scan_input_axes", count)
    backwards = _ints(node, "scan_input_directions", count)
    lengths = {_extent(node, value, axis) for value, axis in zip(values[states:], axes)}
    if len(lengths) != 1:
        raise ModelError(f"{node.label}: the sequences have different lengths {sorted(lengths)}")
    (steps,) = lengths
    if not 0 < steps * (len(body.node) + count) <= MAX_STEP_NODES:
        raise UnsupportedError(f"{node.label}: {steps} steps of {len(body.node)} nodes")

    shared = {tensor.name: f"{prefix}{tensor.name}" for tensor in body.initializer}
    carried = list(node.proto.input[:states])
    parts: list[list[str]] = [[] for _ in range(joined)]
    nodes: list[Node] = []
    for step in range(steps):
        here = f"{prefix}{step}/"
        names = {**shared, **{name: f"{here}{name}" for inner in body.node for name in inner.output if name}}
        names.update((info.name, state) for info, state in zip(body.input, carried))
        for n, (info, source) in enumerate(zip(body.input[states:], node.proto.input[states:])):
            names[info.name] = f"{here}{info.name}"
            place = steps - 1 - step if backwards[n] else step
            nodes += _with_number("Gather", [source], names[info.name], place, axis=axes[n])
        nodes += [(renamed(inner, names, here, {}), node.opset) for inner in body.node]
        results = [names.get(info.name, info.name) for info in body.output]
        carried = results[:states]
        for found, name in zip(parts, results[states:]):
            found.append(name)
    outer = list(node.proto.output)
    nodes += [(helper.make_node("Identity", [state], [name]), _OPSET) for state, name in zip(carried, outer) if name]
    axes, backwards = _ints(node, "scan_output_axes", joined), _ints(node, "scan_output_directions", joined)
    for found, name, axis, turned in zip(parts, outer[states:], axes, backwards):
        for part in found if name else ():
            nodes += _with_number("Unsqueeze", [part], f"{name} of {part}", [axis])
        pieces = [f"{name} of {part}" for part in (found[::-1] if turned else found)]
        nodes += [(helper.make_node("Concat", pieces, [name], axis=axis), _OPSET)] if name else []
    tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in body.initializer]
    for tensor in tensors:
        tensor.name = shared[tensor.name]
    return nodes, tensors


def _with_number(op: str, inputs: list[str], output: str, number: int | list[int], **attributes: int) -> list[Node]:
    """An operator whose last input is a constant."""
    value = {"value_ints": number} if isinstance(number, list) else {"value_int": number}
    constant = helper.make_node("Constant", [], [f"{output}.at"], **value)
    return [(constant, _OPSET), (helper.make_node(op, [*inputs, f"{output}.at"], [output], **attributes), _OPSET)]  # type: ignore[arg-type]


def _ints(node: NodeAttributes, name: str, count: int) -> tuple[int, ...]:
    """One integer per sequence, 0 by default."""
    found = node.attr_ints(name) or (0,) * count
    if len(found) != count:
        raise ModelError(f"{node.label}: {name} has {len(found)} entries for {count} sequences")
    return found


def _extent(node: NodeAttributes, value: Value, axis: int) -> int:
    if not -len(value.shape) <= axis < len(value.shape):
        raise ModelError(f"{node.label}: axis {axis} is outside a sequence of shape {value.shape}")
    return value.shape[axis]
