"""Fused groups compute what their operators do one by one, on rows, columns, odd sizes and blocked layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.compiler.compile import compile_graph
from autotune.graph import Graph, Output, Value, evaluate_graph
from autotune.graph.builder import GraphBuilder
from autotune.target import Target

TARGET = Target.parse("native -num-cores=2")
SHAPE = (2, 19, 37)


def run(graph: Graph, kernels: int) -> None:
    """The compiled graph has so many kernels, and the values of the reference."""
    compiled = compile_graph(graph, TARGET)
    assert len(compiled.program.calls) == kernels
    rng = np.random.default_rng(0)
    feeds = {value.name: rng.standard_normal(value.shape).astype(np.float32) for value in graph.inputs}
    expected = evaluate_graph(graph, feeds)
    for got, name in zip(compiled.run(feeds), expected, strict=True):
        np.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["softmax", "reduce_mean", "reduce_max", "reduce_l2", "argmax", "log_softmax"])
@pytest.mark.parametrize("axis", [1, 2])
def test_reductions_of_something_computed(op: str, axis: int) -> None:
    builder = GraphBuilder("net")
    x, mask = builder.input(Value("x", "f32", SHAPE)), builder.input(Value("mask", "f32", (1, 1, 37)))
    attrs: dict[str, Any] = {"axes": (axis,), "keepdims": True} if op.startswith("reduce") else {"axis": axis}
    attrs |= {"keepdims": False, "select_last_index": False} if op == "argmax" else {}
    y = builder.emit(op, [builder.emit("tanh", [builder.emit("add", [x, mask])])], **attrs)
    y = builder.emit("neg", [y])
    run(builder.build([Output("y", y)]), 1)


@pytest.mark.parametrize("perm", [(0, 2, 1), (2, 1, 0), (1, 0, 2)])
def test_transposes_below_elementwise_operators(perm: tuple[int, ...]) -> None:
    builder = GraphBuilder("net")
    x = builder.input(Value("x", "f32", SHAPE))
    t = builder.emit("transpose", [x], perm=perm)
    other = builder.input(Value("other", "f32", builder.values[t].shape))
    run(builder.build([Output("y", builder.emit("exp", [builder.emit("sub", [t, other])]))]), 1)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gates_between_parts(axis: int) -> None:
    builder = GraphBuilder("net")
    x = builder.input(Value("x", "f32", (4, 6, 14)))
    size = tuple(extent // 2 if d == axis else extent for d, extent in enumerate((4, 6, 14)))
    begins = ((0, 0, 0), tuple(half if d == axis else 0 for d, half in enumerate(size)))
    left, right = (builder.emit("slice", [x], begin=begin, size=size, step=(1, 1, 1)) for begin in begins)
    run(builder.build([Output("y", builder.emit("mul", [left, builder.emit("sigmoid", [right])]))]), 1)


def test_parts_of_blocked_activations() -> None:
    """Slices between blocks and off them, below elementwise operators that convolutions surround."""
    builder = GraphBuilder("net")
    x = builder.input(Value("x", "f32", (1, 16, 9, 7)))
    conv: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}
    weights = np.random.default_rng(1).standard_normal((64, 16, 3, 3)).astype(np.float32) / 12
    y = builder.emit("conv2d", [x, builder.constant(weights)], pad=(1, 1, 1, 1), **conv)
    size = (1, 16, 9, 7)
    parts = [builder.emit("slice", [y], begin=(0, c, 0, 0), size=size, step=(1, 1, 1, 1)) for c in (0, 5, 32)]
    total = builder.emit("add", [builder.emit("add", parts[:2]), builder.emit("exp", [parts[2]])])
    z = builder.emit("conv2d", [total, builder.constant(weights)], pad=(1, 1, 1, 1), **conv)
    run(builder.build([Output("z", z)]), 5)
