"""The graph IR: verifier, order, printer, builder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.errors import ModelError, WorkloadError
from autotune.graph import Graph, Node, Output, Value, verify
from autotune.graph.builder import GraphBuilder
from autotune.graph.order import topological_order


def small_graph() -> Graph:
    builder = GraphBuilder("small")
    x = builder.input(Value("x", "f32", (2, 3)))
    w = builder.constant(np.ones((3, 4), np.float32), "w")
    y = builder.emit("matmul", (x, w), "y", trans_a=False, trans_b=False)
    z = builder.emit("relu", (y,), "z")
    return builder.build([Output("result", z)])


def test_prints_one_line_per_node() -> None:
    assert str(small_graph()).splitlines() == [
        "graph small(%x: f32[2, 3]) {",
        "  const %w: f32[3, 4]",
        "  %y: f32[2, 4] = matmul(%x, %w) trans_a=False trans_b=False",
        "  %z: f32[2, 4] = relu(%y)",
        "  return result=%z",
        "}",
    ]


def test_producers_and_consumers() -> None:
    graph = small_graph()
    assert graph.producers["z"].op == "relu"
    assert [node.name for node in graph.consumers["y"]] == ["z"]
    assert graph.consumers["z"] == ()
    assert graph.values["w"].nbytes == 48


def test_builder_names_are_fresh_and_types_checked() -> None:
    builder = GraphBuilder("names")
    x = builder.input(Value("x", "f32", (2,)))
    assert [builder.emit("relu", (x,), "y") for _ in range(3)] == ["y", "y:1", "y:2"]
    with pytest.raises(WorkloadError, match="no_such_operator"):
        builder.emit("no_such_operator", (x,))


def test_verifier_accepts_the_graph_and_finds_each_defect() -> None:
    graph = small_graph()
    verify(graph)
    matmul, relu = graph.nodes
    wrong_shape = replace(relu, output=replace(relu.output, shape=(4, 2)))
    defects = {
        "before it is defined": replace(graph, nodes=(relu, matmul)),
        "is defined twice": replace(graph, nodes=(matmul, relu, relu)),
        "is declared": replace(graph, nodes=(matmul, wrong_shape)),
        "nothing defines": replace(graph, outputs=(Output("result", "absent"),)),
        "matmul": replace(graph, nodes=(replace(matmul, inputs=("w", "x")), relu)),
        "lacks the attribute": replace(graph, nodes=(replace(matmul, attrs=()), relu)),
    }
    for text, defect in defects.items():
        with pytest.raises(ModelError, match=text):
            verify(defect)


def test_topological_order_is_stable_and_leaves_cycles_out() -> None:
    assert topological_order([set(), {0}, {0}, {1, 2}]) == [0, 1, 2, 3]
    assert topological_order([{2}, set(), {1}]) == [1, 2, 0]
    assert topological_order([set(), {2}, {1}, {2}]) == [0]
    assert topological_order([{i - 1} if i else set() for i in range(20_000)]) == list(range(20_000))


def test_nodes_are_values() -> None:
    node = Node("relu", ("x",), Value("y", "f32", (1,)))
    assert node == Node("relu", ("x",), Value("y", "f32", (1,)))
    assert {node: 1}[node] == 1
