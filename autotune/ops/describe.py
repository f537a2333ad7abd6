"""A workload as the line of text that `parse_workload` reads."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.ops.parse import bias_shape
from autotune.ops.registry import Operator, lookup
from autotune.ops.usual import DECIDING, usual_attribute, usual_count, usual_dtype
from autotune.ops.workload import AttrValue, TensorType, Workload, WorkloadNode


def describe(workload: Workload) -> str:
    """One line; `parse_workload` makes the same workload of it, with inputs numbered in order of first use.

    Raises:
        WorkloadError: the workload is impossible.
    """
    return _Line(workload).text()


class _Line:
    """The line as it grows; `names` are those of the values that it has named so far."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.types = workload, workload.types()
        self.names: dict[int, str] = {}

    def text(self) -> str:
        first, steps = len(self.workload.inputs), []
        for position, node in enumerate(self.workload.nodes):
            steps.append(self.step(node, first + position - 1 if position else None))
            self.names[first + position] = f"step{position + 1}"
        line = " + ".join(steps)
        if self.workload.outputs == (first + len(steps) - 1,):
            return line
        return f"{line} -> {','.join(self.names[output] for output in self.workload.outputs)}"

    def step(self, node: WorkloadNode, before: int | None) -> str:
        """The words of a node; `before` is the value of the step before."""
        if word := self.shorthand(node, before):
            return word
        op, words = lookup(node.op), [node.op]
        near = "f32" if before is None else self.types[before].dtype
        for position, value in enumerate(node.inputs):
            operand = op.operands[min(position, len(op.operands) - 1)].rstrip("*?")
            if position or value != before or len(node.inputs) > len(op.operands):
                words.append(f"{operand}={self.operand(op, operand, value, near)}")
        types = [self.types[value] for value in node.inputs]
        given: Mapping[str, AttrValue] = dict(node.attrs)
        for key in sorted(given, key=DECIDING.__contains__, reverse=True):
            if given[key] != usual_attribute(op, key, types, given):
                words.append(f"{key}={_setting(given[key], usual_count(op, key, types, given))}")
        return " ".join(words)

    def shorthand(self, node: WorkloadNode, before: int | None) -> str | None:
        if before is None or node.op != "add" or node.inputs[0] != before:
            return None
        number, result = node.inputs[1], self.types[before]
        if number >= len(self.workload.inputs) or number in self.names:
            return None
        given, shape = self.workload.inputs[number], bias_shape(self.workload.nodes[0].op, result.shape)
        if given.constant and shape is not None and given.type == TensorType(result.dtype, shape):
            word = "bias"
        elif not given.constant and given.type == result:
            word = "residual"
        else:
            return None
        self.name_input(number)
        return word

    def operand(self, op: Operator, operand: str, value: int, near: str) -> str:
        """A value that has a name, or a new input."""
        if value in self.names:
            return self.names[value]
        given = self.workload.inputs[value]
        self.name_input(value)
        meaning = "" if given.constant == (operand in op.weights) else "const:" if given.constant else "var:"
        shape = ",".join(map(str, given.type.shape)) or "scalar"
        return f"{meaning}{shape}" + ("" if given.type.dtype == usual_dtype(operand, near) else f":{given.type.dtype}")

    def name_input(self, number: int) -> None:
        taken = sum(name.startswith("in") for name in self.names.values())
        self.names[number] = f"in{taken}"


def _setting(value: AttrValue, count: int | None) -> str:
    """The value of an attribute; of a list of that many numbers no more than repeats."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, tuple):
        return str(value)
    if count == len(value):
        period = next(p for p in range(1, count + 1) if count % p == 0 and value[:p] * (count // p) == value)
        value = value[:period]
    return ",".join(map(str, value))
