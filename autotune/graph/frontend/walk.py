"""One walk over ONNX nodes in topological order: converts what can be converted and puts off what has to wait."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from autotune.errors import ModelError, UnsupportedError, WorkloadError
from autotune.graph.builder import GraphBuilder
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.body import captured, is_loop
from autotune.graph.frontend.checks import check_attributes, check_types, convert_node
from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.expand import is_function, schema_body
from autotune.graph.frontend.lists import Static, list_converter
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.moved import MOVES
from autotune.graph.frontend.node import EAGER_ELEMENTS, OnnxNode, RunTimeValueError, converter_for
from autotune.graph.frontend.part import Body, Part, Stage, behind, remaining
from autotune.graph.frontend.unroll import FEW_STEP_NODES, ScanForm, body_of, check_loop, goes_on, scan_length
from autotune.graph.host import host_function, is_eager, makes_strings, makes_values, run_host, value_function
from autotune.graph.host.node import LEARNED
from autotune.graph.ir import Array, Graph, Output, Value

NO_MOVES = {"Cast", "Equal", "Shape", "Size"}  # what strings become by them is numbers
MAKES_VALUES = {"Optional", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence",
                "StringConcat", "StringNormalizer", "StringSplit"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refused:
    """A node that is not supported, and why."""

    operator: str
    name: str
    writes: tuple[str, ...]
    reason: str


def refusal(nodes: Sequence[Refused]) -> UnsupportedError:
    """The error that names nodes that are not supported."""
    listed = [
        {"operator": one.operator, "nodes": 1, "first": one.name or next(iter(one.writes), ""), "reason": one.reason}
        for one in nodes
    ]
    reasons = "; ".join(one.reason for one in nodes)
    return UnsupportedError(f"{len(nodes)} unsupported node(s): {reasons}", values={"unsupported": listed})


class Walk:
    """Converts nodes one by one.

    Args:
        inputs: names of the values that come from outside.
        types: their types, those of unknown shape left out.
        constants: those whose values are known for good.
        observable: values of this run, for converters that must know one.
        held: inputs that are in hand and that no program takes: strings, sequences, optionals.
        growing: inputs that are in hand and whose shape is another one every time: what only moves their elements runs
            on the host, so that the rest has to be compiled once.
        eager: all that takes little time runs there, with what is made of it.
        barred: nodes that wait, whatever is known.
        step_nodes: how many nodes the steps of a loop may become when they are written out.

    Attributes:
        waiting: why each node was put off that does not merely follow another such node.
        refused: the nodes that are not supported.
        poisoned: results of refused and impossible nodes: what reads them is not looked at.
    """

    def __init__(
        self,
        model: OnnxModel,
        inputs: Iterable[str],
        types: Mapping[str, Value],
        constants: Mapping[str, Array],
        observable: Mapping[str, Array],
        held: Iterable[str] = (),
        growing: Iterable[str] = (),
        step_nodes: int = FEW_STEP_NODES,
        eager: bool = False,
        barred: Collection[int] = (),
    ) -> None:
        self.model = model
        self._eager, self._barred = eager, barred
        self._step_nodes = step_nodes
        self.waiting: dict[int, str] = {}
        self._builder = GraphBuilder(model.name, model.metadata)
        self._names: dict[str, str] = {}  # ONNX name → graph name
        for name, value in types.items():
            known = name in constants
            self._names[name] = self._builder.constant(constants[name], name) if known else self._builder.input(value)
        self._given = set(self._builder.values)
        self._observable = observable
        self._observed: dict[str, Array] = {}
        self._pure: set[str] = set()  # names that depend on initializers alone
        self._order: list[int] = []
        self._put_off: set[int] = set()
        self._unknown = {name for name in inputs if name not in types}  # and the results of what was put off
        self._hosts: list[int] = []  # those that can run as soon as the graph has run
        self._opaque: set[str] = set(held)  # of all names, those that no program takes
        self._values: set[str] = {*held, *growing}  # and those that stay on the host
        self._from_hosts: set[str] = set(self._values)  # and results of host functions
        self._lists: dict[str, tuple[str, ...] | None] = {}  # sequences of graph values; None: an empty optional
        self.refused: list[Refused] = []
        self.poisoned: set[str] = set()

    def convert(self, nodes: Sequence[int]) -> None:
        """
        Raises:
            ModelError: a node is impossible.
            UnsupportedError: nodes that cannot be converted, all of them.
        """
        self._visit_all(nodes, guessed=False)
        if self.refused:
            raise refusal(self.refused)
        for name in self.model.outputs:
            if name in self.model.initializers and name not in self._names:
                self._define_initializer(name)

    def try_all(self, nodes: Sequence[int]) -> None:
        """As `convert`, for types that are guesses: passes over nodes that are refused or impossible."""
        self._visit_all(nodes, guessed=True)

    @property
    def converted(self) -> KeysView[str]:
        """Names of the values of which there is something in the graph."""
        return self._names.keys()

    def _visit_all(self, nodes: Sequence[int], guessed: bool) -> None:
        todo = deque(nodes)
        while todo:
            index = todo.popleft()
            self._order.append(index)
            entry = self.model.nodes[index]
            if not self.poisoned.isdisjoint(entry.reads):
                self.poisoned.update(entry.writes)
                continue
            try:
                todo.extendleft(reversed(self._visit(index, entry)))
            except ModelError as error:
                if isinstance(error, UnsupportedError):
                    self.refused.append(Refused(entry.proto.op_type, entry.proto.name, entry.writes, str(error)))
                elif not guessed:
                    raise
                self.poisoned.update(entry.writes)

    def _visit(self, index: int, entry: Entry) -> Sequence[int]:
        """Convert a node; gives the nodes to look at in its place."""
        self._take_strings(entry)
        # A branch is looked at node by node once it is known which one it is.
        needed = entry.proto.input if entry.proto.op_type == "If" else entry.reads
        if not self._unknown.isdisjoint(needed):
            strings = not self._values.isdisjoint(entry.reads)
            node = self.model.attributes(index)
            self._put_off_node(index, entry, f"{node.label} takes what no program takes" if strings else "")
            return ()
        if index in self._barred:
            self._put_off_node(index, entry, f"{self.model.attributes(index).label} waits for the extents of the run")
            return ()
        for name in entry.reads:
            if name in self.model.initializers and name not in self._names:
                self._define_initializer(name)
        operands = tuple(self._operand(name) for name in entry.proto.input)
        runs_on_host = host_function(entry.proto) is not None or is_loop(entry.proto)
        inputs = tuple(operand if isinstance(operand, str) else None for operand in operands)
        node = OnnxNode(entry.proto, entry.opset, self.model.folder, inputs, self._builder,
                        (lambda name: None) if runs_on_host else self._observe)  # fmt: skip
        check_types(node)
        try:
            expanded = self._expanded(index, node, operands)
            if expanded is not None:
                return expanded
            results = self._converted(node, entry, operands)
        except RunTimeValueError as error:
            self._put_off_node(index, entry, str(error))
            return ()
        if self._pure.issuperset(entry.reads):
            self._pure.update(entry.writes)
        for name, value in zip(entry.proto.output, results):
            if isinstance(value, str):
                if name:
                    self._define(name, value)
            elif name:
                self._lists[name] = value
        return ()

    def _operand(self, name: str) -> Static:
        if not name:
            return None
        return self._lists[name] if name in self._lists else self._names[name]

    def _take_strings(self, entry: Entry) -> None:
        """Strings that the model holds are values on the host, too."""
        if entry.proto.op_type == "Constant" and entry.writes and entry.writes[0] not in self.model.initializers:
            found = _string_constant(NodeAttributes(entry.proto, entry.opset, self.model.folder))
            if found is not None:
                self.model.initializers[entry.writes[0]] = found
        for name in (*entry.reads, *entry.writes):
            if name in self.model.initializers and self.model.initializers[name].dtype == object:
                self._unknown.add(name)
                self._from_hosts.add(name)
                self._values.add(name)
                self._opaque.add(name)

    def _expanded(self, index: int, node: OnnxNode, operands: Sequence[Static]) -> Sequence[int] | None:
        """The nodes that a node stands for; None when it is converted as it is."""
        control = is_control(node.proto)
        if not control and is_known(node.proto):
            return None
        check_attributes(node)
        values = tuple(None if name is None else self._builder.values[name] for name in node.inputs)
        if control and node.op != "If":
            return self._steps(index, node, operands, values)
        if control:
            condition = node.constant(0, "the condition")
            if condition.size != 1 or condition.dtype != bool:
                raise ModelError(f"{node.label}: the condition is {condition.dtype}{condition.shape}, not one bool")
            return self.model.branch(index, bool(condition.reshape(())))
        if not is_function(node.op, node.opset):
            return None
        types = tuple(None if value is None else (value.dtype, value.shape) for value in values)
        return self.model.expand(index, types, functools.partial(schema_body, node.proto, node.opset, values))

    def _steps(
        self, index: int, node: OnnxNode, operands: Sequence[Static], values: Sequence[Value | None]
    ) -> Sequence[int]:
        """The steps of a loop that takes a few, which are known. Raises RunTimeValueError for any other."""
        size = len(body_of(node).node) + len(node.proto.input)
        if node.op == "SequenceMap":
            lists = {n: len(items) for n, items in enumerate(operands) if isinstance(items, tuple)}
            if lists.get(0, 0) * size <= self._step_nodes:
                return self.model.map(index, lists)
        elif node.op == "Scan":
            if any(isinstance(items, tuple) for items in operands):
                raise ModelError(f"{node.label}: an input is a sequence, not a tensor")
            steps = scan_length(node, values)
            rows = values[-1].shape[0] if node.opset < 9 and values[-1] is not None else 1
            if 0 < steps * rows * size <= self._step_nodes:
                return self.model.scan(index, values)
            if node.opset < 9:
                raise UnsupportedError(f"{node.label}: {steps} steps in the form of opset 8; export with opset 9")
            ScanForm.of(node)
            raise RunTimeValueError(f"{node.label}: {steps} steps of {len(body_of(node).node)} nodes")
        else:
            check_loop(node, body_of(node))
            steps = self._trips(node)
            if 0 < steps * size <= self._step_nodes and goes_on(body_of(node)):
                return self.model.loop(index, steps)
        raise RunTimeValueError(f"{node.label} runs step by step")

    def _trips(self, node: OnnxNode) -> int:
        """How many steps a Loop takes that nothing ends before; 0 where that is not known, or nothing is done."""
        found = [self._builder.constants.get(node.inputs[n] or "") if node.given(n) else None for n in (0, 1)]
        trips, condition = found
        if trips is None or trips.size != 1 or (node.given(1) and (condition is None or not condition.all())):
            return 0
        return max(int(trips.reshape(())), 0)

    def _converted(self, node: OnnxNode, entry: Entry, operands: Sequence[Static]) -> Sequence[Static]:
        """The values of a node's outputs."""
        has_lists = any(name in self._lists for name in entry.proto.input)
        converter = list_converter(node.proto.domain, node.op)
        if converter is not None and (has_lists or converter_for(node.proto.domain, node.op) is None):
            check_attributes(node)
            try:
                return [converter(node, operands)]
            except WorkloadError as error:
                raise ModelError(f"{node.label}: {error}") from error
        if has_lists:
            raise ModelError(
                f"{node.label}: an input is a sequence or an empty optional, which {node.op} does not take"
            )
        return self._convert(node)

    def _convert(self, node: OnnxNode) -> Sequence[str]:
        if makes_strings(node.proto):
            raise RunTimeValueError(f"{node.label} makes strings")
        if node.proto.domain == LEARNED and host_function(node.proto) is not None:
            raise RunTimeValueError(f"{node.label} maps strings")
        if converter_for(node.proto.domain, node.op) is not None or host_function(node.proto) is None:
            try:
                return convert_node(node)
            except RunTimeValueError:
                if host_function(node.proto) is None:
                    raise
        if not all(name is None or name in self._builder.constants for name in node.inputs):
            raise RunTimeValueError(f"{node.label} runs on the host")
        arrays = [None if name is None else self._builder.constants[name] for name in node.inputs]
        return [node.new_constant(array) for array in run_host(node, arrays) if isinstance(array, np.ndarray)]

    def _put_off_node(self, index: int, entry: Entry, reason: str = "") -> None:
        self._put_off.add(index)
        if reason:
            self.waiting[index] = reason
        if self._runs_on_host(entry):
            check_attributes(self.model.attributes(index))
            self._hosts.append(index)
            self._from_hosts.update(entry.writes)
            op, moves = entry.proto.op_type, not self._opaque.isdisjoint(entry.proto.input)
            if op in MAKES_VALUES or makes_strings(entry.proto) or makes_values(entry.proto):
                self._opaque.update(entry.writes[:1])
            elif moves and op not in NO_MOVES and (value_function(entry.proto) is not None or op in MOVES):
                self._opaque.update(entry.writes)
            self._values.update(self._opaque.intersection(entry.writes))
            if self._eager:
                self._values.update(entry.writes)
        self._unknown.update(entry.writes)

    def _runs_on_host(self, entry: Entry) -> bool:
        """Whether a node that is put off can run as soon as the graph and the nodes before it have run."""
        if not self._unknown.intersection(entry.reads) <= self._from_hosts:
            return False
        if host_function(entry.proto) is not None or is_loop(entry.proto):
            return True
        moves = value_function(entry.proto) is not None or entry.proto.op_type in MOVES
        if self._eager:
            moves = moves or is_eager(entry.proto)
        return moves and not self._values.isdisjoint(entry.proto.input)

    def _define_initializer(self, name: str) -> None:
        if self.model.initializers[name].dtype == object:
            return
        self._names[name] = self._builder.constant(self.model.initializers[name], name)
        self._pure.add(name)

    def _define(self, name: str, value: str) -> None:
        self._names[name] = value
        declared, dtype = self.model.outputs.get(name), self._builder.values[value].dtype
        if declared is not None and declared.dtype not in (None, dtype) and not declared.wraps:
            raise ModelError(f"output '{name}' is declared {declared.dtype} but computed as {dtype}")

    def _observe(self, value: str) -> Array | None:
        """The value that a graph input has in this run. It is kept: the user may change the array afterwards."""
        if value not in self._observed and value in self._given and value in self._observable:
            self._observed[value] = self._observable[value].copy()
        return self._observed.get(value)

    # Results -----------------------------------------------------------------------------------------

    def graph(self, names: Sequence[str]) -> Graph:
        """All that was converted, as a graph with these outputs."""
        return self._builder.build([Output(name, self._names[name]) for name in names])

    def stage(self) -> Stage:
        """What was converted and what waits."""
        waiting = self._put_off.difference(self._hosts)
        constants = [n for n, value in self._names.items() if value in self._builder.constants]
        small = [n for n in constants if self._builder.constants[self._names[n]].size <= EAGER_ELEMENTS]
        rest = remaining(self.model, self._order, waiting, self._pure, small)
        hosts = self._needed_hosts(rest)
        wanted = [*self.model.outputs, *(rest.inputs if rest else ())]
        wanted += [name for index in hosts for name in self._reads(index)]
        lists = {name: self._named_items(name) for name in wanted if name in self._lists}
        wanted += [item for items in lists.values() for item in items or ()]
        known = [name for name in dict.fromkeys(wanted) if name in self._names and name not in self._given]
        values = {name: self._names[name] for name in known}
        aliases = {name: value for name, value in values.items() if value in self._given}
        found = {n: self._builder.constants[v] for n, v in values.items() if v in self._builder.constants}
        found = {n: array for n, array in found.items() if n not in aliases}
        computed = [name for name in known if name not in aliases and name not in found]
        bodies = {index: self._body(index) for index in hosts if is_loop(self.model.nodes[index].proto)}
        graph = self.graph(computed) if computed else None
        return Stage(graph, found, aliases, lists, hosts, bodies, rest, tuple(self._observed))

    @property
    def is_whole(self) -> bool:
        """Whether everything was converted, to tensors of numbers."""
        return not self._put_off and all(name in self._names for name in self.model.outputs)

    def _named_items(self, name: str) -> tuple[str, ...] | None:
        """Names for the tensors of a sequence."""
        items = self._lists[name]
        if items is None:
            return None
        named = {f"{name}[{n}]": item for n, item in enumerate(items)}
        self._names.update(named)
        return tuple(named)

    def _reads(self, index: int) -> tuple[str, ...]:
        """What a host node needs of a run."""
        entry = self.model.nodes[index]
        if not is_loop(entry.proto):
            return entry.reads
        return tuple(dict.fromkeys((*filter(None, entry.proto.input), *self._body(index).reads)))

    def _body(self, index: int) -> Body:
        """The body of a loop that runs step by step."""
        entry = self.model.nodes[index]
        reads = tuple(name for name in captured(entry) if name not in self.model.initializers)
        inside = behind(self.model, self._order, reads, self._pure)
        own = {name for node in body_of(self.model.attributes(index)).node for name in node.output}
        if any(name in own for n in inside for name in self.model.nodes[n].writes):  # a name of the body hides it
            inside = set()
        made = {name for n in inside for name in self.model.nodes[n].writes}
        reads = tuple(name for name in reads if name not in made)
        small = (name for name in reads if self._names.get(name) in self._builder.constants)
        known = frozenset(n for n in small if self._builder.constants[self._names[n]].size <= EAGER_ELEMENTS)
        return Body(index, reads, known, tuple(sorted(inside)))

    def _needed_hosts(self, rest: Part | None) -> tuple[int, ...]:
        """The host functions that lead to an output or to the rest."""
        wanted = {*self.model.outputs, *(rest.inputs if rest else ())}
        found = []
        for index in reversed(self._hosts):
            entry = self.model.nodes[index]
            if not wanted.isdisjoint(entry.writes):
                wanted.update(entry.reads)
                found.append(index)
        return tuple(found[::-1])


def _string_constant(node: NodeAttributes) -> Array | None:
    """The strings of a Constant; None where it is one of numbers."""
    found: Array | None = None
    if node.has("value_string"):
        found = np.asarray(node.attr_string("value_string", ""), object)
    elif node.has("value_strings"):
        found = np.asarray(node.attr_strings("value_strings"), object)
    elif any(a.name == "value" and a.t.data_type == onnx.TensorProto.STRING for a in node.proto.attribute):
        found = node.attr_tensor("value")
    return found


def is_known(proto: onnx.NodeProto) -> bool:
    """Whether a node is converted, run on the host, or control flow."""
    converted = converter_for(proto.domain, proto.op_type) or list_converter(proto.domain, proto.op_type)
    return converted is not None or host_function(proto) is not None or is_control(proto)


def is_control(proto: onnx.NodeProto) -> bool:
    """Whether a node is an If, which becomes its branch, or a loop, which becomes its steps where they are few."""
    return proto.op_type in ("If", "Loop", "Scan", "SequenceMap") and proto.domain in ("", "ai.onnx")
