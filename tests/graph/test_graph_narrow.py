"""Narrow products: which products there are, where values have 16 bits, and that kernels convert for themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.errors import ModelError
from autotune.graph import Graph, Output, Value, evaluate_graph, partition, verify
from autotune.graph.builder import GraphBuilder
from autotune.graph.narrow import narrowable, narrowed
from autotune.ops import parse_workload
from autotune.tensor import DType
from tests.graph.graph_models import Array, random


class Net:
    """A graph of images and matrices being written."""

    def __init__(self, *shape: int) -> None:
        self.builder = GraphBuilder("net")
        self.x = self.builder.input(Value("x", "f32", shape))
        self._seed = 0

    def weight(self, *shape: int, scale: float = 0.2) -> str:
        self._seed += 1
        return self.builder.constant(random(*shape, seed=self._seed) * np.float32(scale), "w")

    def conv(self, x: str, filters: int, groups: int = 1) -> str:
        channels = self.builder.values[x].shape[1]
        weight = self.weight(filters, channels // groups, 3, 3)
        return self.builder.emit(
            "conv2d", (x, weight), "conv", "Conv", stride=(1, 1), pad=(1,) * 4, dilation=(1, 1), groups=groups
        )

    def dense(self, x: str, columns: int) -> str:
        weight = self.weight(self.builder.values[x].shape[-1], columns)
        return self.builder.emit("matmul", (x, weight), "matmul", "Gemm", trans_a=False, trans_b=False)

    def op(self, op: str, *inputs: str, **attrs: int | float | str | tuple[int, ...]) -> str:
        return self.builder.emit(op, inputs, op, "", **attrs)

    def graph(self, *results: str) -> Graph:
        return self.builder.build([Output(f"y{n}", name) for n, name in enumerate(results)])


def narrow(graph: Graph, dtype: DType = DType.bf16, error: float = 2e-2) -> Graph:
    """The graph with all products narrow; verified, and about the same."""
    found = narrowed(graph, dtype, {node.name for node in narrowable(graph)})
    verify(found)
    feeds = {value.name: random(*value.shape) for value in graph.inputs}
    before, after = (evaluate_graph(g, feeds) for g in (graph, found))
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        assert np.abs(after[name] - array).max() <= error * np.ptp(array)
    for group in partition(found):
        assert parse_workload(group.workload.describe()) == group.workload
    return found


def kernels(graph: Graph) -> list[str]:
    return ["+".join(node.op for node in group.workload.nodes) for group in partition(graph)]


def test_a_product_converts_its_factors_and_gives_f32() -> None:
    net = Net(4, 16)
    graph = narrow(net.graph(net.op("relu", net.dense(net.x, 8))))
    assert kernels(graph) == ["cast", "cast+cast+matmul+relu"]  # x comes from outside
    (weight,) = graph.constants.values()
    assert DType.of(weight.dtype) is DType.bf16
    assert [graph.values[o.value].dtype for o in graph.outputs] == ["f32"]


def test_values_between_products_have_16_bits() -> None:
    net = Net(1, 16, 5, 5)
    graph = narrow(net.graph(net.conv(net.op("relu", net.conv(net.op("relu", net.x), 16)), 16)))
    assert kernels(graph) == ["relu+cast", "cast+cast+conv2d+relu+cast", "cast+cast+conv2d"]


def test_residuals_are_read_in_16_bits_by_the_kernel_that_adds_them() -> None:
    net = Net(1, 16, 5, 5)
    x = net.op("relu", net.x)
    y = net.op("relu", net.op("add", net.conv(net.conv(x, 16), 16), x))
    graph = narrow(net.graph(net.conv(y, 16)))
    assert kernels(graph) == [
        "relu+cast", "cast+cast+conv2d+cast", "cast+cast+conv2d+cast+add+relu+cast", "cast+cast+conv2d",
    ]  # fmt: skip


def test_sums_after_each_other_stay_f32() -> None:
    """What no product reads is not rounded."""
    net = Net(4, 16)
    y = net.dense(net.op("softmax", net.op("add", net.dense(net.x, 16), net.x), axis=1), 16)
    graph = narrow(net.graph(y))
    assert kernels(graph) == ["cast", "cast+cast+matmul+add", "softmax+cast", "cast+cast+matmul"]


def test_what_reads_windows_reads_f32() -> None:
    net = Net(1, 16, 6, 6)
    x = net.conv(net.op("relu", net.x), 16)
    pooled = net.op("max_pool", x, kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1), ceil_mode=False)
    graph = narrow(net.graph(net.conv(pooled, 16), net.conv(x, 8)))
    assert sorted(kernels(graph)) == sorted(
        ["relu+cast", "cast+cast+conv2d", "cast", "max_pool+cast", "cast+cast+conv2d", "cast+cast+conv2d"]
    )


def test_depthwise_convolutions_between_products_read_16_bits() -> None:
    net = Net(1, 16, 6, 6)
    x = net.op("relu", net.conv(net.op("relu", net.x), 16))
    y = net.op("relu", net.conv(x, 16, groups=16))
    graph = narrow(net.graph(net.conv(y, 16)))
    assert kernels(graph) == ["relu+cast", "cast+cast+conv2d+relu+cast", "cast+conv2d+relu+cast", "cast+cast+conv2d"]


def test_depthwise_convolutions_whose_results_are_f32_read_f32() -> None:
    net = Net(1, 16, 6, 6)
    x = net.conv(net.op("relu", net.x), 16)
    graph = narrow(net.graph(net.conv(x, 16, groups=16)))
    assert kernels(graph) == ["relu+cast", "cast+cast+conv2d", "conv2d"]


def test_depthwise_convolutions_read_f32_where_widening_takes_the_turns_of_multiplying() -> None:
    net = Net(1, 16, 6, 6)
    graph = net.graph(net.conv(net.conv(net.conv(net.op("relu", net.x), 16), 16, groups=16), 16))
    found = narrowed(graph, DType.bf16, {node.name for node in narrowable(graph)}, between=False)
    assert kernels(found) == ["relu+cast", "cast+cast+conv2d", "conv2d+cast", "cast+cast+conv2d"]


def test_views_between_products_have_16_bits() -> None:
    net = Net(4, 16)
    flat = net.op("reshape", net.dense(net.x, 16), shape=(2, 32))
    graph = narrow(net.graph(net.dense(flat, 8)))
    assert kernels(graph) == ["cast", "cast+cast+matmul+cast", "reshape", "cast+cast+matmul"]
    assert next(node for node in graph.nodes if node.op == "reshape").output.dtype == "bf16"


def attended(net: Net, q: str, k: str, v: str) -> str:
    heads = [net.op("reshape", x, shape=(1, 4, 2, 8)) for x in (q, k, v)]
    y = net.op(
        "attention", *heads, extras="", q_heads=2, kv_heads=2, first=(0, 0, 0), order="bshd,bshd,bshd,bshd", scale=0.3,
        softcap=0.0, causal=False, offset=0, window=(-1, -1), precision="", empty_zero=True, fill=-math.inf, result=0,
    )  # fmt: skip
    return net.op("reshape", y, shape=(4, 16))


def test_attention_between_products_reads_and_gives_16_bits() -> None:
    net = Net(4, 16)
    y = net.dense(attended(net, *(net.dense(net.x, 16) for _ in range(3))), 8)
    graph = narrow(net.graph(y))
    attention = next(node for node in graph.nodes if node.op == "attention")
    assert [graph.values[name].dtype for name in (*attention.inputs, attention.name)] == ["bf16"] * 4
    assert [graph.values[o.value].dtype for o in graph.outputs] == ["f32"]


def test_attention_is_f32_where_it_is_no_faster_in_16_bits() -> None:
    net = Net(4, 16)
    graph = net.graph(net.dense(attended(net, *(net.dense(net.x, 16) for _ in range(3))), 8))
    found = narrowed(graph, DType.bf16, {node.name for node in narrowable(graph)}, between=False)
    attention = next(node for node in found.nodes if node.op == "attention")
    assert {found.values[name].dtype for name in (*attention.inputs, attention.name)} == {"f32"}


@pytest.mark.parametrize("dtype", [DType.bf16, DType.f16])
def test_attention_over_other_values_reads_f32(dtype: DType) -> None:
    """A cache stays as it is; and of f16 the powers of a softmax would be too small."""
    net = Net(4, 16)
    q, k, v = (net.dense(net.x, 16) for _ in range(3))
    graph = narrow(net.graph(net.dense(attended(net, q, k, v if dtype is DType.f16 else net.x), 8)), dtype)
    attention = next(node for node in graph.nodes if node.op == "attention")
    assert {graph.values[name].dtype for name in (*attention.inputs, attention.name)} == {"f32"}


def test_outputs_are_not_rounded() -> None:
    net = Net(4, 16)
    y = net.dense(net.x, 16)
    graph = narrow(net.graph(y, net.dense(y, 8)))
    assert kernels(graph).count("cast+cast+matmul") == 2


def test_only_what_is_chosen() -> None:
    net = Net(4, 16)
    first = net.dense(net.x, 16)
    graph = net.graph(net.dense(first, 16))
    found = narrowed(graph, DType.bf16, {first})
    assert kernels(found) == ["cast", "cast+cast+matmul", "matmul"]
    assert narrowed(graph, DType.bf16, ()) is graph


@pytest.mark.parametrize(("channels", "groups"), [(16, 16), (16, 4), (3, 1)])
def test_sums_that_no_pairs_fill_are_left(channels: int, groups: int) -> None:
    net = Net(1, channels, 5, 5)
    assert narrowable(net.graph(net.conv(net.x, 16, groups))) == ()


def test_few_channels_are_a_product_where_rows_are_folded() -> None:
    """The rounding of the image goes to the convolution, which lays it in rows anyway."""
    net = Net(1, 3, 9, 9)
    graph = net.graph(net.op("relu", net.conv(net.x, 16)))
    names = {node.name for node in narrowable(graph, in_rows=True)}
    assert len(names) == 1 and not narrowable(graph)
    found = narrowed(graph, DType.bf16, names)
    verify(found)
    assert kernels(found) == ["cast+cast+cast+conv2d+relu"]


def test_an_image_that_others_read_is_rounded_once() -> None:
    net = Net(1, 3, 9, 9)
    graph = net.graph(net.conv(net.x, 16), net.conv(net.x, 12))
    found = narrowed(graph, DType.bf16, {node.name for node in narrowable(graph, in_rows=True)})
    assert sorted(kernels(found)) == ["cast", "cast+cast+conv2d", "cast+cast+conv2d"]


def test_few_channels_for_as_few_filters_are_left() -> None:
    """Vectors lie along filters there: without one, rounding would only be in the way."""
    net = Net(1, 3, 9, 9)
    assert narrowable(net.graph(net.conv(net.x, 3)), in_rows=True) == ()


def test_weights_beyond_f16() -> None:
    net = Net(4, 16)
    weight = net.weight(16, 8, scale=1e6)
    graph = net.graph(net.builder.emit("matmul", (net.x, weight), "y", "Gemm_3", trans_a=False, trans_b=False))
    message = r"precision f16: the weight 'w' of 'Gemm_3' reaches 1\.98456e\+06, and f16 ends at 65504; use bf16, auto"
    with pytest.raises(ModelError, match=message):
        narrowed(graph, DType.f16, {graph.outputs[0].value})
    narrow(graph)


def test_infinite_weights_are_none() -> None:
    net = Net(4, 2)
    array: Array = np.array([[np.inf], [1.0]], np.float32)
    y = net.builder.emit("matmul", (net.x, net.builder.constant(array)), "y", trans_a=False, trans_b=False)
    narrowed(net.graph(y), DType.f16, {y})


def test_convolutions_are_told_which_of_their_tiles_may_be_rounded() -> None:
    net = Net(1, 16, 12, 12)
    first = net.conv(net.x, 16)
    second = net.builder.emit(
        "conv2d",
        (first, net.weight(16, 16, 1, 1)),
        "one",
        "Conv",
        stride=(1, 1),
        pad=(0,) * 4,
        dilation=(1, 1),
        groups=1,
    )
    third = net.conv(second, 16)
    graph = net.graph(third)
    found = narrowed(graph, DType.bf16, {first, second, third}, rounded={first: 6, second: 6})
    verify(found)
    told = [dict(node.attrs).get("rounded") for node in found.nodes if node.op == "conv2d"]
    assert told == [6, None, None], "windows of one pixel have no tiles, and the last was not asked"
