"""Ends that are known when a program runs: conditions on positions that an input decides."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph


def position_below(graph: Graph, name: str) -> tuple[int, str] | None:
    """(axis, input) of a condition that holds at the positions along one dimension that are below an input."""
    if name not in graph.values:
        return None
    shape, node = graph.values[name].shape, graph.producers.get(name)
    while node is not None and node.op in ("reshape", "expand"):
        node = graph.producers.get(node.inputs[0])
    if node is None or node.op != "less" or len(node.output.shape) != 1 or node.output.size < 2:
        return None
    places = graph.constants.get(node.inputs[0])
    if places is None or not np.array_equal(places, np.arange(node.output.size)):
        return None
    axes = [n for n, extent in enumerate(shape) if extent > 1]
    end = scalar_source(graph, node.inputs[1])
    return (axes[0], end) if len(axes) == 1 and end is not None else None


def scalar_source(graph: Graph, name: str) -> str | None:
    """The input without dimensions that all elements of a value are; None where there is none."""
    inputs = {value.name: value for value in graph.inputs}
    while name not in inputs:
        node = graph.producers.get(name)
        if node is None or node.op not in ("reshape", "expand"):
            return None
        name = node.inputs[0]
    return name if inputs[name].shape == () else None
