"""Slices and concatenations that undo, follow or contain one another become one, or none.

requires: a verified graph.    ensures: no slice of a slice; no slice of a concatenation that lies in one part; no
neighbours in a concatenation that are neighbouring slices of one value; no concatenation along the same axis of one
that nobody else reads; no gather at constant positions in equal steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep, rewrite

Ranges = list[range]


def merge_slices(graph: Graph) -> Graph:
    """`slice(slice(x))` --> `slice(x)`; `slice(concat(a, b))` --> `slice(a)`; `concat(slice(x), slice(x))` --> `x`."""
    return rewrite(graph, lambda sweep, node: _RULES[node.op](sweep, node), _RULES)


def _ranges(node: Node) -> Ranges:
    """What a slice takes, one range per dimension."""
    entries = (node.int_tuple(name) for name in ("begin", "size", "step"))
    return [range(begin, begin + size * step, step) for begin, size, step in zip(*entries, strict=True)]


def _emit(sweep: Sweep, like: Node, x: str, ranges: Sequence[range]) -> str:
    """The slice, or the value itself when everything is taken."""
    if all(r == range(extent) for r, extent in zip(ranges, sweep.values[x].shape, strict=True)):
        return x
    begin, size, step = ([r.start if r else 0 for r in ranges], map(len, ranges), [r.step for r in ranges])
    return sweep.emit(like, "slice", (x,), begin=tuple(begin), size=tuple(size), step=tuple(step))


def _slice(sweep: Sweep, node: Node) -> str | None:
    """A slice of a slice composed; one of a concatenation taken from the part that it lies in."""
    producer, ranges = sweep.producers.get(node.inputs[0]), _ranges(node)
    if producer is not None and producer.op == "slice":
        inner = _ranges(producer)
        composed = [i[r.start : r.stop if r.stop >= 0 else None : r.step] if r else r for i, r in zip(inner, ranges)]
        return _emit(sweep, node, producer.inputs[0], composed)
    if producer is None or producer.op != "concat" or not node.output.size:
        return None
    axis, start = _axis(producer), 0
    low, high = min(ranges[axis][0], ranges[axis][-1]), max(ranges[axis][0], ranges[axis][-1])
    for part in producer.inputs:
        extent = sweep.values[part].shape[axis]
        if start <= low and high < start + extent:
            own = ranges[axis]
            ranges[axis] = range(own.start - start, own.stop - start, own.step)
            return _emit(sweep, node, part, ranges)
        start += extent
    return None


def _axis(node: Node) -> int:
    axis = node.attr("axis")
    assert isinstance(axis, int)
    return axis % len(node.output.shape)


def _concat(sweep: Sweep, node: Node) -> str | None:
    """Parts flattened, empty ones left out, neighbouring slices of one value joined."""
    axis = _axis(node)
    parts: list[str] = []
    for name in node.inputs:
        producer = sweep.producers.get(name)
        inner = producer is not None and producer.op == "concat" and _axis(producer) == axis and sweep.sole_use(name)
        inner = inner and node.inputs.count(name) == 1  # else parts double with every level
        parts += producer.inputs if producer is not None and inner else (name,)
    parts = [name for name in parts if sweep.values[name].shape[axis]] or parts[:1]
    runs: list[tuple[str, _Piece | None]] = []  # parts of the result, each with what it is a slice of
    for name in parts:
        piece = _piece(sweep.producers.get(name))
        before = runs[-1][1] if runs else None
        whole = before.joined(piece, axis) if before is not None and piece is not None else None
        if whole is not None:
            runs[-1] = ("", whole)
        else:
            runs.append((name, piece))
    if len(runs) == len(node.inputs):
        return None
    names = [name if name or piece is None else _emit(sweep, node, piece.source, piece.ranges) for name, piece in runs]
    return names[0] if len(names) == 1 else sweep.emit(node, "concat", names, axis=axis)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A slice of a value."""

    source: str
    ranges: Ranges

    def joined(self, after: _Piece, axis: int) -> _Piece | None:
        """Both as one slice, when `after` goes on along the axis where this one ends."""
        a, b = self.ranges[axis], after.ranges[axis]
        if self.source != after.source or a.step != b.step or a.stop != b.start:
            return None
        if any(x != y for d, (x, y) in enumerate(zip(self.ranges, after.ranges, strict=True)) if d != axis):
            return None
        return _Piece(self.source, [*self.ranges[:axis], range(a.start, b.stop, a.step), *self.ranges[axis + 1 :]])


def _piece(producer: Node | None) -> _Piece | None:
    return _Piece(producer.inputs[0], _ranges(producer)) if producer is not None and producer.op == "slice" else None


def _gather(sweep: Sweep, node: Node) -> str | None:
    """A gather at constant positions in equal steps as a slice."""
    indices, shape, axis = sweep.array(node.inputs[1]), sweep.values[node.inputs[0]].shape, node.attr("axis")
    assert isinstance(axis, int)
    if indices is None or not indices.size:
        return None
    axis, extent = axis % len(shape), shape[axis]
    flat = indices.astype(np.int64).reshape(-1)
    positions = np.where(flat < 0, flat + extent, flat)
    steps = np.unique(np.diff(positions))
    if positions.min() < 0 or positions.max() >= extent or len(steps) > 1 or 0 in steps:
        return None
    step = int(steps[0]) if len(steps) else 1
    ranges = [range(e) for e in shape]
    ranges[axis] = range(int(positions[0]), int(positions[0]) + step * len(positions), step)
    taken = _emit(sweep, node, node.inputs[0], ranges)
    return taken if indices.ndim == 1 else sweep.emit(node, "reshape", (taken,), shape=node.output.shape)


_RULES = {"slice": _slice, "concat": _concat, "gather": _gather}
