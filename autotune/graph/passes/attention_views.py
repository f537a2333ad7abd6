"""Attention reads its operands where they are: heads that were split, moved or cut out of a larger value.

requires: a verified graph.
ensures: no operand of an attention is a transpose, slice or scaling that the operator can express itself, and no
transpose of a result that only it reads is left.
"""

from __future__ import annotations

import math

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep
from autotune.graph.passes.views import View, trace
from autotune.ops.workload import AttrValue

LETTERS = "bhsd"


def attention_views(graph: Graph) -> Graph:
    """`attention(transpose(reshape(x)), ...)` --> `attention(reshape(x), ..., order=...)`; transposes behind it too."""
    sweep = Sweep(graph)
    for node in sweep:
        found = None
        if node.op == "attention":
            found = _in_place(sweep, node)
        elif node.op == "transpose":
            found = _written_transposed(sweep, node)
        if found is None:
            sweep.keep(node)
        else:
            sweep.replace(node, found)
    return sweep.result()


def _orders(node: Node) -> list[str]:
    return str(node.attr("order")).split(",")


def _written_transposed(sweep: Sweep, node: Node) -> str | None:
    source = made_by(sweep, node.inputs[0], "attention")
    if source is None or source.attr("result") or not sweep.sole_use(source.name):
        return None
    orders = _orders(source)
    orders[3] = "".join(orders[3][p] for p in node.int_tuple("perm"))
    return sweep.emit(node, "attention", source.inputs, **{**dict(source.attrs), "order": ",".join(orders)})


def _in_place(sweep: Sweep, node: Node) -> str | None:
    orders, first = _orders(node), list(node.int_tuple("first"))
    operands, scale = list(node.inputs), _number(node, "scale")
    for position in range(3):
        view = trace(sweep, operands[position])
        if view.base == operands[position] or (position == 2 and view.scale != 1.0):
            continue  # values are not scaled by the operator
        found = _heads(view, orders[position], first[position], sweep.values[view.base].size)
        if found is None:
            continue
        shape, order, start = found
        if sweep.values[view.base].shape == shape:
            name = view.base
        elif _is_reshape_of(sweep, operands[position], view.base, shape):
            name = operands[position]
        else:
            name = sweep.emit(node, "reshape", (view.base,), shape=shape)
        operands[position], orders[position], first[position], scale = name, order, start, scale * view.scale
    attrs: dict[str, AttrValue] = {**dict(node.attrs), "order": ",".join(orders), "first": tuple(first), "scale": scale}
    if tuple(operands) == node.inputs:
        return None
    return sweep.emit(node, "attention", operands, **attrs)


def _is_reshape_of(sweep: Sweep, name: str, base: str, shape: tuple[int, ...]) -> bool:
    node = made_by(sweep, name, "reshape")
    return node is not None and node.inputs[0] == base and node.output.shape == shape


def _number(node: Node, name: str) -> float:
    value = node.attr(name)
    assert isinstance(value, float)
    return value


def _heads(view: View, order: str, first: int, size: int) -> tuple[tuple[int, ...], str, int] | None:
    """(4-D shape of the base, order of its dimensions, first head) under which the operator reads a view.

    Args:
        view: of the operand, 4-D, its dimensions named by `order`, heads counted from `first`.
        size: elements of the base.
    """
    named = {x: (n, s) for x, n, s in zip(order, view.shape, view.strides, strict=True)}
    offset = view.offset
    single = [x for x in LETTERS if named[x][0] == 1]
    others = sorted((x for x in LETTERS if named[x][0] != 1), key=lambda x: -named[x][1])
    if not others or named[others[-1]][1] != 1:
        return None
    whole = size
    extents: dict[str, int] = dict.fromkeys(single, 1)
    for x in others:
        extent, stride = named[x]
        if stride < 1 or whole % stride:
            return None
        extents[x], whole = whole // stride, stride
        if x == "h":
            first, offset = first + offset // stride, offset % stride
        if extents[x] != extent and (x != "h" or extents[x] < extent):
            return None
    if offset:
        return None
    found = "".join((*single, *others))
    shape = tuple(extents[x] for x in found)
    return (shape, found, first) if math.prod(shape) == size else None
