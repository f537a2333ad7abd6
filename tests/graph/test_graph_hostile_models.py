"""Models made to harm: files that never end or claim what they have not, functions and concatenations that explode."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import evaluate_graph, load_model, optimize, partition
from tests.graph.graph_models import Array, build, make_model, random

FUNCTIONS = helper.make_opsetid("", 17), helper.make_opsetid("d", 1)


def refusal(source: onnx.ModelProto | Path | str) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(source.SerializeToString() if isinstance(source, onnx.ModelProto) else source)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


# Files -------------------------------------------------------------------------------------------------


def external(folder: Path, dims: list[int], **entries: object) -> Path:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], {"w": np.ones(4, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.dims[:] = dims
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def link_to_itself(folder: Path) -> None:
    (folder / "w").symlink_to("w")


@pytest.mark.parametrize(
    ("make", "dims", "entries", "text"),
    [
        (lambda folder: os.mkfifo(folder / "w"), [4], {}, "it is no file"),
        (lambda folder: (folder / "w").mkdir(), [4], {}, "it is no file"),
        (link_to_itself, [4], {}, "cannot be found|Too many levels"),
        (lambda folder: (folder / "w").write_bytes(bytes(16)), [2**38], {}, "too short"),
        (lambda folder: (folder / "w").write_bytes(bytes(16)), [4], {"offset": 2**70}, "too short"),
        (lambda folder: None, [4], {"location": "w\0x"}, "cannot be found"),
        (lambda folder: None, [4], {"location": "w" * 5000}, "cannot read|cannot be found"),
    ],
)
def test_external_data_that_is_no_plain_file(
    make: Callable[[Path], object], dims: list[int], entries: dict[str, object], text: str, tmp_path: Path
) -> None:
    make(tmp_path)
    message = refusal(external(tmp_path, dims, **{"location": "w", **entries}))
    assert any(part in message for part in text.split("|"))


def test_a_model_that_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (tmp_path / "pipe.onnx", Path("/dev/zero"), Path("a\0b.onnx")):
        assert "cannot read model" in refusal(path)
        with pytest.raises(ModelError, match="cannot read model"):
            autotune.InferenceSession(path)


def test_bytes_of_booleans_are_0_or_1() -> None:
    model = build(helper.make_node("Where", ["c", "x", "z"], ["y"]), {"x": random(3), "z": random(3)})
    model.graph.initializer.append(
        TensorProto(name="c", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x02\x00\xff")
    )
    found = load_model(model.SerializeToString()).constants["c"]
    assert found.view(np.uint8).tolist() == [1, 0, 1]


# Names and functions -----------------------------------------------------------------------------------


def test_names_of_thousands_of_letters_are_shortened() -> None:
    message = refusal(make_model([helper.make_node("Relu" * 5000, ["x"], ["y"], name="n" * 5000)], {"x": [1]}, ["y"]))
    assert "ReluRelu" in message
    assert "strides" in refusal(
        make_model([helper.make_node("MaxPool", ["x"], ["y"], name="n" * 5000, kernel_shape=[1, 1], strides=[0, 1])],
                   {"x": [1, 1, 4, 4]}, ["y"])
    )  # fmt: skip


def calling(functions: list[onnx.FunctionProto], last: str) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(last, ["x", "c"], ["y"], domain="d")],
        "calls",
        [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_empty_tensor_value_info("y")],
    )
    return helper.make_model(graph, opset_imports=list(FUNCTIONS), functions=functions, ir_version=10)


def function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function("d", name, ["a", "c"], ["b"], nodes, list(FUNCTIONS))


def test_function_bombs_are_refused_before_they_are_written_out() -> None:
    functions = [function("f0", [helper.make_node("Relu", ["a"], ["b"])])]
    for level in range(1, 200):
        calls = [helper.make_node(f"f{level - 1}", [a, "c"], [b], domain="d") for a, b in (("a", "t"), ("t", "b"))]
        functions.append(function(f"f{level}", calls))
    assert "more than 100000 nodes" in refusal(calling(functions, "f199"))
    assert len(load_model(calling(functions[:8], "f7").SerializeToString()).nodes) == 2**7


def test_functions_that_call_themselves_are_found_in_branches_too() -> None:
    again = helper.make_node("f", ["a", "c"], ["q"], domain="d")
    branch = helper.make_graph([again], "branch", [], [helper.make_empty_tensor_value_info("q")])
    hidden = function("f", [helper.make_node("If", ["c"], ["b"], then_branch=branch, else_branch=branch)])
    one, other = (
        function(n, [helper.make_node(m, ["a", "c"], ["b"], domain="d")]) for n, m in (("f", "g"), ("g", "f"))
    )
    for functions in ([hidden], [one, other]):
        assert "calls itself" in refusal(calling(functions, "f"))


def test_a_function_is_defined_once() -> None:
    twice = [function("f", [helper.make_node(op, ["a"], ["b"])]) for op in ("Relu", "Neg")]
    assert "the function 'f' is defined twice" in refusal(calling(twice, "f"))


def test_an_attribute_is_given_once() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    node.attribute.append(helper.make_attribute("axis", 1))
    assert "attribute 'axis' is given twice" in refusal(make_model([node], {"x": [2, 3]}, ["y"], {}))


def test_a_chain_of_thousands_of_functions() -> None:
    functions = [function("f0", [helper.make_node("Relu", ["a"], ["b"])])]
    for level in range(1, 2000):
        functions.append(function(f"f{level}", [helper.make_node(f"f{level - 1}", ["a", "c"], ["b"], domain="d")]))
    assert len(load_model(calling(functions, "f1999").SerializeToString()).nodes) == 1


# Concatenations ----------------------------------------------------------------------------------------


def test_doubling_concatenations_stay_small() -> None:
    nodes = [helper.make_node("Concat", [f"v{n}", f"v{n}"], [f"v{n + 1}"], axis=0) for n in range(16)]
    feeds = {"v0": random(1, 2)}
    graph = optimize(load_model(build(nodes, feeds, outputs=("v16",)).SerializeToString()))
    assert sum(len(node.inputs) for node in graph.nodes) <= 32
    assert partition(graph)
    (found,) = evaluate_graph(graph, feeds).values()
    np.testing.assert_array_equal(found, np.repeat(feeds["v0"], 2**16, axis=0))


def test_a_concatenation_of_hundreds_of_parts() -> None:
    """Deeper than Python's stack if each part were asked for after the one before."""
    feeds = {f"x{n}": random(1 + n % 2, 2, seed=n) for n in range(500)}
    model = build(helper.make_node("Concat", list(feeds), ["y"], axis=0), feeds)
    graph = load_model(model.SerializeToString())
    np.testing.assert_array_equal(evaluate_graph(graph, feeds)["y"], np.concatenate(list(feeds.values())))


