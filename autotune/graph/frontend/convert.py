"""From a parsed model to graphs: one for a model whose shapes are all known, else stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import onnx

from autotune.errors import UnsupportedError
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
    quantization,
    random,
    rearrange,
    recurrent,
    reduction,
    resizing,
    sampling,
    selection,
    shapes,
    spectrum,
)
from autotune.graph.frontend.body import is_loop
from autotune.graph.frontend.contrib import FAMILIES as CONTRIBUTED
from autotune.graph.frontend.expand import inlined, is_function
from autotune.graph.frontend.inputs import known_types, require_static
from autotune.graph.frontend.learned import FAMILIES as LEARNED
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.node import most_inputs
from autotune.graph.frontend.part import Part, Stage, whole
from autotune.graph.frontend.source import shortened
from autotune.graph.frontend.unroll import FEW_STEP_NODES, MAX_STEP_NODES
from autotune.graph.frontend.walk import Walk, is_known
from autotune.graph.host import HostValue
from autotune.graph.ir import Graph, Value

# Importing a family registers its converters.
FAMILIES = (
    activation, attention, convolution, einsum, elementwise, indexing, matrix, movement, normalization, padding,
    pooling, quantization, random, rearrange, recurrent, reduction, resizing, sampling, selection, shapes, spectrum,
    *CONTRIBUTED, *LEARNED,
)  # fmt: skip


def convert_model(model: OnnxModel) -> Graph:
    """Convert a model that must be one program.

    Raises:
        ModelError: the model is inconsistent, or a dimension is unknown.
        UnsupportedError: it uses what this compiler has not, or depends on values of the run; all such nodes are
            listed at once.
    """
    refuse_unknown_nodes(model)
    require_static(model.inputs)
    walk = _walked(model, MAX_STEP_NODES)
    if walk.waiting:
        raise UnsupportedError(
            f"{len(walk.waiting)} node(s) depend on values of the run: {'; '.join(walk.waiting.values())};"
            " such a model is several programs: run it by InferenceSession or `autotune run`, write it to one file"
            " by `autotune compile -o FILE.at`, or, where the value of an input decides, make it one program by"
            " --fix NAME=FILE.npy"
        )
    if not walk.is_whole:
        raise UnsupportedError("an output is no tensor of numbers; such a model is run by InferenceSession")
    return walk.graph(tuple(model.outputs))


def convert_whole(model: OnnxModel) -> Graph | None:
    """Convert a model if it is one program; None if it has to be converted in parts while it runs.

    Raises:
        ModelError, UnsupportedError: as for `convert_model`.
    """
    refuse_unknown_nodes(model)
    if len(known_types(model.inputs)) < len(model.inputs):
        return None
    walk = _walked(model, FEW_STEP_NODES)
    return walk.graph(tuple(model.outputs)) if walk.is_whole else None


def _walked(model: OnnxModel, step_nodes: int) -> Walk:
    types = known_types(model.inputs)
    walk = Walk(model, types, types, {}, {}, step_nodes=step_nodes)
    walk.convert(whole(model).nodes)
    return walk


def convert_part(
    model: OnnxModel,
    part: Part,
    types: Mapping[str, Value],
    values: Mapping[str, HostValue] | None = None,
    observe: bool = True,
    growing: Collection[str] = (),
    eager: bool = False,
    barred: Collection[int] = (),
) -> Stage:
    """Convert what can be converted of a part now.

    Args:
        types: types of its inputs, those of unknown shape left out, and those that are no tensors of numbers.
        values: what its inputs hold in this run; None when nothing runs yet.
        observe: converters that must know a value get it, and the stage is then for this value only:
            `Stage.observed` names them.
        growing: inputs that have no type here because they have another shape every time. `eager`: all that is made of
            them runs on the host where that takes little time.
        barred: nodes that belong to the rest, whatever is known.

    Raises:
        ModelError, UnsupportedError: a node is impossible, or has what its converter does not know.
    """
    values = values or {}
    tensors = {name: array for name, array in values.items() if name in types and isinstance(array, np.ndarray)}
    fixed = {name: tensors[name].copy() for name in part.fixed if name in tensors}
    held = [name for name in values if name not in types and name not in growing]
    if not values:
        held = [declared.name for declared in model.inputs if not declared.is_tensor and declared.dtype]
    walk = Walk(model, part.inputs, types, fixed, tensors if observe else {}, held, growing, eager=eager, barred=barred)
    walk.convert(part.nodes)
    stage = walk.stage()
    if values and observe and not (growing or barred) and not stage.gets_on(part):
        raise UnsupportedError("; ".join(walk.waiting.values()))
    return stage


ADVICE = {
    "com.microsoft.nchwc.": "the file does not say for which CPUs its weights lie in blocks: save the model with "
    "ONNX Runtime's ORT_ENABLE_EXTENDED in place of ORT_ENABLE_ALL"
}
"""What to do about operators of a domain that nobody can convert."""


def refuse_unknown_nodes(model: OnnxModel) -> None:
    """List every node whose operator has no converter, by operator, all at once."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    todo = [(entry.proto, entry.opset) for entry in model.nodes]
    while todo:
        proto, opset = todo.pop(0)
        if is_loop(proto):
            inner = (node for a in proto.attribute if a.name == "body" for node in a.g.node)
            todo += inlined(((node, opset) for node in inner), model.functions)
        standard = proto.domain in ("", "ai.onnx") and onnx.defs.has(proto.op_type, opset, "")
        known = standard and (is_known(proto) or is_function(proto.op_type, opset))
        if not known and most_inputs(proto.domain, proto.op_type) is None:
            op = f"{proto.domain}.{proto.op_type}" if proto.domain not in ("", "ai.onnx") else proto.op_type
            counts[op] += 1
            first.setdefault(op, proto.name or next(iter(proto.output), ""))
    if counts:
        listing = ", ".join(
            f"{shortened(op)} ×{count} (first: '{shortened(first[op])}')" for op, count in sorted(counts.items())
        )
        named = [
            {"operator": op, "nodes": count, "first": first[op], "reason": "unknown operator"}
            for op, count in sorted(counts.items())
        ]
        advice = "".join(f"; {said}" for domain, said in ADVICE.items() if any(op.startswith(domain) for op in counts))
        raise UnsupportedError(
            f"{counts.total()} unsupported node(s) of {len(counts)} operator(s): {listing}{advice}",
            values={"unsupported": named},
        )
