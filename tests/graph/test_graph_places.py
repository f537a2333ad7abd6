"""Which operators compute each place by itself: said by their definitions, and true of what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph import evaluate_graph
from autotune.graph.builder import GraphBuilder
from autotune.graph.ir import Array, Graph, Output, Value
from autotune.graph.places import of_fewer, places
from autotune.ops import Workload, parse_workload

WORKLOADS = (
    "matmul a=6,4,8 b=8,6", "matmul a=6,4,8 b=6,8,5", "matmul a=4,6,8 b=1,8,6", "matmul a=6,4 b=4",
    "matmul a=6,4 b=6,5 trans_a=true", "conv2d data=6,4,5,5 weight=6,4,3,3 pad=1,1,1,1",
    "conv2d data=2,6,5,5 weight=6,1,3,3 groups=6", "layer_norm data=2,6,8 scale=8 bias=8", "softmax data=6,4,6 axis=1",
    "reduce_mean data=6,5,6 axes=1 keepdims=true", "reduce_max data=6,5,6 axes=0,1 keepdims=false",
    "argmax data=6,5,6 axis=2 keepdims=false", "transpose data=2,6,3 perm=2,0,1", "reshape data=2,6,8 shape=2,6,2,4",
    "reshape data=2,6,8 shape=12,8", "concat data=2,6,3 data=2,6,4 axis=2",
    "slice data=6,8 begin=0,2 size=6,3 step=1,2",
    "slice data=6,8 begin=0,0 size=6,6 step=1,1", "expand data=1,6 shape=6,6", "add a=2,6,4 b=6,1", "add a=6,4 b=4",
    "where condition=6,1:bool a=6,4 b=1,4", "gather data=6,4 indices=6:i64 axis=1",
    "gather_elements data=6,4 indices=6,2:i64 axis=1",
    "cumsum data=6,4 axis=1", "trilu data=6,6", "pad data=6,4 pads=0,1,0,1", "top_k data=6,4 k=2 axis=1",
    "avg_pool data=6,2,6,6 kernel=3,3 stride=1,1 pad=1,1,1,1 dilation=1,1", "one_hot indices=6:i64 values=2 depth=6",
    "attention q=1,2,6,4 k=1,2,6,4 v=1,2,6,4 mask=6,6 q_heads=2 kv_heads=2 extras=mask",
    "attention q=1,2,6,4 k=1,2,6,4 v=1,2,6,4 lengths=1:i64 q_heads=2 kv_heads=2 extras=lengths",
    "attention q=6,2,3,4 k=6,2,6,4 v=6,2,6,4 q_heads=2 kv_heads=2 causal=true offset=3",
    "rotary data=1,6,2,4 cos=1,6,2 sin=1,6,2 order=bshd dim=4",
)  # fmt: skip
TAKEN = np.asarray([4, 1])


def along(text: str, axis: int) -> tuple[int | None, ...] | None:
    workload = parse_workload(text)
    (node,) = workload.nodes
    return places(node.op, tuple(one.type for one in workload.inputs), node.attrs, axis)


def graph_of(workload: Workload) -> Graph:
    (node,) = workload.nodes
    g = GraphBuilder("one")
    names = [g.input(Value(f"in{n}", i.type.dtype, i.type.shape)) for n, i in enumerate(workload.inputs)]
    return g.build([Output("y", g.emit(node.op, names, "", "", **dict(node.attrs)))])


def feeds_of(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    whole = {"i64": np.int64, "bool": np.bool_}
    return {v.name: rng.integers(0, 2, v.shape).astype(whole[v.dtype]) if v.dtype in whole
            else rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}  # fmt: skip


@pytest.mark.parametrize("text", WORKLOADS)
def test_places_computed_alone_are_those_of_the_whole(text: str) -> None:
    graph = graph_of(parse_workload(text))
    feeds, (node,) = feeds_of(graph), graph.nodes
    (whole,) = evaluate_graph(graph, feeds).values()
    for axis, extent in enumerate(node.output.shape):
        fewer = of_fewer(node, graph.values, axis, len(TAKEN))
        if fewer is None or extent <= TAKEN.max():
            continue
        parts = {name: array if dim is None else array.take(TAKEN, dim)
                 for (name, array), dim in zip(feeds.items(), fewer.dims, strict=True)}  # fmt: skip
        g = GraphBuilder("fewer")
        for value in graph.inputs:
            g.input(Value(value.name, value.dtype, parts[value.name].shape))
        (few,) = evaluate_graph(
            g.build([Output("y", g.emit(node.op, node.inputs, "", "", **dict(fewer.attrs)))]), parts
        ).values()
        np.testing.assert_allclose(few, whole.take(TAKEN, axis), rtol=1e-5, atol=1e-5, err_msg=f"{text}, axis {axis}")


def test_what_each_place_reads() -> None:
    assert [along("matmul a=6,4,8 b=8,6", axis) for axis in range(3)] == [(0, None), (1, None), (None, 1)]
    assert along("matmul a=6,4 b=6,5 trans_a=true", 0) == (1, None)
    assert [along("layer_norm data=2,6,8 scale=8 bias=8", axis) for axis in (1, 2)] == [(1, None, None), None]
    attention = (
        "attention q=1,6,2,4 k=1,2,6,4 v=1,2,6,4 mask=6,6 q_heads=2 kv_heads=2 extras=mask order=bshd,bhsd,bhsd,bshd"
    )
    assert along(attention, 1) == (1, None, None, 0)
    assert along("reshape data=2,6,8 shape=2,6,2,4", 1) == (1,)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("softmax data=6,4 axis=0", 0), ("cumsum data=6,4 axis=0", 0), ("trilu data=6,6", 0),
        ("pad data=6,4 pads=1,0,1,0", 0),
        ("slice data=6,8 begin=0,0 size=6,6 step=1,1", 1), ("reshape data=2,6,8 shape=12,8", 0),
        ("top_k data=6,4 k=2 axis=1", 0), ("one_hot indices=6:i64 values=2 depth=6", 1),
        ("attention q=1,2,6,4 k=1,2,6,4 v=1,2,6,4 q_heads=2 kv_heads=2 causal=true", 2),
    ],
)  # fmt: skip
def test_what_depends_on_where_it_is_is_not_computed_alone(text: str, axis: int) -> None:
    assert along(text, axis) is None


def test_a_value_read_in_two_ways_is_refused() -> None:
    g = GraphBuilder("gram")
    x = g.input(Value("x", "f32", (6, 6)))
    g.emit("matmul", (x, x), trans_a=False, trans_b=True)
    graph = g.build([Output("y", "matmul")])
    fewer = of_fewer(graph.nodes[0], graph.values, 0, 2)
    assert fewer is not None and fewer.dims == (0, None)  # as operands they are two
