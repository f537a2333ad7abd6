"""One sweep over a graph in topological order: what nearly every rewriting pass is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace

import numpy as np

from autotune.graph.builder import make_attrs
from autotune.graph.infer import infer
from autotune.graph.ir import Array, Attrs, FreshNames, Graph, Node, Value, constant_value
from autotune.ops.workload import AttrValue


class Sweep:
    """Visits every node once, operands already renamed; the pass keeps it, or puts another value in its place.

    A pass that asks one question per node is a rule for `rewrite`; others drive the sweep themselves:

        sweep = Sweep(graph)
        for node in sweep:
            if pointless(node):
                sweep.replace(node, node.inputs[0])
            else:
                sweep.keep(node)
        return sweep.result()

    Nodes that nobody reads any more stay for the dead-code pass.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[str, Value] = dict(graph.values)  # old and new: a fresh name is free in both
        self._fresh = FreshNames(self.values)
        self.producers: dict[str, Node] = {}
        self._nodes: list[Node] = []
        self._constants = dict(graph.constants)
        self._aliases: dict[str, str] = {}
        self._position = {node.name: number for number, node in enumerate(graph.nodes)}
        self._uses = {name: len(nodes) for name, nodes in graph.consumers.items()}
        for output in graph.outputs:
            self._uses[output.value] += 2  # a value that leaves the graph has no sole reader

    def __iter__(self) -> Iterator[Node]:
        for node in self.graph.nodes:
            if not self._aliases.keys().isdisjoint(node.inputs):
                node = replace(node, inputs=tuple(self._aliases.get(name, name) for name in node.inputs))
            self.producers[node.name] = node
            yield node

    def keep(self, node: Node) -> None:
        self._nodes.append(node)
        self.producers[node.name] = node

    def emit(self, like: Node | Sequence[Node], op: str, inputs: Sequence[str], **attrs: AttrValue) -> str:
        """Append a new node, named after `like`, or the first of several in whose place it is; gives its result's name.

        It stands for the ONNX nodes of all of them, and of those that only the first reads, superfluous now.
        """
        first, *others = [like] if isinstance(like, Node) else like
        covered = (*self._covered(op, first, inputs), *others)
        return self._append(
            op, first, inputs, make_attrs(**attrs), tuple(name for one in covered for name in one.origins)
        )

    def again(self, node: Node, inputs: Sequence[str], **attrs: AttrValue) -> str:
        """Append this node on other operands, where it stands for the same ONNX nodes; gives its result's name."""
        return self._append(node.op, node, inputs, make_attrs(**attrs), node.origins)

    def _append(self, op: str, like: Node, inputs: Sequence[str], attrs: Attrs, origins: Sequence[str]) -> str:
        dtype, shape = infer(op, [self.values[name] for name in inputs], dict(attrs))
        value = Value(self._fresh(like.name), dtype, shape)
        self.values[value.name] = value
        self._uses[value.name] = 0
        for name in dict.fromkeys(inputs):
            self._uses[name] += 1
        self.keep(Node(op, tuple(inputs), value, attrs, tuple(dict.fromkeys(origins))))
        return value.name

    def _covered(self, op: str, like: Node, inputs: Sequence[str]) -> list[Node]:
        """The nodes between `inputs` and `like`: those of the same operator first, then in graph order."""
        covered, reads, todo = [like], Counter[str](), [like]
        while todo:
            for name in dict.fromkeys(todo.pop().inputs):
                reads[name] += 1
                producer = self.producers.get(name)
                if producer is not None and name not in inputs and reads[name] == self._uses[name]:
                    covered.append(producer)
                    todo.append(producer)
        return sorted(covered, key=lambda node: (node.op != op, self._position.get(node.name, 0)))

    def constant(self, array: Array, hint: str) -> str:
        """Add a constant; gives the name of its value."""
        name, array = self._fresh(hint), np.asarray(array)  # NumPy makes scalars of arrays without axes
        self.values[name] = constant_value(name, array)
        self._constants[name] = array
        self._uses[name] = 0
        return name

    def replace(self, node: Node, name: str) -> None:
        """Let every reader of `node` read `name` instead; the node itself is dropped."""
        self._aliases[node.name] = name
        self._uses[name] += self._uses[node.name]

    def current(self, name: str) -> str:
        """What has come into the place of a value; itself where nothing has."""
        return self._aliases.get(name, name)

    def array(self, name: str) -> Array | None:
        """The contents of a constant, None for values computed at run time."""
        return self._constants.get(name)

    def sole_use(self, name: str) -> bool:
        """Whether one node only reads `name`. Errs on the side of no; the next sweep counts afresh."""
        return self._uses[name] == 1

    def uses(self, name: str) -> int:
        """How many nodes read `name`, or more; a value that leaves the graph counts as two more."""
        return self._uses[name]

    def result(self) -> Graph:
        """The new graph; the old one itself when nothing was replaced."""
        if not self._aliases:
            return self.graph
        outputs = tuple(replace(o, value=self._aliases.get(o.value, o.value)) for o in self.graph.outputs)
        return replace(self.graph, nodes=tuple(self._nodes), outputs=outputs, constants=self._constants)


Rule = Callable[[Sweep, Node], "str | None"]


def rewrite(graph: Graph, rule: Rule, ops: Container[str] | None = None) -> Graph:
    """The graph with each node replaced by the value that `rule` makes for it; None keeps the node.

    Args:
        ops: operators of the nodes that the rule is asked about; every node by default.
    """
    sweep = Sweep(graph)
    for node in sweep:
        made = rule(sweep, node) if ops is None or node.op in ops else None
        if made is None:
            sweep.keep(node)
        else:
            sweep.replace(node, made)
    return sweep.result()
