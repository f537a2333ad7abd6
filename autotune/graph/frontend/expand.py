"""Nodes that stand for other nodes: functions of the model, operators whose schema is a function, branches of If.

A body is written out in the place of its node: its names get a prefix that is used once, its parameters become what
the node reads and writes, references to attributes the attributes of the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import onnx
from onnx import AttributeProto

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.source import elem_type_of
from autotune.graph.ir import Value

MAX_NODES = 100_000  # functions of functions double with every level
FunctionKey = tuple[str, str, str]
Functions = Mapping[FunctionKey, onnx.FunctionProto]
Node = tuple[onnx.NodeProto, int]  # and the opset it is of


def functions_of(model: onnx.ModelProto) -> Functions:
    """The model's own functions by domain, name and overload.

    Raises:
        ModelError: one is defined twice, or calls itself, if only in a branch or through others, or the model is too
            many nodes with their bodies written out. Nothing is written out to find that.
    """
    functions: dict[FunctionKey, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise ModelError(f"the function '{function.name}' is defined twice")
        functions[key] = function
    sizes: dict[FunctionKey, int] = {}
    for key in functions:
        _count_nodes(functions, key, sizes)
    if sum(1 + sizes.get(_key(node), 0) for node in model.graph.node) > MAX_NODES and sizes:
        raise ModelError(f"the functions of the model are more than {MAX_NODES} nodes when written out")
    return functions


def _count_nodes(functions: Functions, start: FunctionKey, sizes: dict[FunctionKey, int]) -> None:
    """Put into `sizes` how many nodes a function is when written out, those in subgraphs apart, and all it calls."""
    path: dict[FunctionKey, None] = {}  # the functions that are being counted, each called by the one before
    todo = [start]
    while todo:
        key = todo[-1]
        if key in sizes:
            todo.pop()
            continue
        called = {_key(node) for node in _all_nodes(functions[key])} & functions.keys()
        missing = called - sizes.keys()
        if not missing:
            sizes[key] = min(sum(1 + sizes.get(_key(node), 0) for node in functions[key].node), MAX_NODES + 1)
            path.pop(key, None)
            todo.pop()
            continue
        path[key] = None
        if again := missing & path.keys():
            raise ModelError(f"the function '{min(again)[1]}' calls itself")
        todo += missing


def _all_nodes(function: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a function and of the subgraphs in it."""
    todo = list(function.node)
    while todo:
        node = todo.pop()
        yield node
        for attribute in node.attribute:
            todo += attribute.g.node


def _key(node: onnx.NodeProto) -> FunctionKey:
    return node.domain, node.op_type, node.overload


def inlined(nodes: Iterable[Node], functions: Functions, prefix: str = "") -> Iterator[Node]:
    """The nodes, with calls of the model's functions written out, however deep.

    Raises:
        ModelError: all of them together are too many nodes.
    """
    todo = list(nodes)[::-1]
    written, calls = len(todo), 0
    while todo:
        proto, opset = todo.pop()
        function = functions.get(_key(proto))
        if function is None:
            yield proto, opset
            continue
        body = list(function_body(proto, function, opset, f"{prefix}{function.name}.{calls}/"))
        calls += 1
        written += len(body)
        if written > MAX_NODES:
            raise ModelError(f"the functions of the model are more than {MAX_NODES} nodes when written out")
        todo += reversed(body)


def function_body(
    call: onnx.NodeProto,
    function: onnx.FunctionProto,
    opset: int,
    prefix: str,
    defaults: Mapping[str, AttributeProto] | None = None,
) -> Iterator[Node]:
    """The nodes of a function as one call of it needs them."""
    if len(call.input) > len(function.input) or len(call.output) > len(function.output):
        raise ModelError(
            f"node '{call.name}' calls '{function.name}' with {len(call.input)} inputs and {len(call.output)} outputs;"
            f" it has {len(function.input)} and {len(function.output)}"
        )
    given = {**(defaults or {}), **{a.name: a for a in function.attribute_proto}, **{a.name: a for a in call.attribute}}
    parameters = {**dict.fromkeys(function.input, ""), **dict(zip(function.input, call.input))}
    names = {name: f"{prefix}{name}" for node in function.node for name in (*node.input, *node.output) if name}
    names.update((inner, outer) for inner, outer in zip(function.output, call.output) if outer)
    names.update(parameters)
    opset = version_of(function, opset)
    for node in function.node:
        yield renamed(node, names, prefix, given), opset
    for inner, outer in zip(function.output, call.output):
        if inner in parameters and outer:  # handed on as it is
            yield onnx.helper.make_node("Identity", [parameters[inner]], [outer]), opset


