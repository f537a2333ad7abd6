"""Dimensions that a model joins to one, an open one among them, are kept apart: as far as operators take each place of
the joined one alone.

Rows of a batch and of a sequence become rows of one matrix, tokens are repeated for each of their experts, a mask is
looked up as one line by `i * length + j`. Where padding lies in between, elements of the joined dimension move; side by
side with the others nothing does. So each value that has a joined dimension in front is computed with those instead,
until something takes it to other dimensions, or needs it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.buckets import apart_rules  # noqa: F401  they register themselves
from autotune.graph.frontend.buckets.analysis import Padding, padding_of
from autotune.graph.frontend.buckets.dimensions import Dimensions
from autotune.graph.frontend.buckets.facts import CannotPad, Extent, size_of
from autotune.graph.frontend.buckets.joined import RULES, Written, with_inputs
from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel

JOINING = ("Flatten", "Reshape")
SHAPED = ("ConstantOfShape", "Expand")
"""Operators whose last input is the shape of the result."""


def kept_apart(model: OnnxModel, *symbols: str) -> OnnxModel:
    """The same model, in which no open dimension is joined to others where that can be; itself where none is.

    Args:
        symbols: of open dimensions that are followed as far as is known of padding them.
    """
    if not any(entry.proto.op_type in JOINING for entry in model.nodes):
        return model
    try:
        written = Written(Dimensions(model, symbols))
    except CannotPad:
        return model
    for index, entry in enumerate(model.nodes):
        _write(written, model.attributes(index), entry)
    for name in model.outputs:
        written.as_it_was(name)
    found = written.known.model
    if not written.apart:
        return model
    return replace(model, initializers=found.initializers, nodes=_read(found), _expanded={})


def that_pads(model: OnnxModel, symbol: str) -> tuple[OnnxModel, Padding]:
    """The model as it is, or with joined dimensions kept apart where that takes it, and how a dimension is padded then.

    Raises:
        CannotPad: it may not be padded either way.
    """
    try:
        return model, padding_of(model, symbol)
    except CannotPad:
        apart = kept_apart(model, symbol)
        if apart is model:
            raise
        return apart, padding_of(apart, symbol)


def _read(model: OnnxModel) -> list[Entry]:
    """The nodes whose results are read."""
    needed, kept = set(model.outputs), list[Entry]()
    for entry in reversed(model.nodes):
        if needed.intersection(entry.writes):
            needed.update(entry.reads)
            kept.append(entry)
    return kept[::-1]


def _write(written: Written, node: NodeAttributes, entry: Entry) -> None:
    """A node, or what is computed in its place."""
    plain = node.proto.domain in ("", "ai.onnx")
    try:
        if plain and node.op in JOINING and _reshaped(written, node, entry):
            return
        read = [name for name in entry.reads if name in written.apart or (name in written.shapes and node.op in SHAPED)]
        if plain and node.op in RULES and read:
            RULES[node.op](written, node)
            return
    except CannotPad:  # what was written for it is read by nobody, and goes
        for name in entry.writes:
            written.apart.pop(name, None)
    for name in entry.reads:
        written.as_it_was(name)
    written.append(entry)


def _reshaped(written: Written, node: NodeAttributes, entry: Entry) -> bool:
    """Whether it joins dimensions, or takes those that are joined to others; then it is written."""
    source, out = node.proto.input[0], node.proto.output[0]
    apart = written.apart.get(source)
    dims = written.known.dims(source) if apart is None else apart.dims
    behind = None if dims is None else _behind(written, node, dims if apart is None else (None, *apart.rest))
    if dims is None or behind is None or 0 in dims:
        return False
    source = source if apart is None else apart.name
    lead = 0 if -1 in behind else next((n for n in range(len(dims), 0, -1) if _alike(dims[n:], behind)), 0)
    joins = [extent for extent in dims[:lead] if extent != 1]
    if len(joins) > 1 and None not in joins and any(isinstance(extent, str) for extent in joins):
        if dims[lead:] != behind:
            first, places = written.target(source, dims[:lead]), _places(written, source, dims, behind)
            source = written.reshape(source, [*first, *places])
        written.keep(out, source, lead)
        return True
    if apart is None:
        return False
    # The same elements in the same order: it makes no difference from where.
    told = written.known.elements(node.proto.input[1]) if node.op == "Reshape" else None
    if told is not None and 0 not in told and None not in told:
        written.append(Entry.of(with_inputs(node.proto, [source, node.proto.input[1]]), entry.opset))
        return True
    if lead:
        written.reshape(source, [-1, *_places(written, source, dims, behind)], out)
    return lead > 0


def _behind(written: Written, node: NodeAttributes, dims: Sequence[Extent]) -> tuple[Extent, ...] | None:
    """What a Reshape or Flatten gives behind the first dimension; None where nobody knows."""
    if node.op == "Flatten":
        cut = node.attr_int("axis", 1) % (len(dims) + 1)
        size = size_of(dims[cut:])
        return None if size is None or size[1] or cut == 0 else (size[0],)
    found = written.known.elements(node.proto.input[1])
    if not found:
        return None
    if not node.attr_int("allowzero", 0):
        if any(extent == 0 and n >= len(dims) for n, extent in enumerate(found)):
            return None
        found = tuple(dims[n] if extent == 0 else extent for n, extent in enumerate(found))
    return found[1:] if all(isinstance(extent, (int, str)) for extent in found[1:]) else None


def _alike(one: Sequence[Extent], other: Sequence[Extent]) -> bool:
    """Whether both are as many elements, whatever open dimensions are."""
    first = size_of(one)
    return first is not None and first == size_of(other)


def _places(written: Written, source: str, dims: Sequence[Extent], behind: Sequence[Extent]) -> list[int | str]:
    """Dimensions that are numbers, or some of a value's own, to be asked for."""
    return [
        extent if isinstance(extent, int) else written.extent(source, list(dims).index(extent)) for extent in behind
    ]
