"""Passes over data movement: slices, expands, transposes and reshapes merged, moved and folded."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from autotune.graph import Graph, optimize
from autotune.graph.passes import PASSES
from tests.graph.test_graph_passes import DENSE, Net, assert_same, ops, run_pass

OWN = ("merge-slices", "drop-expands", "sink-transposes", "fold-transposes", "sink-reshapes")


def cut(net: Net, x: str, axis: int, begin: int, size: int, step: int = 1) -> str:
    shape = net.builder.values[x].shape
    begins, steps = [0] * len(shape), [1] * len(shape)
    sizes = list(shape)
    begins[axis], sizes[axis], steps[axis] = begin, size, step
    return net.op("slice", x, begin=tuple(begins), size=tuple(sizes), step=tuple(steps))


# Slices and concatenations ---------------------------------------------------------------------------


def test_slice_of_a_slice() -> None:
    net = Net(4, 20)
    y = cut(net, cut(net, cut(net, net.x, 1, 18, 8, -2), 1, 1, 3, 2), 0, 3, 4, -1)
    graph = run_pass(net.graph(y), "merge-slices")
    assert ops(graph) == ["slice"]
    assert graph.nodes[0].attr("begin") == (3, 16)
    assert graph.nodes[0].attr("step") == (-1, -4)


def test_slices_of_a_concatenation() -> None:
    net = Net(2, 3)
    whole = net.op("concat", net.x, net.op("relu", net.x), axis=1)
    inside, first, across = cut(net, whole, 1, 5, 2, -1), cut(net, whole, 1, 0, 3), cut(net, whole, 1, 2, 2)
    graph = run_pass(net.graph(inside, first, across), "merge-slices")
    assert ops(graph) == ["relu", "concat", "slice", "slice"]
    assert graph.outputs[1].value == "x"


def test_a_concatenation_of_all_slices_is_the_value() -> None:
    net = Net(6, 4)
    parts = [cut(net, net.x, 0, 0, 1), cut(net, net.x, 0, 1, 3), cut(net, net.x, 0, 4, 2)]
    assert ops(run_pass(net.graph(net.op("concat", *parts, axis=0)), "merge-slices")) == []
    swapped = net.graph(net.op("concat", *parts[1:], parts[0], axis=0))
    result = run_pass(swapped, "merge-slices")
    assert sorted(ops(result)) == ["concat", "slice", "slice"]


def test_concatenations_are_flattened() -> None:
    net = Net(2, 3)
    inner = net.op("concat", net.x, net.x, axis=1)
    graph = net.graph(net.op("concat", inner, net.op("relu", net.x), axis=1))
    assert ops(run_pass(graph, "merge-slices")) == ["relu", "concat"]


def test_concatenations_along_different_axes_stay() -> None:
    net = Net(2, 3)
    graph = net.graph(net.op("concat", net.op("concat", net.x, net.x, axis=0), net.random(4, 3), axis=1))
    assert PASSES["merge-slices"](graph) is graph


@pytest.mark.parametrize(
    ("indices", "op"),
    [([1, 2, 3], "slice"), ([4, 2, 0], "slice"), ([-1], "slice"), ([-5, -4], "slice"), ([0, 1, 3], "gather"),
     ([2, 2], "gather")],
)  # fmt: skip
def test_gather_in_equal_steps(indices: list[int], op: str) -> None:
    net = Net(2, 5)
    graph = net.graph(net.op("gather", net.x, net.builder.constant(np.array(indices)), axis=1))
    result = graph if op == "gather" else run_pass(graph, "merge-slices")
    assert ops(PASSES["merge-slices"](result)) == [op]


def test_gather_in_equal_steps_keeps_the_shape_of_the_indices() -> None:
    net = Net(2, 8)
    graph = net.graph(net.op("gather", net.x, net.builder.constant(np.arange(8).reshape(2, 4)), axis=1))
    assert ops(run_pass(graph, "merge-slices")) == ["reshape"]


# Expands ---------------------------------------------------------------------------------------------


def test_expands_are_left_to_broadcasting() -> None:
    net = Net(1, 3)
    wide = net.op("expand", net.x, shape=(4, 3))
    graph = net.graph(net.op("add", wide, net.op("relu", net.random(4, 3))))
    assert ops(run_pass(graph, "drop-expands")) == ["relu", "add"]


def test_an_expand_that_makes_the_shape_stays() -> None:
    net = Net(1, 3)
    wide = net.op("expand", net.x, shape=(4, 3))
    graph = net.graph(net.op("mul", wide, wide))
    result = PASSES["drop-expands"](graph)
    assert_same(graph, result)
    assert "expand" in ops(result)


def test_one_operand_is_computed_before_it_is_expanded() -> None:
    net = Net(1, 3)
    graph = net.graph(net.op("exp", net.op("expand", net.x, shape=(4, 3))))
    assert ops(run_pass(graph, "drop-expands")) == ["exp", "expand"]


# Transposes ------------------------------------------------------------------------------------------


def test_transposes_cancel_across_elementwise_operators() -> None:
    net = Net(2, 3, 4, 5)
    y = net.op("transpose", net.x, perm=(0, 2, 3, 1))
    y = net.op("mul", net.op("sigmoid", net.op("add", y, net.random(3))), net.random(4, 1, 1))
    y = net.op("transpose", y, perm=(0, 3, 1, 2))
    graph = net.graph(y)
    result = optimize(graph)
    assert ops(result) == ["add", "sigmoid", "mul"]
    assert_same(graph, result)


def test_transposes_move_behind_a_value_read_twice() -> None:
    net = Net(3, 4)
    y = net.op("transpose", net.x, perm=(1, 0))
    y = net.op("transpose", net.op("mul", y, net.op("sigmoid", y)), perm=(1, 0))
    graph = run_pass(net.graph(y), "sink-transposes")
    assert ops(graph) == ["sigmoid", "mul"]


def test_a_transpose_that_something_else_needs_stays() -> None:
    net = Net(3, 4)
    y = net.op("transpose", net.x, perm=(1, 0))
    graph = net.graph(net.op("relu", y), net.op("softmax", y, axis=-1))
    assert PASSES["sink-transposes"](graph) is graph


def test_a_transpose_that_would_meet_nothing_stays() -> None:
    net = Net(3, 4)
    graph = net.graph(net.op("relu", net.op("transpose", net.x, perm=(1, 0))))
    assert PASSES["sink-transposes"](graph) is graph


def test_different_transposes_stay() -> None:
    net = Net(3, 3)
    graph = net.graph(net.op("add", net.op("transpose", net.x, perm=(1, 0)), net.op("relu", net.x)))
    assert PASSES["sink-transposes"](graph) is graph


@pytest.mark.parametrize("keepdims", [True, False])
def test_transposes_move_behind_reductions(keepdims: bool) -> None:
    net = Net(2, 3, 4, 5)
    y = net.op("transpose", net.x, perm=(0, 2, 3, 1))
    graph = run_pass(net.graph(net.op("reduce_mean", y, axes=(1, 2), keepdims=keepdims)), "sink-transposes")
    assert ops(graph) == (["reduce_mean", "transpose"] if keepdims else ["reduce_mean"])
    assert graph.nodes[0].attr("axes") == (2, 3)


def test_transposes_move_behind_slices_and_concatenations() -> None:
    net = Net(2, 3, 4)
    y = net.op("transpose", net.x, perm=(2, 0, 1))
    parts = [cut(net, y, 2, 0, 1), cut(net, y, 2, 1, 2)]
    graph = run_pass(net.graph(net.op("concat", parts[1], parts[0], axis=2)), "sink-transposes")
    assert sorted(ops(graph)) == ["concat", "slice", "slice", "transpose"]


@pytest.mark.parametrize("flag", [False, True])
def test_transposes_fold_into_products(flag: bool) -> None:
    net = Net(2, 4, 3) if flag else Net(2, 3, 4)
    b = net.op("transpose", net.op("relu", net.x), perm=(0, 2, 1))
    graph = net.graph(net.op("matmul", net.x, b, trans_a=flag, trans_b=flag))
    assert ops(run_pass(graph, "fold-transposes")) == ["relu", "matmul"]


def test_rows_stay_whole_where_a_product_swaps() -> None:
    """Keys of attention: what is left of the transpose is the same as for queries and values."""
    net = Net(1, 8, 3, 4)
    q = net.op("transpose", net.x, perm=(0, 2, 1, 3))
    k = net.op("transpose", net.x, perm=(0, 2, 3, 1))
    graph = net.graph(net.op("matmul", q, k, **DENSE))
    result = run_pass(graph, "fold-transposes", "common-subexpressions")
    assert ops(result) == ["transpose", "matmul"]


def test_a_transposed_product_of_two_computed_operands() -> None:
    net = Net(2, 3, 4)
    product = net.op("matmul", net.x, net.op("relu", net.x), trans_a=False, trans_b=True)
    graph = net.graph(net.op("transpose", product, perm=(0, 2, 1)))
    assert ops(run_pass(graph, "fold-transposes")) == ["relu", "matmul"]


def test_a_transposed_product_with_weights_stays() -> None:
    net = Net(2, 3, 4)
    graph = net.graph(net.op("transpose", net.op("matmul", net.x, net.random(4, 5), **DENSE), perm=(0, 2, 1)))
    assert PASSES["fold-transposes"](graph) is graph


# Reshapes --------------------------------------------------------------------------------------------


def test_reshapes_move_behind_an_epilogue() -> None:
    net = Net(6, 4)
    y = net.op("reshape", net.op("matmul", net.x, net.random(4, 8), **DENSE), shape=(2, 3, 8))
    y = net.op("gelu", net.op("mul", net.op("add", y, net.random(1, 8)), net.const(2.0)), approximate="none")
    graph = net.graph(net.op("reshape", y, shape=(6, 8)))
    result = optimize(graph)
    assert ops(result) == ["matmul", "add", "mul", "gelu"] or "reshape" not in ops(result)
    assert_same(graph, result)


def test_a_reshape_whose_dimensions_others_need_stays() -> None:
    net = Net(6, 4)
    y = net.op("reshape", net.x, shape=(2, 3, 4))
    graph = net.graph(net.op("add", y, net.random(3, 4)))
    assert PASSES["sink-reshapes"](graph) is graph


def test_two_reshapes_from_one_shape() -> None:
    net = Net(6, 4)
    a, b = (net.op("reshape", net.op(op, net.x), shape=(24,)) for op in ("relu", "exp"))
    assert ops(run_pass(net.graph(net.op("add", a, b)), "sink-reshapes")) == ["relu", "exp", "add", "reshape"]


@pytest.mark.parametrize("op", ["transpose", "reshape"])
def test_long_chains_settle_at_once(op: str) -> None:
    """Not one step per round: there may be thousands."""
    net = Net(4, 4, 4)
    y = net.x
    for n in range(300):
        moved = {"perm": (1, 2, 0)} if op == "transpose" else {"shape": (16, 4) if n % 2 else (4, 16)}
        y = net.op("tanh", net.op(op, y, **moved))
    rounds: list[str] = []
    result = optimize(net.graph(y), on_change=lambda name, _: rounds.append(name))
    assert ops(result)[:300] == ["tanh"] * 300
    assert len(result.nodes) <= 301
    assert len(rounds) <= 6
    assert_same(net.graph(y), result)


# All of them -----------------------------------------------------------------------------------------


def random_graph(seed: int) -> Graph:
    """Movement and elementwise operators in a chain that branches and joins."""
    rng = random.Random(seed)
    net = Net(*(rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(1, 4))))
    live = [net.x]
    for _ in range(rng.randint(3, 12)):
        x = rng.choice(live[-3:])
        live.append(step(net, rng, x, live))
    return net.graph(*{live[-1], rng.choice(live[1:])})


def step(net: Net, rng: random.Random, x: str, live: list[str]) -> str:
    shape = net.builder.values[x].shape
    rank = len(shape)
    kind = rng.randrange(10)
    if kind < 2 and rank:
        return net.op("transpose", x, perm=tuple(rng.sample(range(rank), rank)))
    if kind == 2:
        flat = math.prod(shape)
        first = rng.choice([d for d in range(1, flat + 1) if flat % d == 0])
        return net.op("reshape", x, shape=rng.choice([(flat,), (first, flat // first), (1, first, flat // first, 1)]))
    if kind == 3 and rank:
        axis = rng.randrange(rank)
        size = rng.randint(1, shape[axis])
        back = rng.random() < 0.3
        return cut(net, x, axis, size - 1 if back else shape[axis] - size, size, -1 if back else 1)
    if kind == 4 and rank:
        parts = [y for y in live if net.builder.values[y].shape == shape][:2]
        return net.op("concat", x, *parts, axis=rng.randrange(rank)) if math.prod(shape) < 200 else x
    if kind == 5 and rank:
        axes = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
        return net.op("reduce_max", x, axes=axes, keepdims=rng.random() < 0.5)
    if kind == 6 and rank:
        return net.op("expand", x, shape=tuple(3 if n == 1 else n for n in shape))
    if kind == 7 and rank >= 2:
        return net.op("matmul", x, x, trans_a=False, trans_b=True)
    if kind == 8:
        other = [y for y in live if net.builder.values[y].shape == shape]
        constant = net.random(*(rng.choice((1, n)) for n in shape[rng.randint(0, rank) :]))
        return net.op(rng.choice(("add", "mul", "max")), x, rng.choice([*other, constant, net.const(0.5)]))
    return net.op(rng.choice(("tanh", "abs", "sigmoid")), x)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    """Each pass alone, and all together: the same values, and a fixed point."""
    graph = random_graph(seed)
    for name in OWN:
        assert_same(graph, PASSES[name](graph))
    result = optimize(graph)
    assert_same(graph, result)
    assert optimize(result) is result
