"""Indices, lengths and positions that a run decides: one out of range fails the run, the others are not touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import InputError, ModelError
from autotune.graph import evaluate_graph, load_model, optimize
from autotune.ops import compute_def, parse_workload
from autotune.tensor.evaluate import evaluate
from tests.graph.graph_models import Array, build, random

TARGET = "native -num-cores=1"
FARTHEST = (-(2**63), 2**63 - 1)

# Op, its feeds with good indices in "i", an index that is too low, one that is too high, attributes
CASES: list[tuple[str, dict[str, Array], int, int, dict[str, Any]]] = [
    ("Gather", {"x": random(3, 4), "i": np.asarray([0, -3])}, -4, 3, {}),
    ("Gather", {"x": random(3, 4), "i": np.asarray([[3], [-4]], np.int32)}, -5, 4, {"axis": 1}),
    ("GatherElements", {"x": random(3, 4), "i": np.asarray([[2, -3]])}, -4, 3, {}),
    ("GatherND", {"x": random(3, 4), "i": np.asarray([[2, -4], [0, 3]])}, -5, 4, {}),
    ("GatherND", {"x": random(3, 4), "i": np.asarray([[3], [-4], [0]])}, -5, 4, {"batch_dims": 1}),
    ("ScatterElements", {"x": random(3, 4), "i": np.asarray([[2, -3]]), "u": random(1, 2)}, -4, 3, {}),
    ("ScatterND", {"x": random(3, 4), "i": np.asarray([[2, -4], [0, 3]]), "u": random(2)}, -5, 4, {}),
    ("ReverseSequence", {"x": random(3, 2), "i": np.asarray([0, 3])}, -1, 4, {}),
    ("RoiAlign", {"x": random(2, 1, 3, 3), "r": random(2, 4), "i": np.asarray([0, 1])}, -1, 2, {}),
    ("MaxUnpool", {"x": random(1, 1, 2, 1), "i": np.asarray([[[[0], [3]]]])}, -1, 4, {"kernel_shape": [1, 2]}),
    ("TensorScatter", {"x": random(2, 3, 1), "u": random(2, 2, 1), "i": np.asarray([0, 1])}, -1, 2, {}),
]


def model_of(op: str, feeds: dict[str, Array], attributes: dict[str, Any]) -> onnx.ModelProto:
    return build(helper.make_node(op, list(feeds), ["y"], name="look", **attributes), feeds, opset=24)


@pytest.mark.parametrize(("op", "feeds", "low", "high", "attributes"), CASES, ids=[c[0] for c in CASES])
def test_what_is_out_of_range_fails_the_run(
    op: str, feeds: dict[str, Array], low: int, high: int, attributes: dict[str, Any]
) -> None:
    graph = load_model(model_of(op, feeds, attributes).SerializeToString())
    optimised = optimize(graph)
    for variant in (graph, optimised):
        assert list(evaluate_graph(variant, feeds)) == ["y"]
    indices = feeds["i"]
    for wrong in (low, high, *(FARTHEST if indices.dtype == np.int64 else ())):
        for place in np.ndindex(indices.shape):
            if op == "GatherND" and place[-1] == 0 and indices.shape[-1] == 2:
                continue  # the first column has another range
            if op == "ScatterND" and place[-1] == 0:
                continue
            bad = indices.copy()
            bad[place] = wrong
            with pytest.raises(InputError, match=f"node 'look' .*{op}.* is outside of"):
                evaluate_graph(optimised, feeds | {"i": bad})


def test_each_column_has_its_own_range() -> None:
    feeds = {"x": random(2, 5), "i": np.asarray([[1, 4]])}
    graph = load_model(model_of("GatherND", feeds, {}).SerializeToString())
    with pytest.raises(InputError, match=r"-2\.\.1 × -5\.\.4"):
        evaluate_graph(graph, feeds | {"i": np.asarray([[4, 1]])})


def test_the_operator_on_its_own() -> None:
    definition = compute_def(parse_workload("any_outside indices=2,3 dtype=i64 low=-2 high=3"))
    for index, found in ((-2, 0), (2, 0), (-3, 1), (3, 1), (FARTHEST[0], 1), (FARTHEST[1], 1)):
        indices = np.zeros((2, 3), np.int64)
        indices[1, 1] = index
        assert evaluate(definition, {"in0": indices})["out0"] == found


def two_steps() -> onnx.ModelProto:
    """Indices that the model computes itself, of an input that is a model output as well."""
    nodes = [
        helper.make_node("Add", ["i", "one"], ["at"]),
        helper.make_node("Gather", ["x", "at"], ["rows"], name="look"),
        helper.make_node("Relu", ["rows"], ["y"]),
    ]
    feeds = {"x": random(4, 3), "i": np.asarray([0, 1])}
    return build(nodes, feeds, {"one": np.asarray(1)}, outputs=("y", "at"))


def test_generated_code_checks_too(tmp_path: Path) -> None:
    x, good, bad = random(4, 3), np.asarray([0, 2]), np.asarray([0, 3])
    path = tmp_path / "look.onnx"
    onnx.save(two_steps(), path)
    session = autotune.InferenceSession(path, target=TARGET, database=False)
    assert [found.name for found in session.get_outputs()] == ["y", "at"]
    autotune.compile(path, TARGET, False).save(tmp_path / "look.at")
    for runnable in (session, autotune.InferenceSession(tmp_path / "look.at")):
        for _ in range(2):  # a run that failed leaves nothing behind
            y, at = runnable.run(None, {"x": x, "i": good})
            np.testing.assert_array_equal(y, np.maximum(x[[1, 3]], 0))
            np.testing.assert_array_equal(at, [1, 3])
            for wrong in (bad, np.asarray([-7, 0])):
                with pytest.raises(InputError, match="node 'look' .*is outside of -4..3"):
                    runnable.run(None, {"x": x, "i": wrong})


def test_a_model_in_stages_checks_too() -> None:
    """The rows of what is not zero; the table has fewer of them."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Gather", ["table", "where"], ["y"], name="look"),
    ]
    model = build(nodes, {"x": random(4)}, {"table": random(3, 2)})
    session = autotune.InferenceSession(model.SerializeToString(), target=TARGET, database=False)
    assert session.run(None, {"x": np.asarray([0, 1, 1, 0], np.float32)})[0].shape == (1, 2, 2)
    with pytest.raises(InputError, match="node .look. .*is outside of -3..2") as caught:
        session.run(None, {"x": np.asarray([0, 1, 0, 1], np.float32)})
    assert "\n" not in str(caught.value)


def test_types_are_those_of_the_schema() -> None:
    for op, feeds, text in (
        ("Gather", {"x": random(3), "i": np.asarray([0.5])}, "input 1 is a tensor(double)"),
        ("Gather", {"x": random(3), "i": np.asarray([1], np.uint8)}, "takes tensor(int32), tensor(int64)"),
        ("MatMul", {"x": random(3, 3), "i": np.ones((3, 3))}, "others are a tensor(float); cast one"),
        ("Where", {"c": np.ones(3, np.int64), "x": random(3), "i": random(3)}, "takes tensor(bool)"),
    ):
        with pytest.raises(ModelError) as caught:
            load_model(model_of(op, feeds, {}).SerializeToString())
        assert text in str(caught.value)
    old = build(helper.make_node("Clip", ["x"], ["y"]), {"x": np.ones(3, np.int32)}, opset=11)
    assert load_model(old.SerializeToString()).inputs[0].dtype == "i32", "newer forms of the operator take integers"
    assert TensorProto.INT32 == old.graph.input[0].type.tensor_type.elem_type
