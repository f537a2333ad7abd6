"""`x[mask]`, which exporters write as three nodes, is one stop on the host wherever nobody else needs the places."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.compiler.staged import StagedModel
from autotune.errors import InputError
from tests.compiler.test_compiler_staged import check, data, model_of, staged_model

FLOAT, BOOL, TEXT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.STRING
ONE, THREE = ["MaskedSelect"], ["NonZero"]


def selecting(mask: str = "m", **transpose: Any) -> list[onnx.NodeProto]:
    return [
        helper.make_node("NonZero", [mask], ["found"]),
        helper.make_node("Transpose", ["found"], ["places"], **transpose),
        helper.make_node("GatherND", ["x", "places"], ["y"], "selects"),
    ]


def hosts(found: StagedModel) -> list[str]:
    return [label.split("(")[1].rstrip(")").rpartition(".")[2] for label in found.host_nodes]


def test_one_stop() -> None:
    nodes = [helper.make_node("Greater", ["x", "zero"], ["m"]), *selecting(perm=[1, 0])]
    model = model_of(nodes, {"x": (FLOAT, ["n", 5])}, ["y"], {"zero": np.asarray(0, np.float32)}, opset=17)
    found = check(model, [{"x": data(n, 5, seed=n)} for n in (4, 4, 7, 4, 0, 9)])
    assert hosts(found) == ONE
    assert "'selects'" in found.host_nodes[0]


@pytest.mark.parametrize("shape", [[6], [6, 5], [6, 5, 2], [3, 5], [1, 1]])
def test_masks_of_the_first_axes_and_shorter_ones(shape: list[int]) -> None:
    model = model_of(selecting(), {"x": (FLOAT, [6, 5, 2]), "m": (BOOL, [*shape])}, ["y"], opset=17)
    runs = [{"x": data(6, 5, 2, seed=n), "m": data(*shape, seed=n) > 0} for n in range(4)]
    runs.append({"x": np.asfortranarray(runs[0]["x"]), "m": runs[0]["m"]})
    assert hosts(check(model, runs)) == ONE


def test_constant_masks_are_compiled() -> None:
    """The model is one program."""
    mask = data(6, 5) > 0
    feeds = {"x": data(6, 5, 3, seed=1)}
    model = model_of(selecting(), {"x": (FLOAT, [6, 5, 3])}, ["y"], {"m": mask}, opset=17)
    compiled = autotune.compile(model)
    np.testing.assert_array_equal(compiled.run(feeds)[0], feeds["x"][mask])


def test_results_are_the_users() -> None:
    found = staged_model(model_of(selecting(), {"x": (FLOAT, [8]), "m": (BOOL, [8])}, ["y"], opset=17))
    one, other = ({"x": data(8, seed=n), "m": data(8, seed=n) > 0} for n in (1, 2))
    kept = [found.run(feeds)[0] for feeds in (one, other, one)]
    for feeds, y in zip((one, other, one), kept):
        np.testing.assert_array_equal(y, feeds["x"][feeds["m"]])


@pytest.mark.parametrize("case", ["places are an output", "found twice", "as it was", "behind a batch"])
def test_what_stays(case: str) -> None:
    """Somebody else needs the places, or it is no mask."""
    nodes, outputs = selecting(), ["y"]
    if case == "places are an output":
        outputs.append("places")
    elif case == "found twice":
        nodes.append(helper.make_node("Abs", ["found"], ["a"]))
        outputs.append("a")
    elif case == "as it was":
        nodes = selecting(perm=[0, 1])
    else:
        nodes[2] = helper.make_node("GatherND", ["x", "places"], ["y"], batch_dims=1)
    batch = case == "behind a batch"
    extents, shape = ([2, 3, 4], [2, 4]) if batch else ([2, 4], [4])
    model = model_of(nodes, {"x": (FLOAT, extents), "m": (BOOL, shape)}, outputs, opset=17)
    mask = np.asarray([True, True, False, False]) if case == "as it was" else np.zeros(4, np.bool_)
    if batch:
        mask = np.eye(2, 4, dtype=np.bool_)
    found = staged_model(model)
    try:
        found.run({"x": data(*extents), "m": mask})
    except InputError:
        assert case == "as it was"  # two axes in one row: none of them is of the data
    assert hosts(found) == THREE


def test_a_mask_that_selects_what_is_not_there() -> None:
    found = staged_model(model_of(selecting(), {"x": (FLOAT, [4]), "m": (BOOL, [6])}, ["y"], opset=17))
    feeds = {"x": data(4), "m": np.asarray([False] * 3 + [True] * 3)}
    with pytest.raises(InputError, match="'selects'.*selects what is not in data"):
        found.run(feeds)
    feeds["m"][4:] = False
    np.testing.assert_array_equal(found.run(feeds)[0], feeds["x"][3:])


def test_texts() -> None:
    found = staged_model(model_of(selecting(), {"x": (TEXT, [3]), "m": (BOOL, [3])}, ["y"], opset=17))
    texts = np.asarray(["a", "b", "c"], object)
    assert found.run({"x": texts, "m": np.asarray([True, False, True])})[0].tolist() == ["a", "c"]
