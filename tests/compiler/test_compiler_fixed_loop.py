"""Loops whose steps native code takes: the same values as step by step, whatever lies where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.fixed_loop import FixedLoop
from autotune.compiler.staged import StagedModel, compile_or_stage
from autotune.compiler.stages import Making
from autotune.errors import InputError
from autotune.graph import Graph, open_model
from autotune.target import Target
from tests.compiler.test_compiler_loops import BOOL, FLOAT, INT, graph, loop, scalar
from tests.compiler.test_compiler_staged import Array, data, model_of

pytestmark = pytest.mark.usefixtures("kept")


def ready(model: onnx.ModelProto, threads: int = 1, **more: Any) -> StagedModel:
    target = Target.parse(f"native -num-cores={threads}")

    def compiled(graph: Graph) -> CompiledModel:
        return compile_graph(graph, target)

    found = compile_or_stage(open_model(model.SerializeToString()), Making(compiled, **more))
    assert isinstance(found, StagedModel)
    return found


def both_ways(
    model: onnx.ModelProto, feeds: Mapping[str, Array], monkeypatch: pytest.MonkeyPatch, threads: int = 1
) -> list[Array]:
    """What native code gives, twice, which is what step by step gives."""
    taken: list[bool] = []
    original = FixedLoop.of

    def seen(*args: Any) -> FixedLoop | None:
        found = original(*args)
        taken.append(found is not None)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FixedLoop, "of", staticmethod(seen))
        found = ready(model, threads)
        results = found.run(feeds)
        again = found.run(feeds)
    assert taken
    assert all(taken)
    with monkeypatch.context() as patch:
        patch.setattr(FixedLoop, "of", staticmethod(lambda *args: None))
        plain = ready(model).run(feeds)
    for array, other, expected in zip(results, again, plain, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, other)
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    return results


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str], extent: int = 6, trip: str = "n",
    condition: str = "", tensors: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A loop over the nodes; carries the inputs, and gives the outputs, of which as many as inputs are carried."""
    body = graph(nodes, ["i", "go", *inputs], outputs, tensors)
    starts = [f"{name}0" for name in inputs]
    results = [f"r{n}" for n in range(len(outputs) - 1)]
    forms: dict[str, tuple[int, Any]] = {name: (FLOAT, [extent]) for name in starts}
    forms.update({"n": (INT, []), "x": (FLOAT, [extent]), "on0": (BOOL, [])})
    ends = [loop(body, [trip, condition, *starts], results), helper.make_node("Identity", ["n"], ["n2"]),
            helper.make_node("Identity", ["x"], ["x2"]), helper.make_node("Identity", ["on0"], ["on2"])]  # fmt: skip
    return model_of(ends, forms, results)


def feeds(model: onnx.ModelProto, steps: int) -> dict[str, Array]:
    found: dict[str, Array] = {"n": scalar(steps), "on0": scalar(True)}
    for seed, info in enumerate(model.graph.input):
        if info.type.tensor_type.elem_type == FLOAT:
            found[info.name] = data(*(d.dim_value for d in info.type.tensor_type.shape.dim), seed=seed)
    return found


SWAP = [helper.make_node("Add", ["a", "x"], ["c"]), helper.make_node("Identity", ["b"], ["d"])]
CASES: list[tuple[list[onnx.NodeProto], list[str], list[str]]] = [
    (SWAP, ["a", "b"], ["go", "b", "c", "a", "c", "x", "d"]),  # values change places, and leave as they came
    ([helper.make_node("Mul", ["a", "x"], ["c"])], ["a"], ["go", "c", "c", "c"]),  # one result thrice
    ([helper.make_node("Cast", ["i"], ["f"], to=FLOAT), helper.make_node("Add", ["a", "f"], ["c"])],
     ["a"], ["go", "c", "f"]),
    ([helper.make_node("Add", ["a", "b"], ["c"])], ["a", "b"], ["go", "b", "c", "i"]),  # Fibonacci
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("extent", [6, 40_000])  # small results are copied, large ones written where they belong
@pytest.mark.parametrize("case", range(len(CASES)))
def test_values_take_turns(case: int, extent: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, inputs, outputs = CASES[case]
    made = model(nodes, inputs, outputs, extent)
    for steps in (1, 2, 5):
        both_ways(made, feeds(made, steps), monkeypatch, threads)


@pytest.mark.parametrize("trip", ["n", ""])
def test_a_condition_ends_it_whenever(trip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("Add", ["a", "f"], ["c"]),
        helper.make_node("Less", ["f", "last"], ["on"]),
    ]
    for last in (0, 1, 62, 63, 64, 200, 1000):
        tensors = {"last": np.asarray(last, np.float32)}
        made = model(nodes, ["a"], ["on", "c", "c", "f"], 3, trip, "on0", tensors)
        _, parts, numbers = both_ways(made, feeds(made, 5000), monkeypatch)
        assert len(parts) == len(numbers) == last + 1
        np.testing.assert_array_equal(numbers, np.arange(last + 1))


def test_loops_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = graph([helper.make_node("Add", ["v", "x"], ["v2"])], ["j", "go2", "v"], ["go2", "v2"])
    nodes = [loop(inner, ["m", "", "a"], ["c"], "inner")]
    made = model(nodes, ["a"], ["go", "c", "c"], tensors={"m": np.asarray(3)})
    both_ways(made, feeds(made, 4), monkeypatch)  # the inner one is written out


def test_values_of_a_step_that_make_no_sense() -> None:
    nodes = [helper.make_node("Gather", ["table", "i"], ["f"], name="look"), helper.make_node("Add", ["a", "f"], ["c"])]
    made = model(nodes, ["a"], ["go", "c"], tensors={"table": data(5)})
    found = ready(made)
    found.run(feeds(made, 5))
    with pytest.raises(InputError, match=r"'look' \(Gather\): an index into axis 0 is outside of -5..4"):
        found.run(feeds(made, 6))
    found.run(feeds(made, 5))


def test_an_endless_one_is_refused() -> None:
    made = model([helper.make_node("Add", ["a", "x"], ["c"])], ["a"], ["go", "c"], trip="", condition="on0")
    with pytest.raises(InputError, match=r"'loop' \(Loop\): still going on after 1000 steps; raise max_loop_steps"):
        ready(made, max_loop_steps=1000).run(feeds(made, 0))


def test_what_a_step_reads_of_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    body = graph(
        [helper.make_node("Mul", ["s", "item"], ["m"]), helper.make_node("Add", ["m", "other"], ["t"])],
        ["s", "item", "other"],
        ["t", "item", "m"],
    )
    attributes: dict[str, Any] = {
        "scan_input_axes": [1, 0], "scan_input_directions": [1, 0], "scan_output_directions": [0, 1],
        "scan_output_axes": [1, 0],
    }  # fmt: skip
    node = helper.make_node("Scan", ["h", "x", "z"], ["y", "a", "b"], body=body, num_scan_inputs=2, **attributes)
    made = model_of([node], {"h": (FLOAT, [3]), "x": (FLOAT, [3, None]), "z": (FLOAT, [None, 3])}, ["y", "a", "b"])
    for steps in (120, 333):  # fewer are written out
        given = {"h": data(3), "x": data(3, steps, seed=1), "z": data(steps, 3, seed=2)}
        y, a, b = both_ways(made, given, monkeypatch)
        assert a.shape == (3, steps)
        assert b.shape == (steps, 3)
        np.testing.assert_array_equal(a, given["x"][:, ::-1])
        assert y.shape == (3,)
