"""Cheaper operators for the same values: strength reduction, clips, products and what is folded into weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from autotune.graph import partition
from autotune.graph.passes import PASSES
from autotune.ops.workload import AttrValue
from tests.graph.graph_models import Array, random
from tests.graph.test_graph_passes import CONV, DENSE, Net, ops, run_pass
from tests.graph.test_graph_recognition import Writer, integers

Write = Callable[[Writer, str], str]


def kernels(w: Writer, result: str, **feeds: Array) -> list[str]:
    """What the kernels compute, in order, after a comparison with the reference."""
    graph = w.optimized(result, **feeds)
    assert all(isinstance(array, np.ndarray) for array in graph.constants.values()), "no scalars of NumPy's"
    groups = partition(graph)
    return ["+".join(node.op for node in group.workload.nodes) for group in groups if not group.is_view]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda w, x: w("Pow", x, 2.0), "mul"),
        (lambda w, x: w("Pow", x, 3.0), "mul+mul"),
        (lambda w, x: w("Pow", x, 0.5), "sqrt"),
        (lambda w, x: w("Pow", x, -0.5), "sqrt+reciprocal"),
        (lambda w, x: w("Pow", x, -1.0), "reciprocal"),
        (lambda w, x: w("Pow", x, -2.0), "mul+reciprocal"),
        (lambda w, x: w("Pow", x, 1.7), "pow"),
        (lambda w, x: w("Div", x, 3.0), "mul"),
        (lambda w, x: w("Div", x, 3e38), "div"),  # whose inverse has few digits
        (lambda w, x: w("Div", 1.0, x), "reciprocal"),
        (lambda w, x: w("Floor", w("Div", x, 4.0)), "mul+floor"),
        (lambda w, x: w("Floor", w("Relu", w("Div", x, 3.0))), "div+relu+floor"),
        (lambda w, x: w("Cast", w("Div", x, 3.0), to=6), "div+cast"),
        (lambda w, x: w("Sqrt", w("Mul", x, x)), "abs"),
        (lambda w, x: w("Pow", w("Sqrt", w("Exp", x)), 2.0), "exp"),
        (lambda w, x: w("Mul", w("Sin", x), w("Reciprocal", w("Exp", x))), "sin+exp+div"),
        (lambda w, x: w("Add", w("Neg", w("Exp", x)), x), "exp+sub"),
        (lambda w, x: w("Sub", x, w("Neg", w("Exp", x))), "exp+add"),
        (lambda w, x: w("Exp", w("Neg", w("Neg", x))), "exp"),
        (lambda w, x: w("Sub", x, x), "mul"),
        (lambda w, x: w("Min", w("Max", x, 0.25), 0.75), "clip"),
        (lambda w, x: w("Relu", w("Clip", x, -1.0, 0.5)), "clip"),
        (lambda w, x: w("Exp", w("Cast", w("Cast", x, to=11), to=1)), "exp"),
        (lambda w, x: w("Cast", w("Cast", x, to=6), to=1), "cast+cast"),
        (lambda w, x: w("Where", w("Greater", x, 1.0), w("Exp", x), w("Exp", x)), "exp"),
    ],
)
def test_cheaper_operators(write: Write, expected: str) -> None:
    w = Writer()
    assert kernels(w, write(w, "x"), x=random(3, 7, low=0.1, high=9)) == [expected]


@pytest.mark.parametrize("value", [49.0, 3.0, 10.0])
def test_exact_quotients_stay_exact_where_they_are_rounded(value: float) -> None:
    """49 times the nearest number to 1/49 is less than 1."""
    w = Writer()
    x = np.arange(1, 200, dtype=np.float32) * np.float32(value)
    assert kernels(w, w("Floor", w("Reshape", w("Div", "x", value), integers(199, 1))), x=x) == ["div+floor"]


def test_what_may_be_negative_keeps_its_root() -> None:
    w = Writer()
    root = w("Sqrt", w("Add", "x", 3.0))
    assert kernels(w, w("Mul", root, root), x=random(3)) == ["add+sqrt+mul"]


def test_bounds_that_others_read_stay() -> None:
    net = Net(4)
    low = net.op("relu", net.x)
    graph = net.graph(net.op("clip", low, min=-1.0, max=6.0), low)
    assert PASSES["merge-clips"](graph) is graph


# Constants gathered ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_two_constants_of_one_expression(op: str) -> None:
    w = Writer()
    inner = w(op, w(op, "x", random(8, 1, 1, seed=2)), "y")
    result = kernels(w, w(op, inner, random(8, 1, 1, seed=3)), x=random(1, 8, 4, 4), y=random(1, 8, 4, 4, seed=4))
    assert result == [f"{op.lower()}+{op.lower()}"]


@pytest.mark.parametrize(("rank", "expected"), [(32, ["matmul"]), (1, ["matmul", "matmul"])])
def test_products_with_two_matrices(rank: int, expected: list[str]) -> None:
    """One, where that is cheaper: not for a matrix of low rank in two factors."""
    w = Writer()
    inner = w("MatMul", "x", random(8, rank, seed=2))
    assert kernels(w, w("MatMul", inner, random(rank, 8, seed=3)), x=random(2, 3, 8)) == expected


# Before a product ------------------------------------------------------------------------------------


def batch_norm(w: Writer, x: str, channels: int, rank: int) -> str:
    shape = (channels, *(1,) * (rank - 2))
    return w("Add", w("Mul", x, random(*shape, seed=31)), random(*shape, seed=32))


@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_before_a_convolution(group: int) -> None:
    w = Writer()
    x = batch_norm(w, "x", 8, 4)
    result = w("Conv", x, random(6, 8 // group, 3, 3, seed=2), random(6, seed=3), group=group)
    assert kernels(w, result, x=random(2, 8, 5, 5)) == ["conv2d+add"]


def test_padding_lets_scales_through_but_no_shifts() -> None:
    w = Writer()
    conv = w("Conv", w("Mul", "x", random(8, 1, 1, seed=5)), random(4, 8, 3, 3, seed=2), pads=[1, 1, 1, 1])
    assert kernels(w, conv, x=random(1, 8, 4, 4)) == ["conv2d"]
    w = Writer()
    conv = w("Conv", batch_norm(w, "x", 8, 4), random(4, 8, 3, 3, seed=2), pads=[1, 1, 1, 1])
    assert kernels(w, conv, x=random(1, 8, 4, 4)) == ["mul+add", "conv2d"]


def test_batch_norm_on_both_sides_of_a_transposed_convolution() -> None:
    w = Writer()
    scaled = w("Mul", "x", random(8, 1, 1, seed=5))
    conv = w("ConvTranspose", scaled, random(8, 3, 2, 2, seed=2), random(3, seed=3), strides=[2, 2])
    assert kernels(w, batch_norm(w, conv, 3, 4), x=random(1, 8, 4, 4)) == ["conv_transpose2d+add"]
    w = Writer()  # a shift before it is not the same everywhere behind it
    conv = w("ConvTranspose", batch_norm(w, "x", 8, 4), random(8, 4, 3, 3, seed=2), strides=[2, 2])
    assert kernels(w, conv, x=random(1, 8, 4, 4)) == ["mul+add", "conv_transpose2d"]


def test_scales_on_both_sides_of_a_transposed_convolution_in_groups() -> None:
    net = Net(1, 8, 4, 4)
    scaled = net.op("mul", net.x, net.random(1, 8, 1, 1))
    attrs: dict[str, AttrValue] = {**CONV, "groups": 2, "output_padding": (0, 0)}
    conv = net.op("conv_transpose2d", scaled, net.random(8, 3, 2, 2), **attrs)
    graph = run_pass(
        net.graph(net.op("mul", conv, net.random(1, 6, 1, 1))), "fold-scale", "dead-code", "fold-input-scale"
    )
    assert ops(graph) == ["conv_transpose2d"]


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_batch_norm_on_both_sides_of_a_product(trans_a: int, trans_b: int) -> None:
    w = Writer()
    x = w("Transpose", batch_norm(w, "x", 8, 2), perm=[1, 0]) if trans_a else batch_norm(w, "x", 8, 2)
    weight = random(5, 8, seed=2) if trans_b else random(8, 5, seed=2)
    product = w("Gemm", x, weight, random(5, seed=4), transA=trans_a, transB=trans_b)
    assert kernels(w, batch_norm(w, product, 5, 2), x=random(3, 8)) == ["matmul+add"]


def test_what_others_read_is_not_folded_nor_a_bias_of_another_product() -> None:
    net = Net(2, 3, 4, 4)
    scaled = net.op("mul", net.x, net.random(1, 3, 1, 1))
    graph = net.graph(net.op("conv2d", scaled, net.random(4, 3, 1, 1), **CONV), scaled)
    assert PASSES["fold-input-scale"](graph) is graph
    net = Net(2, 3)
    biased = net.op("add", net.op("matmul", net.x, net.random(3, 4), **DENSE), net.random(4))
    graph = net.graph(net.op("matmul", biased, net.random(4, 5), **DENSE))
    assert PASSES["fold-input-scale"](graph) is graph


def test_a_product_with_a_matrix_per_batch() -> None:
    net = Net(2, 3, 4)
    scaled = net.op("mul", net.op("add", net.x, net.random(4)), net.random(4))
    graph = net.graph(net.op("matmul", scaled, net.random(2, 4, 5), **DENSE))
    assert ops(run_pass(graph, "fold-input-scale")) == ["add", "matmul"]


def test_zeros_around_what_is_not_negative_are_the_padding_of_a_maximum() -> None:
    for before, expected in (("Relu", ["relu", "max_pool"]), ("Sin", ["sin", "pad", "max_pool"])):
        w = Writer()
        padded = w("Pad", w(before, "x"), integers(0, 0, 1, 1, 0, 0, 1, 1))
        result = w("MaxPool", padded, kernel_shape=[3, 3], strides=[2, 2])
        assert kernels(w, result, x=random(1, 2, 6, 6)) == expected


def test_infinite_and_missing_bounds() -> None:
    w = Writer()
    x = np.asarray([-math.inf, -1, 0, 3, math.inf, math.nan], np.float32)
    assert kernels(w, w("Max", 1.0, w("Min", 2.0, w("Relu", "x"))), x=x) == ["clip"]
