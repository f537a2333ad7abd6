"""Bounds that follow each other become one clip.

requires: a verified graph.    ensures: no bound by a number of what is bounded by a number and read by nobody else.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import bounded
from autotune.graph.passes.sweep import Sweep, rewrite

BOUNDS = frozenset({"clip", "relu", "min", "max"})


def merge_clips(graph: Graph) -> Graph:
    """`min(max(x, 0), 6)` --> `clip(x)`;  `relu(clip(x))` --> `clip(x)`."""
    return rewrite(graph, _clip, BOUNDS)


def _clip(sweep: Sweep, node: Node) -> str | None:
    found = bounded(sweep, node.name)
    inner = next((name for name in node.inputs if sweep.array(name) is None), node.name)
    if found.value in (node.name, *node.inputs) or not sweep.sole_use(inner):
        return None
    return sweep.emit(node, "clip", (found.value,), min=found.low, max=found.high)
