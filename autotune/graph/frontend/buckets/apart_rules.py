"""Operators that take each place of a joined dimension alone, the first one, written for the dimensions it is made of.

What they write is read in place of their results, so nothing else changes; which dimensions that has is found by the
rules of padding (`Dimensions`).
"""

from __future__ import annotations

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.buckets.facts import CannotPad
from autotune.graph.frontend.buckets.joined import Apart, Written, rule
from autotune.graph.frontend.buckets.rules import ELEMENTWISE


@rule(*ELEMENTWISE)
def elementwise(w: Written, node: NodeAttributes) -> None:
    given = w.given(node)
    known = [one for one in given if one is not None]
    rank, lead = max(one.rank for one in known), known[0].joined
    if any(one.joined != lead or one.rank != rank for one in known):
        raise CannotPad("the joined dimension meets another one")
    inputs = []
    for name, one in zip(node.proto.input, given):
        dims = w.dims(name) if name and one is None else ()
        if len(dims) > rank or (len(dims) == rank and dims[0] != 1):
            raise CannotPad("the joined dimension meets another one")
        if len(dims) == rank:
            name = w.node("Unsqueeze", [name, w.constant(list(range(len(lead) - 1)))])
        inputs.append(name if one is None else one.name)
    w.again(node, inputs, len(lead))


# Products ------------------------------------------------------------------------------------------------


@rule("Gemm")
def gemm(w: Written, node: NodeAttributes) -> None:
    """Rows times a matrix, and a bias for all of them: MatMul takes more than two dimensions."""
    rows, (_, factor, *more), out = w.only(node), node.proto.input, node.proto.output[0]
    bias = more[0] if more else ""
    dims = w.dims(bias) if bias else ()
    if rows.rank != 2 or len(w.dims(factor)) != 2 or node.attr_int("transA", 0):
        raise CannotPad("it is no product of rows with a matrix")
    if (node.attr_float("alpha", 1.0), node.attr_float("beta", 1.0)) != (1.0, 1.0):
        raise CannotPad("it is more than a product")
    if len(dims) > 2 or (len(dims) == 2 and dims[0] != 1):
        raise CannotPad("the joined dimension meets another one")
    if node.attr_int("transB", 0):
        array = w.known.array(factor)
        factor = w.node("Transpose", [factor], perm=[1, 0]) if array is None else w.constant(array.T)  # a view: no copy
    product = w.node("MatMul", [rows.name, factor])
    w.keep(out, w.node("Add", [product, bias]) if bias else product, rows.lead)


@rule("MatMul")
def matmul(w: Written, node: NodeAttributes) -> None:
    """Rows times a matrix, or a product of matrices for each place."""
    one, other = w.given(node)
    if one is None or (other is None and (len(w.dims(node.proto.input[1])) != 2 or not one.rest)):
        raise CannotPad("it is no product of rows with a matrix")
    if other is not None and (one.rank < 3 or one.dims[:-2] != other.dims[:-2]):
        raise CannotPad("it is no product for each place")
    w.again(node, [one.name, node.proto.input[1] if other is None else other.name], one.lead)


# Along another axis --------------------------------------------------------------------------------------


@rule("LayerNormalization", "LogSoftmax", "RMSNormalization", "Softmax")
def along(w: Written, node: NodeAttributes) -> None:
    one = w.only(node)
    old = node.op.endswith("Softmax") and node.opset < 13
    if len(node.proto.output) > 1 or (old and one.rank != 2):
        raise CannotPad("it has several results, or works along several dimensions")
    axis = w.axis(one, node.attr_int("axis", 1 if old else -1))
    if any(w.dims(name) != one.dims[axis:] for name in node.proto.input[1:] if name):
        raise CannotPad("what it multiplies by is of another shape")
    w.again(node, [one.name, *node.proto.input[1:]], one.lead, axis=axis)


@rule("Split", "TopK")
def parts(w: Written, node: NodeAttributes) -> None:
    one = w.only(node)
    axis = w.axis(one, node.attr_int("axis", -1 if node.op == "TopK" else 0))
    w.again(node, [one.name, *node.proto.input[1:]], one.lead, axis=axis)


@rule("ArgMax", "ArgMin")
def place(w: Written, node: NodeAttributes) -> None:
    one = w.only(node)
    w.again(node, [one.name], one.lead, axis=w.axis(one, node.attr_int("axis", 0)))


