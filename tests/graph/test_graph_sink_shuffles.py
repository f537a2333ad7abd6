"""Channel shuffles: free before a convolution of one group, moved behind what works on channels alone."""

from __future__ import annotations

import pytest

from autotune.graph import optimize
from autotune.ops.workload import AttrValue
from tests.graph.test_graph_passes import CONV, Net, assert_same, ops, run_pass

WINDOW = {**CONV, "pad": (1, 1, 1, 1), "stride": (2, 2)}
SHUFFLE = ["reshape", "transpose", "reshape"]


def shuffled(net: Net, x: str, shape: tuple[int, ...], groups: int, *, twice: bool = False) -> str:
    n, c, *image = shape
    perm = (0, 2, 1, *range(3, len(shape) + 1))
    if twice:
        perm = (0, 2, 1, 4, 3)
    y = net.op("transpose", net.op("reshape", x, shape=(n, groups, c // groups, *image)), perm=perm)
    return net.op("reshape", y, shape=shape)


@pytest.mark.parametrize("groups", [2, 3, 6])
def test_a_convolution_of_one_group_reads_the_channels_where_they_are(groups: int) -> None:
    net = Net(2, 12, 5, 4)
    y = shuffled(net, net.x, (2, 12, 5, 4), groups)
    graph = run_pass(net.graph(net.op("conv2d", y, net.random(8, 12, 3, 3), **WINDOW)), "sink-shuffles")
    assert ops(graph) == ["conv2d"]


def test_behind_a_depthwise_convolution_and_its_shift() -> None:
    net = Net(1, 12, 6, 6)
    y = shuffled(net, net.op("relu", net.x), (1, 12, 6, 6), 4)
    y = net.op("conv2d", y, net.random(12, 1, 3, 3), **{**WINDOW, "groups": 12})
    y = net.op("clip", net.op("add", y, net.random(1, 12, 1, 1)), min=0.0, max=6.0)
    graph = run_pass(net.graph(y), "sink-shuffles")
    assert ops(graph) == ["relu", "conv2d", "add", "clip", *SHUFFLE]


def test_away_between_depthwise_and_pointwise() -> None:
    """As in ShuffleNet with one group in its second convolution."""
    net = Net(1, 12, 6)
    attrs: dict[str, AttrValue] = {"stride": (1,), "pad": (1, 1), "dilation": (1,), "groups": 12}
    y = net.op("conv1d", shuffled(net, net.x, (1, 12, 6), 3), net.random(12, 1, 3), **attrs)
    y = net.op("relu", net.op("mul", y, net.random(12, 1)))
    y = net.op("conv1d", y, net.random(4, 12, 1), **{**attrs, "pad": (0, 0), "groups": 1})
    graph = net.graph(y)
    result = optimize(graph)
    assert_same(graph, result)
    assert ops(result) == ["conv1d", "relu", "conv1d"]


@pytest.mark.parametrize("why", ["grouped", "two readers", "other order", "computed weights", "sum"])
def test_what_stays(why: str) -> None:
    net = Net(1, 12, 6, 6)
    y = shuffled(net, net.x, (1, 12, 6, 6), 4, twice=why == "other order")
    if why == "two readers":
        depthwise = net.op("conv2d", y, net.random(12, 1, 3, 3), **{**WINDOW, "groups": 12})
        graph = net.graph(depthwise, net.op("relu", y))
    elif why == "computed weights":
        weights = net.op("reshape", net.op("reduce_sum", net.x, axes=(2, 3), keepdims=True), shape=(1, 12, 1, 1))
        graph = net.graph(net.op("conv2d", y, weights, **CONV))
    elif why == "sum":
        graph = net.graph(net.op("add", y, net.x))
    else:
        attrs = {**CONV, "groups": 3 if why == "grouped" else 1}
        graph = net.graph(net.op("conv2d", y, net.random(6, 4 if why == "grouped" else 12, 1, 1), **attrs))
    assert run_pass(graph, "sink-shuffles") is graph
