"""Loops whose steps cut slices of any length, as exporters write bags of embeddings: one program, by native code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from autotune.compiler import native_loop
from autotune.compiler.native_steps import Taken
from autotune.compiler.staged import compile_or_stage
from autotune.compiler.stages import Making
from autotune.errors import AutotuneError
from autotune.graph import open_model
from tests.compiler.test_compiler_body_ways import expected, looped, node
from tests.compiler.test_compiler_loops import FLOAT, INT, scalar
from tests.compiler.test_compiler_staged import Array, Counting, data

pytestmark = [
    pytest.mark.usefixtures("kept"),
    pytest.mark.filterwarnings("ignore:.*(empty slice|invalid value).*:RuntimeWarning"),
]
CONSTANTS = {"axes": np.asarray([0]), "ones": np.asarray([1]), "table": data(30, 4), "zero": scalar(0)}
ENDS = [
    node("Gather", "starts i", "s", axis=0), node("Gather", "ends i", "e", axis=0),
    node("Unsqueeze", "s axes", "s1"), node("Unsqueeze", "e axes", "e1"),
]  # fmt: skip


def bags(reduction: Sequence[onnx.NodeProto], weighted: bool = False) -> onnx.ModelProto:
    """Each step looks rows up and gives `y` of them."""
    nodes = [*ENDS, node("Slice", "ids s1 e1 axes", "mine"), node("Gather", "table mine", "looked", axis=0)]
    if weighted:
        nodes += [node("Slice", "weights s1 e1 axes", "own"), node("Unsqueeze", "own ones", "column"),
                  node("Mul", "looked column", "rows")]  # fmt: skip
    else:
        nodes.append(node("Identity", "looked", "rows"))
    starts: Any = {"ids": (INT, ["ids"]), "starts": (INT, ["bags"]), "ends": (INT, ["bags"])}
    if weighted:
        starts["weights"] = (FLOAT, ["ids"])
    return looped([*nodes, *reduction], {}, "y", tensors=CONSTANTS, starts=starts)


def check(model: onnx.ModelProto, lengths: Sequence[int], compiler: Counting | None = None, **more: Array) -> None:
    """Bags of these lengths, one behind another; twice."""
    ends = np.cumsum(lengths)
    given = {"n": scalar(len(lengths)), "x": data(5), "ids": np.random.default_rng(0).integers(0, 30, ends[-1]),
             "starts": ends - lengths, "ends": ends}  # fmt: skip
    if any(info.name == "weights" for info in model.graph.input):
        given["weights"] = data(int(ends[-1]))
    given.update(more)
    found, wanted = (
        compile_or_stage(open_model(model.SerializeToString()), Making(compiler or Counting())),
        expected(model, given),
    )
    for _ in range(2):
        for array, one in zip(found.run(given), wanted, strict=True):
            assert array.dtype == one.dtype
            np.testing.assert_allclose(array, one, rtol=1e-5, atol=1e-6)


SUM = [node("ReduceSum", "rows axes", "y", keepdims=0)]
MEAN = [node("ReduceMean", "rows", "y", axes=[0], keepdims=0)]
MAX = [node("ReduceMax", "rows", "y", axes=[0], keepdims=0)]


@pytest.mark.parametrize("reduction", [SUM, MEAN, MAX])
def test_bags_of_any_size(reduction: Sequence[onnx.NodeProto], taken: list[Taken]) -> None:
    """The window is made larger when a bag needs that: a program for each power of two."""
    compiler = Counting()
    check(bags(reduction), [3, 1, 16, 5, 17, 40, 2], compiler)
    assert not any(one.left for one in taken)
    looked = [graph for graph in compiler.graphs if any(node.op == "gather" for node in graph.nodes)]
    assert len(looked) <= 4  # what begins a step as it is, and windows of 16, 32 and 64


def test_a_bag_that_is_too_large(taken: list[Taken], monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that are left are taken one by one."""
    monkeypatch.setattr(native_loop, "MOST_WINDOW", 32)
    check(bags(SUM), [3, 20, 40, 2, 3])
    assert [(one.steps, one.left) for one in taken] == [(2, True)] * 2


@pytest.mark.parametrize("reduction", [SUM, MEAN])
def test_bags_with_weights(reduction: Sequence[onnx.NodeProto], taken: list[Taken]) -> None:
    check(bags(reduction, weighted=True), [3, 7, 1, 20])
    assert not any(one.left for one in taken)


@pytest.mark.parametrize("reduction", [SUM, MEAN])
def test_bags_that_are_empty(reduction: Sequence[onnx.NodeProto], taken: list[Taken]) -> None:
    check(bags(reduction), [0, 3, 0, 2, 0])
    assert not any(one.left for one in taken)


def test_ends_that_lie_outside(taken: list[Taken]) -> None:
    """As ONNX has it: below 0 they count from the end, beyond it they are it, and the start may lie behind the end."""
    starts, ends = np.asarray([-3, 2, 8, -100, 5, 9]), np.asarray([12, -2, 100, 3, 2, 9])
    check(bags(SUM), [10, 0, 0, 0, 0, 0], starts=starts, ends=ends)
    assert not any(one.left for one in taken)


def test_elements_that_are_ordered_have_a_program_for_each_extent(taken: list[Taken]) -> None:
    sort = [node("TopK", "rows ones", "top place", axis=0), node("ReduceSum", "top axes", "y", keepdims=0)]
    check(bags(sort), [3, 2, 3])


def test_places_that_no_table_has_are_refused(taken: list[Taken]) -> None:
    made = bags(SUM)
    found = compile_or_stage(open_model(made.SerializeToString()), Making(Counting()))
    given = {"n": scalar(2), "x": data(5), "ids": np.asarray([1, 2, 30]), "starts": np.asarray([0, 2]),
             "ends": np.asarray([2, 3])}  # fmt: skip
    with pytest.raises(AutotuneError, match=r"'looked' \(Gather\): an index into axis 0 is outside"):
        found.run(given)
    (y,) = found.run({**given, "n": scalar(1)})
    np.testing.assert_allclose(y[0], CONSTANTS["table"][1] + CONSTANTS["table"][2], rtol=1e-6)


def test_a_slice_whose_extent_is_known_is_no_window(taken: list[Taken]) -> None:
    nodes = [node("Unsqueeze", "i axes", "at"), node("Add", "at ones", "behind"),
             node("Slice", "table at behind axes", "row"), node("Squeeze", "row axes", "y")]  # fmt: skip
    made = looped(nodes, {}, "y", tensors=CONSTANTS)
    found = compile_or_stage(open_model(made.SerializeToString()), Making(Counting()))
    (y,) = found.run({"n": scalar(3), "x": data(5)})
    np.testing.assert_array_equal(y, CONSTANTS["table"][:3])
