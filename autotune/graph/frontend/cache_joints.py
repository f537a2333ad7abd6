"""Attention of ONNX Runtime's own behind a past: the Concat that makes its present is written out.

So its caches are like those of any exporter (`caches`), and what remains of the node reads what they hold by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.node import MICROSOFT
from autotune.graph.ir import Array
from autotune.tensor.declared import Dim

OWN = "autotune"
"""The domain of operators that no file has."""

TO_CACHE = "AttentionToCache"
"""What remains of the node. Its inputs: queries, keys and values (or one tensor of both), the number of keys, that of
the old ones, a mask and a bias of ONNX Runtime's forms. Its results: what it computes, and the scores."""

OPSET = 17
"""Of the nodes written."""

KEPT = ("num_heads", "scale", "mask_filter_value", "unidirectional")


def with_joints(model: OnnxModel) -> OnnxModel:
    """The model with a Concat for each past that is one of its inputs; the model itself where there is none."""
    writer, found = _Writer(dict(model.initializers)), False
    inputs = {declared.name: declared.dims for declared in model.inputs if declared.is_tensor}
    for index, entry in enumerate(model.nodes):
        node = model.attributes(index)
        if not (_whole(writer, node, inputs) or _halves(writer, node, inputs)):
            writer.nodes.append(entry)
            continue
        found = True
    if not found:
        return model
    return replace(model, initializers=writer.initializers, nodes=writer.nodes, _expanded={})


class _Writer:
    def __init__(self, initializers: dict[str, Array]) -> None:
        self.initializers, self.nodes = initializers, list[Entry]()

    def write(self, op: str, inputs: Sequence[str], *names: str, domain: str = "", **attributes: Any) -> str:
        node = helper.make_node(op, inputs, names, name=next(filter(None, names)), domain=domain, **attributes)
        self.nodes.append(Entry.of(node, OPSET))
        return names[0]

    def numbers(self, values: Sequence[int], name: str) -> str:
        self.initializers[name] = np.asarray(values, np.int64)
        return name

    def cut(self, name: str, axis: int, begin: int, end: int, result: str) -> str:
        ends = (self.numbers([n], f"{result}/{what}") for n, what in ((begin, "begin"), (end, "end"), (axis, "axis")))
        return self.write("Slice", [name, *ends], result)

    def attention(self, node: NodeAttributes, operands: Sequence[str], extras: Sequence[str], scores: str) -> None:
        """What remains of a node, behind the keys in `operands[1]`."""
        result = node.proto.output[0]
        axis = 2 if operands[2] else 3
        length = self.write("Shape", operands[1:2], f"{result}/keys", start=axis, end=axis + 1)
        tokens = self.write("Shape", operands[:1], f"{result}/queries", start=1, end=2)
        before = self.write("Sub", [length, tokens], f"{result}/old-keys")
        rest = helper.make_node(
            TO_CACHE, [*operands, length, before, *extras], [result, scores], name=node.proto.name or result, domain=OWN
        )
        rest.attribute.extend(a for a in node.proto.attribute if a.name in KEPT)
        self.nodes.append(Entry.of(rest, OPSET))


def _form(node: NodeAttributes, op: str, past: Dim | tuple[Dim, ...] | None) -> tuple[int, int] | None:
    """Heads and features of a node's past, which are known; None where the node is not one to be written out."""
    proto = node.proto
    known = past[-3:] if isinstance(past, tuple) else ()
    if proto.op_type != op or proto.domain != MICROSOFT or len(known) != 3:
        return None
    heads, features = known[0], known[2]
    if not isinstance(heads, int) or not isinstance(features, int) or node.attr_int("num_heads", 0) != heads:
        return None
    return heads, features


def _given(proto: onnx.NodeProto, position: int) -> str:
    return proto.input[position] if position < len(proto.input) else ""


def _result(proto: onnx.NodeProto, position: int) -> str:
    return proto.output[position] if position < len(proto.output) else ""


def _halves(writer: _Writer, node: NodeAttributes, inputs: dict[str, tuple[Dim, ...] | None]) -> bool:
    """Write MultiHeadAttention out, whose past is one tensor of keys and one of values; False if it is another node."""
    proto = node.proto
    pasts, presents = [_given(proto, n) for n in (6, 7)], [_result(proto, n) for n in (1, 2)]
    form = _form(node, "MultiHeadAttention", inputs.get(pasts[0]))
    alike = inputs.get(pasts[0]) == inputs.get(pasts[1]) and all(presents)
    if form is None or not alike or not all(proto.input[:3]) or any(proto.input[8:]):
        return False
    heads, features = form
    width, name = heads * features, proto.output[0]
    rows = list(proto.input[:3])
    for n, row in enumerate(rows):
        if _given(proto, 3):
            own = writer.cut(_given(proto, 3), 0, n * width, (n + 1) * width, f"{name}/bias{n}")
            rows[n] = writer.write("Add", [row, own], f"{name}/biased{n}")
    shape = writer.numbers([0, 0, heads, features], f"{name}/heads")
    for row, past, present in zip(rows[1:], pasts, presents):
        apart = writer.write("Reshape", [row, shape], f"{present}/apart")
        new = writer.write("Transpose", [apart], f"{present}/new", perm=[0, 2, 1, 3])
        writer.write("Concat", [past, new], present, axis=2)
    extras = _given(proto, 4), _given(proto, 5)
    writer.attention(node, [rows[0], *presents], extras, _result(proto, 3))
    return True


def _whole(writer: _Writer, node: NodeAttributes, inputs: dict[str, tuple[Dim, ...] | None]) -> bool:
    """Write Attention or QAttention out, whose past holds keys before values; False if it is another node."""
    proto, present, coded = node.proto, _result(node.proto, 1), node.op == "QAttention"
    past, mask, bias, most = (8, 5, 9, 9) if coded else (4, 3, 5, 6)
    name = _given(proto, past)
    form = _form(node, "QAttention" if coded else "Attention", inputs.get(name))
    if form is None or not present or len(inputs[name] or ()) != 5 or any(proto.input[most:]):
        return False
    heads, features = form
    width, name = heads * features, proto.output[0]
    others = ("do_rotary", "rotary_embedding_dim", "past_present_share_buffer")
    if set(node.attr_ints("qkv_hidden_sizes") or ()) - {width} or any(node.attr_int(other, 0) for other in others):
        return False
    if coded:
        operands = [_given(proto, n) for n in (0, 1, 3, 4, 6, 7, 2)]
        projected = writer.write("MatMulIntegerToFloat", operands, f"{name}/projected", domain=MICROSOFT)
    else:
        projected = writer.write("MatMul", proto.input[:2], f"{name}/projected")
        if _given(proto, 2):
            projected = writer.write("Add", [projected, _given(proto, 2)], f"{name}/biased")
    queries = writer.cut(projected, 2, 0, width, f"{name}/q")
    rows = writer.cut(projected, 2, width, 3 * width, f"{name}/kv")
    apart = writer.write(
        "Reshape", [rows, writer.numbers([0, 0, 2, heads, features], f"{name}/parts")], f"{name}/apart"
    )
    new = writer.write("Transpose", [apart], f"{present}/new", perm=[2, 0, 3, 1, 4])
    writer.write("Concat", [_given(proto, past), new], present, axis=3)
    writer.attention(node, [queries, present, ""], (_given(proto, mask), _given(proto, bias)), "")
    return True
