"""The graph: SSA IR, ONNX frontend, passes, and partition into Workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.errors import ModelError
from autotune.graph.evaluate import evaluate_graph
from autotune.graph.ir import Graph, Node, Output, Value
from autotune.graph.partition import Group, Task, partition, tasks
from autotune.graph.passes import PASSES, optimize
from autotune.graph.verify import verify

if TYPE_CHECKING:
    from autotune.graph.frontend.source import ModelSource

__all__ = [
    "PASSES",
    "Graph",
    "Group",
    "Node",
    "Output",
    "Task",
    "Value",
    "evaluate_graph",
    "load_model",
    "optimize",
    "partition",
    "tasks",
    "verify",
]


def load_model(path_or_bytes: ModelSource, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """Read an ONNX model into a verified Graph.

    Args:
        path_or_bytes: a file, or its contents.
        shapes: dimensions of inputs by name, needed where the model leaves them open.

    Raises:
        ModelError: missing, damaged or inconsistent model, or an unknown dimension.
        UnsupportedError: the model uses what this compiler has not; everything is listed at once.
    """
    from autotune.graph.frontend import convert_model, read_model  # onnx is needed here only

    try:
        model, folder = read_model(path_or_bytes)
        graph = convert_model(model, folder, shapes or {})
    except ModelError as error:
        raise type(error)(" ".join(str(error).split())) from error  # names in a model may hold line breaks
    verify(graph)
    return graph
