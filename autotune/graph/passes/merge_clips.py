"""Bounds that follow each other become one clip.

requires: a verified graph.    ensures: no bound by a number of what is bounded by a number and read by nobody else.
"""

from __future__ import annotations

from autotune.graph.ir import Graph
from autotune.graph.passes.match import bounded
from autotune.graph.passes.sweep import Sweep

BOUNDS = frozenset({"clip", "relu", "min", "max"})


def merge_clips(graph: Graph) -> Graph:
    """`min(max(x, 0), 6)` --> `clip(x)`;  `relu(clip(x))` --> `clip(x)`."""
    sweep = Sweep(graph)
    for node in sweep:
        found = bounded(sweep, node.name) if node.op in BOUNDS else None
        inner = next((name for name in node.inputs if sweep.array(name) is None), node.name)
        if found is None or found.value in (node.name, *node.inputs) or not sweep.sole_use(inner):
            sweep.keep(node)
        else:
            sweep.replace(node, sweep.emit(node, "clip", (found.value,), min=found.low, max=found.high))
    return sweep.result()
