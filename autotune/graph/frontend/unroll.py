"""Loop, Scan and SequenceMap over a few steps, known while converting: the body once per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, helper

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.expand import Node, renamed
from autotune.graph.frontend.source import tensor_array
from autotune.graph.ir import Array, Value

MAX_STEP_NODES = 20_000  # where a model has to be one program
FEW_STEP_NODES = 512  # where a body that is compiled once can run step by step
_OPSET = 17  # of the nodes that cut and join sequences
Written = tuple[list[Node], list[onnx.TensorProto]]


@dataclass(frozen=True, slots=True)
class ScanForm:
    """What a Scan scans.

    Attributes:
        body: what a step computes: the states, then one element per output.
        states: how many values are carried along.
        axes, backwards: of each scanned input.
        out_axes, out_backwards: of each scan output.
    """

    body: onnx.GraphProto
    states: int
    axes: tuple[int, ...]
    backwards: tuple[int, ...]
    out_axes: tuple[int, ...]
    out_backwards: tuple[int, ...]

    @staticmethod
    def of(node: NodeAttributes) -> ScanForm:
        """Raises ModelError where inputs, outputs and attributes do not fit the body."""
        body, count, inputs = body_of(node), node.attr_int("num_scan_inputs", 0), len(node.proto.input) - _first(node)
        states = inputs - count
        if not 0 < count <= inputs == len(body.input) or not all(node.proto.input[_first(node) :]):
            raise ModelError(f"{node.label}: {inputs} inputs, {count} of them scanned, do not fit the body")
        if len(body.output) < max(len(node.proto.output), states):
            raise ModelError(f"{node.label}: the body has {len(body.output)} outputs, too few")
        joined = len(body.output) - states
        if node.opset < 9:
            return ScanForm(body, states, (0,) * count, _ints(node, "directions", count), (0,) * joined, (0,) * joined)
        return ScanForm(
            body, states, _ints(node, "scan_input_axes", count), _ints(node, "scan_input_directions", count),
            _ints(node, "scan_output_axes", joined), _ints(node, "scan_output_directions", joined),
        )  # fmt: skip


def body_of(node: NodeAttributes) -> onnx.GraphProto:
    graphs = (a.g for a in node.proto.attribute if a.name == "body" and a.type == AttributeProto.GRAPH)
    body: onnx.GraphProto | None = next(graphs, None)
    if body is None:
        raise ModelError(f"{node.label}: the body is missing")
    if body.sparse_initializer:
        raise UnsupportedError(f"{node.label}: the body has sparse initializers")
    return body


def goes_on(body: onnx.GraphProto) -> bool:
    """Whether the body of a Loop never asks to stop: its condition is the one it was given, or a constant."""
    producers = {name: node for node in body.node for name in node.output}
    name, seen = body.output[0].name, set[str]()
    while name in producers and producers[name].op_type == "Identity" and name not in seen:
        seen.add(name)
        name = next(iter(producers[name].input), "")
    if name in (info.name for info in body.input[1:2]):
        return True
    tensors = [tensor for tensor in body.initializer if tensor.name == name]
    if name in producers and producers[name].op_type == "Constant":
        tensors = [a.t for a in producers[name].attribute if a.name == "value"]
    found = known_array(tensors[0]) if tensors else None
    return found is not None and bool(found.all())


def known_array(tensor: onnx.TensorProto) -> Array | None:
    """The numbers of a tensor; None where they are elsewhere, or make no sense: who reads them will say so."""
    try:
        return tensor_array(tensor, None, tensor.name)
    except ModelError:
        return None


def loop_steps(node: NodeAttributes, steps: int, prefix: str) -> Written:
    """A Loop that goes on for some steps, 1 or more. Raises ModelError where its inputs do not fit the body."""
    body, states = body_of(node), len(node.proto.input) - 2
    check_loop(node, body)
    writer = _Writer(body, node.opset, prefix)
    carried, parts = list(node.proto.input[2:]), [list[str]() for _ in body.output[1 + states :]]
    condition = node.proto.input[1] or writer.constant("condition", value_int=1, to_bool=True)
    for step in range(steps):
        number = writer.constant(f"{step}/number", value_int=step)
        condition, *results = writer.step(step, [number, condition, *carried])
        carried = results[:states]
        for found, name in zip(parts, results[states:]):
            found.append(name)
    writer.hand_on(carried, node.proto.output[:states])
    for found, name in zip(parts, node.proto.output[states:]):
        writer.stack(found, name, 0)
    return writer.nodes, writer.tensors()


def check_loop(node: NodeAttributes, body: onnx.GraphProto) -> None:
    states = len(node.proto.input) - 2
    if states < 0 or len(body.input) != states + 2 or len(body.output) < max(states + 1, len(node.proto.output) + 1):
        raise ModelError(
            f"{node.label}: {states} carried values and {len(node.proto.output)} outputs do not fit a body of"
            f" {len(body.input)} inputs and {len(body.output)} outputs"
        )


def scan_steps(node: NodeAttributes, inputs: Sequence[Value | None], prefix: str) -> Written:
    """A Scan over sequences of known length, 1 or more.

    Raises:
        ModelError: body, inputs and axes do not fit together.
        UnsupportedError: lengths of the sequences of opset 8.
    """
    form, steps = ScanForm.of(node), scan_length(node, inputs)
    writer = _Writer(form.body, node.opset, prefix)
    if node.opset >= 9:
        _write_scan(writer, form, steps, list(node.proto.input), list(node.proto.output), "")
        return writer.nodes, writer.tensors()
    if node.proto.input[0]:
        raise UnsupportedError(f"{node.label}: lengths of the sequences in opset 8; export with opset 9 or later")
    names, wanted = list(node.proto.input[1:]), [name for name in node.proto.output if name]
    batches = {value.shape[0] for value in inputs[1:] if value is not None and value.shape}
    if len(batches) != 1 or not max(batches):
        raise ModelError(f"{node.label}: the inputs have different or no batches: {sorted(batches)}")
    for batch in range(max(batches)):
        here = f"{batch}/"
        own = [writer.gather(name, f"{here}{n}", batch, 0) for n, name in enumerate(names)]
        outer = [f"{prefix}{here}{name}" if name else "" for name in node.proto.output]
        _write_scan(writer, form, steps, own, outer, here)
    for name in wanted:
        writer.stack([f"{prefix}{batch}/{name}" for batch in range(max(batches))], name, 0)
    return writer.nodes, writer.tensors()


def _write_scan(writer: _Writer, form: ScanForm, steps: int, names: list[str], outer: list[str], here: str) -> None:
    carried, parts = names[: form.states], [list[str]() for _ in form.out_axes]
    for step in range(steps):
        places = (steps - 1 - step if turned else step for turned in form.backwards)
        scanned = zip(names[form.states :], places, form.axes)
        items = [writer.gather(name, f"{here}{step}/item{n}", *at) for n, (name, *at) in enumerate(scanned)]
        results = writer.step(f"{here}{step}", [*carried, *items])
        carried = results[: form.states]
        for found, name in zip(parts, results[form.states :]):
            found.append(name)
    writer.hand_on(carried, outer[: form.states])
    for found, name, axis, turned in zip(parts, outer[form.states :], form.out_axes, form.out_backwards):
        writer.stack(found[::-1] if turned else found, name, axis)


def scan_length(node: NodeAttributes, inputs: Sequence[Value | None]) -> int:
    """How many steps a Scan takes. Raises ModelError where its sequences disagree."""
    form, old = ScanForm.of(node), node.opset < 9
    scanned = inputs[form.states + _first(node) :]
    lengths = {_extent(node, value, axis + old) for value, axis in zip(scanned, form.axes) if value is not None}
    if len(lengths) != 1:
        raise ModelError(f"{node.label}: the sequences have different lengths {sorted(lengths)}")
    return max(lengths)


def map_steps(node: NodeAttributes, lists: Mapping[int, int], prefix: str) -> Written:
    """A SequenceMap over sequences of known lengths: positions of the inputs that are one, with the length.

    Raises:
        ModelError: the lengths differ, or the body does not fit.
    """
    body = body_of(node)
    steps = lists.get(0)
    if steps is None or len(body.input) != len(node.proto.input) or len(body.output) < len(node.proto.output):
        raise ModelError(f"{node.label}: its inputs do not fit the body, or the first one is no sequence")
    if set(lists.values()) != {steps}:
        raise ModelError(f"{node.label}: the sequences have different lengths {sorted(set(lists.values()))}")
    writer = _Writer(body, node.opset, prefix)
    found: list[list[str]] = []
    for step in range(steps):
        items = [
            writer.at(name, f"{step}/item{n}", step) if n in lists else name for n, name in enumerate(node.proto.input)
        ]
        found.append(writer.step(step, items))
    for n, name in enumerate(node.proto.output):
        if name:
            op = "SequenceConstruct" if steps else "SequenceEmpty"
            writer.add(op, [results[n] for results in found], name)
    return writer.nodes, writer.tensors()


class _Writer:
    """Nodes of a body, step by step, under names that are used once."""

    def __init__(self, body: onnx.GraphProto, opset: int, prefix: str) -> None:
        self.nodes: list[Node] = []
        self._body, self._opset, self._prefix = body, opset, prefix
        self._shared = {tensor.name: f"{prefix}{tensor.name}" for tensor in body.initializer}
        self._inner = [name for node in body.node for name in node.output if name]

    def step(self, step: int | str, inputs: Sequence[str]) -> list[str]:
        """One step of the body; the names of its results."""
        here = f"{self._prefix}{step}/"
        names = {**self._shared, **{name: f"{here}{name}" for name in self._inner}}
        names.update((info.name, name) for info, name in zip(self._body.input, inputs))
        self.nodes += [(renamed(node, names, here, {}), self._opset) for node in self._body.node]
        return [names.get(info.name, info.name) for info in self._body.output]

    def tensors(self) -> list[onnx.TensorProto]:
        """The initializers of the body, by their new names."""
        tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in self._body.initializer]
        for tensor in tensors:
            tensor.name = self._shared[tensor.name]
        return tensors

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: int) -> str:
        self.nodes.append((helper.make_node(op, inputs, [output], **attributes), _OPSET))  # type: ignore[arg-type]
        return output

    def constant(self, name: str, to_bool: bool = False, **value: int | list[int]) -> str:
        full = f"{self._prefix}{name}"
        number = f"{full}.number" if to_bool else full
        self.nodes.append((helper.make_node("Constant", [], [number], **value), _OPSET))  # type: ignore[arg-type]
        return self.add("Cast", [number], full, to=onnx.TensorProto.BOOL) if to_bool else full

    def gather(self, source: str, name: str, place: int, axis: int) -> str:
        at = self.constant(f"{name}.at", value_int=place)
        return self.add("Gather", [source, at], f"{self._prefix}{name}", axis=axis)

    def at(self, source: str, name: str, place: int) -> str:
        position = self.constant(f"{name}.at", value_int=place)
        return self.add("SequenceAt", [source, position], f"{self._prefix}{name}")

    def hand_on(self, names: Sequence[str], outer: Sequence[str]) -> None:
        for name, out in zip(names, outer):
            if out:
                self.add("Identity", [name], out)

    def stack(self, parts: Sequence[str], name: str, axis: int) -> None:
        """`name` is the parts, one behind the other along a new axis."""
        if not name:
            return
        pieces = []
        for n, part in enumerate(parts):
            at = f"{name}.{n}"
            axes = self.constant(f"{at}.axes", value_ints=[axis])
            pieces.append(self.add("Unsqueeze", [part, axes], f"{self._prefix}{at}"))
        self.add("Concat", pieces, name, axis=axis)


def _first(node: NodeAttributes) -> int:
    """How many inputs come before the states: opset 8 has lengths there."""
    return int(node.opset < 9)


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
