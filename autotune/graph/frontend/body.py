"""Bodies of loops as models of their own: compiled once, run step by step."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.entry import Entry, free_names, sorted_entries
from autotune.graph.frontend.expand import inlined
from autotune.graph.frontend.masked import with_masked_selects
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.part import Body, Part
from autotune.graph.frontend.source import tensor_array
from autotune.graph.frontend.unroll import body_of
from autotune.tensor.declared import ModelInput, ModelOutput

LOOPS = frozenset(("Loop", "Scan", "SequenceMap"))


def is_loop(proto: onnx.NodeProto) -> bool:
    return proto.op_type in LOOPS and proto.domain in ("", "ai.onnx")


def captured(entry: Entry) -> tuple[str, ...]:
    """What the body of a loop reads from around it."""
    return tuple(dict.fromkeys(name for a in entry.proto.attribute if a.name == "body" for name in free_names(a.g)))


def body_model(model: OnnxModel, body: Body, results: Sequence[str]) -> tuple[OnnxModel, Part]:
    """The body as a model, and that model as one part.

    Args:
        results: what it gives: its outputs, or other values of it.
    """
    entry = model.nodes[body.index]
    node = NodeAttributes(entry.proto, entry.opset, model.folder)
    graph = body_of(node)
    formal = [info.name for info in graph.input]
    if len(set(formal)) != len(formal):
        raise ModelError(f"{node.label}: the body takes an input twice")
    initializers = {}
    for tensor in graph.initializer:
        if tensor.name not in formal:
            initializers[tensor.name] = tensor_array(tensor, model.folder, f"initializer '{tensor.name}'")
    protos = inlined(((proto, entry.opset) for proto in graph.node), model.functions)
    entries = with_masked_selects([Entry.of(proto, opset) for proto, opset in protos], results)
    outer = [model.nodes[index] for index in body.inside]
    wanted = {name for found in (*entries, *outer) for name in found.reads} | set(results)
    inner = {*formal, *initializers, *(name for found in entries for name in found.writes)}
    for name in wanted - inner:
        if name in model.initializers:
            initializers[name] = model.initializers[name]
    reads = tuple(name for name in body.reads if name not in inner)
    inputs = tuple(ModelInput(name, "", None) for name in (*formal, *reads))
    nodes = sorted_entries([*outer, *entries], {*formal, *reads, *initializers})
    written = {name for found in nodes for name in found.writes}
    outputs = {name: ModelOutput(name, None, None) for name in results}
    for name in outputs:
        if name not in written and name not in inner and name not in reads and name not in initializers:
            raise ModelError(f"{node.label}: '{name}', which the body gives, is defined by nothing")
    whole = Part(tuple(range(len(nodes))), (*formal, *reads), body.known.intersection(reads))
    made = OnnxModel(node.label, model.folder, inputs, outputs, initializers, nodes, model.functions)
    return made, whole
