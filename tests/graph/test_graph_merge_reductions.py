"""Reductions of reductions of the same kind become one."""

from __future__ import annotations

import pytest

from tests.graph.test_graph_passes import Net, ops, run_pass


@pytest.mark.parametrize("op", ["reduce_mean", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])
@pytest.mark.parametrize("kept", [(True, True), (True, False), (False, True), (False, False)])
def test_reductions_of_reductions(op: str, kept: tuple[bool, bool]) -> None:
    net = Net(2, 3, 4, 5)
    inner = net.op(op, net.x, axes=(3,), keepdims=kept[0])
    graph = run_pass(net.graph(net.op(op, inner, axes=(1, 2), keepdims=kept[1])), "merge-reductions")
    assert ops(graph)[0] == op
    assert graph.nodes[0].int_tuple("axes") == (1, 2, 3)
    assert ops(graph)[1:] == ([] if kept == (True, True) else ["reshape"])


def test_reductions_that_stay() -> None:
    net = Net(2, 3, 4)
    inner = net.op("reduce_max", net.x, axes=(2,), keepdims=True)
    other = net.op("reduce_sum", inner, axes=(1,), keepdims=True)
    read_twice = net.op("reduce_max", inner, axes=(1,), keepdims=True)
    graph = net.graph(other, read_twice)
    assert run_pass(graph, "merge-reductions") is graph
