"""Calls of a stop give, one after the other and run after run, what the definitions of their operators give."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.host import prepared
from autotune.compiler.host_steps import HostSteps
from autotune.compiler.specialisation import HostCall
from autotune.errors import AutotuneError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.moved import evaluated
from autotune.graph.ir import Array
from tests.graph.test_graph_eager import CASES, EXTREMES, OPSET, ints, node_of


def call_of(node: NodeAttributes, constants: dict[str, Array]) -> HostCall:
    return HostCall(node, prepared(node), tuple(node.proto.input), constants, tuple(node.proto.output))


def steps_of(node: NodeAttributes, constants: dict[str, Array]) -> HostSteps:
    call = call_of(node, constants)
    return HostSteps([call], [call.bind({}, ())], {})


def compare(node: NodeAttributes, runs: list[list[Array]], constant: frozenset[int] = frozenset()) -> None:
    """The runs, of which the first one is learned from, with the definition."""
    names = list(node.proto.input)
    steps = steps_of(node, {names[n]: runs[0][n] for n in constant})
    for arrays in [*runs, *runs]:
        values: dict[str, Any] = {name: arrays[n] for n, name in enumerate(names) if n not in constant}
        steps.run(values)
        for name, wanted in zip(node.proto.output, evaluated(node, arrays)):
            found = values[name]
            assert isinstance(found, np.ndarray) and wanted is not None
            assert (found.dtype, found.shape, found.flags.c_contiguous) == (wanted.dtype, wanted.shape, True)
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", sorted(CASES))
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), constant=st.sets(st.integers(1, 3)))
def test_steps_are_what_evaluation_gives(op: str, seed: int, constant: set[int]) -> None:
    values, attributes, outputs = CASES[op](random.Random(seed))
    node = node_of(op, attributes, len(values), outputs, 17 if "axes" in attributes else OPSET)
    compare(node, [values], frozenset(constant & set(range(len(values)))))


@pytest.mark.parametrize("values", EXTREMES, ids=lambda array: str(array.dtype))
@pytest.mark.filterwarnings("error")
def test_steps_at_the_ends_of_numbers(values: Array) -> None:
    floats = values.dtype.kind == "f"
    of_one = ("Abs", "Neg", "Relu", "Sigmoid", "Sign", "Sqrt") if floats else ("Neg",)
    for op in of_one:
        compare(node_of(op, {}, 1, 1), [[values]])
    for op in ("Add", "Less", "Max", "Min", "Mul"):
        compare(node_of(op, {}, 2, 1), [[np.repeat(values, len(values)), np.tile(values, len(values))]])
    usual, unusual = (values[2:], values) if floats else (values, values[::-1].copy())  # no NaN, and one
    compare(node_of("TopK", {}, 2, 2), [[usual, ints(3)], [unusual, ints(2)]])


def test_other_extents_in_each_run() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal(n).astype(np.float32) for n in (5, 0, 1, 9)]
    best = node_of("TopK", {}, 2, 2)
    compare(best, [[row, ints(min(3, len(row)))] for row in rows])
    gathered = node_of("Gather", {}, 2, 1)
    compare(gathered, [[rows[3], rng.integers(-9, 9, n)] for n in (4, 0, 7)])
    compare(node_of("Gather", {}, 2, 1), [[rows[3], np.asarray(n)] for n in (4, -9, 7)])
    compare(node_of("Min", {}, 2, 1), [[ints(n), ints(20)] for n in (3, 20, 40)])
    compare(node_of("Unsqueeze", {}, 2, 1), [[row, ints(1)] for row in rows], frozenset({1}))
    compare(node_of("Squeeze", {}, 2, 1), [[row[None], ints(-2)] for row in rows], frozenset({1}))


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_rows_are_added_wherever_they_are_named(reduction: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 4)).astype(np.float32)
    named = [[0, 2, 5], [], [-1, 0, 3, 1], [1, -5, 1] if reduction != "none" else [1]]
    runs = [[x, ints(*rows).reshape(-1, 1), rng.standard_normal((len(rows), 4)).astype(np.float32)] for rows in named]
    compare(node_of("ScatterND", {"reduction": reduction}, 3, 1), runs)


def test_ranks_may_differ_between_runs() -> None:
    row = np.arange(4, dtype=np.float32)
    node = node_of("Unsqueeze", {}, 2, 1)
    compare(node, [[row, ints(0)], [row.reshape(2, 2), ints(0)]], frozenset({1}))
    compare(node_of("GatherND", {}, 2, 1), [[row, ints(3, 1).reshape(2, 1)], [row, ints(2)]])


def test_calls_read_what_those_before_them_gave() -> None:
    constants = {"count": ints(20)}
    calls = []
    for op, reads, writes in (("NonZero", "m", "n"), ("Squeeze", "nz", "p"), ("Gather", "xp", "g"), ("Shape", "g", "s"),
                              ("Min", ["s", "count"], "k"), ("TopK", "gk", "bo"), ("Gather", "po", "y")):  # fmt: skip
        node = node_of(op, {}, len(reads), len(writes), 17)
        node.proto.input[:], node.proto.output[:] = reads, writes
        calls.append(call_of(node, constants if "count" in reads else {}))
    steps = HostSteps(calls, [call.bind({}, ()) for call in calls], {"z": ints(0)})
    rng = np.random.default_rng(0)
    for share in (0.5, 0.1, 0.0, 1.0):
        x = rng.standard_normal(60).astype(np.float32)
        mask = rng.random(60) < share
        values: dict[str, Any] = {"x": x, "m": mask, "z": ints(0)}
        steps.run(values)
        (places,) = mask.nonzero()
        np.testing.assert_array_equal(values["y"], places[np.argsort(-x[places], kind="stable")[:20]])
    assert steps.fresh == {"n"}


def test_other_types_than_in_the_first_run() -> None:
    node = node_of("Max", {}, 2, 1)
    compare(node, [[ints(3), ints(4)], [np.asarray([1.5], np.float32), np.asarray([np.nan], np.float32)]])


@pytest.mark.parametrize(
    ("op", "usual", "wrong"),
    [
        ("Gather", [np.zeros((3, 2), np.float32), ints(2)], [np.zeros((3, 2), np.float32), ints(3)]),
        ("TopK", [np.zeros(3, np.float32), ints(3)], [np.zeros(3, np.float32), ints(4)]),
        ("Add", [np.zeros(3, np.float32), np.zeros(3, np.float32)], [np.zeros(3, np.float32), np.zeros(2, np.float32)]),
        ("ScatterND", [np.zeros(3, np.float32), ints(1).reshape(1, 1), np.zeros(1, np.float32)],
         [np.zeros(3, np.float32), ints(3).reshape(1, 1), np.zeros(1, np.float32)]),
    ],
)  # fmt: skip
def test_what_is_impossible_names_the_node(op: str, usual: list[Array], wrong: list[Array]) -> None:
    node = node_of(op, {}, len(usual), 1)
    steps = steps_of(node, {})
    steps.run(dict(zip(node.proto.input, usual)))
    with pytest.raises(AutotuneError, match=op) as error:
        steps.run(dict(zip(node.proto.input, wrong)))
    assert "\n" not in str(error.value)


def test_places_of_several_masks_that_lie_where_they_did() -> None:
    masks = {"a": np.zeros(9, np.bool_), "b": np.zeros((2, 3), np.float32), "c": np.zeros(4, np.int64)}
    calls = []
    for name in masks:
        node = node_of("NonZero", {}, 1, 1)
        node.proto.input[:], node.proto.output[:] = [name], [f"{name} found"]
        calls.append(call_of(node, {}))
    steps = HostSteps(calls, [call.bind(masks, masks) for call in calls], {})
    rng = np.random.default_rng(0)
    for _ in range(4):
        for mask in masks.values():
            mask[...] = rng.random(mask.shape) < 0.5
        values: dict[str, Any] = dict(masks)
        steps.run(values)
        for name, mask in masks.items():
            np.testing.assert_array_equal(values[f"{name} found"], np.array(mask.nonzero()))
