"""Half floats become f32 where something is computed, and stay where they are moved or decided on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autotune.graph import Graph, Output, Value, evaluate_graph, load_model, optimize, verify
from autotune.graph.builder import GraphBuilder
from autotune.graph.partition import HALVES
from autotune.graph.passes import PASSES
from autotune.tensor import DType
from tests.graph.graph_models import FEW, build, random

Array = NDArray[Any]
HALF = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def widened(builder: GraphBuilder, *results: str) -> Graph:
    """The graph after the pass and dead-code removal; verified, and settled."""
    graph = PASSES["widen-halves"](builder.build([Output(f"y{n}", name) for n, name in enumerate(results)]))
    verify(graph)
    assert PASSES["widen-halves"](graph) is graph
    return PASSES["dead-code"](graph)


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


@pytest.mark.parametrize("dtype", sorted(HALVES))
def test_products_are_those_of_f32_with_f32_weights(dtype: str) -> None:
    b = GraphBuilder("net")
    x = b.input(Value("x", dtype, (4, 8)))
    weight = random(8, 3).astype(HALF[dtype])
    y = b.emit("relu", (b.emit("matmul", (x, b.constant(weight)), trans_a=False, trans_b=False),))
    graph = widened(b, y)
    assert ops(graph) == ["cast", "matmul", "relu", "cast"] and graph.own == dtype
    assert [node.output.dtype for node in graph.nodes] == ["f32", "f32", "f32", dtype]
    (held,) = graph.constants.values()
    assert held.dtype == np.float32
    np.testing.assert_array_equal(held, weight.astype(np.float32))


def test_each_value_is_converted_once() -> None:
    b = GraphBuilder("net")
    x = b.input(Value("x", "f16", (4,)))
    double, root = b.emit("add", (x, x)), b.emit("abs", (x,))
    graph = widened(b, double, root, b.emit("mul", (double, root)))
    assert ops(graph).count("cast") == 4  # of x, and of the outputs


def test_rows_of_a_table_are_converted_not_the_table() -> None:
    b = GraphBuilder("net")
    rows = b.input(Value("rows", "i64", (5,)))
    table = b.constant(random(100, 4).astype(np.float16))
    y = b.emit("exp", (b.emit("gather", (table, rows), axis=0),))
    graph = widened(b, y)
    assert ops(graph) == ["gather", "cast", "exp", "cast"]
    assert next(iter(graph.constants.values())).dtype == np.float16


def test_what_is_remembered_is_extended_as_it_is() -> None:
    b = GraphBuilder("net")
    past, x = b.input(Value("past", "f16", (1, 64, 8))), b.input(Value("x", "f16", (1, 1, 8)))
    cache = b.emit("concat", (past, b.emit("exp", (x,))), axis=1)
    graph = widened(b, cache, b.emit("softmax", (cache,), axis=-1))
    joined = next(node for node in graph.nodes if node.op == "concat")
    assert joined.output.dtype == "f16"


def test_values_computed_in_f32_are_moved_in_f32() -> None:
    b = GraphBuilder("net")
    x = b.input(Value("x", "f16", (4, 8)))
    turned = b.emit("transpose", (b.emit("exp", (x,)),), perm=(1, 0))
    assert ops(widened(b, b.emit("exp", (turned,)))) == ["cast", "exp", "transpose", "exp", "cast"]


@pytest.mark.parametrize(
    "decide",
    [
        lambda b, x: b.emit("floor", (x,)),
        lambda b, x: b.emit("cast", (x,), to="i32"),
        lambda b, x: b.emit("argmax", (x,), axis=0, keepdims=False, select_last_index=False),
        lambda b, x: b.emit("bit_cast", (x,), to="i16"),
        lambda b, x: b.emit("top_k", (x,), axis=0, k=2, largest=True, sorted=True, result=0),
    ],
    ids=["floor", "integer", "argmax", "bits", "top_k"],
)
def test_decisions_see_rounded_values(decide: Callable[[GraphBuilder, str], str]) -> None:
    b = GraphBuilder("net")
    x = b.input(Value("x", "f16", (64,)))
    y = decide(b, b.emit("div", (x, b.constant(np.asarray(3, np.float16)))))
    before = b.build([Output("y", y)])
    feeds = {"x": (np.arange(64) * 3).astype(np.float16)}
    found = evaluate_graph(optimize(before), feeds)["y"]
    expected = evaluate_graph(before, feeds)["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_casts_between_half_floats_and_f32_are_none() -> None:
    b = GraphBuilder("net")
    x = b.input(Value("x", "f16", (4,)))
    wide = b.emit("exp", (b.emit("cast", (x,), to="f32"),))
    narrow = b.emit("neg", (b.emit("cast", (wide,), to="bf16"),))
    graph = widened(b, narrow)
    assert ops(graph) == ["cast", "exp", "neg", "cast"]
    assert graph.values[graph.outputs[0].value].dtype == "bf16"


def test_a_graph_that_only_moves_half_floats_stays() -> None:
    b = GraphBuilder("net")
    x = b.input(Value("x", "bf16", (4, 2)))
    graph = b.build([Output("y", b.emit("cast", (b.emit("transpose", (x,), perm=(1, 0)),), to="f32"))])
    assert PASSES["widen-halves"](graph) is graph


@pytest.mark.parametrize("dtype", sorted(HALVES))
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_activations_are_recognised_by_rounded_numbers(dtype: str, approximate: str) -> None:
    b = GraphBuilder("net")
    x = b.input(Value("x", dtype, (64,)))

    def number(value: float) -> str:
        return b.constant(np.asarray(value).astype(HALF[dtype]))

    inner = b.emit("div", (x, number(np.sqrt(2))))
    if approximate == "tanh":
        cube = b.emit("mul", (b.emit("mul", (x, x)), x))
        inner = b.emit("add", (x, b.emit("mul", (cube, number(0.044715)))))
        inner = b.emit("mul", (inner, number(np.sqrt(2 / np.pi))))
    curve = b.emit("erf" if approximate == "none" else "tanh", (inner,))
    y = b.emit("mul", (b.emit("mul", (x, number(0.5))), b.emit("add", (curve, number(1.0)))))
    graph = optimize(b.build([Output("y", y)]))
    assert ops(graph) == ["cast", "gelu", "cast"]
    assert graph.nodes[1].attr("approximate") == approximate


@FEW
@given(data=st.data())
def test_models_of_half_floats(data: st.DataObject) -> None:
    """What comes out is no further from exact than what the reference makes of the model, rounding after each node."""
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 5)))
    given = {"x": (random(*shape, seed=data.draw(st.integers(0, 99)))).astype(np.float16)}
    nodes: list[onnx.NodeProto] = []
    last = "x"
    steps = {
        "Exp": (), "Tanh": (), "Neg": (), "Add": ("x",), "Mul": ("x",), "Abs": (), "Floor": (), "Sigmoid": (),
    }  # fmt: skip
    for n, op in enumerate(data.draw(st.lists(st.sampled_from(sorted(steps)), min_size=1, max_size=4))):
        nodes.append(helper.make_node(op, [last, *steps[op]], [f"v{n}"]))
        last = f"v{n}"
    model = build(nodes, given, outputs=[last])
    graph = load_model(model.SerializeToString())
    (reference,) = ReferenceEvaluator(model).run(None, given)
    assert isinstance(reference, np.ndarray)
    (found,) = evaluate_graph(optimize(graph), given).values()
    (exact,) = evaluate_graph(graph, given, DType.f64).values()
    assert found.dtype == np.float16
    if any(node.op_type == "Floor" for node in nodes[1:]):
        return  # a step may turn a rounding into a whole
    error = np.abs(found.astype(np.float64) - exact)
    allowed = np.abs(reference.astype(np.float64) - exact) + np.spacing(np.abs(exact).astype(np.float16)) / 2
    assert np.all((error <= 1.001 * allowed) | np.isinf(exact.astype(np.float16)))
