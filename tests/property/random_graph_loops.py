"""Loops and sequences: bodies of a few operators, carried, scanned and collected values, branches and loops inside."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.property.random_graph import Array, Model, info, model_of, step
from tests.property.random_graph_forms import EVALUATED, Unfit

OLDEST = 16  # before that bodies would have to be rewritten for the opset
FEW = 1 << 10  # elements of what a loop carries


class Body:
    """A body under construction.

    Attributes:
        floats: names of floats of the carried shape.
        outer: values from around that it reads.
    """

    def __init__(self, m: Model, prefix: str) -> None:
        self.m, self.prefix = m, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[str] = []
        self.floats: list[str] = []
        self.outer: set[str] = set()

    def input(self, name: str) -> str:
        self.inputs.append(f"{self.prefix}{name}")
        return self.inputs[-1]

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))  # type: ignore[arg-type]
        self.outer.update(given for given in inputs if given in self.m.values)
        return name

    def grow(self, x: str) -> str:
        """A few operators behind a float; what they give is of its shape, and no larger than 1."""
        rng, m = self.m.rng, self.m
        for _ in range(rng.randint(0, 3)):
            kind = rng.choice(("Relu", "Neg", "Add", "Mul", "scale", "If"))
            if kind in ("Add", "Mul"):
                x = self.add(kind, x, rng.choice(self.floats))
            elif kind == "scale":
                x = self.add("Mul", x, m.number(rng.choice((0.5, -1.5))))
            elif kind == "If":
                total = self.add("ReduceSum", x, keepdims=0)
                low = self.add("Less", total, m.number(0.3))
                x = self.branch(low, x)
            else:
                x = self.add(kind, x)
        return self.add(self.m.rng.choice(("Tanh", "Sigmoid")), x)

    def branch(self, condition: str, x: str) -> str:
        """One of two operators."""
        graphs = []
        for n, op in enumerate(self.m.rng.sample(("Relu", "Neg", "Abs", "Exp"), 2)):
            bounded = f"{self.prefix}b{len(self.nodes)}_{n}"
            nodes = [helper.make_node("Tanh", [x], [f"{bounded}t"]), helper.make_node(op, [f"{bounded}t"], [bounded])]
            out = helper.make_tensor_value_info(bounded, self.m.float_code, None)
            graphs.append(helper.make_graph(nodes, "branch", [], [out]))
        return self.add("If", condition, then_branch=graphs[0], else_branch=graphs[1])

    def graph(self, outputs: list[str], types: dict[str, int]) -> onnx.GraphProto:
        """A value that is given twice gets two names."""
        seen: set[str] = set()
        for n, name in enumerate(outputs):
            if name in seen or name in self.inputs or name in self.outer:
                outputs[n] = self.add("Identity", name)
                types[outputs[n]] = types.get(name, self.m.float_code)
            seen.add(outputs[n])
        declared = [
            helper.make_tensor_value_info(name, types.get(name, self.m.float_code), None)
            for name in (*self.inputs, *outputs)
        ]
        return helper.make_graph(self.nodes, "body", declared[: len(self.inputs)], declared[len(self.inputs) :])

    def evaluate(self, graph: onnx.GraphProto, values: list[Array]) -> list[Array]:
        """One step by the reference."""
        m = self.m
        alone = onnx.GraphProto()
        alone.CopyFrom(graph)
        alone.input.extend(info(name, m.values[name]) for name in sorted(self.outer))
        feeds = {name: m.values[name] for name in self.outer}
        feeds.update(zip(self.inputs, values))
        with np.errstate(all="ignore"):
            try:
                found = ReferenceEvaluator(model_of(alone, max(m.opset, EVALUATED))).run(None, feeds)
            except Exception as error:  # whatever the reference cannot do is no case
                raise Unfit(f"a body: {error}") from error
        return [np.asarray(value) for value in found]


def _count(m: Model, steps: int) -> str:
    """A number of steps, known or not."""
    wanted = np.asarray(steps, np.int64)
    if m.rng.random() < 0.4:
        return m.constant(wanted)
    m.loose = True
    return m.input(wanted)


def _append(m: Model, node: onnx.NodeProto, values: list[Array]) -> None:
    m.nodes.append(node)
    m.loose = True
    m.values.update(zip(node.output, values))


def _start(m: Model) -> str:
    if m.opset < OLDEST or m.dtype == np.float16:
        raise Unfit("no bodies")
    x = m.need()
    if not 0 < m.values[x].size <= FEW:
        raise Unfit("nothing to carry, or much")
    return x


@step(0.6)
def loop(m: Model) -> None:
    """Carries one or two values of a fixed shape, collects some, and may end early."""
    x = _start(m)
    body = Body(m, f"l{len(m.nodes)}_")
    number, going = body.input("i"), body.input("go")
    states = [body.input(f"s{n}") for n in range(m.rng.choice((1, 1, 2)))]
    body.floats = [*states, x, m.constant(m.array(m.shape(x)))]
    after = [body.grow(m.rng.choice(body.floats)) for _ in states]
    if len(states) == 2 and m.rng.random() < 0.3:
        after[1] = states[0]
    seen = [m.rng.choice((*after, *body.floats)) for _ in range(m.rng.choice((0, 1, 2)))]
    steps = m.rng.choice((1, 2, 3, 7, 70))
    on = body.add("Identity", going)
    if m.rng.random() < 0.4:
        total = body.add("ReduceSum", after[0], keepdims=0)
        on = body.add("Less", total, m.number(float(m.rng.choice((-1, 0, 1, 1e9)))))
    types: dict[str, int] = {number: TensorProto.INT64, going: TensorProto.BOOL, on: TensorProto.BOOL}
    graph = body.graph([on, *after, *seen], types)
    carried: list[Array] = [m.values[x] for _ in states]
    parts: list[list[Array]] = [[] for _ in seen]
    for taken in range(steps):
        goes, *found = body.evaluate(graph, [np.asarray(taken, np.int64), np.asarray(True), *carried])
        carried = found[: len(states)]
        for stack, part in zip(parts, found[len(states) :]):
            stack.append(part)
        if not goes:
            break
    names = [f"v{len(m.nodes)}_{n}" for n in range(len(states) + len(seen))]
    inputs = [_count(m, steps), m.constant(np.asarray(True)), *(x for _ in states)]
    node = helper.make_node("Loop", inputs, names, body=graph)
    _append(m, node, [*carried, *(np.stack(stack) for stack in parts)])


@step(0.4)
def scan(m: Model) -> None:
    """Goes through a tensor, forwards or backwards, along any axis."""
    x = _start(m)
    if not m.values[x].ndim:
        raise Unfit("nothing to go through")
    body = Body(m, f"l{len(m.nodes)}_")
    axis, back, turned = m.rng.randrange(m.values[x].ndim), m.rng.randint(0, 1), m.rng.randint(0, 1)
    items: Array = np.moveaxis(m.values[x], axis, 0)
    state, item = body.input("s"), body.input("x")
    start = m.constant(m.array(items.shape[1:]))
    body.floats = [state, item, start]
    after = body.grow(body.add("Add", state, item))
    seen = m.rng.choice((after, item, body.grow(item)))
    graph = body.graph([after, seen], {})
    carried, parts = m.values[start], list[Array]()
    for one in items[::-1] if back else items:
        carried, part = body.evaluate(graph, [carried, np.asarray(one)])
        parts.append(part)
    out_axis = m.rng.randrange(parts[0].ndim + 1)
    names = [f"v{len(m.nodes)}_{n}" for n in range(2)]
    node = helper.make_node(
        "Scan", [start, x], names, body=graph, num_scan_inputs=1, scan_input_axes=[axis], scan_input_directions=[back],
        scan_output_axes=[out_axis], scan_output_directions=[turned],
    )  # fmt: skip
    _append(m, node, [carried, np.stack(parts[::-1] if turned else parts, out_axis)])


@step(0.5)
def growing_loop(m: Model) -> None:
    """Appends to what it carries, and reads the last, the first or all of it."""
    x = _start(m)
    if not m.values[x].ndim:
        raise Unfit("nothing to append to")
    axis = m.rng.randrange(m.values[x].ndim)
    body = Body(m, f"l{len(m.nodes)}_")
    number, going, state = body.input("i"), body.input("go"), body.input("s")
    kind = m.rng.choice(("last", "last", "first", "mean"))
    if kind == "mean":
        part = body.add("ReduceMean", state, m.ints(axis), keepdims=1) if m.opset >= EVALUATED else state
        if part == state:
            raise Unfit("axes are no input")
    else:
        part = body.add("Gather", state, m.ints(-1 if kind == "last" else 0), axis=axis)
    body.floats = [part]
    grown = body.add("Concat", state, body.grow(part), axis=axis)
    types: dict[str, int] = {number: TensorProto.INT64, going: TensorProto.BOOL}
    graph = body.graph([going, grown], types)
    types[graph.output[0].name] = TensorProto.BOOL
    graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    carried, steps = m.values[x], m.rng.choice((1, 2, 4))
    for taken in range(steps):
        _, carried = body.evaluate(graph, [np.asarray(taken, np.int64), np.asarray(True), carried])
    inputs = [_count(m, steps), m.constant(np.asarray(True)), x]
    _append(m, helper.make_node("Loop", inputs, [f"v{len(m.nodes)}_0"], body=graph), [carried])


@step(0.4)
def sequences(m: Model) -> None:
    """Splits, inserts, erases and joins, at places that are known or not."""
    x = _start(m)
    rank = m.values[x].ndim
    if not rank:
        raise Unfit("nothing to split")
    axis = m.rng.randrange(rank)
    prefix = f"v{len(m.nodes)}"

    def place(low: int, high: int) -> tuple[str, int]:
        at = m.rng.randint(low, high)
        wanted = np.asarray(at, np.int64)
        return (m.constant(wanted) if m.rng.random() < 0.5 else m.input(wanted)), at

    items: list[Array] = [np.take(m.values[x], [n], axis) for n in range(m.shape(x)[axis])]
    nodes = [helper.make_node("SplitToSequence", [x], [f"{prefix}_s"], axis=axis)]
    name = f"{prefix}_s"
    for n in range(m.rng.randint(0, 3)):
        after = f"{prefix}_s{n}"
        if m.rng.random() < 0.5:
            new = m.constant(np.asarray(m.array(items[0].shape)))
            where, at = place(-len(items), len(items))
            nodes.append(helper.make_node("SequenceInsert", [name, new, where], [after]))
            items.insert(at if at >= 0 else len(items) + at, m.values[new])
        elif len(items) > 1:
            where, at = place(-len(items), len(items) - 1)
            nodes.append(helper.make_node("SequenceErase", [name, where], [after]))
            del items[at]
        else:
            continue
        name = after
    where, at = place(-len(items), len(items) - 1)
    nodes += [
        helper.make_node("ConcatFromSequence", [name], [f"{prefix}_y"], axis=axis),
        helper.make_node("SequenceAt", [name, where], [f"{prefix}_z"]),
        helper.make_node("SequenceLength", [name], [f"{prefix}_n"]),
    ]
    m.loose = True
    m.nodes += nodes
    m.values[f"{prefix}_y"], m.values[f"{prefix}_z"] = np.concatenate(items, axis), items[at]
    m.values[f"{prefix}_n"] = np.asarray(len(items), np.int64)
