"""If, functions of the model and operators that are functions: written out in place, and never without bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.errors import ModelError, UnsupportedError
from autotune.graph import evaluate_graph, load_model
from autotune.graph.frontend import expand
from tests.graph.graph_models import Array, build, check, make_model, random


def branch(nodes: Sequence[onnx.NodeProto], output: str, **tensors: Array) -> onnx.GraphProto:
    return helper.make_graph(
        list(nodes),
        "branch",
        [],
        [helper.make_empty_tensor_value_info(output)],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )


def if_nodes() -> list[onnx.NodeProto]:
    """Both branches call their values the same, and read `x` and `half` from around them."""
    then = branch([helper.make_node("Mul", ["half", "w"], ["v"])], "v", w=np.asarray([3, 4], np.float32))
    inner = helper.make_node(
        "If",
        ["yes"],
        ["v"],
        then_branch=branch([helper.make_node("Sub", ["x", "t"], ["r"])], "r"),
        else_branch=branch([], "t"),
    )
    other = branch([helper.make_node("Neg", ["half"], ["t"]), inner], "v", yes=np.asarray([True]))
    return [
        helper.make_node("Mul", ["x", "h"], ["half"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]


@pytest.mark.parametrize("condition", [True, False])
def test_if_of_a_constant_condition_is_its_branch(condition: bool) -> None:
    feeds = {"x": random(3, 2)}
    model = build(if_nodes(), feeds, {"c": np.asarray(condition), "h": np.asarray(0.5, np.float32)})
    check(model, feeds)
    left = [node.op for node in load_model(model.SerializeToString()).nodes]
    assert left == (["mul", "mul"] if condition else ["mul", "neg", "sub"])


def test_if_of_a_folded_condition() -> None:
    """What a shape decides is known while loading."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ReduceProd", ["s"], ["n"], keepdims=0),
        helper.make_node("Greater", ["n", "five"], ["c"]),
        *if_nodes(),
    ]
    for shape in ((3, 2), (1, 2)):
        feeds = {"x": random(*shape)}
        check(build(nodes, feeds, {"five": np.asarray(5), "h": np.asarray(0.5, np.float32)}), feeds)