@rule("ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
def reduce(w: Written, node: NodeAttributes) -> None:
    one, axes = w.only(node), w.ints(node, 1, "axes")
    if not axes:
        raise CannotPad("it works along the joined dimension")
    _with_axes(w, node, one, [w.axis(one, axis) for axis in axes])


@rule("Squeeze", "Unsqueeze")
def ones(w: Written, node: NodeAttributes) -> None:
    one, axes = w.only(node), w.ints(node, 1, "axes")
    if not axes:
        raise CannotPad("which dimensions are meant is not known")
    rank = one.rank + (len(axes) if node.op == "Unsqueeze" else 0)
    places = [axis + rank if axis < 0 else axis for axis in axes]
    if not all(0 < place < rank for place in places):
        raise CannotPad("it works along the joined dimension")
    _with_axes(w, node, one, [place + one.lead - 1 for place in places])


def _with_axes(w: Written, node: NodeAttributes, one: Apart, axes: list[int]) -> None:
    """The same along these axes, which are an input in new opsets."""
    if len(node.proto.input) > 1:
        w.again(node, [one.name, w.constant(axes)], one.lead)
    else:
        w.again(node, [one.name], one.lead, axes=axes)


# Moved elements ------------------------------------------------------------------------------------------


@rule("Slice")
def slice_(w: Written, node: NodeAttributes) -> None:
    one = w.only(node)
    axes = w.ints(node, 3, "axes")
    if len(node.proto.input) < 4 or not axes or any(axis < -one.rank for axis in axes):
        raise CannotPad("which dimensions are meant is not known")
    places = w.constant([w.axis(one, axis) for axis in axes])
    w.again(node, [one.name, *node.proto.input[1:3], places, *node.proto.input[4:]], one.lead)


@rule("Transpose")
def transpose(w: Written, node: NodeAttributes) -> None:
    one = w.only(node)
    order = node.attr_ints("perm") or tuple(reversed(range(one.rank)))
    if order[0] != 0:
        raise CannotPad("it moves the joined dimension")
    w.again(node, [one.name], one.lead, perm=[*range(one.lead), *(n + one.lead - 1 for n in order[1:])])


@rule("ConstantOfShape")
def constant(w: Written, node: NodeAttributes) -> None:
    _as_wide(w, node, [])


def _as_wide(w: Written, node: NodeAttributes, data: list[str]) -> None:
    """What has the shape of a value that is kept apart."""
    like = w.shapes.get(node.proto.input[-1])
    if like is None or (data and len(w.dims(data[0])) > len(like.rest)):
        raise CannotPad("it repeats along the joined dimension")
    w.again(node, [*data, w.shape(w.target(like.name, like.dims))], like.lead)


@rule("Expand", "Tile")
def repeated(w: Written, node: NodeAttributes) -> None:
    if node.op == "Expand" and w.given(node)[0] is None:
        _as_wide(w, node, [node.proto.input[0]])
        return
    one, times = w.only(node), w.ints(node, 1, "repeats")
    if not times or len(times) > one.rank or (len(times) == one.rank and times[0] != 1):
        raise CannotPad("it repeats along the joined dimension")
    if node.op == "Tile" and len(times) < one.rank:
        raise CannotPad("it repeats other dimensions than there are")
    behind = times[1:] if len(times) == one.rank else (*[1] * (one.rank - 1 - len(times)), *times)
    w.again(node, [one.name, w.constant([*[1] * one.lead, *behind])], one.lead)


@rule("Concat")
def concat(w: Written, node: NodeAttributes) -> None:
    given = [one for one in w.given(node) if one is not None]
    alike = len({(one.joined, one.rank) for one in given}) == 1
    if len(given) < len(node.proto.input) or not alike:
        raise CannotPad("the joined dimension meets another one")
    axis = w.axis(given[0], node.attr_int("axis", 0))
    w.again(node, [one.name for one in given], given[0].lead, axis=axis)


# Looked up -----------------------------------------------------------------------------------------------


@rule("Gather")
def gather(w: Written, node: NodeAttributes) -> None:
    (data, index), (table, places), axis = w.given(node), node.proto.input, node.attr_int("axis", 0)
    if data is None and index is not None and axis % len(w.dims(table)) == 0:
        w.again(node, [table, index.name], index.lead)
    elif data is not None and index is None and axis % data.rank:
        w.again(node, [data.name, places], data.lead, axis=w.axis(data, axis))
    elif data is not None and index is None and data.lead == 2:
        _look_up(w, data, places, node.proto.output[0])
    else:
        raise CannotPad("it looks up along the joined dimension")


def _look_up(w: Written, data: Apart, index: str, out: str) -> None:
    """Elements of a line of two dimensions, by their places along both, as tracing writes `data[i, j]`."""
    line = w.in_line(index, data.dims[1])
    if line is None or not all(w.counted(name, extent) for name, extent in zip(line, data.dims)):
        raise CannotPad("it looks up along the joined dimension")
    as_wide = max(len(w.dims(name)) for name in line) == len(w.dims(index))
    if not as_wide or any(w.known.dtype(name) != "i64" for name in line):
        raise CannotPad("its places are of another form than what they are made of")
    zero, last, parts = w.constant(0), w.constant([-1]), []
    for one, other in (line, line[::-1]):
        wide = w.node("Add", [one, w.node("Mul", [other, zero])])  # both are as wide as each other
        parts.append(w.node("Unsqueeze", [wide, last]))
    w.node("GatherND", [data.name, w.node("Concat", parts, axis=-1)], out)


@rule("GatherND")
def gather_nd(w: Written, node: NodeAttributes) -> None:
    data, index = w.given(node)
    if data is not None or index is None or not index.rest or node.attr_int("batch_dims", 0):
        raise CannotPad("it looks up along the joined dimension")
    w.again(node, [node.proto.input[0], index.name], index.lead)


@rule("GatherElements", "ScatterElements")
def elements(w: Written, node: NodeAttributes) -> None:
    known = [one for one in w.given(node) if one is not None]
    if len(known) < len(node.proto.input) or len({(one.joined, one.rank) for one in known}) > 1:
        raise CannotPad("it looks up along the joined dimension")
    w.again(node, [one.name for one in known], known[0].lead, axis=w.axis(known[0], node.attr_int("axis", 0)))


@rule("Shape")
def shape(w: Written, node: NodeAttributes) -> None:
    """What a joined dimension is long is a product."""
    one, found = w.only(node), list[str]()
    for n in range(one.rank)[node.attr_int("start", 0) : node.attr_int("end", one.rank)]:
        part = w.extent(one.name, n + one.lead - 1 if n else 0)
        for axis in range(1, one.lead if n == 0 else 1):
            part = w.node("Mul", [part, w.extent(one.name, axis)])
        found.append(part)
    if not found:
        raise CannotPad("it asks for no dimension")
    w.node("Concat", found, node.proto.output[0], axis=0)
    if len(found) == one.rank:
        w.shapes[node.proto.output[0]] = one