class FunctionSchema(Protocol):
    """What onnx's schemas say about the function that an operator is (their stubs leave it out)."""

    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: Sequence[int]
    context_dependent_function_opset_versions: Sequence[int]
    attributes: Mapping[str, onnx.defs.OpSchema.Attribute]

    def get_function_with_opset_version(self, version: int) -> bytes: ...
    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: Sequence[bytes]
    ) -> bytes: ...


def is_function(op_type: str, opset: int) -> bool:
    """Whether the schema of an operator is a function."""
    schema = _schema(op_type, opset)
    return schema.has_function or schema.has_context_dependent_function


def schema_body(call: onnx.NodeProto, opset: int, inputs: Sequence[Value | None], prefix: str) -> Iterator[Node]:
    """The nodes that an operator stands for by its schema, which is a function."""
    schema, function = _schema(call.op_type, opset), onnx.FunctionProto()
    if schema.has_function:
        version = _version(schema.function_opset_versions, opset)
        function.ParseFromString(schema.get_function_with_opset_version(version))
    else:
        version = _version(schema.context_dependent_function_opset_versions, opset)
        types = [_type_proto(value).SerializeToString() if value is not None else b"" for value in inputs]
        data = schema.get_context_dependent_function_with_opset_version(version, call.SerializeToString(), types)
        function.ParseFromString(data)
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    return function_body(call, function, opset, prefix, defaults)


def _schema(op_type: str, opset: int) -> FunctionSchema:
    return cast(FunctionSchema, onnx.defs.get_schema(op_type, opset, ""))


def branch_body(call: onnx.NodeProto, name: str, opset: int, prefix: str) -> tuple[list[Node], list[onnx.TensorProto]]:
    """The nodes and initializers of one branch of an If."""
    branch = next((a.g for a in call.attribute if a.name == name and a.type == AttributeProto.GRAPH), None)
    if branch is None or branch.input or len(branch.output) < len(call.output):
        raise ModelError(f"node '{call.name}' ({call.op_type}): '{name}' is missing, has inputs, or too few outputs")
    if branch.sparse_initializer:
        raise UnsupportedError(f"node '{call.name}' ({call.op_type}): '{name}' has sparse initializers")
    inner = [tensor.name for tensor in branch.initializer] + [n for node in branch.node for n in node.output if n]
    names = {n: f"{prefix}{n}" for n in inner}
    nodes = [(renamed(node, names, prefix, {}), opset) for node in branch.node]
    for info, outer in zip(branch.output, call.output):
        if outer:
            nodes.append((onnx.helper.make_node("Identity", [names.get(info.name, info.name)], [outer]), opset))
    tensors = []
    for tensor in branch.initializer:
        tensors.append(onnx.TensorProto())
        tensors[-1].CopyFrom(tensor)
        tensors[-1].name = names[tensor.name]
    return nodes, tensors


def renamed(
    node: onnx.NodeProto, names: Mapping[str, str], prefix: str, given: Mapping[str, AttributeProto]
) -> onnx.NodeProto:
    """A copy with other names, and with the attributes that it refers to."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = f"{prefix}{node.name or next(iter(node.output), '')}"
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    kept = []
    for attribute in copy.attribute:
        if attribute.ref_attr_name:
            value = given.get(attribute.ref_attr_name)
            if value is None:
                continue
            name = attribute.name
            attribute.CopyFrom(value)
            attribute.name = name
        elif attribute.type == AttributeProto.GRAPH:
            _rename_graph(attribute.g, names, prefix, given)
        kept.append(attribute)
    if len(kept) < len(copy.attribute):
        attributes = [AttributeProto.FromString(attribute.SerializeToString()) for attribute in kept]
        del copy.attribute[:]
        copy.attribute.extend(attributes)
    return copy


def _rename_graph(
    graph: onnx.GraphProto, names: Mapping[str, str], prefix: str, given: Mapping[str, AttributeProto]
) -> None:
    """Other names for what a subgraph reads from around it; its own names stay."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    outer = {name: new for name, new in names.items() if name not in own}
    for node in graph.node:
        node.CopyFrom(renamed(node, outer, prefix, given))
    for info in graph.output:
        info.name = outer.get(info.name, info.name)


def version_of(function: onnx.FunctionProto, opset: int) -> int:
    """The opset that a function's body is written in."""
    return next((entry.version for entry in function.opset_import if entry.domain in ("", "ai.onnx")), opset)


def _version(versions: Sequence[int], opset: int) -> int:
    """The newest of the versions that is not newer than the model, or the oldest."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _type_proto(value: Value) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(elem_type_of(value.dtype), value.shape)
