"""Rows that nobody reads: who reads how far, and products that leave them out."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler.compile import compile_graph
from autotune.graph import Graph, evaluate_graph, optimize
from autotune.graph.builder import GraphBuilder
from autotune.graph.ir import Array, Output, Value
from autotune.graph.passes import PASSES
from autotune.graph.passes.unread_rows import unread_rows
from autotune.graph.reach import reach
from autotune.target import Target

BATCH, LENGTH, HEADS, WIDTH = 2, 21, 2, 16


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def encoder(bounded: bool = True) -> Graph:
    """Attention among the tokens of each sentence, as a padded model has it."""
    g = GraphBuilder("encoder")
    x = g.input(Value("x", "f32", (BATCH, LENGTH, WIDTH)))
    end = g.input(Value("end", "i64", ()))
    places = g.constant(np.arange(LENGTH), "places")
    below = g.emit("less", (places, end))

    def linear(x: str, seed: int) -> str:
        w = g.constant(values(WIDTH, WIDTH, seed=seed) / 4, f"w{seed}")
        return g.emit("matmul", (x, w), trans_a=False, trans_b=False)

    def heads(x: str) -> str:
        split = g.emit("reshape", (x,), shape=(BATCH, LENGTH, HEADS, WIDTH // HEADS))
        return g.emit("transpose", (split,), perm=(0, 2, 1, 3))

    q, k, v = (heads(linear(x, seed)) for seed in range(3))
    scores = g.emit("matmul", (q, g.emit("transpose", (k,), perm=(0, 1, 3, 2))), trans_a=False, trans_b=False)
    never = g.constant(np.asarray(-np.inf, np.float32), "never")
    scores = g.emit("where", (g.emit("reshape", (below,), shape=(1, 1, 1, LENGTH)), scores, never))
    y = g.emit("matmul", (g.emit("softmax", (scores,), axis=-1), v), trans_a=False, trans_b=False)
    y = g.emit("reshape", (g.emit("transpose", (y,), perm=(0, 2, 1, 3)),), shape=(BATCH, LENGTH, WIDTH))
    y = g.emit("tanh", (linear(y, 3),))
    if bounded:
        zero = g.constant(np.asarray(0, np.float32), "zero")
        y = g.emit("where", (g.emit("reshape", (below,), shape=(1, LENGTH, 1)), y, zero))
    return g.build([Output("y", y)])


def test_operators_read_the_rows_that_are_wanted_and_no_keys_behind_an_end() -> None:
    graph = optimize(encoder(), skip=["unread-rows"])
    found = {node.op: reach(node, graph.values) for node in graph.nodes}
    assert found["matmul"][0][1] == {("axis", 1)} and found["matmul"][0][2] == frozenset()
    attention = next(node for node in graph.nodes if node.op == "attention")
    q, k, v, _ = found["attention"]
    assert attention.attr("extras") == "lengths"
    rows = str(attention.attr("order")).split(",")
    assert q[rows[0].index("s")] == {("axis", rows[3].index("s"))}
    assert k[rows[1].index("s")] == v[rows[2].index("s")] == {("end", 3)}


def test_products_end_where_everybody_stops_reading() -> None:
    graph = optimize(encoder())
    assert sum(node.op == "until" for node in graph.nodes) == 3  # one product for q, k, v; attention; the last product
    free = optimize(encoder(bounded=False))
    assert sum(node.op == "until" for node in free.nodes) == 0  # of q all is read, and so of the one product
    assert unread_rows(free) is free


def last(shift: int, factor: int = 1, bounded: bool = False) -> Graph:
    """The row at `end` and a shift of what a product gives."""
    g = GraphBuilder("last")
    x, end = g.input(Value("x", "f32", (1, LENGTH, WIDTH))), g.input(Value("end", "i64", ()))
    y = g.emit("tanh", (g.emit("matmul", (x, g.constant(values(WIDTH, WIDTH), "w")), trans_a=False, trans_b=False),))
    if bounded:
        below = g.emit("less", (g.constant(np.arange(LENGTH), "places"), end))
        zero = g.constant(np.asarray(0, np.float32), "zero")
        y = g.emit("where", (g.emit("reshape", (below,), shape=(1, LENGTH, 1)), y, zero))
    index = g.emit("mul", (g.emit("reshape", (end,), shape=(1,)), g.constant(np.asarray(factor), "factor")))
    index = g.emit("add", (index, g.constant(np.asarray([shift]), "shift")))
    return g.build([Output("y", g.emit("gather", (y, index), axis=1))])


def test_a_row_before_the_end_is_read_up_to_there() -> None:
    for graph, ends in ((last(-1), 1), (last(-3), 1), (last(0), 0), (last(-1, 2), 0)):
        found = optimize(graph, skip=["raise-slices"])
        assert sum(node.op == "until" for node in found.nodes) == ends
    feeds = {"x": values(1, LENGTH, WIDTH), "end": np.asarray(7)}
    (right,) = evaluate_graph(last(-1), feeds).values()
    feeds["x"][:, 7:] = np.nan
    (run,) = compile_graph(optimize(last(-1), skip=["raise-slices"]), Target.parse("native -num-cores=2")).run(feeds)
    np.testing.assert_allclose(run, right, rtol=1e-4, atol=1e-5)


def test_what_ends_already_is_not_ended_again() -> None:
    """A row of what is zero from the end on."""
    graph = optimize(last(-1, bounded=True), skip=["raise-slices"])
    assert sum(node.op == "until" for node in graph.nodes) == 1


@pytest.mark.parametrize("end", [1, 6, 20, LENGTH])
def test_what_is_left_out_is_not_looked_at(end: int) -> None:
    """Whatever stands in the padding, NaN too; and the kernels agree."""
    feeds = {"x": values(BATCH, LENGTH, WIDTH), "end": np.asarray(end)}
    (right,) = evaluate_graph(encoder(), feeds).values()
    feeds["x"][:, end:] = np.nan
    graph = optimize(encoder())
    (found,) = evaluate_graph(graph, feeds).values()
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
    assert not found[:, end:].any()
    (run,) = compile_graph(graph, Target.parse("native -num-cores=2")).run(feeds)
    np.testing.assert_allclose(run, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sink-reshapes", "sink-transposes"])
def test_an_end_stays_where_positions_are_those_that_it_counts(name: str) -> None:
    """Where elements move, an end of positions along an axis would be another one."""
    g = GraphBuilder("moved")
    x, end = g.input(Value("x", "f32", (6, 1))), g.input(Value("end", "i64", (1, 1)))
    moved = {
        "sink-reshapes": lambda: g.emit("reshape", (x,), shape=(2, 3)),
        "sink-transposes": lambda: g.emit("transpose", (x,), perm=(1, 0)),
    }[name]()
    graph = g.build([Output("y", g.emit("until", (moved, end), axis=1))])
    assert PASSES[name](graph).nodes[-1].op == "until"
