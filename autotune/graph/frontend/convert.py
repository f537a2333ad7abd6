"""The conversion loop: ModelProto → Graph, with every complaint made once and clearly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from autotune.errors import ModelError, UnsupportedError, WorkloadError
from autotune.graph.builder import GraphBuilder
from autotune.graph.frontend import (
    activation,
    attention,
    convolution,
    einsum,
    elementwise,
    indexing,
    matrix,
    movement,
    normalization,
    padding,
    pooling,
    rearrange,
    recurrent,
    reduction,
    resizing,
    selection,
    shapes,
    spectrum,
)
from autotune.graph.frontend.inputs import declared_inputs
from autotune.graph.frontend.node import OnnxNode, converter_for
from autotune.graph.frontend.source import dtype_of, opset_of, tensor_array
from autotune.graph.ir import Graph, Output
from autotune.graph.order import topological_order

# Importing a family registers its converters.
FAMILIES = (
    activation, attention, convolution, einsum, elementwise, indexing, matrix, movement, normalization, padding,
    pooling, rearrange, recurrent, reduction, resizing, selection, shapes, spectrum,
)  # fmt: skip

MODERN_OPSET = 7  # from here on broadcasting is NumPy's, and BatchNormalization, Dropout have no test mode
WITHOUT_EFFECT = {"consumed_inputs", "is_test", "momentum", "ratio"}  # at inference


def convert_model(model: onnx.ModelProto, folder: Path | None, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Convert a parsed model.

    Args:
        model: the model.
        folder: where its external data may live; None forbids external data.
        shapes: dimensions of inputs by name, needed where the model leaves them open.

    Raises:
        ModelError: the model is inconsistent, or a dimension is unknown.
        UnsupportedError: it uses what this compiler has not; all such nodes are listed at once.
    """
    opset = opset_of(model)
    _refuse_unknown_nodes(model)
    builder = GraphBuilder(model.graph.name or "model")
    names: dict[str, str] = {}  # ONNX value name → graph value name

    def define(onnx_name: str, value: str) -> None:
        if onnx_name in names:
            raise ModelError(f"'{onnx_name}' is defined twice in the model")
        names[onnx_name] = value

    if model.graph.sparse_initializer:
        raise UnsupportedError("the model has sparse initializers")
    for tensor in model.graph.initializer:
        array = tensor_array(tensor, folder, f"initializer '{tensor.name}'")
        define(tensor.name, builder.constant(array, tensor.name))
    for value in declared_inputs(model.graph, set(names), shapes):
        define(value.name, builder.input(value))

    refused: list[str] = []
    poisoned: set[str] = set()  # results of refused nodes: what reads them is not looked at
    for proto in _sorted_nodes(model.graph, set(names)):
        if poisoned.intersection(proto.input):
            poisoned.update(proto.output)
            continue
        node = OnnxNode(proto, opset, folder, tuple(names[n] if n else None for n in proto.input), builder)
        try:
            results = _convert_node(node)
        except UnsupportedError as error:
            refused.append(str(error))
            poisoned.update(proto.output)
            continue
        for onnx_name, value_name in zip(proto.output, results):
            if onnx_name:
                define(onnx_name, value_name)
    if refused:
        raise UnsupportedError(f"{len(refused)} unsupported node(s): " + "; ".join(refused))
    return builder.build(_outputs(model.graph, names, builder))


def _convert_node(node: OnnxNode) -> Sequence[str]:
    _check_attributes(node)
    converter = converter_for(node.proto.domain, node.op)
    if converter is None:
        raise UnsupportedError(f"{node.label} has no converter")
    try:
        results = converter(node)
    except WorkloadError as error:
        raise ModelError(f"{node.label}: {error}") from error
    _check_old_attributes(node)
    results = (results,) if isinstance(results, str) else results
    wanted = max((i + 1 for i, name in enumerate(node.proto.output) if name), default=0)
    if wanted > len(results):
        raise UnsupportedError(f"{node.label}: output {wanted - 1} ('{node.proto.output[wanted - 1]}') is not computed")
    return results


