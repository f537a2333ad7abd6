"""Where the elements of a value lie in the memory of the value that it was rearranged from.

Transposes, reshapes, slices and single rows of a gather only rearrange: their result is the flat memory of another
value, read with other strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.graph.ir import Node
from autotune.graph.passes.match import MAX_STEPS, beside_number
from autotune.graph.passes.sweep import Sweep


@dataclass(frozen=True, slots=True)
class View:
    """`scale` times the element at offset + sum of index · stride of the flat `base`."""

    base: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    scale: float = 1.0


def trace(sweep: Sweep, name: str, steps: int = MAX_STEPS) -> View:
    """The value as a view of the farthest value that it can be read from, at most `steps` nodes up.

    Numbers that scale it are taken out too.
    """
    node = sweep.producers.get(name)
    value = sweep.values[name]
    found = _through(sweep, node, steps - 1) if node is not None and value.size and steps else None
    return found if found is not None else View(name, value.shape, row_major(value.shape))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _through(sweep: Sweep, node: Node, steps: int) -> View | None:
    """The result of one node as a view of its operand's base."""
    if node.op in ("mul", "div"):
        scaled = beside_number(sweep, node)
        if scaled is None or (node.op == "div" and not scaled[1]):
            return None
        source = trace(sweep, scaled[0], steps)
        return replace(source, scale=source.scale * scaled[1] if node.op == "mul" else source.scale / scaled[1])
    if node.op not in ("transpose", "reshape", "slice", "gather"):
        return None
    source = trace(sweep, node.inputs[0], steps)
    if node.op == "transpose":
        perm = node.int_tuple("perm")
        return replace(
            source, shape=tuple(source.shape[p] for p in perm), strides=tuple(source.strides[p] for p in perm)
        )
    if node.op == "reshape":
        strides = reshaped(source.shape, source.strides, node.output.shape)
        return None if strides is None else replace(source, shape=node.output.shape, strides=strides)
    if node.op == "slice":
        begin, step = node.int_tuple("begin"), node.int_tuple("step")
        offset = source.offset + sum(b * s for b, s in zip(begin, source.strides, strict=True))
        strides = tuple(n * s for n, s in zip(step, source.strides, strict=True))
        return replace(source, shape=node.output.shape, strides=strides, offset=offset)
    chosen, axis = sweep.array(node.inputs[1]), node.attr("axis")
    if chosen is None or chosen.ndim or not isinstance(axis, int):
        return None
    axis %= len(source.shape)
    row = int(chosen) % source.shape[axis] if -source.shape[axis] <= int(chosen) < source.shape[axis] else -1
    if row < 0:
        return None
    return replace(
        source,
        shape=source.shape[:axis] + source.shape[axis + 1 :],
        strides=source.strides[:axis] + source.strides[axis + 1 :],
        offset=source.offset + row * source.strides[axis],
    )


def reshaped(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the same elements, in the same order, under another shape; None when they are not evenly spaced."""
    source = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    found: list[int] = []
    at = 0
    rest = 1  # extent of the source dimension that is being split, outer parts taken off
    inner = 1
    for extent in wanted:
        if extent == 1:
            found.append(0)
            continue
        if rest == 1:
            if at == len(source):
                return None
            rest, inner = source[at]
            at += 1
            # Neighbours that follow each other in memory are one dimension.
            while at < len(source) and inner == source[at][0] * source[at][1]:
                rest, inner = rest * source[at][0], source[at][1]
                at += 1
        if rest % extent:
            return None
        rest //= extent
        found.append(rest * inner)
    return tuple(found) if rest == 1 and at == len(source) else None
