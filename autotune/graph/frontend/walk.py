"""One walk over ONNX nodes in topological order: converts what can be converted and puts off what has to wait."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import onnx

from autotune.errors import ModelError, UnsupportedError, WorkloadError
from autotune.graph.builder import GraphBuilder
from autotune.graph.frontend.expand import is_function, schema_body
from autotune.graph.frontend.model import Entry, OnnxModel
from autotune.graph.frontend.node import EAGER_ELEMENTS, OnnxNode, RunTimeValueError, converter_for, most_inputs
from autotune.graph.frontend.part import Part, Stage, remaining
from autotune.graph.frontend.source import shortened, type_name
from autotune.graph.host import host_function, run_host
from autotune.graph.ir import Array, Graph, Output, Value

MODERN_OPSET = 7  # from here on broadcasting is NumPy's, and BatchNormalization, Dropout have no test mode
BEYOND_THE_SCHEMA = {("CumSum", 0, "tensor(bool)")}  # inputs that exporters write: torch counts what holds, in i64
WITHOUT_EFFECT = {"consumed_inputs", "is_test", "momentum", "ratio"}  # at inference


class Walk:
    """Converts nodes one by one.

    Args:
        inputs: names of the values that come from outside.
        types: their types, those of unknown shape left out.
        constants: those whose values are known for good.
        observable: values of this run, for converters that must know one.

    Attributes:
        waiting: why each node was put off that does not merely follow another such node.
    """

    def __init__(
        self,
        model: OnnxModel,
        inputs: Iterable[str],
        types: Mapping[str, Value],
        constants: Mapping[str, Array],
        observable: Mapping[str, Array],
    ) -> None:
        self.model = model
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
        self._from_hosts: set[str] = set()  # and their results
        self._refused: list[str] = []
        self._poisoned: set[str] = set()  # results of refused nodes: what reads them is not looked at

    def convert(self, nodes: Sequence[int]) -> None:
        """
        Raises:
            ModelError: a node is impossible.
            UnsupportedError: nodes that cannot be converted, all of them.
        """
        todo = deque(nodes)
        while todo:
            index = todo.popleft()
            self._order.append(index)
            entry = self.model.nodes[index]
            if not self._poisoned.isdisjoint(entry.reads):
                self._poisoned.update(entry.writes)
                continue
            try:
                todo.extendleft(reversed(self._visit(index, entry)))
            except UnsupportedError as error:
                self._refused.append(str(error))
                self._poisoned.update(entry.writes)
        if self._refused:
            raise UnsupportedError(f"{len(self._refused)} unsupported node(s): " + "; ".join(self._refused))
        for name in self.model.outputs:
            if name in self.model.initializers and name not in self._names:
                self._define_initializer(name)

    def _visit(self, index: int, entry: Entry) -> Sequence[int]:
        """Convert a node; gives the nodes to look at in its place."""
        if not self._unknown.isdisjoint(entry.reads):
            self._put_off_node(index, entry)
            return ()
        for name in entry.reads:
            if name in self.model.initializers and name not in self._names:
                self._define_initializer(name)
        runs_on_host = host_function(entry.proto) is not None
        inputs = tuple(self._names[name] if name else None for name in entry.proto.input)
        node = OnnxNode(entry.proto, entry.opset, self.model.folder, inputs, self._builder,
                        (lambda name: None) if runs_on_host else self._observe)  # fmt: skip
        check_types(node)
        try:
            expanded = self._expanded(index, node)
            results = self._convert(node) if expanded is None else ()
        except RunTimeValueError as error:
            self._put_off_node(index, entry, str(error))
            return ()
        if expanded is not None:
            return expanded
        if self._pure.issuperset(entry.reads):
            self._pure.update(entry.writes)
        for name, value in zip(entry.proto.output, results):
            if name:
                self._define(name, value)
        return ()

    def _expanded(self, index: int, node: OnnxNode) -> Sequence[int] | None:
        """The nodes that a node stands for; None when it is converted as it is."""
        if not is_control(node.proto) and is_known(node.proto):
            return None
        check_attributes(node)
        values = tuple(None if name is None else self._builder.values[name] for name in node.inputs)
        if is_control(node.proto) and node.op == "Scan":
            return self.model.scan(index, values)
        if is_control(node.proto):
            condition = node.constant(0, "the condition")
            if condition.size != 1 or condition.dtype != bool:
                raise ModelError(f"{node.label}: the condition is {condition.dtype}{condition.shape}, not one bool")
            return self.model.branch(index, bool(condition.reshape(())))
        if not is_function(node.op, node.opset):
            return None
        types = tuple(None if value is None else (value.dtype, value.shape) for value in values)
        return self.model.expand(index, types, functools.partial(schema_body, node.proto, node.opset, values))

    def _convert(self, node: OnnxNode) -> Sequence[str]:
        if converter_for(node.proto.domain, node.op) is not None or host_function(node.proto) is None:
            try:
                return convert_node(node)
            except RunTimeValueError:
                if host_function(node.proto) is None:
                    raise
        if not all(name is None or name in self._builder.constants for name in node.inputs):
            raise RunTimeValueError(f"{node.label} runs on the host")
        arrays = [None if name is None else self._builder.constants[name] for name in node.inputs]
        return [node.new_constant(array) for array in run_host(node, arrays)]

    def _put_off_node(self, index: int, entry: Entry, reason: str = "") -> None:
        self._put_off.add(index)
        if reason:
            self.waiting[index] = reason
        if host_function(entry.proto) is not None and self._unknown.intersection(entry.reads) <= self._from_hosts:
            self._hosts.append(index)
            self._from_hosts.update(entry.writes)
        self._unknown.update(entry.writes)

    def _define_initializer(self, name: str) -> None:
        self._names[name] = self._builder.constant(self.model.initializers[name], name)
        self._pure.add(name)

    def _define(self, name: str, value: str) -> None:
        self._names[name] = value
        declared, dtype = self.model.outputs.get(name), self._builder.values[value].dtype
        if declared is not None and declared.dtype not in (None, dtype):
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
        wanted += [name for index in hosts for name in self.model.nodes[index].reads]
        known = [name for name in dict.fromkeys(wanted) if name in self._names and name not in self._given]
        values = {name: self._names[name] for name in known}
        aliases = {name: value for name, value in values.items() if value in self._given}
        found = {n: self._builder.constants[v] for n, v in values.items() if v in self._builder.constants}
        computed = [name for name in known if name not in aliases and name not in found]
        return Stage(
            self.graph(computed) if computed else None, found, aliases, hosts, rest, tuple(self._observed)
        )  # fmt: skip

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


def is_known(proto: onnx.NodeProto) -> bool:
    """Whether a node is converted, run on the host, or control flow that is written out."""
    converted = converter_for(proto.domain, proto.op_type) is not None
    return converted or host_function(proto) is not None or is_control(proto)


def is_control(proto: onnx.NodeProto) -> bool:
    """Whether a node is an If, which becomes its branch, or a Scan, which becomes its steps."""
    return proto.op_type in ("If", "Scan") and proto.domain in ("", "ai.onnx")


def convert_node(node: OnnxNode) -> Sequence[str]:
    """The values that a node's converter emits, one per ONNX output.

    Raises:
        ModelError, UnsupportedError: the node is impossible, or has what its converter does not know.
    """
    check_attributes(node)
    converter = converter_for(node.proto.domain, node.op)
    if converter is None:
        raise UnsupportedError(f"{node.label} has no converter")
    try:
        results = converter(node)
    except WorkloadError as error:
        raise ModelError(f"{node.label}: {error}") from error
    _check_old_attributes(node)
    _check_contributed(node)
    results = (results,) if isinstance(results, str) else results
    wanted = max((i + 1 for i, name in enumerate(node.proto.output) if name), default=0)
    if wanted > len(results):
        raise UnsupportedError(f"{node.label}: output {wanted - 1} ('{node.proto.output[wanted - 1]}') is not computed")
    return results


def check_attributes(node: OnnxNode) -> None:
    """Refuse attributes and input counts that the operator's schema does not have, and what has no schema."""
    if most_inputs(node.proto.domain, node.op) is not None:
        return
    if node.proto.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op, node.opset, ""):
        raise UnsupportedError(f"{node.label} is no operator of opset {node.opset}")
    schema = onnx.defs.get_schema(node.op, node.opset, "")
    given: set[str] = set()
    for attribute in node.proto.attribute:
        if attribute.name not in schema.attributes:
            raise ModelError(f"{node.label}: {node.op} has no attribute '{attribute.name}' in opset {node.opset}")
        if attribute.name in given:
            raise ModelError(f"{node.label}: attribute '{attribute.name}' is given twice")
        given.add(attribute.name)
    for name, attribute in schema.attributes.items():
        if attribute.required and not node.has(name):
            raise ModelError(f"{node.label}: the required attribute '{name}' is missing")
    if not schema.min_input <= len(node.proto.input) <= schema.max_input:
        raise ModelError(f"{node.label}: {len(node.proto.input)} inputs; {node.op} takes {schema.min_input}"
                         + (f" to {schema.max_input}" if schema.max_input != schema.min_input else ""))  # fmt: skip


