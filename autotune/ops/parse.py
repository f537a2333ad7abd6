"""Workloads from one line of text, as people type them on a command line.

    conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 + bias + relu
    conv2d data=1,144,56,56 weight=144,1,3,3 groups=144 pad=1 stride=2 dtype=f16
    matmul a=128,768 b=768,3072 + bias + gelu approximate=tanh
    conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 + bias + residual + relu
    where condition=5,1 a=5,7 b=5,7
    concat data=1,64,28,28 data=1,32,28,28
    gather data=const:30522,768 indices=1,128

Grammar:

    line    = step { "+" step }
    step    = name { word }                  an operator; after the first step it reads the result so far
            | "bias"                         add a constant: one number per channel (convolutions) or column (matmul)
            | "residual"                     add an input of the result's shape
    word    = operand "=" type | attribute "=" value | "dtype=" name        (dtype: of all operands, f32 if left out)
    type    = [ "const:" | "var:" ] shape [ ":" dtype ]
    shape   = integers joined by "," or "x", or "scalar"
    value   = number | true | false | name | integers joined by ","

The "+" may be left out. Operands that are usually weights are constant, others are not, unless `const:` or `var:`
says so. Later steps may leave out their other operands, which then have the result's shape. Attributes that are
left out take their usual value; `stride=2` means 2,2, `pad=1` means 1,1,1,1 and `pad=1,2` means 1,2,1,2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.errors import WorkloadError
from autotune.ops.registry import Needed, Operator, lookup, operators, suggest
from autotune.ops.workload import AttrValue, TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.tensor.dtype import DType

_USUAL_DTYPE = {"condition": "bool", "indices": "i64"}
_SHORTHANDS = ("bias", "residual")


def parse_workload(text: str) -> Workload:
    """The workload that a line describes; the grammar is at the top of this module.

    Raises:
        WorkloadError: for unknown names (with a suggestion), malformed numbers and impossible shapes.
    """
    steps = _steps(text)
    builder = _Builder()
    for name, words in steps:
        builder.step(name, words)
    return builder.finish()


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

    def finish(self) -> Workload:
        first = len(self.inputs)
        nodes = [
            WorkloadNode(n.op, tuple(i if i >= 0 else first - 1 - i for i in n.inputs), n.attrs) for n in self.nodes
        ]
        workload = Workload(tuple(self.inputs), tuple(nodes), (first + len(nodes) - 1,))
        workload.types()
        return workload

    def step(self, name: str, words: Words) -> None:
        if name in _SHORTHANDS and self.nodes:
            self._add(name, words)
            return
        if name not in operators() and self.nodes:
            raise WorkloadError(f"unknown operator {name!r}; {suggest(name, (*operators(), *_SHORTHANDS))}")
        op = lookup(name)
        if not self.nodes:
            self.dtype = _take_dtype(name, words)
        result = self.finish().types()[-1] if self.nodes else None
        types = _operands(op, words, result, self.dtype if result is None else result.dtype)
        attrs = _attributes(op, words, types)
        numbers = [-len(self.nodes)] if result is not None else []
        for operand in types[len(numbers) :]:
            self.inputs.append(operand)
            numbers.append(len(self.inputs) - 1)
        self.nodes.append(WorkloadNode.make(name, tuple(numbers), **attrs))

    def _add(self, name: str, words: Words) -> None:
        if words:
            raise WorkloadError(f"{name} takes no words, got {words[0][0]}=; write `add b=...` for a shape of your own")
        shape = self.finish().types()[-1].shape
        if name == "bias":
            anchor = self.nodes[0].op
            convolution = anchor.startswith("conv")
            if not (convolution or anchor == "matmul") or not shape:
                raise WorkloadError(f"bias follows a convolution or matmul, not {anchor}; write `add b=const:SHAPE`")
            shape = (1, shape[1], *(1,) * (len(shape) - 2)) if convolution else shape[-1:]
        dtype = self.finish().types()[-1].dtype
        self.inputs.append(WorkloadInput(TensorType(dtype, shape), name == "bias"))
        self.nodes.append(WorkloadNode.make("add", (-len(self.nodes), len(self.inputs) - 1)))


def _take_dtype(op: str, words: Words) -> str:
    for n, (key, value) in enumerate(words):
        if key == "dtype":
            del words[n]
            return _dtype(op, value)
    return "f32"


def _operands(op: Operator, words: Words, result: TensorType | None, dtype: str) -> list[WorkloadInput]:
    """Type of every operand; the first is the result so far, if there is one."""
    types: list[WorkloadInput] = []
    for position, operand in enumerate(op.operands):
        name = operand.rstrip("*?")
        if position == 0 and result is not None:
            types.append(WorkloadInput(result))
            if any(key == name for key, _ in words) and operand == name:
                raise WorkloadError(f"{op.name}: {name} is the result of the step before, leave it out")
            if operand == name:
                continue
        given = [value for key, value in words if key == name]
        words[:] = [(key, value) for key, value in words if key != name]
        if len(given) > 1 and not operand.endswith("*"):
            raise WorkloadError(f"{op.name}: {name} is given twice")
        usual = _USUAL_DTYPE.get(name, dtype)
        for value in given:
            types.append(_operand(op, name, value, usual))
        if not given and result is not None and operand == name:
            types.append(WorkloadInput(TensorType(_USUAL_DTYPE.get(name, result.dtype), result.shape)))
        elif not given and result is None and not operand.endswith("?"):
            raise WorkloadError(f"{op.name} needs the shape of {name}; write for example {name}=1,64,56,56")
    return types


def _operand(op: Operator, name: str, text: str, dtype: str) -> WorkloadInput:
    constant = name in op.weights
    for prefix, meaning in (("const:", True), ("var:", False)):
        if text.startswith(prefix):
            text, constant = text[len(prefix) :], meaning
    if ":" in text:
        text, suffix = text.split(":", 1)
        dtype = _dtype(op.name, suffix)
    shape = () if text == "scalar" else _integers(op.name, name, text)
    return WorkloadInput(TensorType(dtype, shape), constant)


def _attributes(op: Operator, words: Words, types: list[WorkloadInput]) -> dict[str, AttrValue]:
    """All attributes of the operator, axes counted from the front."""
    given: dict[str, AttrValue] = {}
    for key, value in words:
        if key not in op.defaults:
            known = (*(o.rstrip("*?") for o in op.operands), *op.defaults, "dtype")
            raise WorkloadError(f"{op.name} has no operand or attribute {key!r}; {suggest(key, known)}")
        if key in given:
            raise WorkloadError(f"{op.name}: {key} is given twice")
        given[key] = _value(op.name, key, value, op.defaults[key])
    rank = len(types[0].type.shape)
    for key, default in op.defaults.items():
        if key in given:
            continue
        if not isinstance(default, Needed):
            given[key] = default
        elif key == "axes":
            given[key] = tuple(range(rank))
        else:
            example = {"an integer": "1", "integers": "1,0", "two integers": "3,3", "a name": "f16"}[default.value]
            raise WorkloadError(f"{op.name} needs {key}; write for example {key}={example}")
    axis, axes = given.get("axis"), given.get("axes")
    if isinstance(axis, int) and -rank <= axis < 0:
        given["axis"] = axis + rank
    if isinstance(axes, tuple):
        given["axes"] = tuple(a + rank if isinstance(a, int) and -rank <= a < 0 else a for a in axes)
    return given


def _value(op: str, key: str, text: str, default: AttrValue | Needed) -> AttrValue:
    """The value of an attribute, of its default's kind."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "1", "0"):
            raise WorkloadError(f"{op}: {key}={text} must be true or false")
        return text.lower() in ("true", "1")
    if isinstance(default, float) or default == ():
        try:
            return float(text) if isinstance(default, float) else tuple(map(float, text.split(",")))
        except ValueError:
            raise WorkloadError(f"{op}: {key}={text} is not a number") from None
    if isinstance(default, str) or default is Needed.name:
        return text
    items = _integers(op, key, text)
    if isinstance(default, int) or default is Needed.integer:
        if len(items) != 1:
            raise WorkloadError(f"{op}: {key}={text} must be one integer")
        return items[0]
    if default is Needed.integers:
        return items
    count = len(default) if isinstance(default, tuple) else 2
    if count % len(items):
        raise WorkloadError(f"{op}: {key}={text} must be {count} integers, or fewer that repeat")
    return items * (count // len(items))


def _integers(op: str, key: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in text.replace("x", ",").split(","))
    except ValueError:
        raise WorkloadError(f"{op}: {key}={text} is not a list of integers; write for example 1,64,56,56") from None


def _dtype(op: str, text: str) -> str:
    try:
        return DType(text).value
    except ValueError:
        raise WorkloadError(f"{op}: unknown dtype {text!r}; {suggest(text, (d.value for d in DType))}") from None
