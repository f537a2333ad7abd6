"""Dead code: drop nodes and constants from which no output can be reached.

requires: a verified graph.    ensures: every node and constant is needed by some output.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.graph.ir import Graph


def remove_dead_code(graph: Graph) -> Graph:
    """Graph inputs stay: they are the model's interface."""
    live = set(graph.output_values)
    for node in reversed(graph.nodes):
        if node.name in live:
            live.update(node.inputs)
    nodes = tuple(node for node in graph.nodes if node.name in live)
    constants = {name: array for name, array in graph.constants.items() if name in live}
    if len(nodes) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return replace(graph, nodes=nodes, constants=constants)