def check_types(node: OnnxNode) -> None:
    """Refuse inputs of element types that the operator's schema does not allow, and those that must be the same."""
    if node.proto.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op, node.opset, ""):
        return
    parameters = _parameters(node.op, node.opset)
    bound: dict[str, str] = {}
    for position, name in enumerate(node.inputs):
        if name is None or not parameters:
            continue
        letter, types, alike = parameters[min(position, len(parameters) - 1)]
        found = type_name(node.builder.values[name].dtype)
        if (node.op, position, found) in BEYOND_THE_SCHEMA:
            continue
        if found not in types:
            raise ModelError(f"{node.label}: input {position} is a {found}; {node.op} takes {', '.join(sorted(types))}")
        if alike and bound.setdefault(letter, found) != found:
            raise ModelError(f"{node.label}: input {position} is a {found}, others are a {bound[letter]}; cast one")


@functools.lru_cache(maxsize=1024)
def _parameters(op: str, opset: int) -> tuple[tuple[str, frozenset[str], bool], ...]:
    """Of each input: its type variable, the tensor types that it may have, and whether the variable binds them.

    What the newest form of the operator allows for the same input is allowed in old ones too: exporters do so.
    """
    newest = {p.name: p.types for p in onnx.defs.get_schema(op, onnx.defs.onnx_opset_version(), "").inputs}
    schema = onnx.defs.get_schema(op, opset, "")
    variables = {constraint.type_param_str for constraint in schema.type_constraints}
    return tuple(
        (p.type_str, frozenset(t for t in (*p.types, *newest.get(p.name, ())) if t.startswith("tensor(")),
         p.is_homogeneous and p.type_str in variables)
        for p in schema.inputs
    )  # fmt: skip


def _check_contributed(node: OnnxNode) -> None:
    """Refuse inputs and attributes that the converter of an operator without a schema did not look at."""
    most = most_inputs(node.proto.domain, node.op)
    if most is None:
        return
    if any(node.proto.input[most:]):
        raise UnsupportedError(f"{node.label}: input {most} and those behind it are not supported")
    unknown = [a.name for a in node.proto.attribute if a.name not in node.asked]
    if unknown:
        raise UnsupportedError(f"{node.label}: the attribute '{shortened(unknown[0])}' is not supported")


def _check_old_attributes(node: OnnxNode) -> None:
    """Refuse training, and attributes of the first opsets that the converter did not look at: they may mean more."""
    if node.opset < MODERN_OPSET and onnx.defs.has(node.op, node.opset, ""):
        if "is_test" in onnx.defs.get_schema(node.op, node.opset, "").attributes and not node.attr_int("is_test", 0):
            raise UnsupportedError(f"{node.label}: is_test=0 is training; export the model for inference")
        unknown = [a.name for a in node.proto.attribute if a.name not in node.asked | WITHOUT_EFFECT]
        if unknown:
            raise UnsupportedError(f"{node.label}: attribute {', '.join(unknown)} of opset {node.opset}")
