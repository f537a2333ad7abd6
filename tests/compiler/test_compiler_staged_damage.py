"""Damaged models of open shape, with branches, functions and host functions: run, or refused in one line."""

from __future__ import annotations

import random as stdlib_random
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper

from autotune.compiler.compile import CompiledModel
from autotune.compiler.fixed_loop import FixedLoop
from autotune.compiler.staged import StagedModel, compile_or_stage
from autotune.compiler.stages import Making
from autotune.errors import AutotuneError
from autotune.graph import Graph, evaluate_graph, open_model
from autotune.runtime.constants import Constants
from autotune.runtime.program import ARENA, Program, Ref, TensorSpec
from tests.graph.test_graph_damaged_models import mutated

MUTATIONS = 400


class Evaluated:
    """Like a program, but evaluated by NumPy: damage is about the way there."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        inputs = tuple(TensorSpec(v.name, v.dtype, v.shape) for v in graph.inputs)
        outputs = tuple(
            (TensorSpec(o.name, graph.values[o.value].dtype, graph.values[o.value].shape), Ref(ARENA, 0))
            for o in graph.outputs
        )
        self.program = Program("", 1, inputs, outputs, (), 0, 0)
        self.constants = Constants.of(np.empty(0, np.uint8))
        self.executor = None  # there is nothing to link
        self.kernels = ()
        self.input_names = tuple(spec.name for spec in inputs)

    def run_checked(self, arrays: Any, trace: object = None) -> list[Any]:
        return self.run(dict(zip((spec.name for spec in self.program.inputs), arrays)))

    def run(self, feeds: Any) -> list[Any]:
        if sum(value.size for value in self._graph.values.values()) > 2**20:
            raise AutotuneError("large")
        with np.errstate(all="ignore"):
            return list(evaluate_graph(self._graph, feeds).values())


def compiled(graph: Graph) -> CompiledModel:
    return cast(CompiledModel, Evaluated(graph))


def branch(op: str) -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node(op, ["mean"], ["v"])], op, [], [helper.make_empty_tensor_value_info("v")]
    )


def small_model() -> bytes:
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "item"], ["next"])],
        "body",
        [helper.make_empty_tensor_value_info("state"), helper.make_empty_tensor_value_info("item")],
        [helper.make_empty_tensor_value_info("next"), helper.make_empty_tensor_value_info("next")],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["double"], domain="own"),
        helper.make_node("Reshape", ["double", "shape"], ["r"]),
        helper.make_node("ReduceMean", ["r"], ["mean"], axes=[1]),
        helper.make_node("If", ["flag"], ["chosen"], then_branch=branch("Neg"), else_branch=branch("Exp")),
        helper.make_node("NonZero", ["chosen"], ["where"]),
        helper.make_node("Unique", ["where"], ["different"], axis=1),
        helper.make_node("Shape", ["different"], ["size"]),
        helper.make_node("Expand", ["one", "size"], ["ones"]),
        helper.make_node("Scan", ["start", "x"], ["last", "sums"], num_scan_inputs=1, body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", 1, ["N", 3]),
            helper.make_tensor_value_info("shape", 7, [2]),
            helper.make_tensor_value_info("flag", 9, []),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("chosen", "ones", "sums")],
        [
            numpy_helper.from_array(np.ones((), np.float32), "one"),
            numpy_helper.from_array(np.zeros(3, np.float32), "start"),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    twice = helper.make_function("own", "Twice", ["a"], ["r"], [helper.make_node("Add", ["a", "a"], ["r"])], opsets)
    return bytes(helper.make_model(graph, opset_imports=opsets, functions=[twice]).SerializeToString())


def model_with_loops() -> bytes:
    """Loops of unknown steps, one in the other, a sequence that one carries, and strings."""
    empty = helper.make_empty_tensor_value_info
    inner = helper.make_graph(
        [helper.make_node("Add", ["v", "w"], ["v2"])], "inner",
        [helper.make_tensor_value_info("j", 7, []), helper.make_tensor_value_info("on2", 9, []), empty("v")],
        [helper.make_tensor_value_info("on2", 9, []), empty("v2")],
    )  # fmt: skip
    body = helper.make_graph(
        [
            helper.make_node("Constant", [], ["last"], value=numpy_helper.from_array(np.asarray([-1]), "l")),
            helper.make_node("Gather", ["s", "last"], ["tail"], axis=0),
            helper.make_node("Loop", ["m", "go", "tail"], ["item"], body=inner),
            helper.make_node("Concat", ["s", "item"], ["s2"], axis=0),
            helper.make_node("SequenceInsert", ["q", "item"], ["q2"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, []), empty("s"), empty("q")],
        [helper.make_tensor_value_info("on", 9, []), empty("s2"), empty("q2"), empty("item")],
        [numpy_helper.from_array(np.asarray(2), "m")],
    )
    scanned = helper.make_graph(
        [helper.make_node("Mul", ["a", "b"], ["c"])], "scanned", [empty("a"), empty("b")], [empty("c"), empty("c")]
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"], dtype=1),
        helper.make_node("Loop", ["n", "flag", "x", "none"], ["all", "items", "each"], body=body),
        helper.make_node("ConcatFromSequence", ["items"], ["joined"], axis=0),
        helper.make_node("SequenceAt", ["items", "n"], ["late"]),
        helper.make_node("Scan", ["w", "x"], ["end", "scans"], num_scan_inputs=1, body=scanned),
        helper.make_node("StringConcat", ["names", "names"], ["twice"]),
        helper.make_node("Equal", ["twice", "names"], ["same"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", 1, ["N", 3]), helper.make_tensor_value_info("n", 7, []),
         helper.make_tensor_value_info("flag", 9, []), helper.make_tensor_value_info("names", 8, [2])],
        [empty(name) for name in ("all", "joined", "each", "scans", "same")],
        [numpy_helper.from_array(np.ones(3, np.float32), "w")],
    )  # fmt: skip
    del graph.node[3]  # its place is outside
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())


FEEDS = {
    "n": np.asarray(2),
    "names": np.asarray(["a", "b"], object),
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "shape": np.asarray([3, 2]),
    "flag": np.asarray(True),
}


def run(data: bytes) -> list[Any]:
    found = compile_or_stage(open_model(data), Making(compiled, max_loop_steps=50))
    feeds = {name: FEEDS[name] for name in found.input_names if name in FEEDS}
    # Told of each step, a staged model calls its programs one by one, which is all that these can do.
    return found.run(feeds, lambda step: None) if isinstance(found, StagedModel) else found.run(feeds)


def still_a_model(data: bytes, rng: stdlib_random.Random) -> bytes:
    """Damaged, but read as a model by protobuf: most damage is not."""
    while True:
        changed = mutated(data, rng)
        try:
            onnx.ModelProto().ParseFromString(changed)
        except DecodeError:
            continue
        return changed


def test_the_model_itself_runs() -> None:
    chosen, ones, sums = run(small_model())
    np.testing.assert_array_equal(chosen, [[-1], [-5], [-9]])
    assert ones.shape == (2, 3)
    np.testing.assert_array_equal(sums, [[0, 1, 2], [3, 5, 7]])
    assert isinstance(compile_or_stage(open_model(small_model()), Making(compiled)), StagedModel)


@pytest.fixture
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code takes no steps of programs that are none."""
    monkeypatch.setattr(FixedLoop, "of", staticmethod(lambda *args: None))


def test_the_model_with_loops_itself_runs(step_by_step: None) -> None:
    whole, joined, each, scans, same = run(model_with_loops())
    np.testing.assert_array_equal(whole, [[0, 1, 2], [3, 4, 5], [5, 6, 7], [7, 8, 9]])
    np.testing.assert_array_equal(joined, whole[2:])
    np.testing.assert_array_equal(each[:, 0], whole[2:])
    np.testing.assert_array_equal(scans, [[0, 1, 2], [0, 4, 10]])
    assert same.tolist() == [False, False]


@pytest.mark.parametrize("model", [small_model, model_with_loops])
def test_damage_is_refused_in_one_line(model: Callable[[], bytes], step_by_step: None) -> None:
    data, rng = model(), stdlib_random.Random(0)
    messages: list[str] = []
    for _ in range(MUTATIONS):
        try:
            run(still_a_model(data, rng))
        except AutotuneError as error:
            messages.append(str(error))
    assert [message for message in messages if "\n" in message] == []
    assert len(messages) > MUTATIONS // 4
