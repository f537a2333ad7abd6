"""Operators that move tensors of strings: converted as if the elements were numbers, their places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.errors import InputError
from autotune.graph.builder import GraphBuilder
from autotune.graph.evaluate import evaluate_graph
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.checks import convert_node
from autotune.graph.frontend.node import OnnxNode, OutsideError
from autotune.graph.host import HostValue
from autotune.graph.ir import Array, Output

MOVES = frozenset(
    ("Compress", "DepthToSpace", "Expand", "GatherElements", "GatherND", "MaskedSelect", "ReverseSequence",
     "ScatterElements", "ScatterND", "SpaceToDepth", "Split", "Tile", "Where")
)  # fmt: skip
"""Beside those of `autotune.graph.host.movement`."""


def move_strings(node: NodeAttributes, values: Sequence[HostValue]) -> list[HostValue]:
    """The results of one of MOVES some of whose inputs are strings."""
    strings, numbers = list[Array](), list[HostValue]()
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype == object:
            start = sum(found.size for found in strings)
            strings.append(value.reshape(-1))
            value = np.arange(start, start + value.size, dtype=np.int64).reshape(value.shape)
        numbers.append(value)
    texts = np.concatenate(strings)
    return [None if places is None else texts[places] for places in evaluated(node, numbers)]


def evaluated(node: NodeAttributes, values: Sequence[HostValue]) -> list[Array | None]:
    """The results of any operator that is converted, by evaluation: slow, and its definition.

    Raises:
        ModelError, InputError: it is impossible for these values.
    """
    builder = GraphBuilder("node")
    names = [builder.constant(value) if isinstance(value, np.ndarray) else None for value in values]
    try:
        results = convert_node(OnnxNode(node.proto, node.opset, node.folder, tuple(names), builder))
    except OutsideError as error:  # the indices are those of a run
        raise InputError(str(error)) from error
    graph = builder.build([Output(name, name) for name in dict.fromkeys(results) if name])
    found = evaluate_graph(graph, {})
    return [found[name] if name else None for name in results]
