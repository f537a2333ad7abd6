"""Slices and gathers go before what computes each place by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.compiler.compile import compile_graph
from autotune.graph import Graph, Value, evaluate_graph, optimize, verify
from autotune.graph.passes.raise_slices import raise_slices
from autotune.target import Target
from tests.graph.test_graph_passes import DENSE, Net, assert_same, ops, run_pass
from tests.graph.test_graph_passes_movement import cut

NORM = {"axis": -1, "epsilon": 1e-5}
TOKENS, HEADS, WIDTH = 12, 2, 16


def linear(net: Net, x: str, width: int) -> str:
    return net.op("matmul", x, net.random(net.builder.values[x].shape[-1], width), **DENSE)


def normed(net: Net, x: str) -> str:
    return net.op("softmax", x, axis=-1)


def layer(net: Net, x: str) -> str:
    """A layer of a transformer, attention recognised."""
    y = normed(net, x)
    split = {"shape": (1, TOKENS, HEADS, WIDTH // HEADS)}
    q, k, v = (net.op("transpose", net.op("reshape", linear(net, y, WIDTH), **split), perm=(0, 2, 1, 3)) for _ in "qkv")
    scores = net.op("matmul", q, net.op("transpose", k, perm=(0, 1, 3, 2)), **DENSE)
    scores = net.op("add", scores, net.random(TOKENS, TOKENS))
    y = net.op("transpose", net.op("matmul", net.op("softmax", scores, axis=-1), v, **DENSE), perm=(0, 2, 1, 3))
    x = net.op("add", x, linear(net, net.op("reshape", y, shape=(1, TOKENS, WIDTH)), WIDTH))
    return net.op("add", x, linear(net, net.op("relu", linear(net, normed(net, x), 2 * WIDTH)), WIDTH))


def rows_of_products(graph: Graph) -> list[int]:
    return [node.output.shape[-2] for node in graph.nodes if node.op == "matmul"]


def test_of_the_last_layer_one_row_is_computed() -> None:
    net = Net(1, TOKENS, WIDTH)
    x = layer(net, layer(net, net.x))
    graph = net.graph(cut(net, x, 1, TOKENS - 1, 1))
    found = optimize(graph)
    assert_same(graph, found)
    assert sorted(rows_of_products(found)) == [1] * 4 + [TOKENS] * 5  # of the last layer only its keys and values
    kept = optimize(graph, skip=["raise-slices"])
    assert rows_of_products(kept) == [TOKENS] * 8


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_indices_that_come_later(shape: tuple[int, ...]) -> None:
    """A gather whose index is computed behind what it reads; one without dimensions leaves none."""
    net = Net(1, TOKENS, WIDTH)
    x = layer(net, net.x)
    index = net.op("add", net.builder.input(Value("i", "i64", shape)), net.builder.constant(np.asarray(-1)))
    graph = net.graph(linear(net, net.op("gather", x, index, axis=1), 3))
    found = optimize(graph)
    assert sorted(rows_of_products(found))[3] == sum(shape or (1,))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, TOKENS, WIDTH)).astype(np.float32)}
    feeds["i"] = np.full(shape, 5)
    (right,), (same,) = (evaluate_graph(one, feeds).values() for one in (graph, found))
    np.testing.assert_allclose(same, right, rtol=1e-4, atol=1e-5)
    (run,) = compile_graph(found, Target.parse("native -num-cores=1")).run(feeds)
    np.testing.assert_allclose(run, right, rtol=1e-4, atol=1e-5)


def test_equal_takings_share_what_they_take() -> None:
    net = Net(8, 6)
    y = linear(net, net.op("relu", net.x), 6)
    graph = run_pass(net.graph(cut(net, y, 0, 2, 3), net.op("exp", cut(net, y, 0, 2, 3))), "raise-slices")
    assert sorted(ops(graph)) == ["exp", "matmul", "relu", "slice"]


def test_what_others_read_too_stays() -> None:
    net = Net(8, 6)
    y = linear(net, net.x, 6)
    graph = net.graph(cut(net, y, 0, 2, 3), net.op("exp", y))
    assert raise_slices(graph) is graph
    halves = net.graph(cut(net, y, 0, 0, 4), cut(net, y, 0, 4, 4))
    assert raise_slices(halves) is halves
    most = net.graph(cut(net, y, 0, 0, 5))
    assert raise_slices(most) is most


def test_what_is_only_moved_stays() -> None:
    net = Net(8, 6)
    graph = net.graph(cut(net, net.op("transpose", net.x, perm=(1, 0)), 0, 2, 3))
    assert raise_slices(graph) is graph


def test_weights_are_sliced_once_and_not_gathered_in_each_run() -> None:
    net = Net(8, 6)
    graph = optimize(net.graph(cut(net, linear(net, net.x, 10), 1, 2, 3)))
    assert ops(graph) == ["matmul"] and graph.nodes[0].output.shape == (8, 3)
    net = Net(8, 6)
    index = net.builder.input(Value("i", "i64", (2,)))
    gathered = net.graph(net.op("gather", linear(net, net.x, 10), index, axis=1))
    assert raise_slices(gathered) is gathered


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_stay_what_they_compute(seed: int) -> None:
    rng = random.Random(seed)
    net = Net(*(rng.choice((1, 2, 4, 6)) for _ in range(rng.choice((2, 3)))))
    values = [net.x]
    for _ in range(rng.randint(2, 10)):
        x = rng.choice(values[-3:])
        shape = net.builder.values[x].shape
        axis = rng.randrange(len(shape))
        kind = rng.choice(("relu", "add", "linear", "softmax", "transpose", "reduce", "concat", "reshape", "gram"))
        if kind == "relu":
            y = net.op("relu", x)
        elif kind == "add":
            others = [name for name in values if net.builder.values[name].shape == shape]
            y = net.op("add", x, rng.choice([*others, net.random(*shape[1:])]))
        elif kind == "linear":
            y = linear(net, x, 4)
        elif kind == "softmax":
            y = net.op("softmax", x, axis=axis)
        elif kind == "transpose":
            y = net.op("transpose", x, perm=tuple(rng.sample(range(len(shape)), len(shape))))
        elif kind == "reduce":
            y = net.op("reduce_mean", x, axes=(axis,), keepdims=True)
        elif kind == "concat":
            y = net.op("concat", x, net.op("tanh", x), axis=axis)
        elif kind == "reshape":
            y = net.op("reshape", x, shape=(*shape[:-2], shape[-2] * shape[-1]) if len(shape) > 2 else (*shape, 1))
        else:
            perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
            y = net.op("matmul", x, net.op("transpose", x, perm=perm), **DENSE)
        values.append(net.op("tanh", y))
    results = []
    for x in values[-2:]:
        shape = net.builder.values[x].shape
        axis = max(range(len(shape)), key=lambda d: shape[d])
        size = max(1, shape[axis] // 2)
        step = rng.choice((1, -1))
        begin = rng.randint(0, shape[axis] - size) if step > 0 else rng.randint(size - 1, shape[axis] - 1)
        results.append(cut(net, x, axis, begin, size, step))
    graph = net.graph(*results)
    found = raise_slices(graph)
    verify(found)
    assert_same(graph, found)
    assert_same(graph, optimize(graph))
