"""Rotary position embeddings written in primitive nodes become one node each.

requires: a verified graph.
ensures: no sum of a value times cosines and its features in swapped pairs, one of each negated, times sines is left,
nor the same written pair by pair; a rotation of the first features takes in the others, and comes before transposes.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.graph.passes.views import trace
from autotune.tensor import DType

ORDERS = ("bhsd", "bshd")


def recognize_rotary(graph: Graph) -> Graph:
    """`x * cos + [-x₂ x₁] * sin` --> `rotary(x, cos, sin)`;  `[a·c - b·s, b·c + a·s]` --> `rotary([a b], c, s)`."""
    return rewrite(graph, lambda sweep, node: _RULES[node.op](sweep, node), _RULES)


def _sum(sweep: Sweep, node: Node) -> str | None:
    if len(node.output.shape) != 4 or not DType(node.output.dtype).is_float:
        return None
    for straight, crossed in permutations(_factors(sweep, name) for name in node.inputs):
        for (x, cos), (swapped, sin) in ((a, b) for a in straight for b in crossed):
            if sweep.values[x].shape != node.output.shape:
                continue
            interleaved = _pairing(sweep, swapped, x)
            if interleaved is not None:
                return _rotary(sweep, node, x, cos, sin, interleaved=interleaved)
    return None


def _factors(sweep: Sweep, name: str) -> list[tuple[str, str]]:
    """Both orders of the factors of a product."""
    product = made_by(sweep, name, "mul")
    return [] if product is None else [(product.inputs[0], product.inputs[1]), (product.inputs[1], product.inputs[0])]


def _pairing(sweep: Sweep, swapped: str, x: str) -> bool | None:
    """Whether pairs lie side by side (or half of the features apart), where the value is x with its pairs swapped."""
    shape = sweep.values[x].shape
    half = shape[-1] // 2
    joined = made_by(sweep, swapped, "concat")
    if joined is not None and len(joined.inputs) == 2 and joined.attr("axis") in (-1, 3):
        second, first = joined.inputs
        negated = made_by(sweep, second, "neg")
        halves = negated is not None and _is_part(sweep, negated.inputs[0], x, half, 1)
        return False if halves and _is_part(sweep, first, x, 0, 1) else None
    flat = made_by(sweep, swapped, "reshape")
    joined = made_by(sweep, flat.inputs[0], "concat") if flat is not None else None
    if flat is None or joined is None or len(joined.inputs) != 2 or joined.output.shape != (*shape[:-1], half, 2):
        return None
    odd, even = (made_by(sweep, name, "reshape") for name in joined.inputs)
    negated = made_by(sweep, odd.inputs[0], "neg") if odd is not None else None
    if even is None or negated is None:
        return None
    return True if _is_part(sweep, negated.inputs[0], x, 1, 2) and _is_part(sweep, even.inputs[0], x, 0, 2) else None


def _is_part(sweep: Sweep, part: str, x: str, begin: int, step: int) -> bool:
    """Whether `part` is the half of the features of x that begins at `begin` and takes every `step`-th."""
    shape = sweep.values[x].shape
    half = shape[-1] // 2
    if shape[-1] % 2 or not half or sweep.values[part].shape != (*shape[:-1], half):
        return False
    cut = made_by(sweep, part, "slice")
    if cut is not None and cut.inputs[0] == x:
        return cut.int_tuple("begin")[3] == begin and cut.int_tuple("step") == (1, 1, 1, step)
    whole, found = trace(sweep, x), trace(sweep, part)
    if (found.base, found.scale, found.dims[:-1]) != (whole.base, whole.scale, whole.dims[:-1]):
        return False
    if len(whole.dims[-1]) != 1:
        return False
    stride = whole.dims[-1][0][1]
    wanted = ((half, stride * step),) if half > 1 else ()
    return found.dims[-1] == wanted and found.offset == whole.offset + begin * stride


def _joined(sweep: Sweep, node: Node) -> str | None:
    """A concatenation of features: both halves of a rotation, or a rotation and features that it leaves alone."""
    shape = node.output.shape
    if len(shape) != 4 or node.attr("axis") not in (-1, 3) or len(node.inputs) != 2:
        return None
    turned = made_by(sweep, node.inputs[0], "rotary")
    if turned is not None and str(turned.attr("order"))[-1] == "d" and sweep.sole_use(turned.name):
        x = _neighbours(sweep, node, turned.inputs[0], node.inputs[1])
        return None if x is None else sweep.emit(node, "rotary", (x, *turned.inputs[1:]), **dict(turned.attrs))
    minus, plus = made_by(sweep, node.inputs[0], "sub"), made_by(sweep, node.inputs[1], "add")
    if minus is None or plus is None or minus.output.shape != plus.output.shape:
        return None
    kept, taken = (_factors(sweep, name) for name in minus.inputs)
    added = [tuple(sorted(pair)) for name in plus.inputs for pair in _factors(sweep, name)[:1]]
    for (a, cos), (b, sin) in ((one, other) for one in kept for other in taken):
        crossed = [tuple(sorted((b, cos))), tuple(sorted((a, sin)))]
        if added not in (crossed, crossed[::-1]) or {sweep.values[v].shape for v in (a, b)} != {minus.output.shape}:
            continue
        x = _neighbours(sweep, node, a, b)
        if x is not None:
            return _rotary(sweep, node, x, cos, sin, interleaved=False)
    return None


def _neighbours(sweep: Sweep, node: Node, first: str, second: str) -> str | None:
    """The value whose features are those of `first` and then those of `second`, parts of the same one."""
    parts = [made_by(sweep, name, "slice") for name in (first, second)]
    one, other = parts
    if one is None or other is None or one.inputs != other.inputs or {*one.int_tuple("step")} != {1}:
        return None
    begin, size = one.int_tuple("begin"), one.int_tuple("size")
    if other.attr("step") != one.attr("step") or other.int_tuple("begin") != (*begin[:3], begin[3] + size[3]):
        return None
    shape = node.output.shape
    if sweep.values[one.inputs[0]].shape == shape:
        return one.inputs[0]
    return sweep.emit(node, "slice", one.inputs, begin=begin, size=shape, step=(1, 1, 1, 1))


def _rotary(sweep: Sweep, node: Node, x: str, cos: str, sin: str, *, interleaved: bool) -> str | None:
    for order in ORDERS:
        tables = [_table(sweep, node, name, order, interleaved=interleaved) for name in (cos, sin)]
        shapes = {sweep.values[t].shape for t in tables if t is not None}
        if None not in tables and len(shapes) == 1:
            operands = (x, *(t for t in tables if t is not None))
            dim = node.output.shape[3]
            return sweep.emit(node, "rotary", operands, order=order, dim=dim, interleaved=interleaved)
    return None


def _table(sweep: Sweep, node: Node, name: str, order: str, *, interleaved: bool) -> str | None:
    """Cosines or sines as (batch or 1, sequence, features or pairs), where they do not depend on the head."""
    value = sweep.values[name]
    if len(value.shape) > 4 or value.dtype != node.output.dtype:
        return None
    given = dict(zip(order, (1,) * (4 - len(value.shape)) + value.shape, strict=True))
    whole = dict(zip(order, node.output.shape, strict=True))
    fits = given["h"] == 1 and given["b"] in (1, whole["b"]) and given["s"] == whole["s"]
    if not fits or given["d"] not in (whole["d"], whole["d"] // 2):
        return None
    shape = (given["b"], given["s"], given["d"])
    array = sweep.array(name)
    if array is not None:
        array = array.reshape(shape)
        once, again = (array[..., 0::2], array[..., 1::2]) if interleaved else np.split(array, 2, axis=2)
        twice = given["d"] == whole["d"] and np.array_equal(once, again)
        return sweep.constant(np.ascontiguousarray(once) if twice else array, name)
    return name if value.shape == shape else sweep.emit(node, "reshape", (name,), shape=shape)


def _moved(sweep: Sweep, node: Node) -> str | None:
    """`rotary(transpose(x))` --> `transpose(rotary(x))`."""
    source = made_by(sweep, node.inputs[0], "transpose")
    if source is None or not sweep.sole_use(source.name):
        return None
    perm, order = source.int_tuple("perm"), str(node.attr("order"))
    before = "".join(order[perm.index(d)] for d in range(4))
    turned = sweep.emit(node, "rotary", (source.inputs[0], *node.inputs[1:]), **{**dict(node.attrs), "order": before})
    return sweep.emit(node, "transpose", (turned,), perm=perm)


_RULES = {"add": _sum, "concat": _joined, "rotary": _moved}
