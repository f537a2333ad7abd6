"""Where the elements of a value lie in the memory of the value that it was rearranged from.

Transposes, reshapes, slices, expansions and single rows of a gather only rearrange: their result is the flat memory of
another value, read with other strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.graph.ir import Node
from autotune.graph.passes.match import MAX_STEPS, beside_number
from autotune.graph.passes.sweep import Sweep

Parts = tuple[tuple[int, int], ...]
"""(extent, stride) of each part of one dimension, outermost first; none for an extent of 1, stride 0 where repeated."""


@dataclass(frozen=True, slots=True)
class View:
    """`scale` times the element at offset + sum of index · stride of the flat `base`, over all parts of `dims`."""

    base: str
    dims: tuple[Parts, ...]
    offset: int = 0
    scale: float = 1.0


def trace(sweep: Sweep, name: str, steps: int = MAX_STEPS) -> View:
    """The value as a view of the farthest value that it can be read from, at most `steps` nodes up.

    Numbers that scale it are taken out too.
    """
    node = sweep.producers.get(name)
    value = sweep.values[name]
    found = _through(sweep, node, steps - 1) if node is not None and value.size and steps else None
    return found if found is not None else View(name, _row_major(value.shape))


def _row_major(shape: Sequence[int]) -> tuple[Parts, ...]:
    return tuple(_joined([(n, math.prod(shape[d + 1 :]))]) for d, n in enumerate(shape))


def _joined(parts: Sequence[tuple[int, int]]) -> Parts:
    """The parts without those of extent 1, neighbours that follow each other in memory as one."""
    found: list[tuple[int, int]] = []
    for extent, stride in parts:
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(found)


def _through(sweep: Sweep, node: Node, steps: int) -> View | None:
    """The result of one node as a view of its operand's base."""
    if node.op in ("mul", "div"):
        scaled = beside_number(sweep, node)
        if scaled is None or (node.op == "div" and not scaled[1]):
            return None
        source = trace(sweep, scaled[0], steps)
        return replace(source, scale=source.scale * scaled[1] if node.op == "mul" else source.scale / scaled[1])
    if node.op not in ("transpose", "reshape", "expand", "slice", "gather"):
        return None
    source, shape = trace(sweep, node.inputs[0], steps), sweep.values[node.inputs[0]].shape
    if node.op == "transpose":
        return replace(source, dims=tuple(source.dims[p] for p in node.int_tuple("perm")))
    if node.op == "reshape":
        dims = _regrouped([part for parts in source.dims for part in parts], node.output.shape)
        return None if dims is None else replace(source, dims=dims)
    if node.op == "expand":
        new = len(node.output.shape) - len(shape)
        before = (*((),) * new, *source.dims)
        own = (*(1,) * new, *shape)
        repeated = zip(own, node.output.shape, before, strict=True)
        return replace(source, dims=tuple(((m, 0),) if n == 1 != m else parts for n, m, parts in repeated))
    if any(len(parts) > 1 for parts in source.dims):
        return None
    strides = [parts[0][1] if parts else 0 for parts in source.dims]
    if node.op == "slice":
        begin, step = node.int_tuple("begin"), node.int_tuple("step")
        cut = zip(node.output.shape, step, strides, strict=True)
        offset = source.offset + sum(b * s for b, s in zip(begin, strides, strict=True))
        return replace(source, dims=tuple(_joined([(n, by * s)]) for n, by, s in cut), offset=offset)
    chosen, axis = sweep.array(node.inputs[1]), node.attr("axis")
    if chosen is None or chosen.ndim or not isinstance(axis, int):
        return None
    axis %= len(shape)
    row = int(chosen)
    if not -shape[axis] <= row < shape[axis]:
        return None
    offset = source.offset + row % shape[axis] * strides[axis]
    return replace(source, dims=source.dims[:axis] + source.dims[axis + 1 :], offset=offset)


def _regrouped(parts: Sequence[tuple[int, int]], wanted: Sequence[int]) -> tuple[Parts, ...] | None:
    """The same elements, in the same order, in dimensions of other extents; None where these cut across the parts."""
    todo = list(reversed(parts))
    found: list[Parts] = []
    for extent in wanted:
        taken: list[tuple[int, int]] = []
        while extent > 1:
            whole, stride = todo.pop()
            if extent % whole == 0:
                taken.append((whole, stride))
                extent //= whole
            elif whole % extent == 0:
                rest = whole // extent
                taken.append((extent, stride * rest))
                todo.append((rest, stride))
                extent = 1
            else:
                return None
        found.append(_joined(taken))
    return tuple(found)
