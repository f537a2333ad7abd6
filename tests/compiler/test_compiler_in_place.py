"""In place: which kernels may overwrite what they read, and that this holds for every elementwise operator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.compiler.choose import Chooser
from autotune.compiler.in_place import in_place
from autotune.compiler.layouts import assign
from autotune.compiler.slots import Assignment
from autotune.errors import WorkloadError
from autotune.graph import Graph, Output, Value, partition
from autotune.graph.builder import GraphBuilder
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def, lookup, operators
from autotune.ops.registry import Needed
from autotune.ops.workload import AttrValue
from autotune.target import Target

NEEDED: dict[str, AttrValue] = {"to": "f32", "direction": "left", "axis": 1}
ELEMENTWISE = [name for name in operators() if lookup(name).elementwise]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operators_read_where_they_write(name: str) -> None:
    op = lookup(name)
    said = {key: value for key, value in op.defaults.items() if key not in op.rare}
    attrs = {key: NEEDED[key] if isinstance(value, Needed) else value for key, value in said.items()}
    node = WorkloadNode.make(name, range(len(op.operands)), **attrs)
    for dtypes in itertools.product(("f32", "bool", "u8", "i32"), repeat=len(op.operands)):
        types = [
            TensorType("i64", ()) if operand == "end" else TensorType(dtype, (2, 3, 4))
            for operand, dtype in zip(op.operands, dtypes)
        ]
        try:
            stages = compute_def(Workload(tuple(map(WorkloadInput, types)), (node,), (len(types),))).stages
        except WorkloadError:  # not of these types
            continue
        for stage in stages:
            own = tuple(axis.var for axis in stage.axes)
            assert all(read.indices == own for read in stage.reads() if read.tensor.shape)
        return
    raise AssertionError(f"no dtypes suit {name}")


def found(graph: Graph) -> tuple[Assignment, dict[int, int]]:
    a = assign(graph, partition(graph), Chooser(Target.parse("x86 -mcpu=znver4 -num-cores=1"), None))
    lifetimes = a.lifetimes()
    return a, in_place(a, lifetimes, frozenset(lifetimes) - set(a.inputs.values()))


def taken(graph: Graph) -> dict[str, str]:
    """Values that took the memory of another one."""
    a, memory = found(graph)
    return {a.slots[slot].value: a.slots[owner].value for slot, owner in memory.items() if slot != owner}


def turned(builder: GraphBuilder, x: str) -> str:
    """The rows of x in another order, by a kernel that nothing fuses with."""
    rows = builder.values[x].shape[0]
    return builder.emit("gather", [x, builder.constant(np.arange(rows)[::-1].copy())], axis=0)


def test_only_memory_that_nobody_needs_any_more() -> None:
    builder = GraphBuilder("net")
    t = turned(builder, builder.input(Value("x", "f32", (4, 4))))
    again = builder.emit("exp", [t], "again")
    last = builder.emit("relu", [t], "last")
    graph = builder.build([Output(n, turned(builder, n)) for n in (again, last)])
    assert taken(graph) == {"last": t}  # not `again`: `last` still reads t


def test_neither_inputs_nor_outputs_are_overwritten() -> None:
    builder = GraphBuilder("net")
    x = builder.input(Value("x", "f32", (4, 4)))
    t = turned(builder, x)
    graph = builder.build(
        [Output("y", builder.emit("exp", [t])), Output("t", t), Output("z", builder.emit("exp", [x]))]
    )
    assert taken(graph) == {}


def test_not_across_types_and_broadcasting() -> None:
    builder = GraphBuilder("net")
    x = turned(builder, builder.input(Value("x", "f32", (1, 4))))
    wide = turned(builder, builder.input(Value("w", "f32", (4, 4))))
    total = builder.emit("add", [x, wide], "total")
    whole = builder.emit("cast", [turned(builder, total)], "whole", to="i32")
    graph = builder.build([Output("y", turned(builder, whole))])
    assert taken(graph) == {"total": wide}


def multiplied(builder: GraphBuilder, x: str) -> str:
    weight = builder.constant(np.eye(builder.values[x].shape[1], dtype=np.float32))
    return builder.emit("matmul", [x, weight], trans_a=False, trans_b=False)


@pytest.mark.parametrize("factor", [False, True])
def test_a_sum_takes_the_memory_of_what_is_added_to_it_but_not_of_its_factors(factor: bool) -> None:
    builder = GraphBuilder("net")
    x = builder.input(Value("x", "f32", (32, 32)))
    residual = turned(builder, x)
    left = residual if factor else turned(builder, x)
    total = builder.emit("relu", [builder.emit("add", [multiplied(builder, left), residual])], "total")
    graph = builder.build([Output("y", turned(builder, total))])
    assert taken(graph) == ({} if factor else {total: residual})


def test_not_where_a_view_of_the_same_memory_is_read() -> None:
    builder = GraphBuilder("net")
    t = turned(builder, builder.input(Value("x", "f32", (32, 32))))
    row = builder.emit("slice", [t], begin=(3, 0), size=(1, 32), step=(1, 1))
    total = builder.emit("add", [t, row], "total")
    graph = builder.build([Output("y", turned(builder, total))])
    a, memory = found(graph)
    assert any(a.slots[slot].part_of for step in a.steps for slot in step.inputs if isinstance(slot, int))
    assert all(slot == owner for slot, owner in memory.items())
