"""Branches of one value that are computed together, where that is faster, and the views that read their parts."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler.compile import compile_graph
from autotune.graph import Graph, evaluate_graph, optimize
from autotune.target import Target
from autotune.tensor import DType
from tests.graph.test_graph_passes import CONV, DENSE, Net, ops, run_pass

WINDOW = {**CONV, "pad": (1, 1, 1, 1)}


def conv_branch(net: Net, x: str, ins: int, outs: int, *, activation: str = "relu", window: int = 3) -> str:
    attrs = WINDOW if window == 3 else CONV
    y = net.op("conv2d", x, net.random(outs, ins, window, window), **attrs)
    return net.op(activation, net.op("add", y, net.random(1, outs, 1, 1)))


def rows(net: Net, ins: int, *widths: int, activation: str = "tanh") -> list[str]:
    """Products of one row, and what each goes into."""
    hidden = [
        net.op(activation, net.op("add", net.op("matmul", net.x, net.random(ins, n), **DENSE), net.random(n)))
        for n in widths
    ]
    return [net.op("matmul", x, net.random(n, 4), **DENSE) for x, n in zip(hidden, widths, strict=True)]


def kernels(graph: Graph) -> list[str]:
    """The operators of the compiled model's kernels; its results agree with NumPy's."""
    model = compile_graph(graph, Target.parse("x86 -mcpu=haswell -num-cores=2"))
    rng = np.random.default_rng(2)
    feeds = {value.name: rng.standard_normal(value.shape).astype(np.float32) for value in graph.inputs}
    expected = evaluate_graph(graph, feeds, DType.f64)
    for output, array in zip(graph.outputs, model.run(feeds), strict=True):
        right = expected[output.name]
        np.testing.assert_allclose(array, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())
    return ["+".join(part.split()[0] for part in kernel.description.split(" + ")) for kernel in model.kernels]


def test_windows_of_many_channels() -> None:
    net = Net(1, 16, 6, 6)
    parts = [conv_branch(net, net.x, 16, n) for n in (128, 144)]
    ends = [net.op("max_pool", x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0), dilation=(1, 1), ceil_mode=False)
            for x in parts]  # fmt: skip
    graph = run_pass(net.graph(*ends), "merge-branches")
    assert ops(graph) == ["conv2d", "add", "relu", "slice", "slice", "max_pool", "max_pool"]
    assert graph.nodes[0].output.shape == (1, 272, 6, 6)
    assert [kernel for kernel in kernels(graph) if kernel != "layout"] == ["conv2d+bias+relu", "max_pool", "max_pool"]


@pytest.mark.parametrize("why", ["few", "wide", "ragged", "strided", "batch", "activation", "concat", "sum", "output"])
def test_what_stays_apart(why: str) -> None:
    net = Net(2 if why == "batch" else 1, 16, 6, 6)
    outs = {"few": 64, "ragged": 136}.get(why, 128)
    attrs = {**WINDOW, "stride": (2, 2)} if why == "strided" else CONV if why == "wide" else WINDOW
    window = 1 if why == "wide" else 3
    parts = [net.op("conv2d", net.x, net.random(outs, 16, window, window), **attrs) for _ in range(2)]
    parts[0] = net.op("relu", parts[0])
    parts[1] = net.op("tanh" if why == "activation" else "relu", parts[1])
    if why == "concat":
        graph = net.graph(net.op("concat", *parts, axis=1))
    elif why == "sum":
        graph = net.graph(net.op("add", *parts))
    elif why == "output":
        graph = net.graph(*parts)
    else:
        graph = net.graph(*(net.op("reduce_mean", x, axes=(2, 3), keepdims=True) for x in parts))
    assert run_pass(graph, "merge-branches") is graph


def test_products_of_one_row() -> None:
    net = Net(1, 24)
    graph = run_pass(net.graph(*rows(net, 24, 8, 5, 16)), "merge-branches")
    assert [node.op for node in graph.nodes].count("matmul") == 4
    assert graph.nodes[0].output.shape == (1, 29)
    assert kernels(graph) == ["matmul+add+tanh", "matmul", "matmul", "matmul"]


def test_products_of_several_rows_stay() -> None:
    net = Net(2, 24)
    graph = net.graph(*rows(net, 24, 8, 5))
    assert run_pass(graph, "merge-branches") is graph


def test_heads_that_are_results() -> None:
    """Policy and value of one vector: parts of one product leave the model."""
    net = Net(1, 24)
    graph = optimize(net.graph(*(net.op("matmul", net.x, net.random(24, n), **DENSE) for n in (7, 1))))
    assert kernels(graph) == ["matmul"]


def test_convolutions_with_one_position() -> None:
    net = Net(1, 16, 5, 5)
    x = net.op("reduce_mean", net.x, axes=(2, 3), keepdims=True)
    parts = [conv_branch(net, x, 16, n, window=1) for n in (16, 32)]
    graph = optimize(net.graph(*(net.op("softmax", y, axis=1) for y in parts)))
    assert [op for op in ops(graph) if op == "conv2d"] == ["conv2d"]
    assert not any("slice" in kernel for kernel in kernels(graph))
