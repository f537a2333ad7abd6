"""The graph: SSA IR, ONNX frontend, passes, and partition into Workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.errors import ModelError
from autotune.graph.evaluate import evaluate_graph
from autotune.graph.ir import Array, Graph, Node, Output, Value
from autotune.graph.partition import Group, Task, partition, tasks
from autotune.graph.passes import PASSES, optimize
from autotune.graph.verify import verify

if TYPE_CHECKING:
    from autotune.graph.frontend.model import OnnxModel
    from autotune.graph.frontend.source import ModelSource, Source

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
    "one_line",
    "open_model",
    "optimize",
    "partition",
    "tasks",
    "verify",
]


def load_model(
    path_or_bytes: ModelSource,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fixed: Mapping[str, Array] | None = None,
) -> Graph:
    """Read an ONNX model whose shapes are all known into a verified Graph.

    Args:
        path_or_bytes: a file, or its contents.
        shapes: dimensions of inputs by name, needed where the model leaves them open.
        fixed: inputs that become constants, with their values.

    Raises:
        ModelError: missing, damaged or inconsistent model, or an unknown dimension.
        UnsupportedError: the model uses what this compiler has not, or depends on values of the run; everything is
            listed at once.
    """
    from autotune.graph.frontend import convert_model  # onnx is needed here only

    model = open_model(path_or_bytes, shapes, fixed)
    with one_line():
        graph = convert_model(model)
    verify(graph)
    return graph


def open_model(
    path_or_bytes: ModelSource | Source,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fixed: Mapping[str, Array] | None = None,
    extents: Mapping[str, int] | None = None,
    denoted: Mapping[str, int] | None = None,
) -> OnnxModel:
    """Read an ONNX model as a table of nodes, to be converted as a whole or in parts.

    Args:
        extents, denoted: open dimensions by symbol and by denotation; those that the model has not are passed over.

    Raises:
        ModelError, UnsupportedError: as for `load_model`; open dimensions are fine.
    """
    from autotune.graph.frontend import parse_model, read_model

    with one_line():
        return parse_model(read_model(path_or_bytes), shapes or {}, fixed, extents or {}, denoted or {})


class _OneLine:
    """Entered in every run: a generator would take as long as a small kernel."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModelError):
            raise type(error)(" ".join(str(error).split()), values=error.values) from error


_ONE_LINE = _OneLine()


def one_line() -> _OneLine:
    """Messages of one line, though names in a model may hold line breaks."""
    return _ONE_LINE
