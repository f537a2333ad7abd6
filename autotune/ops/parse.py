"""Workloads from one line of text, as people type them on a command line.

    conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 + bias + relu
    conv2d data=1,144,56,56 weight=144,1,3,3 groups=144 pad=1 stride=2 dtype=f16
    matmul a=128,768 b=768,3072 + bias + gelu approximate=tanh
    conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 + bias + residual + relu
    where condition=5,1 a=5,7 b=5,7
    concat data=1,64,28,28 data=1,32,28,28
    gather data=const:30522,768 indices=1,128

    sigmoid data=1,96,64 + mul b=in0
    lp_norm data=4,8 + relu data=in0 -> step1,step2

Grammar:

    line    = step { "+" step } [ "->" value { "," value } ]    the results, if not the last step's alone
    step    = name { word }                  an operator
            | "bias"                         add a constant: one number per channel (convolutions) or column (matmul)
            | "residual"                     add an input of the result's shape
    word    = operand "=" ( type | value ) | attribute "=" setting | "dtype=" name    (dtype: of all operands, else f32)
    type    = [ "const:" | "var:" ] shape [ ":" dtype ]         a new input
    value   = "in0" | "in1" ... | "step1" | "step2" ...         an input in order of appearance, or the result of a step
    shape   = integers joined by "," or "x", or "scalar"
    setting = number | true | false | name | integers joined by ","

The "+" may be left out. Operands that are usually weights are constant, others are not, unless `const:` or `var:`
says so. After the first step the first operand may be left out, and is the result so far; others may be, and are inputs
of its shape. Attributes that are left out take their usual value; `stride=2` means 2,2, `pad=1` means 1,1,1,1 and
`pad=1,2` means 1,2,1,2. `Workload.describe` writes what is read here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.errors import WorkloadError
from autotune.ops.registry import Needed, Operator, lookup, operators, suggest
from autotune.ops.usual import DECIDING, axis_from_front, usual_attribute, usual_count, usual_dtype
from autotune.ops.workload import AttrValue, TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.tensor.dtype import DType

_SHORTHANDS = ("bias", "residual")
_VALUE = re.compile(r"(in|step)(\d+)")
_EXAMPLES = {
    Needed.integer: "1", Needed.integers: "1,0", Needed.pair: "3,3", Needed.spatial: "3,3", Needed.name: "f16",
}  # fmt: skip


def parse_workload(text: str) -> Workload:
    """The workload that a line describes; the grammar is at the top of this module.

    Raises:
        WorkloadError: for unknown names (with a suggestion), malformed numbers and impossible shapes.
    """
    line, arrow, results = f" {text} ".partition(" -> ")
    builder = _Builder()
    for name, words in _steps(line):
        builder.step(name, words)
    return builder.finish(results.replace(" ", "").split(",") if arrow else ())


Words = list[tuple[str, str]]


def _steps(text: str) -> list[tuple[str, Words]]:
    """(name, its `key=value` words) of every step."""
    steps: list[tuple[str, Words]] = []
    for token in text.replace(" + ", " ").split():
        if "=" not in token:
            steps.append((token, []))
        elif not steps:
            raise WorkloadError(f"{token!r} stands before the operator; write for example `softmax data=64,1000`")
        else:
            key, value = token.split("=", 1)
            steps[-1][1].append((key, value))
    if not steps:
        raise WorkloadError("an empty operator description; write for example `softmax data=64,1000`")
    return steps


@dataclass
class _Builder:
    """Steps so far; values are -1-n for node n, so that inputs may still be added."""

    inputs: list[WorkloadInput] = field(default_factory=list)
    nodes: list[WorkloadNode] = field(default_factory=list)
    dtype: str = "f32"

    def finish(self, results: Sequence[str]) -> Workload:
        """The workload with the results of that name, or with the last step's."""
        outputs = [self._named("->", name) for name in results] or [-len(self.nodes)]
        read = {*outputs, *(number for node in self.nodes for number in node.inputs)}
        for position, node in enumerate(self.nodes):
            if -1 - position not in read:
                raise WorkloadError(
                    f"nothing reads the result of step {position + 1} ({node.op}): name it where it is read as"
                    f" step{position + 1}, or leave out the first operand of the next step"
                )
        return self._workload(outputs)

    def step(self, name: str, words: Words) -> None:
        if name in _SHORTHANDS and self.nodes:
            self._add(name, words)
            return
        if name not in operators() and self.nodes:
            raise WorkloadError(f"unknown operator {name!r}; {suggest(name, (*operators(), *_SHORTHANDS))}")
        op = lookup(name)
        if not self.nodes:
            self.dtype = _take_dtype(name, words)
        numbers = self._operands(op, words)
        attrs = _attributes(op, words, [self._type(number) for number in numbers])
        self.nodes.append(WorkloadNode.make(name, tuple(numbers), **attrs))
        self._workload([-len(self.nodes)]).types()

    def _add(self, name: str, words: Words) -> None:
        if words:
            raise WorkloadError(f"{name} takes no words, got {words[0][0]}=; write `add b=...` for a shape of your own")
        result, anchor = self._type(-len(self.nodes)), self.nodes[0].op
        shape = bias_shape(anchor, result.shape) if name == "bias" else result.shape
        if shape is None:
            raise WorkloadError(f"bias follows a convolution or matmul, not {anchor}; write `add b=const:SHAPE`")
        number = self._input(WorkloadInput(TensorType(result.dtype, shape), name == "bias"))
        self.nodes.append(WorkloadNode.make("add", (-len(self.nodes), number)))

    def _operands(self, op: Operator, words: Words) -> list[int]:
        """The number of every operand, new inputs included; takes their words away."""
        previous = -len(self.nodes)
        result = self._type(previous) if self.nodes else None
        numbers: list[int] = []
        for position, operand in enumerate(op.operands):
            name, plain = operand.rstrip("*?"), not operand.endswith(("*", "?"))
            given = [value for key, value in words if key == name]
            words[:] = [(key, value) for key, value in words if key != name]
            if len(given) > 1 and not operand.endswith("*"):
                raise WorkloadError(f"{op.name}: {name} is given twice")
            usual = usual_dtype(name, self.dtype if result is None else result.dtype)
            if given:
                numbers += [self._operand(op, name, value, usual) for value in given]
            elif result is not None and position == 0:
                numbers.append(previous)
            elif result is not None and plain:
                numbers.append(self._input(WorkloadInput(TensorType(usual, result.shape))))
            elif not operand.endswith("?"):
                raise WorkloadError(f"{op.name} needs the shape of {name}; write for example {name}=1,64,56,56")
        return numbers

    def _operand(self, op: Operator, name: str, text: str, dtype: str) -> int:
        if _VALUE.fullmatch(text):
            return self._named(op.name, text)
        constant = name in op.weights
        for prefix, meaning in (("const:", True), ("var:", False)):
            if text.startswith(prefix):
                text, constant = text[len(prefix) :], meaning
        if ":" in text:
            text, suffix = text.split(":", 1)
            dtype = _dtype(op.name, suffix)
        shape = () if text == "scalar" else _integers(op.name, name, text)
        return self._input(WorkloadInput(TensorType(dtype, shape), constant))

    def _named(self, where: str, text: str) -> int:
        """The number of an input or of a step's result."""
        match = _VALUE.fullmatch(text)
        number = int(match[2]) if match else 0
        if match and match[1] == "in" and number < len(self.inputs):
            return number
        if match and match[1] == "step" and 1 <= number <= len(self.nodes):
            return -number
        known = ([f"in{n}" for n in range(len(self.inputs))], [f"step{n + 1}" for n in range(len(self.nodes))])
        listed = ", ".join(names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" for names in known if names)
        raise WorkloadError(f"{where}: {text} names no value; there are {listed or 'none before it'}")

    def _input(self, found: WorkloadInput) -> int:
        self.inputs.append(found)
        return len(self.inputs) - 1

    def _type(self, number: int) -> TensorType:
        return (
            self.inputs[number].type if number >= 0 else self._workload([number]).types()[len(self.inputs) - 1 - number]
        )

    def _workload(self, outputs: Sequence[int]) -> Workload:
        first = len(self.inputs)

        def placed(numbers: Sequence[int]) -> tuple[int, ...]:
            return tuple(i if i >= 0 else first - 1 - i for i in numbers)

        nodes = tuple(WorkloadNode(n.op, placed(n.inputs), n.attrs) for n in self.nodes)
        return Workload(tuple(self.inputs), nodes, placed(outputs))


def bias_shape(anchor: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of what `bias` adds to a result of that shape; None where it means nothing."""
    if anchor.startswith("conv") and shape:
        return (1, shape[1], *(1,) * (len(shape) - 2))
    return shape[-1:] if anchor == "matmul" and shape else None


def _take_dtype(op: str, words: Words) -> str:
    for n, (key, value) in enumerate(words):
        if key == "dtype":
            del words[n]
            return _dtype(op, value)
    return "f32"


def _attributes(op: Operator, words: Words, types: list[TensorType]) -> dict[str, AttrValue]:
    """All attributes of the operator, axes counted from the front."""
    texts: dict[str, str] = {}
    for key, text in words:
        if key not in op.defaults:
            known = (*(o.rstrip("*?") for o in op.operands), *op.defaults, "dtype")
            raise WorkloadError(f"{op.name} has no operand or attribute {key!r}; {suggest(key, known)}")
        if key in texts:
            raise WorkloadError(f"{op.name}: {key} is given twice")
        texts[key] = text
    given: dict[str, AttrValue] = {}
    for key in sorted(op.defaults, key=DECIDING.__contains__, reverse=True):
        usual = usual_attribute(op, key, types, given)
        if key in texts:
            given[key] = _setting(op.name, key, texts[key], usual, usual_count(op, key, types, given))
        elif isinstance(usual, Needed):
            raise WorkloadError(f"{op.name} needs {key}; write for example {key}={_EXAMPLES[usual]}")
        else:
            given[key] = usual
    rank = len(types[0].shape) if types else 0
    if isinstance(axis := given.get("axis"), int):
        given["axis"] = axis_from_front(op, axis, rank)
    if isinstance(axes := given.get("axes"), tuple):
        given["axes"] = tuple(a + rank if isinstance(a, int) and -rank <= a < 0 else a for a in axes)
    return {key: value for key, value in given.items() if key not in op.rare or value != op.defaults[key]}


def _setting(op: str, key: str, text: str, usual: AttrValue | Needed, count: int | None) -> AttrValue:
    """The value of an attribute: of its usual value's kind, and so many numbers."""
    if isinstance(usual, bool):
        if text.lower() not in ("true", "false", "1", "0"):
            raise WorkloadError(f"{op}: {key}={text} must be true or false")
        return text.lower() in ("true", "1")
    if isinstance(usual, str) or usual is Needed.name:
        return text
    real = isinstance(usual, float) or (isinstance(usual, tuple) and all(isinstance(v, float) for v in usual))
    items: tuple[int | float, ...] = _numbers(op, key, text) if real else _integers(op, key, text)
    if isinstance(usual, (int, float)) or usual is Needed.integer:
        if len(items) != 1:
            raise WorkloadError(f"{op}: {key}={text} must be one {'number' if real else 'integer'}")
        return items[0]
    if count is None:
        return items
    if not items or count % len(items):
        raise WorkloadError(
            f"{op}: {key}={text} must be {count} {'numbers' if real else 'integers'}, or fewer that repeat"
        )
    return items * (count // len(items))


def _numbers(op: str, key: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(",")) if text else ()
    except ValueError:
        raise WorkloadError(f"{op}: {key}={text} is not a number") from None


def _integers(op: str, key: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in text.replace("x", ",").split(",")) if text else ()
    except ValueError:
        raise WorkloadError(f"{op}: {key}={text} is not a list of integers; write for example 1,64,56,56") from None


def _dtype(op: str, text: str) -> str:
    try:
        return DType(text).value
    except ValueError:
        raise WorkloadError(f"{op}: unknown dtype {text!r}; {suggest(text, (d.value for d in DType))}") from None