def test_impossible_branches() -> None:
    def refused(node: onnx.NodeProto) -> str:
        with pytest.raises(ModelError) as caught:
            load_model(build([node], {"x": random(2)}, {"c": np.asarray(True)}).SerializeToString())
        return str(caught.value)

    good = branch([helper.make_node("Neg", ["x"], ["v"])], "v")
    assert "'then_branch' is missing" in refused(helper.make_node("If", ["c"], ["y"], else_branch=good))
    lost = branch([helper.make_node("Neg", ["nowhere"], ["v"])], "v")
    assert "'nowhere', which nothing" in refused(
        helper.make_node("If", ["c"], ["y"], then_branch=good, else_branch=lost)
    )
    twice = branch([helper.make_node("Neg", ["x"], ["v"]), helper.make_node("Abs", ["x"], ["v"])], "v")
    assert "defined twice" in refused(helper.make_node("If", ["c"], ["y"], then_branch=twice, else_branch=good))
    ring = branch([helper.make_node("Neg", ["b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])], "b")
    assert "cycle" in refused(helper.make_node("If", ["c"], ["y"], then_branch=ring, else_branch=good))


def function(name: str, nodes: Sequence[onnx.NodeProto], **more: Any) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", more.pop("opset", 17)), helper.make_opsetid("own", 1)]
    return helper.make_function(
        "own", name, more.pop("inputs", ["a"]), more.pop("outputs", ["r"]), list(nodes), opsets, **more
    )


def call(name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, list(inputs), list(outputs), domain="own", **attributes)


def with_functions(model: onnx.ModelProto, *functions: onnx.FunctionProto) -> onnx.ModelProto:
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions)
    return model


def test_functions_of_the_model() -> None:
    """Nested, called twice, with attributes given and by default, an omitted input, another opset, an If inside."""
    leaky = helper.make_node("LeakyRelu", ["a"], ["r"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    clip = helper.make_node("Clip", ["t", "low", "high"], ["u"])
    choose = helper.make_node(
        "If",
        ["flag"],
        ["r"],
        then_branch=branch([helper.make_node("Add", ["u", "a"], ["v"])], "v"),
        else_branch=branch([call("Leak", ["u"], ["v"])], "v"),
    )
    flag = helper.make_node("Constant", [], ["flag"], value=numpy_helper.from_array(np.asarray(False)))
    functions = [
        function("Leak", [leaky], attribute_protos=[helper.make_attribute("slope", 0.25)]),
        function(
            "Outer",
            [call("Leak", ["a"], ["t"], slope=0.5), clip, flag, choose],
            inputs=["a", "low", "high"],
            outputs=["r", "t"],
        ),
        function("Squeezed", [helper.make_node("Squeeze", ["a"], ["r"], axes=[0])], opset=11),
    ]
    nodes = [
        call("Outer", ["x", "", "h"], ["p"]),
        call("Outer", ["p", "h"], ["q", "t"]),
        helper.make_node("Unsqueeze", ["q", "first"], ["w"]),
        call("Squeezed", ["w"], ["y"]),
    ]
    feeds = {"x": random(3, 4)}
    tensors: dict[str, Array] = {"h": np.asarray(-0.1, np.float32), "first": np.asarray([0])}
    model = with_functions(build(nodes, feeds, tensors, outputs=("y", "t"), opset=17), *functions)

    def leaked(array: Array, slope: float) -> Array:
        return np.where(array < 0, array * np.float32(slope), array)

    p = leaked(np.minimum(leaked(feeds["x"], 0.5), np.float32(-0.1)), 0.25)
    t = leaked(p, 0.5)
    check(model, feeds, [leaked(np.maximum(t, np.float32(-0.1)), 0.25), t])


def test_a_function_that_hands_a_parameter_on() -> None:
    feeds = {"x": random(3)}
    check(with_functions(build([call("Same", ["x"], ["y"])], feeds), function("Same", [], outputs=["a"])), feeds)


def test_functions_that_never_end_or_explode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "MAX_NODES", 3000)

    def refused(*functions: onnx.FunctionProto) -> str:
        model = with_functions(make_model([call("F0", ["x"], ["y"])], {"x": [2]}, ["y"]), *functions)
        with pytest.raises(ModelError) as caught:
            load_model(model.SerializeToString())
        return str(caught.value)

    assert "'F0' calls itself" in refused(
        function("F0", [call("F1", ["a"], ["r"])]), function("F1", [call("F0", ["a"], ["r"])])
    )
    bomb = [function(f"F{n}", [call(f"F{n + 1}", ["a"], ["t"]), call(f"F{n + 1}", ["t"], ["r"])]) for n in range(60)]
    assert "more than 3000 nodes" in refused(*bomb, function("F60", [helper.make_node("Neg", ["a"], ["r"])]))
    assert "nothing defines" in refused(function("F0", [helper.make_node("Neg", ["x"], ["r"])]))
    assert "it has 0 and 1" in refused(function("F0", [helper.make_node("Constant", [], ["r"])], inputs=[]))
    unknown = refused(function("F0", [helper.make_node("Fancy", ["a"], ["r"], domain="com.acme", name="deep")]))
    assert "com.acme.Fancy ×1" in unknown
    assert "deep" in unknown


def test_an_operator_that_is_a_function() -> None:
    """Its body depends on types; what it is made of is converted."""
    feeds = {"x": random(3, 5)}
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], reduction="mean")
    model = build(node, feeds, {"labels": np.asarray([0, 2, 4])})
    check(model, feeds)
    (found,) = evaluate_graph(load_model(model.SerializeToString()), feeds).values()
    shifted = feeds["x"] - np.log(np.exp(feeds["x"]).sum(1, keepdims=True))
    np.testing.assert_allclose(found, -shifted[np.arange(3), [0, 2, 4]].mean(), rtol=1e-5)


def loop_body() -> onnx.GraphProto:
    """Doubles what it carries and collects it, with a weight from around it."""
    return helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Add", ["h", "h"], ["twice"]),
            helper.make_node("Add", ["twice", "w"], ["next"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["next", "f"], ["seen"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, []),
         helper.make_empty_tensor_value_info("h")],
        [helper.make_empty_tensor_value_info(name) for name in ("on", "next", "seen")],
    )  # fmt: skip


def test_a_short_loop_is_its_steps() -> None:
    feeds = {"x": random(3)}
    tensors = {"n": np.asarray(3), "w": random(3, seed=1)}
    node = helper.make_node("Loop", ["n", "", "x"], ["last", "y"], body=loop_body())
    model = make_model([node], {"x": [3]}, ["last", "y"], tensors)
    graph = load_model(model.SerializeToString())
    assert len(graph.nodes) < 20
    state, seen = feeds["x"], []
    for step in range(3):
        state = state + state + tensors["w"]
        seen.append(state * np.float32(step))
    check(model, feeds, [state, np.stack(seen)])


def test_loops_that_go_on_are_no_part_of_one_program() -> None:
    for tensors, inputs in (({"n": np.asarray(30_000)}, {"x": [3]}), ({}, {"x": [3], "n": []})):
        node = helper.make_node("Loop", ["n", "", "x"], ["last", "y"], name="long", body=loop_body())
        model = make_model([node], inputs, ["last", "y"], {**tensors, "w": random(3)})
        if "n" in inputs:
            next(info for info in model.graph.input if info.name == "n").type.tensor_type.elem_type = TensorProto.INT64
        with pytest.raises(UnsupportedError, match=r"'long' \(Loop\) runs step by step.*InferenceSession"):
            load_model(model.SerializeToString())


def test_loops_that_do_not_fit_their_body() -> None:
    def refused(inputs: Sequence[str], outputs: Sequence[str]) -> str:
        node = helper.make_node("Loop", inputs, outputs, body=loop_body())
        with pytest.raises(ModelError) as caught:
            load_model(make_model([node], {"x": [3]}, ["y"], {"n": np.asarray(3), "w": random(3)}).SerializeToString())
        return str(caught.value)

    assert "0 carried values" in refused(["n", ""], ["y"])
    assert "2 carried values" in refused(["n", "", "x", "x"], ["last", "y"])
    assert "4 outputs do not fit" in refused(["n", "", "x"], ["last", "y", "z", "u"])


def scan_node(**attributes: Any) -> onnx.NodeProto:
    """The state is a decaying sum; the body reads `x` from around it and has an initializer of its own."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "decay"], ["kept"]),
            helper.make_node("Add", ["kept", "item"], ["next"]),
            helper.make_node("Add", ["next", "bias"], ["seen"]),
        ],
        "body",
        [helper.make_empty_tensor_value_info("state"), helper.make_empty_tensor_value_info("item")],
        [helper.make_empty_tensor_value_info("next"), helper.make_empty_tensor_value_info("seen")],
        [numpy_helper.from_array(np.asarray(0.5, np.float32), "decay")],
    )
    return helper.make_node("Scan", ["start", "x"], ["last", "y"], num_scan_inputs=1, body=body, **attributes)


def test_scan_is_its_steps() -> None:
    feeds = {"x": random(4, 3), "start": random(3, seed=1), "bias": random(3, seed=2)}
    for directions in (0, 1):
        attributes: dict[str, Any] = {"scan_input_directions": [directions], "scan_output_directions": [1 - directions]}
        node = scan_node(**attributes)
        model = build([node], feeds, outputs=("last", "y"))
        state, seen = feeds["start"], []
        for item in feeds["x"][::-1] if directions else feeds["x"]:
            state = state * np.float32(0.5) + item
            seen.append(state + feeds["bias"])
        check(model, feeds, [state, np.stack(seen if directions else seen[::-1])])
    along = build(
        [scan_node(scan_input_axes=[1], scan_output_axes=[-1])], feeds := {**feeds, "x": random(3, 2)}, outputs=("y",)
    )
    wanted = feeds["start"] * np.float32(0.5) + feeds["x"][:, 0]
    second = wanted * np.float32(0.5) + feeds["x"][:, 1]
    check(along, feeds, [np.stack([wanted + feeds["bias"], second + feeds["bias"]], -1)])


def test_impossible_and_endless_scans() -> None:
    def refused(node: onnx.NodeProto, steps: int = 4, opset: int = 13) -> str:
        feeds = {"x": np.zeros((steps, 3), np.float32), "start": random(3), "bias": random(3)}
        with pytest.raises(ModelError) as caught:
            load_model(build([node], feeds, outputs=("y",), opset=opset).SerializeToString())
        return str(caught.value)

    assert "10000000 steps" in refused(scan_node(), 10_000_000)
    assert "0 steps" in refused(scan_node(), 0)
    assert "axis 2 is outside" in refused(scan_node(scan_input_axes=[2]))
    assert "2 entries for 1" in refused(scan_node(scan_input_directions=[0, 1]))
    many = scan_node()
    next(a for a in many.attribute if a.name == "num_scan_inputs").i = 3
    assert "do not fit the body" in refused(many)
