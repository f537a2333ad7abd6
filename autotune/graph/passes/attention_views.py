"""Attention reads its operands where they are: heads that were split, moved, repeated or cut out of a larger value.

requires: a verified graph.
ensures: no operand of an attention is a transpose, slice, repetition or scaling that the operator can express itself,
and no transpose of a result that only it reads is left.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import MAX_STEPS, made_by
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.graph.passes.views import View, trace
from autotune.ops.workload import AttrValue

LETTERS = "bhsd"
NEAR = 3
"""Nodes up that are looked at where the farthest value cannot be read in place: a copy may be among those above."""


def attention_views(graph: Graph) -> Graph:
    """`attention(transpose(reshape(x)), ...)` --> `attention(reshape(x), ..., order=...)`; transposes behind it too."""
    return rewrite(graph, lambda sweep, node: _RULES[node.op](sweep, node), _RULES)


def _orders(node: Node) -> list[str]:
    return str(node.attr("order")).split(",")


def _written_transposed(sweep: Sweep, node: Node) -> str | None:
    """A transpose of the result, or of the result without a first dimension of 1, as another order of dimensions."""
    source, perm = made_by(sweep, node.inputs[0], "attention", "reshape"), node.int_tuple("perm")
    if source is None or not sweep.sole_use(source.name):
        return None
    if source.op == "reshape":
        inner = made_by(sweep, source.inputs[0], "attention")
        if inner is None or inner.output.shape != (1, *source.output.shape) or not sweep.sole_use(inner.name):
            return None
        source, perm = inner, (0, *(p + 1 for p in perm))
    if source.attr("result"):
        return None
    orders = _orders(source)
    orders[3] = "".join(orders[3][p] for p in perm)
    result = sweep.emit(node, "attention", source.inputs, **{**dict(source.attrs), "order": ",".join(orders)})
    if sweep.values[result].shape == node.output.shape:
        return result
    return sweep.emit(node, "reshape", (result,), shape=node.output.shape)


def _in_place(sweep: Sweep, node: Node) -> str | None:
    orders, first = _orders(node), list(node.int_tuple("first"))
    operands, scale, kv_heads = list(node.inputs), node.number("scale"), node.attr("kv_heads")
    seen_from = [_readable(sweep, *operand) for operand in zip(node.inputs[:3], orders, first, strict=False)]
    views, found = [view for view, _ in seen_from], [heads for _, heads in seen_from]
    if views[2].scale != 1.0:  # the operator scales no values
        found[2] = None
    if found[0] is not None and found[0].group > 1:
        found[0] = None
    groups = {n: seen.group for n, seen in enumerate(found) if seen is not None}
    assert isinstance(kv_heads, int)
    if groups.get(1, 1) == groups.get(2, 1):  # keys and values are repeated for the same groups of query heads
        kv_heads //= groups.get(1, 1)
    else:
        found[1:] = [seen if seen is not None and seen.group == 1 else None for seen in found[1:]]
    for n, (view, seen) in enumerate(zip(views, found, strict=True)):
        if seen is None or view.base == operands[n]:
            continue
        if sweep.values[view.base].shape == seen.shape:
            name = view.base
        elif _is_reshape_of(sweep, operands[n], view.base, seen.shape):
            name = operands[n]
        else:
            name = sweep.emit(node, "reshape", (view.base,), shape=seen.shape)
        operands[n], orders[n], first[n], scale = name, seen.order, seen.first, scale * view.scale
    if tuple(operands) == node.inputs:
        return None
    attrs: dict[str, AttrValue] = {"order": ",".join(orders), "first": tuple(first), "scale": scale}
    return sweep.emit(node, "attention", operands, **{**dict(node.attrs), **attrs, "kv_heads": kv_heads})


def _readable(sweep: Sweep, name: str, order: str, first: int) -> tuple[View, Heads | None]:
    """The operand as a view of what lies as far up as the operator can read it from."""
    for steps in (MAX_STEPS, *range(NEAR, 0, -1)):
        view = trace(sweep, name, steps)
        heads = _heads(view, order, first, sweep.values[view.base].size)
        if heads is not None:
            break
    return view, heads


def _is_reshape_of(sweep: Sweep, name: str, base: str, shape: tuple[int, ...]) -> bool:
    node = made_by(sweep, name, "reshape")
    return node is not None and node.inputs[0] == base and node.output.shape == shape


class Heads(NamedTuple):
    """How the operator reads a view: 4-D `shape` of its base, `order` of the dimensions, where its heads begin.

    `group` is how many times in a row each head is read.
    """

    shape: tuple[int, ...]
    order: str
    first: int
    group: int


def _heads(view: View, order: str, first: int, size: int) -> Heads | None:
    """What a view of an operand is to the operator, if it can be read in place.

    Args:
        view: of the operand, 4-D, its dimensions named by `order`, heads counted from `first`.
        size: elements of the base.
    """
    named, offset, group = dict(zip(order, view.dims, strict=True)), view.offset, 1
    if named["h"] and named["h"][-1][1] == 0:
        *outer, (group, _) = named["h"]
        named["h"] = tuple(outer)
    single = [x for x in LETTERS if not named[x]]
    others = [x for x in LETTERS if named[x]]
    if not others or any(len(named[x]) > 1 or named[x][0][1] < 1 for x in others) or (group > 1 and first):
        return None
    others.sort(key=lambda x: -named[x][0][1])
    if named[others[-1]][0][1] != 1:
        return None
    whole = size
    extents: dict[str, int] = dict.fromkeys(single, 1)
    for x in others:
        extent, stride = named[x][0]
        if whole % stride:
            return None
        extents[x], whole = whole // stride, stride
        if x == "h":
            first, offset = first + offset // stride, offset % stride
        if extents[x] != extent and (x != "h" or extents[x] < extent):
            return None
    found = "".join((*single, *others))
    shape = tuple(extents[x] for x in found)
    return Heads(shape, found, first, group) if not offset and math.prod(shape) == size else None


_RULES = {"attention": _in_place, "transpose": _written_transposed}