def _check_attributes(node: OnnxNode) -> None:
    """Refuse attributes and input counts that the operator's schema does not have."""
    schema = onnx.defs.get_schema(node.op, node.opset, "")
    for attribute in node.proto.attribute:
        if attribute.name not in schema.attributes:
            raise ModelError(f"{node.label}: {node.op} has no attribute '{attribute.name}' in opset {node.opset}")
    for name, attribute in schema.attributes.items():
        if attribute.required and not node.has(name):
            raise ModelError(f"{node.label}: the required attribute '{name}' is missing")
    if not schema.min_input <= len(node.proto.input) <= schema.max_input:
        raise ModelError(f"{node.label}: {len(node.proto.input)} inputs; {node.op} takes {schema.min_input}"
                         + (f" to {schema.max_input}" if schema.max_input != schema.min_input else ""))  # fmt: skip


def _check_old_attributes(node: OnnxNode) -> None:
    """Refuse training, and attributes of the first opsets that the converter did not look at: they may mean more."""
    if node.opset < MODERN_OPSET:
        if "is_test" in onnx.defs.get_schema(node.op, node.opset, "").attributes and not node.attr_int("is_test", 0):
            raise UnsupportedError(f"{node.label}: is_test=0 is training; export the model for inference")
        unknown = [a.name for a in node.proto.attribute if a.name not in node.asked | WITHOUT_EFFECT]
        if unknown:
            raise UnsupportedError(f"{node.label}: attribute {', '.join(unknown)} of opset {node.opset}")


def _refuse_unknown_nodes(model: onnx.ModelProto) -> None:
    """List every node whose operator has no converter, by operator, all at once."""
    opset = opset_of(model)
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for proto in model.graph.node:
        known = onnx.defs.has(proto.op_type, opset, "") and converter_for(proto.domain, proto.op_type) is not None
        if not known:
            op = f"{proto.domain}.{proto.op_type}" if proto.domain not in ("", "ai.onnx") else proto.op_type
            counts[op] += 1
            first.setdefault(op, proto.name or next(iter(proto.output), ""))
    if counts:
        listing = ", ".join(f"{op} ×{count} (first: '{first[op]}')" for op, count in sorted(counts.items()))
        raise UnsupportedError(f"{counts.total()} unsupported node(s) of {len(counts)} operator(s): {listing}")


def _sorted_nodes(graph: onnx.GraphProto, defined: set[str]) -> list[onnx.NodeProto]:
    """The nodes in topological order, stable. Raises ModelError on undefined inputs, duplicates and cycles."""
    producer: dict[str, int] = {}
    for index, proto in enumerate(graph.node):
        for name in filter(None, proto.output):
            if name in defined or name in producer:
                raise ModelError(f"'{name}' is defined twice in the model")
            producer[name] = index
    dependencies: list[set[int]] = []
    for proto in graph.node:
        missing = {name for name in proto.input if name and name not in defined}
        for name in missing - producer.keys():
            raise ModelError(f"node '{proto.name}' ({proto.op_type}) reads '{name}', which nothing defines")
        dependencies.append({producer[name] for name in missing})
    order = topological_order(dependencies)
    if len(order) != len(dependencies):
        stuck = graph.node[min(set(range(len(dependencies))).difference(order))]
        raise ModelError(f"the model has a cycle through node '{stuck.name}' ({stuck.op_type})")
    return [graph.node[index] for index in order]


def _outputs(graph: onnx.GraphProto, names: Mapping[str, str], builder: GraphBuilder) -> list[Output]:
    outputs: list[Output] = []
    if not graph.output:
        raise ModelError("the model has no outputs")
    for info in graph.output:
        if info.name not in names:
            raise ModelError(f"output '{info.name}' is defined by nothing")
        if any(output.name == info.name for output in outputs):
            raise ModelError(f"output '{info.name}' is listed twice")
        value = builder.values[names[info.name]]
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type:
            declared = dtype_of(info.type.tensor_type.elem_type, f"output '{info.name}'")
            if declared.value != value.dtype:
                raise ModelError(f"output '{info.name}' is declared {declared.value} but computed as {value.dtype}")
        outputs.append(Output(info.name, value.name))
    return outputs
