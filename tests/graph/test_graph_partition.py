"""Partition: what fuses with what, canonical workloads, and an order in which groups can run."""

from __future__ import annotations

import numpy as np

from autotune.graph import Graph, Group, Output, Value, partition, tasks
from autotune.graph.builder import GraphBuilder
from autotune.ops.workload import AttrValue

CONV: dict[str, AttrValue] = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


class Net:
    def __init__(self, *shape: int) -> None:
        self.builder = GraphBuilder("net")
        self.x = self.builder.input(Value("x", "f32", shape))

    def const(self, *shape: int) -> str:
        return self.builder.constant(np.ones(shape, np.float32))

    def op(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        return self.builder.emit(op, inputs, op, "", **attrs)

    def conv(self, x: str) -> str:
        channels = self.builder.values[x].shape[1]
        conv = self.op("conv2d", x, self.const(channels, channels, 3, 3), **CONV)
        return self.op("add", conv, self.const(1, channels, 1, 1))

    def graph(self, *results: str) -> Graph:
        return self.builder.build([Output(f"out{i}", name) for i, name in enumerate(results)])


def ops(group: Group) -> str:
    return "+".join(node.op for node in group.workload.nodes)


def check(graph: Graph) -> tuple[Group, ...]:
    """The groups, after checking that they cover the graph and can run in this order."""
    groups = partition(graph)
    assert sum(len(group.workload.nodes) for group in groups) == len(graph.nodes)
    ready = {value.name for value in graph.inputs} | graph.constants.keys()
    for group in groups:
        assert ready.issuperset(group.inputs)
        ready.update(group.outputs)
        types = group.workload.types()
        for number, name in zip((*range(len(group.inputs)), *group.workload.outputs), (*group.inputs, *group.outputs)):
            assert (types[number].dtype, types[number].shape) == (graph.values[name].dtype, graph.values[name].shape)
    assert ready.issuperset(graph.output_values)
    return groups


def test_residual_block() -> None:
    """The last convolution takes the addition: conv, conv + residual add + relu."""
    net = Net(1, 8, 6, 6)
    y = net.op("relu", net.conv(net.x))
    result = net.op("relu", net.op("add", net.x, net.conv(y)))
    first, second = check(net.graph(result))
    assert (ops(first), ops(second)) == ("conv2d+add+relu", "conv2d+add+add+relu")
    assert second.inputs[0] == first.outputs[0]
    assert second.inputs[-1] == "x"
    assert [entry.constant for entry in second.workload.inputs] == [False, True, True, False]
    assert second.workload.nodes[2].inputs == (5, 3)  # the group's own value first, wherever the model wrote it


def test_of_two_convolutions_the_last_takes_the_addition() -> None:
    net = Net(1, 8, 6, 6)
    main, shortcut = net.conv(net.x), net.conv(net.x)
    first, second = check(net.graph(net.op("relu", net.op("add", main, shortcut))))
    assert (ops(first), ops(second)) == ("conv2d+add", "conv2d+add+add+relu")
    assert second.inputs[-1] == main


def test_a_value_that_leaves_the_graph_ends_its_group() -> None:
    net = Net(1, 4, 4, 4)
    conv = net.conv(net.x)
    assert [ops(group) for group in check(net.graph(net.op("relu", conv), conv))] == ["conv2d+add", "relu"]


def test_a_value_read_twice_fuses_when_its_readers_meet() -> None:
    net = Net(1, 4, 4, 4)
    conv = net.conv(net.x)
    silu = net.op("mul", conv, net.op("sigmoid", conv))
    (group,) = check(net.graph(net.op("relu", silu)))
    assert ops(group) == "conv2d+add+sigmoid+mul+relu"


def test_a_value_read_twice_does_not_fuse_when_its_readers_part() -> None:
    net = Net(1, 4, 4, 4)
    conv = net.conv(net.x)
    graph = net.graph(net.op("relu", conv), net.op("exp", conv))
    assert [ops(group) for group in check(graph)] == ["conv2d+add", "relu", "exp"]


def test_broadcasting_that_enlarges_does_not_fuse() -> None:
    net = Net(1, 4)
    product = net.op("matmul", net.x, net.const(4, 4), trans_a=False, trans_b=False)
    graph = net.graph(net.op("add", product, net.const(3, 4)))
    assert [ops(group) for group in check(graph)] == ["matmul", "add"]


def test_elementwise_operators_alone_fuse_as_a_tree() -> None:
    net = Net(2, 3)
    left, right = net.op("exp", net.x), net.op("tanh", net.x)
    (group,) = check(net.graph(net.op("relu", net.op("add", left, right))))
    assert ops(group) == "exp+tanh+add+relu"
    assert group.inputs == ("x",)


def test_no_group_waits_for_itself() -> None:
    """relu is read by the anchor and by the addition behind it: it must stay outside."""
    net = Net(1, 4, 4, 4)
    y = net.op("relu", net.x)
    result = net.op("add", net.conv(y), y)
    assert [ops(group) for group in check(net.graph(result))] == ["relu", "conv2d+add+add"]


def test_expressions_that_double_stay_small() -> None:
    """x + x, forty times: written out in one kernel that would be 2^40 additions."""
    net = Net(2, 3)
    y = net.x
    for _ in range(40):
        y = net.op("add", y, y)
    groups = check(net.graph(y))
    assert max(len(group.workload.nodes) for group in groups) <= 6
    net = Net(1, 4, 4, 4)
    y = net.conv(net.x)
    for _ in range(40):
        y = net.op("mul", y, y)
    assert max(len(group.workload.nodes) for group in check(net.graph(y))) <= 7


def test_long_chains_are_split() -> None:
    net = Net(2, 3)
    y = net.x
    for _ in range(1000):
        y = net.op("exp", y)
    assert max(len(group.workload.nodes) for group in check(net.graph(y))) == 64


def test_equal_layers_are_one_task() -> None:
    net = Net(1, 4, 6, 6)
    y = net.op("relu", net.conv(net.op("relu", net.conv(net.x))))
    (task,) = tasks(net.graph(y))
    assert task.uses == 2


def test_operand_order_of_the_model_does_not_matter() -> None:
    keys = set()
    for flip in (False, True):
        net = Net(1, 4, 6, 6)
        conv, one = net.conv(net.x), net.const(1)
        net.op("relu", net.x)
        operands = (one, conv) if flip else (conv, one)
        keys.add(check(net.graph(net.op("mul", *operands)))[-1].workload.key)
    assert len(keys) == 1


def test_a_value_used_twice_is_one_input() -> None:
    net = Net(2, 2)
    (group,) = check(net.graph(net.op("mul", net.x, net.x)))
    assert group.inputs == ("x",)
    assert group.workload.nodes[0].inputs == (0, 0)


TOP: dict[str, AttrValue] = {"axis": 1, "k": 3, "largest": True, "sorted": True}


def test_results_of_one_operator_are_one_group() -> None:
    net = Net(2, 8)
    x = net.op("relu", net.x)
    places = net.op("top_k", x, result=1, **TOP)
    other = net.op("top_k", x, result=0, **{**TOP, "k": 2})
    values = net.op("top_k", x, result=0, **TOP)
    groups = check(net.graph(net.op("exp", values), places, net.op("exp", other)))
    assert [ops(group) for group in groups] == ["relu", "top_k+top_k", "exp", "top_k+exp"]
    assert groups[1].outputs == (values, places)  # in the order of the results, whatever order the graph has
    assert groups[1].workload.outputs == (1, 2)


def test_one_result_alone_takes_its_epilogue() -> None:
    net = Net(2, 8)
    (group,) = check(net.graph(net.op("exp", net.op("top_k", net.x, result=0, **TOP))))
    assert ops(group) == "top_k+exp"


def test_what_only_a_reduction_reads_is_computed_inside() -> None:
    net = Net(2, 3, 8)
    masked = net.op("add", net.op("mul", net.x, net.const(1)), net.const(2, 1, 8))
    result = net.op("relu", net.op("softmax", masked, axis=2))
    (group,) = check(net.graph(result))
    assert ops(group) == "mul+add+softmax+relu"
    net = Net(2, 3, 8)
    shared = net.op("exp", net.x)
    graph = net.graph(net.op("reduce_sum", shared, axes=(1,), keepdims=True), shared)
    assert [ops(group) for group in check(graph)] == ["exp", "reduce_sum"]


def test_a_product_chooses_its_matrices_itself() -> None:
    """Experts are not copied, unless a run gives them, their copies are read elsewhere, or what is chosen are rows."""

    def of(tokens: tuple[int, ...], *, data: bool = True, shown: bool = False) -> list[str]:
        net = Net(6, 20, 1)
        indices = net.builder.input(Value("indices", "i64", tokens))
        experts = net.const(4, 8, 20) if data else net.builder.input(Value("experts", "f32", (4, 8, 20)))
        chosen = net.op("gather", experts, indices, axis=0)
        result = net.op("relu", net.op("matmul", chosen, net.x, trans_a=False, trans_b=False))
        return [ops(group) for group in check(net.graph(result, *[chosen] * shown))]

    assert of((6,)) == ["gather+matmul+relu"]
    apart = ["gather", "matmul+relu"]
    assert of((1, 6)) == of((6,), data=False) == of((6,), shown=True) == apart
    net = Net(5, 3)
    rows = net.op("gather", net.const(9, 5), net.builder.input(Value("words", "i64", (7,))), axis=0)
    assert [ops(g) for g in check(net.graph(net.op("matmul", rows, net.x, trans_a=False, trans_b=False)))] == [
        "gather", "matmul",
    ]  # fmt: skip


def test_a_convolution_keeps_what_comes_before_apart() -> None:
    net = Net(1, 4, 4, 4)
    assert [ops(group) for group in check(net.graph(net.conv(net.op("relu", net.x))))] == ["relu", "conv2d+add"]


def test_a_convolution_keeps_its_epilogue() -> None:
    net = Net(1, 4, 4, 4)
    pooled = net.op("reduce_mean", net.op("relu", net.conv(net.x)), axes=(2, 3), keepdims=True)
    assert [ops(group) for group in check(net.graph(pooled))] == ["conv2d+add+relu", "reduce_mean"]


def test_elementwise_operators_read_through_slices_and_transposes() -> None:
    net = Net(2, 8)
    half: dict[str, AttrValue] = {"size": (2, 4), "step": (1, 1)}
    gate = net.op("sigmoid", net.op("slice", net.x, begin=(0, 4), **half))
    glu = net.op("mul", net.op("slice", net.x, begin=(0, 0), **half), gate)
    (group,) = check(net.graph(glu))
    assert sorted(ops(group).split("+")) == ["mul", "sigmoid", "slice", "slice"]
    net = Net(2, 8)
    turned = net.op("transpose", net.x, perm=(1, 0))
    graph = net.graph(net.op("relu", turned), net.op("exp", turned))
    assert [ops(group) for group in check(graph)] == ["transpose", "relu", "exp"]  # read twice: done once
    net = Net(2, 8)
    product = net.op("matmul", net.op("transpose", net.x, perm=(1, 0)), net.x, trans_a=False, trans_b=False)
    assert [ops(group) for group in check(net.graph(product))] == ["transpose", "matmul"]
