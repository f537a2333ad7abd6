"""What a model falls into, before it runs: programs and host functions."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph import Graph, one_line, verify
from autotune.graph.frontend import OnnxModel, Stage, convert_part, convert_whole, known_types, whole
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.body import is_loop
from autotune.graph.frontend.guesses import refuse_at_any_shape
from autotune.graph.host import host_function


@dataclass(frozen=True)
class Outline:
    """
    Attributes:
        graph: the program that no value of the run changes; None if there is none.
        host_nodes: the nodes that run on the host, or may.
        segments: how many programs a run is made of; the least possible, if `open`.
        open: some nodes wait for values of the run, which decide what programs they become.
    """

    graph: Graph | None
    host_nodes: tuple[str, ...]
    segments: int
    open: bool


def outline(model: OnnxModel) -> Outline:
    """
    Raises:
        ModelError, UnsupportedError: the model cannot be compiled.
    """
    with one_line():
        graph = convert_whole(model)
        if graph is not None:
            verify(graph)
            return Outline(graph, (), 1, False)
        refuse_at_any_shape(model)
        stage = convert_part(model, whole(model), known_types(model.inputs))
    hosts = tuple(label(model, index) for index in sorted({*stage.hosts, *possible_hosts(model, stage)}))
    return Outline(stage.graph, hosts, least_segments(stage), stage.rest is not None)


def possible_hosts(model: OnnxModel, stage: Stage) -> list[int]:
    """The nodes of the rest that may have to run on the host."""
    nodes = stage.rest.nodes if stage.rest is not None else ()
    protos = ((index, model.nodes[index].proto) for index in nodes)
    return [index for index, proto in protos if host_function(proto) is not None or is_loop(proto)]


def least_segments(stage: Stage) -> int:
    """Programs of one run, when the rest is one program at least, or nothing but host functions."""
    return (stage.graph is not None) + (stage.rest is not None)


def label(model: OnnxModel, index: int) -> str:
    """How messages call a node of the table."""
    entry = model.nodes[index]
    return NodeAttributes(entry.proto, entry.opset, model.folder).label
