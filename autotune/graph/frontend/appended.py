"""Values that a loop only appends to: it need not carry them, only collect what is appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.unroll import known_array
from autotune.graph.ir import Array

TO_THE_END = 2**31 - 1  # an end of a slice that is this or more means all


@dataclass(frozen=True, slots=True)
class Appended:
    """A carried value to whose end each step appends.

    Attributes:
        place: which one of the carried values.
        item: what a step appends.
        axis: of a tensor, along which. None for a sequence.
        read: the body reads more of it than the last element.
    """

    place: int
    item: str
    axis: int | None
    read: bool = False


def appended(body: onnx.GraphProto, first: int, constants: Mapping[str, Array]) -> tuple[Appended, ...]:
    """The carried values of a Loop's body that are only appended to.

    Args:
        first: the body's first input that is carried; its output is one place before.
        constants: values that are known, of names that the body does not define.
    """
    tensors = [(tensor.name, tensor) for tensor in body.initializer]
    for node in body.node:
        values = (a.t for a in node.attribute if a.name == "value" and node.op_type == "Constant")
        tensors += [(name, tensor) for name in node.output[:1] for tensor in values]
    whole = ((name, known_array(tensor)) for name, tensor in tensors if tensor.data_type == onnx.TensorProto.INT64)
    known = {**constants, **{name: array for name, array in whole if array is not None}}
    found = []
    outputs = [info.name for info in body.output]
    for place, info in enumerate(body.input[first:]):
        name, result = info.name, outputs[first - 1 + place]
        last = next((node for node in body.node if result in node.output), None)
        readers = [node for node in body.node if name in Entry.of(node, 0).reads]
        again = outputs.count(result) > 1 or any(result in Entry.of(node, 0).reads for node in body.node)
        if last is None or again or name in outputs or not last.input or last.input[0] != name:
            continue
        others = [node for node in readers if node is not last]
        if last.op_type == "SequenceInsert" and len(list(filter(None, last.input))) == 2 and not others:
            found.append(Appended(place, last.input[1], None))
        if last.op_type == "Concat" and len(last.input) == 2 and last.input[1] != name:
            axis = next((a.i for a in last.attribute if a.name == "axis"), 1)
            read = not all(_reads_last(node, name, axis, known) for node in others)
            found.append(Appended(place, last.input[1], axis, read))
    return tuple(found)


def _reads_last(node: onnx.NodeProto, name: str, axis: int, known: Mapping[str, Array]) -> bool:
    """Whether a node reads the last element along an axis and nothing else."""
    if list(node.input).count(name) != 1 or node.input[0] != name:
        return False
    if node.op_type == "Gather" and len(node.input) == 2:
        along = next((a.i for a in node.attribute if a.name == "axis"), 0)
        return along == axis and _is(known.get(node.input[1]), -1)
    if node.op_type != "Slice" or len(node.input) < 4:
        return False
    starts, ends, axes = (known.get(given) for given in node.input[1:4])
    step = known.get(node.input[4]) if len(node.input) > 4 and node.input[4] else None
    whole = ends is not None and ends.size == 1 and int(ends.reshape(())) >= TO_THE_END
    return whole and _is(starts, -1) and _is(axes, axis) and (len(node.input) < 5 or _is(step, 1))


def _is(array: Array | None, number: int) -> bool:
    return array is not None and array.size == 1 and int(array.reshape(())) == number


def without(outputs: Sequence[str], found: Sequence[Appended], first: int) -> tuple[str, ...]:
    """The body's outputs where it gives what is appended instead of the whole."""
    results = list(outputs)
    for one in found:
        results[first - 1 + one.place] = one.item
    return tuple(results)
