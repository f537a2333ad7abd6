"""The reference executor: a graph, node by node, through the NumPy evaluation of `autotune.ops`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import InputError
from autotune.graph.ir import Array, Graph, Node, Value
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def
from autotune.tensor import DType
from autotune.tensor.evaluate import evaluate


def evaluate_graph(graph: Graph, feeds: Mapping[str, Array], dtype: DType | None = None) -> dict[str, Array]:
    """Outputs by name.

    Args:
        graph: a verified graph.
        feeds: one array per graph input, of its dtype and shape.
        dtype: compute every float in this dtype instead of its own (f64 for a reference).

    Raises:
        InputError: a feed is missing, or has another dtype or shape; or a check of the graph fails.
    """
    held: dict[str, Array] = dict(graph.constants)
    held.update((value.name, _checked_feed(value, feeds)) for value in graph.inputs)
    readers = Counter(name for node in graph.nodes for name in set(node.inputs))
    readers.update(output.value for output in graph.outputs)
    for node in graph.nodes:
        types = [graph.values[name] for name in node.inputs]
        held[node.name] = evaluate_node(node, types, [held[name] for name in node.inputs], dtype)
        for name in set(node.inputs):  # what nobody reads any more is let go
            readers[name] -= 1
            if not readers[name]:
                del held[name]
    for output in graph.outputs:
        if output.complaint and held[output.value].any():
            raise InputError(output.complaint)
    return {output.name: held[output.value] for output in graph.outputs if not output.complaint}


def evaluate_node(node: Node, types: Sequence[Value], arrays: Sequence[Array], dtype: DType | None = None) -> Array:
    """The result of one node for operands of the given types; arrays may hold their floats in `dtype`."""
    inputs = tuple(WorkloadInput(TensorType(value.dtype, value.shape)) for value in types)
    workload = Workload(inputs, (WorkloadNode(node.op, tuple(range(len(inputs))), node.attrs),), (len(inputs),))
    feeds = {f"in{position}": array for position, array in enumerate(arrays)}
    return evaluate(compute_def(workload), feeds, dtype)["out0"]


def _checked_feed(value: Value, feeds: Mapping[str, Array]) -> Array:
    if value.name not in feeds:
        raise InputError(f"no feed for input {value}; got: {', '.join(feeds) or 'none'}")
    array = np.asarray(feeds[value.name])
    if array.shape != value.shape or array.dtype != DType(value.dtype).numpy:
        raise InputError(f"the feed for input {value} is {array.dtype}{list(array.shape)}")
    return array
