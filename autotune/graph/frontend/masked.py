"""What a mask selects, `x[mask]`, as one node: exporters write three."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import onnx
from onnx import helper

from autotune.graph.frontend.entry import Entry
from autotune.graph.host.node import OWN


def with_masked_selects(entries: Sequence[Entry], wanted: Collection[str]) -> list[Entry]:
    """The nodes, each NonZero that only a Transpose reads, that only a GatherND reads, as one with these.

    How many places are found is known on the host alone: nobody else needs them, so one stop there takes the place of
    one that finds them, and of what is made for their number.

    Args:
        wanted: names of values that somebody else reads.
    """
    readers = Counter(name for entry in entries for name in entry.reads)
    readers.update([*wanted])
    own = {name: entry for entry in entries for name in entry.writes if readers[name] == 1}
    found, gone = list[Entry](), set[str]()
    for entry in entries:
        select = _select(entry, own) if entry.proto.op_type == "GatherND" else None
        if select is None:
            found.append(entry)
        else:
            found.append(Entry.of(select, entry.opset))
            gone.update((entry.proto.input[1], own[entry.proto.input[1]].proto.input[0]))
    return [entry for entry in found if gone.isdisjoint(entry.writes)]


def _select(gather: Entry, own: Mapping[str, Entry]) -> onnx.NodeProto | None:
    """The one node; `own` has the nodes by what of theirs is read once."""
    node = gather.proto
    if not _is(node, "GatherND", 2) or any(a.name != "batch_dims" or a.i for a in node.attribute):
        return None
    transpose = own.get(node.input[1])
    if transpose is None or not _is(transpose.proto, "Transpose", 1) or not _swaps(transpose.proto):
        return None
    find = own.get(transpose.proto.input[0])
    if find is None or not _is(find.proto, "NonZero", 1) or find.proto.attribute:
        return None
    return helper.make_node("MaskedSelect", [node.input[0], find.proto.input[0]], node.output, node.name, domain=OWN)


def _is(node: onnx.NodeProto, op: str, inputs: int) -> bool:
    known = node.domain in ("", "ai.onnx") and node.op_type == op
    return known and len(node.input) == inputs and all(node.input) and len(node.output) == 1


def _swaps(transpose: onnx.NodeProto) -> bool:
    """Whether a Transpose of a matrix is right as it is, and turns that."""
    return not transpose.attribute or [(a.name, [*a.ints]) for a in transpose.attribute] == [("perm", [1, 0])]