# Attributes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "shape", "tensors", "text"),
    [
        (helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=0), [1, 1, 4, 4],
         {"w": random(1, 1, 2, 2)}, "group=0"),
        (helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2**31] * 2), [1, 1, 4, 4],
         {"w": random(1, 1, 2, 2)}, "stride="),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2**31] * 2, pads=[2**30] * 4), [1, 1, 4, 4], {},
         "would take days"),
        (helper.make_node("MaxPool", ["x"], ["y", "z"], kernel_shape=[1, 1], storage_order=7), [1, 1, 4, 4], {},
         "storage_order=7"),
        (helper.make_node("Pad", ["x", "p"], ["y"], mode="edge"), [4], {"p": np.asarray([2**40 - 8, 0])},
         "elements, more"),
        (helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap"), [7], {"p": np.asarray([2**23, 0])}, "no pattern"),
        (helper.make_node("Pad", ["x", "p"], ["y"], mode="odd"), [4], {"p": np.asarray([0, 0])}, "unknown mode 'odd'"),
        (helper.make_node("Resize", ["x", "", "s"], ["y"]), [4], {"s": np.asarray([1e10], np.float32)},
         "elements, more"),
        (helper.make_node("Unsqueeze", ["x", "a"], ["y"]), [4], {"a": np.arange(200)}, "201 dimensions"),
    ],
)  # fmt: skip
def test_absurd_attributes(node: onnx.NodeProto, shape: list[int], tensors: dict[str, Array], text: str) -> None:
    assert text in refusal(make_model([node], {"x": shape}, ["y"], tensors))


def test_an_input_of_more_dimensions_than_an_array_has() -> None:
    assert "impossible" in refusal(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1] * 33}, ["y"]))


def test_what_the_body_of_a_loop_has_not_is_refused_at_once() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("ImageDecoder", ["i"], ["e"], name="inner")],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, [])],
        [helper.make_tensor_value_info("d", 9, [])],
    )
    nodes = [helper.make_node("Loop", ["n", ""], [], name=f"l{n}", body=body) for n in range(3)]
    model = make_model([*nodes, helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"], {"n": np.asarray(3)})
    with pytest.raises(UnsupportedError, match=r"3 unsupported.*ImageDecoder ×3 \(first: 'inner'\)"):
        load_model(model.SerializeToString())


@pytest.mark.parametrize(
    ("node", "tensors", "text"),
    [
        (helper.make_node("ReduceSum", ["x"], ["y"], keepdims=7), {}, "keepdims=7 is neither 0 nor 1"),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1], ceil_mode=2), {}, "ceil_mode=2 is neither"),
        (helper.make_node("DFT", ["x", "", "n"], ["y"]), {"n": np.asarray([0, 1])}, "the axis is one number, not 2"),
        (helper.make_node("Range", ["n", "n", "n"], ["y"]), {"n": np.asarray([0, 1])}, "not a tensor of shape (2,)"),
        (helper.make_node("STFT", ["x", "n", "w"], ["y"]), {"n": np.asarray(1), "w": random(1, 2)},
         "a window of shape"),
        (helper.make_node("ConstantOfShape", ["n"], ["y"], value=helper.make_tensor("v", 1, [0], [])),
         {"n": np.asarray([2])}, "the value is one number"),
    ],
)  # fmt: skip
def test_one_number_is_one_number_and_a_flag_0_or_1(node: onnx.NodeProto, tensors: dict[str, Array], text: str) -> None:
    assert text in refusal(make_model([node], {"x": [1, 4, 1]}, ["y"], tensors, opset=20))
