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


def index_below(graph: Graph, name: str) -> str | None:
    """The input without dimensions that each element of an index is below: it less some constants. What would be less
    than nothing is no place, and such a run is refused."""
    shift = 0
    while (node := graph.producers.get(name)) is not None and node.op in ("add", "mul", "reshape", "expand"):
        known = [graph.constants[operand] for operand in node.inputs if operand in graph.constants]
        others = [operand for operand in node.inputs if operand not in graph.constants]
        if len(others) != 1 or not all(array.size for array in known):
            return None
        if node.op == "mul" and not all((array == 1).all() for array in known):
            return None
        shift += sum(int(array.max()) for array in known) if node.op == "add" else 0
        (name,) = others
    return scalar_source(graph, name) if shift < 0 else None


def scalar_source(graph: Graph, name: str) -> str | None:
    """The input without dimensions that all elements of a value are; None where there is none."""
    inputs = {value.name: value for value in graph.inputs}
    while name not in inputs:
        node = graph.producers.get(name)
        if node is None or node.op not in ("reshape", "expand"):
            return None
        name = node.inputs[0]
    return name if inputs[name].shape == () else None
