"""Partition: a graph as groups, each one kernel; and the tasks, which are the distinct kernels.

A group is an anchor (convolution, matrix product, pool, reduction, ...) with the elementwise operators behind it,
or elementwise operators alone, or one operator that moves data. Only the last value of a group is read from
elsewhere, so groups never wait for each other in a circle. The results of one operator (siblings) are a group of
several outputs and nothing else: they read the same values, so nothing waits in a circle there either. `reshape` and
`concat` stay groups of their own: the compiler may give them no kernel at all (a view; producers that write in place).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.graph.infer import is_elementwise
from autotune.graph.ir import Graph, Node
from autotune.graph.order import topological_order
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, conv_rows
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.tensor import DType

PRODUCTS = frozenset({"matmul", "matmul_coded"})
HALVES = frozenset({"f16", "bf16"})
RESULT = "result"  # the attribute that says which of an operator's results a node is
MAX_EXPRESSION = 64  # operators in a group's result once each is written out where it is read (x*x writes x twice)


@dataclass(frozen=True, slots=True)
class Group:
    """One kernel: `workload` on graph values. `inputs` and `outputs` are value names in the workload's order.

    `origins`: names of the ONNX nodes that it is made of, that of its anchor first.
    """

    workload: Workload
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    origins: tuple[str, ...] = ()

    @property
    def is_view(self) -> bool:
        """Whether the compiler may give this group no kernel."""
        return has_trait(self.workload.nodes[0].op, Trait.VIEW)


@dataclass(frozen=True, slots=True)
class Task:
    """A distinct workload and how many groups of the model compute it."""

    workload: Workload
    uses: int


def partition(graph: Graph) -> tuple[Group, ...]:
    """The groups of a graph in an order in which they can run."""
    clusters = _Clusters(graph)
    for results in _siblings(graph):
        clusters.claim(node.name for node in results)
    anchors = [
        node
        for node in reversed(graph.nodes)
        if not has_trait(node.op, Trait.MOVES) and not is_elementwise(node.op) and node.name not in clusters.owner
    ]
    clusters.reserve_prologues(anchors)
    # Of several anchors that could take an addition the last one does: the other operand is there by then.
    for anchor in sorted(anchors, key=lambda node: not has_trait(node.op, Trait.LEADS_LAYOUT)):
        clusters.grow_epilogue(anchor)
    for node in reversed(graph.nodes):
        if node.name not in clusters.owner:
            clusters.grow_backwards(node)
    return tuple(_group(graph, members) for members in clusters.in_order())


def tasks(graph: Graph) -> tuple[Task, ...]:
    """The distinct workloads of the groups that need a kernel, in graph order."""
    counts: dict[Workload, int] = {}
    for group in partition(graph):
        if not group.is_view:
            counts[group.workload] = counts.get(group.workload, 0) + 1
    return tuple(Task(workload, uses) for workload, uses in counts.items())


class _Clusters:
    """Nodes that go together, while they are being collected. `owner` maps a node's value to its cluster."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.owner: dict[str, int] = {}
        self._position = {node.name: index for index, node in enumerate(graph.nodes)}
        self._count = 0
        self._prologues: dict[str, dict[str, Node]] = {}
        self._reserved: frozenset[str] = frozenset()

    def reserve_prologues(self, anchors: Iterable[Node]) -> None:
        """Leave to a product what only it reads: the conversions of its factors, where it converts all or multiplies
        channel by channel, and the choice of matrices among constant ones, which need not be copied then; of an image
        that it lays in rows before all else also the rounding."""
        for anchor in anchors:
            if not has_trait(anchor.op, Trait.LEADS_LAYOUT):
                continue
            factors = [self.graph.producers.get(name) for name in anchor.inputs]
            alone = [node for node in factors if node is not None and self._is_read_within(node, (anchor.name,))]
            converted = {node.name: node for node in alone if self._makes_single(node)}
            found = converted if len(converted) == len(anchor.inputs) or is_depthwise(self.graph, anchor) else {}
            found |= {node.name: node for node in alone if anchor.op in PRODUCTS and self._chooses_matrices(node)}
            found = self._rounded(anchor, found) | found
            if found:
                self._prologues[anchor.name] = found
        self._reserved = frozenset(name for found in self._prologues.values() for name in found)

    def _makes_single(self, node: Node) -> bool:
        """Whether it makes f32 of a half float."""
        narrow = node.op == "cast" and self.graph.values[node.inputs[0]].dtype in HALVES
        return narrow and node.output.dtype == "f32"

    def _rounded(self, anchor: Node, converted: Mapping[str, Node]) -> dict[str, Node]:
        """What rounds the data of a convolution of few channels, whose weights are stored in 16 bits, too."""
        if anchor.op not in CONVOLUTIONS or any(name not in converted for name in anchor.inputs[:2]):
            return {}
        if converted[anchor.inputs[1]].inputs[0] not in self.graph.constants:
            return {}
        data, weight = (self.graph.values[name].shape for name in anchor.inputs[:2])
        source = self.graph.producers.get(converted[anchor.inputs[0]].inputs[0])
        if source is None or source.op != "cast" or self.graph.values[source.inputs[0]].dtype != "f32":
            return {}
        alone = self._is_read_within(source, (anchor.inputs[0],))
        in_rows = conv_rows.in_rows(Conv.of(anchor.op, data, weight, dict(anchor.attrs)))
        return {source.name: source} if alone and in_rows else {}

    def _chooses_matrices(self, node: Node) -> bool:
        """Whether it gathers whole matrices from constants by a list of indices: a mixture's experts."""
        if node.op != "gather" or node.inputs[0] not in self.graph.constants:
            return False
        data, indices = (self.graph.values[name] for name in node.inputs)
        return len(indices.shape) == 1 and len(data.shape) - node.number("axis") > 2

    def grow_epilogue(self, anchor: Node) -> None:
        """Claim the anchor and the elementwise nodes behind it, as long as they keep its shape."""
        members, tail = {**self._prologues.get(anchor.name, {}), anchor.name: anchor}, anchor
        while region := self._region_behind(tail, anchor.output.shape):
            grown = members | {node.name: node for node in region}
            if self._expression_size(grown) > MAX_EXPRESSION:
                break
            members, tail = grown, region[-1]
        while self._is_widened_later(tail):
            del members[tail.name]
            tail = self.graph.producers[tail.inputs[0]]
        members = self._with_narrow_operands(members, anchor)
        if has_trait(anchor.op, Trait.FOLDS, Trait.REREADS):
            members = self._with_producers(members, anchor)
        self.claim(members)

    def grow_backwards(self, sink: Node) -> None:
        """Claim a node; an elementwise one with those producers, of its shape, that only the cluster reads."""
        members = {sink.name: sink}
        self.claim(self._with_producers(members, sink) if is_elementwise(sink.op) else members)

    def _with_producers(self, members: dict[str, Node], reader: Node) -> dict[str, Node]:
        """A cluster with the elementwise nodes that only it reads, as far as they have the shape that `reader` reads.

        An elementwise reader, or one of pairs, reads its own shape, and may read it elsewhere: through a transpose or a
        slice.
        """
        pointwise = is_elementwise(reader.op) or has_trait(reader.op, Trait.REREADS)
        shape = reader.output.shape if pointwise else self.graph.values[reader.inputs[0]].shape
        todo = [reader]
        while todo:
            for name in todo.pop().inputs:
                producer = self.graph.producers.get(name)
                if producer is None or name in members or not self._is_read_within(producer, members):
                    continue
                absorbed = pointwise and has_trait(producer.op, Trait.ABSORBED) and self._is_unclaimed(producer, shape)
                if not absorbed and not self._is_free(producer, shape):
                    continue
                grown = {**members, name: producer}
                if self._expression_size(grown) <= MAX_EXPRESSION:
                    members = grown
                    todo += [] if absorbed else [producer]
        return members

    def _is_widened_later(self, tail: Node) -> bool:
        """Whether a node makes wider elements of another node's, and its one reader may as well do that."""
        readers = self.graph.consumers[tail.name]
        if not self._widens(tail) or tail.name in self.graph.output_values or len(readers) != 1:
            return False
        (reader,) = readers
        folds = has_trait(reader.op, Trait.FOLDS, Trait.REREADS) and reader.inputs[0] == tail.name
        return folds or self._is_free(reader, tail.output.shape)

    def _with_narrow_operands(self, members: dict[str, Node], anchor: Node) -> dict[str, Node]:
        """A cluster with what makes the elements wider that its elementwise nodes read besides its own."""
        for node in [node for node in members.values() if node is not anchor]:
            for name in node.inputs:
                producer = self.graph.producers.get(name)
                if producer is None or name in members or not self._widens(producer):
                    continue
                free = self._is_free(producer, anchor.output.shape) and self._is_read_within(producer, members)
                grown = {name: producer, **members}
                if free and self._expression_size(grown) <= MAX_EXPRESSION:
                    members = grown
        return members

    def _widens(self, node: Node) -> bool:
        """Whether an elementwise node makes elements of more bytes of those of one value of its shape."""
        if not is_elementwise(node.op):
            return False
        operands = [self.graph.values[name] for name in node.inputs]
        own = sum(DType(value.dtype).bytes for value in operands if value.shape == node.output.shape)
        return 0 < own < DType(node.output.dtype).bytes and node.inputs[0] in self.graph.producers

    def in_order(self) -> list[list[Node]]:
        """The nodes of each cluster in graph order; clusters so that each follows those that it reads."""
        members: dict[int, list[Node]] = {}
        for node in reversed(self.graph.nodes):  # clusters ordered by their last node: nearly sorted already
            members.setdefault(self.owner[node.name], []).append(node)
        clusters = [list(reversed(nodes)) for nodes in reversed(members.values())]
        place = {self.owner[nodes[0].name]: index for index, nodes in enumerate(clusters)}
        dependencies = [
            {place[self.owner[name]] for node in nodes for name in node.inputs if name in self.owner} - {index}
            for index, nodes in enumerate(clusters)
        ]
        return [clusters[index] for index in topological_order(dependencies)]

    def claim(self, names: Iterable[str]) -> None:
        """Put nodes into a cluster of their own."""
        self.owner.update(dict.fromkeys(names, self._count))
        self._count += 1

    def _region_behind(self, tail: Node, shape: tuple[int, ...]) -> list[Node] | None:
        """Free elementwise nodes that take every read of `tail`; only the last one is read from outside.

        Usually one node; several when a value is read twice, as in x * sigmoid(x). None if there are no such nodes.
        """
        region: dict[str, Node] = {}
        while len(region) <= MAX_EXPRESSION and tail.name not in self.graph.output_values:
            for node in self.graph.consumers[tail.name]:
                if not self._is_free(node, shape):
                    return None
                region[node.name] = node
            leaving = [node for node in region.values() if not self._is_read_within(node, region)]
            leaving.sort(key=lambda node: self._position[node.name])
            if len(leaving) <= 1:
                return sorted(region.values(), key=lambda node: self._position[node.name])
            tail = leaving[0]  # it comes before another one, so it cannot be the last: take its readers in
        return None

    def _expression_size(self, members: Mapping[str, Node]) -> int:
        """Operators in the expression of the last member when every member is inlined into its readers."""
        sizes: dict[str, int] = {}
        for node in sorted(members.values(), key=lambda node: self._position[node.name]):
            sizes[node.name] = 1 + sum(sizes.get(name, 0) for name in node.inputs)
        return max(sizes.values())

    def _is_free(self, node: Node, shape: tuple[int, ...]) -> bool:
        return is_elementwise(node.op) and self._is_unclaimed(node, shape)

    def _is_unclaimed(self, node: Node, shape: tuple[int, ...]) -> bool:
        return node.output.shape == shape and node.name not in self.owner and node.name not in self._reserved

    def _is_read_within(self, node: Node, names: Iterable[str]) -> bool:
        """Whether only `names` read the value."""
        if node.name in self.graph.output_values:
            return False
        return all(reader.name in names for reader in self.graph.consumers[node.name])


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether it is a convolution of f32 with a filter for each channel."""
    if node.op not in CONVOLUTIONS:
        return False
    data, weight = (graph.values[name] for name in node.inputs[:2])
    return data.dtype == weight.dtype == "f32" and weight.shape[:2] == (node.attr("groups"), 1) == (data.shape[1], 1)


def operation(node: Node) -> object:
    """What the results of one operator have in common; None for an operator with one result."""
    others = tuple(item for item in node.attrs if item[0] != RESULT)
    return None if len(others) == len(node.attrs) else (node.op, node.inputs, others)


def _siblings(graph: Graph) -> list[list[Node]]:
    """The results of each operator of which the graph holds several."""
    found: dict[object, list[Node]] = {}
    for node in graph.nodes:
        found.setdefault(operation(node), []).append(node)
    return [nodes for operation, nodes in found.items() if operation is not None and len(nodes) > 1]


def _group(graph: Graph, members: list[Node]) -> Group:
    """The members as a Workload: inputs in order of first use, values renumbered, operands in canonical order."""
    results, own = members[-1:], _behind_anchor(members)
    if operation(members[0]) == operation(members[-1]) is not None:
        results = members = sorted(members, key=lambda node: (node.attr(RESULT), node.name))
    else:
        members = _in_place(members, own)
    inside = {node.name: index for index, node in enumerate(members)}
    ordered = [_canonical_operands(graph, node, inside, own) for node in members]
    names = list(dict.fromkeys(name for operands in ordered for name in operands if name not in inside))
    number = {name: index for index, name in enumerate(names)}
    number |= {name: len(names) + index for name, index in inside.items()}
    inputs = tuple(
        WorkloadInput(TensorType(value.dtype, value.shape), value.name in graph.constants)
        for value in map(graph.values.__getitem__, names)
    )
    nodes = tuple(
        WorkloadNode(node.op, tuple(number[name] for name in operands), node.attrs)
        for node, operands in zip(members, ordered, strict=True)
    )
    outputs = tuple(node.name for node in results)
    workload = Workload(inputs, nodes, tuple(number[name] for name in outputs))
    return Group(workload, tuple(names), outputs, _origins(workload, members))


def _behind_anchor(members: list[Node]) -> frozenset[str]:
    """The anchor and what depends on it; everything where there is no anchor."""
    leading = (node for node in members if not is_elementwise(node.op) and not has_trait(node.op, Trait.MOVES))
    anchor = next(leading, None)
    own = {node.name for node in members} if anchor is None else {anchor.name}
    for node in members:
        if not own.isdisjoint(node.inputs):
            own.add(node.name)
    return frozenset(own)


def _in_place(members: list[Node], own: frozenset[str]) -> list[Node]:
    """The members with operands of the epilogue right before who reads them first, wherever the graph has them."""
    anchor = next((node for node in members if node.name in own), members[0])
    needed = set(anchor.inputs)
    for node in reversed(members):
        needed |= set(node.inputs) if node.name in needed else set()
    aside = {node.name: node for node in members if node.name not in own | needed}
    placed: dict[str, Node] = {}

    def place(node: Node) -> None:
        for name in node.inputs:
            if name in aside and name not in placed:
                place(aside[name])
        placed.setdefault(node.name, node)

    for node in members:
        if node.name not in aside:
            place(node)
    return list(placed.values())


def _origins(workload: Workload, members: list[Node]) -> tuple[str, ...]:
    """Each ONNX node once: the anchor's, then the others in graph order."""
    anchor = workload.anchor
    first = [member for node, member in zip(workload.nodes, members, strict=True) if node is anchor]
    return tuple(dict.fromkeys(name for member in (*first, *members) for name in member.origins))


def _canonical_operands(graph: Graph, node: Node, inside: dict[str, int], own: frozenset[str]) -> tuple[str, ...]:
    """Operands of commutative operators in one order: fewer distinct keys.

    What depends on the anchor comes first, then other values of the group, then those of others, then constants.
    """
    if not has_trait(node.op, Trait.COMMUTATIVE):
        return node.inputs

    def rank(name: str) -> int:
        return 0 if name in own else 1 if name in inside else 3 if name in graph.constants else 2

    return tuple(sorted(node.inputs, key=rank))
