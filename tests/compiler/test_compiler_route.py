"""Runs that take ways they know, and new ones, in turn: every value lies where those who read it look."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.compiler import stages
from autotune.compiler.staged import StagedModel
from tests.compiler.test_compiler_loops import graph
from tests.compiler.test_compiler_staged import Array, check, data, ints, model_of, staged_model

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def branching(extent: int | str) -> onnx.ModelProto:
    """Branches twice, selects, and hands on what was computed before."""
    zero = np.asarray(0, np.float32)
    up = graph([helper.make_node("Add", ["p", "x"], ["u"])], [], ["u"])
    down = graph([helper.make_node("Identity", ["p"], ["d"])], [], ["d"])
    nodes = [
        helper.make_node("Relu", ["x"], ["p"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Less", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["q"], then_branch=up, else_branch=down),
        helper.make_node("NonZero", ["q"], ["places"]),
        helper.make_node("Gather", ["q", "places"], ["found"]),
        helper.make_node("Exp", ["found"], ["e"]),
        helper.make_node("Reshape", ["z", "shape"], ["r"]),
        helper.make_node("Neg", ["r"], ["n"]),
    ]
    inputs: dict[str, tuple[int, Any]] = {"x": (FLOAT, [extent]), "z": (FLOAT, [extent]), "shape": (INT, [2])}
    return model_of(nodes, inputs, ["e", "n", "q", "p", "x"], {"zero": zero})


@pytest.mark.parametrize("extent", [6, "N", 40_000])
def test_ways_in_turn(extent: int | str) -> None:
    size = 6 if extent == "N" else int(extent)
    runs = []
    for seed in range(6):
        x = data(size, seed=seed) * np.float32(-1 if seed % 3 else 1)
        shape = ints(2, size // 2) if seed % 2 else ints(-1, 1)
        runs.append({"x": x[::-1] if seed == 4 else x, "z": data(size, seed=seed + 9), "shape": shape})
    found = check(branching(extent), [*runs, *runs[::-1]])
    assert found.segments >= 3


def test_the_order_of_feeds_means_nothing() -> None:
    model = model_of(
        [helper.make_node("Concat", ["a", "b"], ["y"], axis=0)], {"a": (FLOAT, ["N"]), "b": (FLOAT, ["M"])}
    )
    found = staged_model(model)
    for n, m in ((2, 3), (3, 2)):
        a, b = data(n), data(m, seed=1)
        np.testing.assert_array_equal(found.run({"a": a, "b": b})[0], np.concatenate([a, b]))
        np.testing.assert_array_equal(found.run({"b": b, "a": a})[0], np.concatenate([a, b]))


def test_what_a_run_gave_stays() -> None:
    found = staged_model(branching(40_000))
    first = {"x": data(40_000), "z": data(40_000, seed=1), "shape": ints(2, -1)}
    kept = found.run(first)
    copies = [array.copy() for array in kept]
    found.run({**first, "x": -first["x"], "z": first["z"] * 2})
    for array, copy in zip(kept, copies):
        np.testing.assert_array_equal(array, copy)


def test_more_threads_than_routes() -> None:
    found: StagedModel = staged_model(branching(6))
    wrong: list[str] = []

    def work(seed: int) -> None:
        x = data(6, seed=seed)
        for _ in range(20):
            results: list[Array] = found.run({"x": x, "z": x, "shape": ints(3, 2)})
            if not np.array_equal(results[1], -x.reshape(3, 2)) or not np.array_equal(results[4], x):
                wrong.append(str(seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_routes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_STOPS", 4)
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["N"])})
    check(model, [{"x": data(n)} for n in (*range(1, 12), *range(1, 12))])
