"""Quantised graphs become graphs of integers, and mean what they meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph import Graph, Output, Value, evaluate_graph, optimize, partition
from autotune.graph.builder import GraphBuilder
from autotune.graph.ir import Array
from autotune.graph.passes import PASSES
from autotune.ops.workload import AttrValue
from autotune.tensor import DType
from tests.graph.quantized_graphs import random_quantized

CONV: dict[str, AttrValue] = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
DENSE: dict[str, AttrValue] = {"trans_a": False, "trans_b": False}
POOL: dict[str, AttrValue] = {
    "kernel": (2, 2), "stride": (2, 2), "pad": (0, 0, 0, 0), "dilation": (1, 1), "ceil_mode": False,
}  # fmt: skip


class Net:
    """A quantised graph, written out as a tool writes it."""

    def __init__(self, *shape: int, kind: Any = np.uint8) -> None:
        self.builder = GraphBuilder("net")
        self.kind, self.rng = kind, np.random.default_rng(0)
        self.x = self.builder.input(Value("x", "f32", shape))

    def const(self, array: Any, dtype: Any = np.float32) -> str:
        return self.builder.constant(np.asarray(array, dtype))

    def op(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        return self.builder.emit(op, inputs, op, "", **attrs)

    def q(self, name: str, scale: float = 0.043, zero: int = 3) -> str:
        s, z = self.const(scale), self.const(zero, self.kind)
        to = DType.of(self.kind).value
        return self.op("dequantize", self.op("quantize", name, s, z, to=to), s, z, to="f32")

    def weight(self, *shape: int, scale: Any = 0.01, zero: Any = 0, kind: Any = np.int8) -> str:
        info = np.iinfo(kind)
        array = self.rng.integers(info.min, info.max, shape, kind, endpoint=True)
        return self.op("dequantize", self.builder.constant(array), self.const(scale), self.const(zero, kind), to="f32")

    def conv(self, x: str, k: int = 8, **attrs: AttrValue) -> str:
        c, scale = self.builder.values[x].shape[1], self.rng.uniform(0.001, 0.01, (k, 1, 1, 1))
        return self.op("conv2d", x, self.weight(k, c, 3, 3, scale=scale), **{**CONV, **attrs})

    def graph(self, *results: str) -> Graph:
        return self.builder.build([Output(f"out{i}", name) for i, name in enumerate(results)])


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def kernels(graph: Graph) -> list[str]:
    return ["+".join(n.op for n in group.workload.nodes) for group in partition(graph) if not group.is_view]


def feeds(graph: Graph, seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {v.name: rng.uniform(-4, 4, v.shape).astype(np.float32) for v in graph.inputs}


def check(graph: Graph) -> Graph:
    """The graph of integers; where the last thing is quantised, it is off by one only where a tie is near."""
    made = optimize(graph)
    fed = feeds(graph)
    found, wanted = evaluate_graph(made, fed), evaluate_graph(graph, fed, DType.f64)
    for output in graph.outputs:
        last = graph.producers[output.value]
        ours, theirs = found[output.name].astype(np.float64), wanted[output.name]
        if last.op != "dequantize":
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
            continue
        scale = float(graph.constants[last.inputs[1]])
        before = graph.producers[last.inputs[0]].inputs[0]
        real = evaluate_graph(Graph(graph.name, graph.inputs, graph.nodes, (Output("y", before),), graph.constants),
                              fed, DType.f64)["y"] / scale  # fmt: skip
        near = np.abs(np.abs(real - np.floor(real)) - 0.5) < 1e-5 * np.maximum(np.abs(real), 1)
        off = np.rint((ours - theirs) / scale)
        assert np.abs(off[near]).max(initial=0) <= 1
        assert not off[~near].any()
    return made


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("bias", ["none", "of the sum", "real"])
def test_a_convolution_is_one_kernel_of_bytes(kind: Any, bias: str) -> None:
    net = Net(1, 4, 6, 6, kind=kind)
    y = net.conv(net.q(net.x))
    if bias == "of the sum":
        scale = np.float32(0.043) * net.builder.constants[net.builder._nodes[-2].inputs[1]]
        made = net.op("dequantize", net.const(np.arange(8) * 100, np.int32), net.const(scale.reshape(-1)),
                      net.const(0, np.int32), to="f32")  # fmt: skip
        y = net.op("add", y, net.op("reshape", made, shape=(1, 8, 1, 1)))
    if bias == "real":
        y = net.op("add", y, net.const(np.linspace(-1, 1, 8).reshape(1, 8, 1, 1)))
    result = check(net.graph(net.q(net.op("relu", y), zero=0 if kind is np.uint8 else -128)))
    (conv,) = (node for node in result.nodes if node.op == "conv2d")
    assert conv.output.dtype == "i32"
    assert conv.attr("pad_value") == (3 if kind is np.uint8 else 131)
    shift = "+dequantize+add+requantize" if bias == "real" else "+requantize"
    assert kernels(result) == ["requantize", f"conv2d+add{shift}+dequantize"]


def test_a_residual_block_has_no_real_tensor_between_kernels() -> None:
    net = Net(1, 16, 8, 8)
    x = net.q(net.x)
    y = net.q(net.op("relu", net.conv(x, 16)), zero=0)
    y = net.q(net.conv(y, 16))
    y = net.q(net.op("relu", net.op("add", y, x)), 0.05, 0)
    left, right = net.q(net.conv(y, 16)), net.q(net.conv(y, 16), 0.07)
    y = net.q(net.op("relu", net.op("add", left, right)), 0.05, 0)
    pooled = net.q(net.op("reduce_mean", y, axes=(2, 3), keepdims=True), 0.05, 0)
    graph = net.graph(net.q(net.op("matmul", net.op("reshape", pooled, shape=(1, 16)), net.weight(16, 5), **DENSE)))
    result = optimize(graph)
    found = kernels(result)
    assert len(found) == 1 + 4 + 1 + 1  # the input, convolutions with all that follows, the mean, the last product
    written = {name: result.values[name].dtype for group in partition(result) for name in group.outputs}
    written.pop(result.outputs[0].value)
    assert set(written.values()) == {"u8"}


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_a_matrix_product(trans_b: bool, kind: Any) -> None:
    net = Net(3, 7, 20)
    shape, each = ((5, 20), (5, 1)) if trans_b else ((20, 5), (1, 5))
    zero = np.full(each, 100 if kind is np.uint8 else 0)
    weight = net.weight(*shape, scale=net.rng.uniform(0.001, 0.01, each), zero=zero, kind=kind)
    y = net.op("add", net.op("matmul", net.q(net.x), weight, trans_a=False, trans_b=trans_b), net.const(np.ones(5)))
    result = check(net.graph(net.q(y, 0.5)))
    assert [node.output.dtype for node in result.nodes if node.op == "matmul"] == ["i32"]


def test_real_work_behind_a_product_reads_a_scaled_sum() -> None:
    net = Net(1, 7, 20)
    product = net.op("matmul", net.q(net.x), net.weight(20, 8), **DENSE)
    result = check(net.graph(net.op("softmax", product, axis=2)))
    assert ops(result) == ["requantize", "matmul", "add", "dequantize", "softmax"]


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("max_pool", POOL | {"pad": (1, 1, 1, 1)}),
        ("transpose", {"perm": (0, 2, 3, 1)}),
        ("reshape", {"shape": (1, 16, 9, 1)}),
        ("slice", {"begin": (0, 1, 0, 0), "size": (1, 3, 6, 6), "step": (1, 1, 1, 1)}),
        ("pad", {"pads": (0, 0, 1, 1, 0, 0, 1, 1), "value": 0.0}),
        ("relu", {}),
    ],
)
def test_what_keeps_values_or_their_order_works_on_bytes(op: str, attrs: dict[str, AttrValue]) -> None:
    net = Net(1, 4, 6, 6)
    result = check(net.graph(net.q(net.op(op, net.q(net.x), **attrs))))
    assert ops(result)[0] == "requantize"
    assert ops(result)[-1] == "dequantize"
    assert [node.output.dtype for node in result.nodes[:-1]] == ["u8"] * (len(result.nodes) - 1)


def test_rows_are_divided_by_a_product() -> None:
    net = Net(2, 5, 64)
    divisor = net.op("sqrt", net.op("reduce_mean", net.op("mul", net.x, net.x), axes=(2,), keepdims=True))
    result = check(net.graph(net.q(net.op("div", net.x, divisor))))
    assert kernels(result)[-1] == "mul+requantize+dequantize"
    assert "div" not in ops(result)


def test_joined_values_of_one_grid_and_of_several() -> None:
    net = Net(1, 4, 6, 6)
    same = net.op("concat", net.q(net.x), net.q(net.op("neg", net.x)), axis=1)
    other = net.op("concat", same, net.q(net.x, 0.01), axis=1)
    result = check(net.graph(net.q(other)))
    assert all(node.output.dtype == "u8" for node in result.nodes if node.op == "concat")


def test_bounds_that_a_grid_has_anyway_cost_nothing() -> None:
    net = Net(1, 4, 6, 6)
    y = net.op("clip", net.conv(net.q(net.x)), min=0.0, max=6.0)
    result = check(net.graph(net.q(y, 6 / 255, 0)))
    assert ops(result) == ["requantize", "conv2d", "add", "requantize", "dequantize"]
    result = check(net.graph(net.q(y, 6 / 200, 10)))
    assert ops(result) == ["requantize", "conv2d", "add", "requantize", "max", "min", "dequantize"]


@pytest.mark.parametrize(
    "scale", [0.0, -0.05, np.nan, np.inf, 1e-40], ids=["zero", "negative", "nan", "infinite", "subnormal"]
)
@pytest.mark.parametrize("where", ["data", "weight", "result"])
def test_strange_scales_mean_what_they_say(scale: float, where: str) -> None:
    net = Net(1, 4, 6, 6)
    x = net.q(net.x, scale) if where == "data" else net.q(net.x)
    weight = net.weight(8, 4, 3, 3, scale=scale if where == "weight" else 0.01)
    y = net.op("conv2d", x, weight, **CONV)
    graph = net.graph(net.q(y, scale) if where == "result" else y)
    fed = feeds(graph)
    with np.errstate(all="ignore"):
        found, wanted = evaluate_graph(optimize(graph), fed), evaluate_graph(graph, fed)
    np.testing.assert_allclose(found["out0"], wanted["out0"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_functions_of_bytes_are_tables(kind: Any) -> None:
    """GELU as a tool quantises it: every step rounded to bytes."""
    net = Net(1, 7, 16, kind=kind)
    x = net.q(net.x)
    y = net.q(net.op("add", net.q(net.op("erf", net.op("div", x, net.const(2**0.5))), 0.01), net.const(1.0)), 0.01)
    result = check(net.graph(net.q(net.op("mul", net.q(net.op("mul", x, y)), net.const(0.5)))))
    assert ops(result) == ["requantize", "lookup", "dequantize"]
    (table,) = (result.constants[node.inputs[1]] for node in result.nodes if node.op == "lookup")
    assert table.dtype == np.uint8


def test_a_table_behind_a_table_is_one() -> None:
    """SiLU: the sigmoid is looked up, and so is what it is multiplied into."""
    net = Net(1, 4, 6, 6)
    x = net.q(net.x)
    gate = net.q(net.op("sigmoid", x), 1 / 255, 0)
    assert ops(check(net.graph(net.q(net.op("mul", x, gate))))) == ["requantize", "lookup", "dequantize"]


def test_functions_that_cost_little_or_read_two_values_are_computed() -> None:
    net = Net(1, 7, 16)
    x, other = net.q(net.x), net.q(net.op("neg", net.x))
    assert "lookup" not in ops(check(net.graph(net.q(net.op("mul", x, net.const(0.3))))))
    assert "lookup" not in ops(check(net.graph(net.q(net.op("mul", net.op("sigmoid", x), other)))))


def test_channels_of_zeros_are_zero() -> None:
    net = Net(1, 4, 6, 6)
    weight = net.weight(3, 4, 3, 3, scale=np.array([0.01, 0.0, 0.01]).reshape(3, 1, 1, 1))
    result = check(net.graph(net.q(net.op("conv2d", net.q(net.x), weight, **CONV))))
    assert [node.output.dtype for node in result.nodes if node.op == "conv2d"] == ["i32"]


def test_scales_along_the_sum_stay_real() -> None:
    net = Net(3, 20)
    weight = net.weight(20, 5, scale=net.rng.uniform(0.001, 0.01, (20, 1)))
    result = check(net.graph(net.op("matmul", net.q(net.x), weight, **DENSE)))
    assert [node.output.dtype for node in result.nodes if node.op == "matmul"] == ["f32"]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_products_of_two_values_as_in_attention(kind: Any) -> None:
    net = Net(2, 8, 16, kind=kind)
    q, k, v = (net.q(net.op("mul", net.x, net.const(factor))) for factor in (0.5, -0.7, 0.9))
    scores = net.q(net.op("matmul", q, net.q(net.op("transpose", k, perm=(0, 2, 1))), **DENSE), 1.5)
    weights = net.q(net.op("softmax", scores, axis=2), 1 / 256, 0 if kind is np.uint8 else -128)
    result = check(net.graph(net.q(net.op("matmul", weights, v, **DENSE))))
    products = [node for node in result.nodes if node.op == "matmul"]
    assert [node.output.dtype for node in products] == ["i32", "i32"]
    assert [[result.values[name].dtype for name in node.inputs] for node in products] == [["u8", "i8"]] * 2
    made = {node.name: node.op for node in result.nodes}
    assert "bitwise_xor" not in made.values()  # signed bytes are made as such


def test_a_sum_that_may_leave_i32_stays_real() -> None:
    net = Net(1, 2**16)
    array = net.builder.constant(np.full((2**16, 1), 127, np.int8))
    weight = net.op("dequantize", array, net.const(0.01), net.const(0, np.int8), to="f32")
    result = optimize(net.graph(net.op("matmul", net.q(net.x), weight, **DENSE)))
    assert [node.output.dtype for node in result.nodes if node.op == "matmul"] == ["f32"]


def test_one_weight_under_two_scales_and_one_value_under_two_grids() -> None:
    net = Net(1, 4, 6, 6)
    array = net.builder.constant(net.rng.integers(-128, 127, (4, 4, 3, 3), np.int8))
    weights = [net.op("dequantize", array, net.const(s), net.const(0, np.int8), to="f32") for s in (0.01, 0.02)]
    values = [net.q(net.x), net.q(net.x, 0.02, 200)]
    sums = [net.op("conv2d", value, weight, **CONV) for value in values for weight in weights]
    check(net.graph(*(net.q(y) for y in sums)))


def test_without_the_pass_the_weights_are_folded() -> None:
    net = Net(1, 4, 6, 6)
    graph = net.graph(net.q(net.conv(net.q(net.x))))
    result = optimize(graph, skip=["integer-regions"])
    assert [node.output.dtype for node in result.nodes if node.op == "conv2d"] == ["f32"]
    assert PASSES["integer-regions"](result) is not None


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_graphs_whose_scales_are_powers_of_two_are_exact(first: int) -> None:
    for seed in range(first, first + 20):
        graph, fed = random_quantized(seed)
        wanted, found = evaluate_graph(graph, fed, DType.f64), evaluate_graph(optimize(graph), fed)
        for name, array in wanted.items():
            size = np.abs(array).max(initial=1.0)  # sums that are not quantised may need more digits than f32 has
            np.testing.assert_allclose(found[name], array, rtol=0, atol=2e-7 * size, err_msg=f"seed {seed}, {name}")
