"""Loops whose steps the run decides: the values of the reference, and refusals that name node and value."""

from __future__ import annotations

import logging
import re
import signal
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.compiler import loop_guard
from autotune.compiler.staged import StagedModel, compile_or_stage
from autotune.compiler.stages import Making
from autotune.errors import InputError, MemoryLimitError, ModelError
from autotune.graph import open_model
from tests.compiler.test_compiler_staged import Array, Counting, check, data, model_of, staged_model

pytestmark = pytest.mark.usefixtures("kept")

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Node = onnx.NodeProto


def graph(
    nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str], tensors: Mapping[str, Array] | None = None
) -> onnx.GraphProto:
    return helper.make_graph(
        list(nodes),
        "body",
        [helper.make_empty_tensor_value_info(name) for name in inputs],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (tensors or {}).items()],
    )


def loop(body: onnx.GraphProto, inputs: Sequence[str], outputs: Sequence[str], name: str = "loop") -> Node:
    return helper.make_node("Loop", inputs, outputs, body=body, name=name)


def scalar(value: int | bool) -> Array:
    return np.asarray(value)


def cell() -> onnx.GraphProto:
    """h' = tanh(h w + x); the step as a float times h' is collected."""
    nodes = [
        helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node("MatMul", ["h", "w"], ["p"]),
        helper.make_node("Add", ["p", "x"], ["s"]),
        helper.make_node("Tanh", ["s"], ["next"]),
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["next", "f"], ["seen"]),
    ]
    return graph(nodes, ["i", "go", "h"], ["on", "next", "seen"])


def cell_model(scale: float = 0.3) -> onnx.ModelProto:
    """The weight is a transposed initializer, from around the body."""
    nodes = [
        helper.make_node("Transpose", ["wt"], ["w"], perm=[1, 0]),
        helper.make_node("Relu", ["x0"], ["x"]),
        loop(cell(), ["n", "yes", "h0"], ["last", "ys"]),
        helper.make_node("Neg", ["last"], ["y"]),
    ]
    inputs: dict[str, tuple[int, Any]] = {"n": (INT, []), "x0": (FLOAT, [2, 8]), "h0": (FLOAT, [2, 8])}
    return model_of(nodes, inputs, ["y", "ys"], {"wt": data(8, 8) * np.float32(scale), "yes": scalar(True)})


def test_a_trip_count_of_the_run() -> None:
    compiler = Counting()
    found = staged_model(cell_model(), compiler)
    x, w = np.maximum(data(2, 8), 0), data(8, 8).T * np.float32(0.3)
    for steps in (5, 1, 17, 5):
        y, ys = found.run({"n": scalar(steps), "x0": data(2, 8), "h0": data(2, 8, seed=1)})
        h, seen = data(2, 8, seed=1), []
        for step in range(steps):
            h = np.tanh(h @ w + x)
            seen.append(h * np.float32(step))
        np.testing.assert_allclose(y, -h, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ys, np.stack(seen), rtol=1e-5, atol=1e-6)
    bodies = [found for found in compiler.graphs if any(node.op == "matmul" for node in found.nodes)]
    assert len(bodies) == 1
    assert {array.shape for array in bodies[0].constants.values()} == {(8, 8)}  # the weight, turned and packed once


def test_a_condition_ends_it() -> None:
    body = graph(
        [
            helper.make_node("Add", ["h", "h"], ["next"]),
            helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "limit"], ["on"]),
        ],
        ["i", "go", "h"],
        ["on", "next", "next"],
        {"limit": np.asarray(100, np.float32)},
    )
    for trips in ("", "n"):
        inputs: dict[str, tuple[int, Any]] = {"x": (FLOAT, [3]), "n": (INT, [1]), "go": (BOOL, [])}
        nodes = [loop(body, [trips, "go", "x"], ["last", "ys"])]
        model = model_of([*nodes, helper.make_node("Add", ["n", "n"], ["z"])], inputs, ["last", "ys", "z"])
        x = np.asarray([1, 2, 3], np.float32)
        found = staged_model(model)
        last, ys, _ = found.run({"x": x, "n": np.asarray([4]), "go": scalar(True)})
        steps = 4 if trips else 6
        np.testing.assert_array_equal(last, x * 2**steps)
        np.testing.assert_array_equal(ys, np.stack([x * 2 ** (n + 1) for n in range(steps)]))
        (last, *_) = found.run({"x": x, "n": np.asarray([4]), "go": scalar(True)})
        np.testing.assert_array_equal(last, x * 2**steps)


def test_carried_values_that_grow() -> None:
    """A decoder without a cache: the last token chooses the next one, and all are kept."""
    body = graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Gather", ["tokens", "last"], ["token"], axis=0),
            helper.make_node("Gather", ["table", "token"], ["row"], axis=0),
            helper.make_node("MatMul", ["row", "w"], ["scores"]),
            helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
            helper.make_node("Concat", ["tokens", "best"], ["more"], axis=0),
        ],
        ["i", "go", "tokens"],
        ["on", "more", "best"],
        {"last": np.asarray([-1])},
    )
    tensors = {"table": data(11, 6), "w": data(6, 11, seed=1), "yes": scalar(True)}
    model = model_of(
        [loop(body, ["n", "yes", "start"], ["tokens", "each"])],
        {"n": (INT, []), "start": (INT, ["T"])},
        ["tokens", "each"],
        tensors,
    )
    check(model, [{"n": scalar(n), "start": np.asarray(start)} for n, start in ((3, [2]), (5, [1, 4]), (1, [7]))])


def decoder(read: Sequence[Node], tensors: Mapping[str, Array], axis: int = 1) -> onnx.ModelProto:
    """Chooses tokens by a row that is read of those so far, which it gets as `tokens`."""
    body = graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            *read,
            helper.make_node("MatMul", ["row", "w"], ["scores"]),
            helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=1),
            helper.make_node("Concat", ["tokens", "best"], ["more"], axis=axis),
        ],
        ["i", "go", "tokens"],
        ["on", "more"],
        tensors,
    )
    weights = {"table": data(11, 6), "w": data(6, 11, seed=1), "yes": scalar(True)}
    forms: dict[str, tuple[int, Any]] = {"n": (INT, []), "start": (INT, ["B", "T"])}
    return model_of([loop(body, ["n", "yes", "start"], ["y"])], forms, tensors=weights)


LAST = [helper.make_node("Gather", ["tokens", "at"], ["token"], axis=1),
        helper.make_node("Gather", ["table", "token"], ["row"])]  # fmt: skip
CUT = [helper.make_node("Slice", ["tokens", "at1", "far", "one"], ["cut"]),
       helper.make_node("Squeeze", ["cut", "one"], ["token"]),
       helper.make_node("Gather", ["table", "token"], ["row"])]  # fmt: skip
MEAN = [helper.make_node("Gather", ["table", "tokens"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["row"], axes=[1], keepdims=0)]  # fmt: skip
NUMBERS = {"at1": np.asarray([-1]), "far": np.asarray([2**63 - 1]), "one": np.asarray([1])}


@pytest.mark.parametrize(("read", "tensors", "programs"), [
    (LAST, {"at": np.asarray(-1)}, 1),  # only the last one: native code takes the steps
    (CUT, NUMBERS, 1),
    (LAST, {"at": np.asarray(0)}, 3),  # the first one: moved on the host, what computes is compiled once
    (MEAN, {}, None),  # all of them: compiled for each length
])  # fmt: skip
def test_tokens_that_are_appended(read: list[Node], tensors: dict[str, Array], programs: int | None) -> None:
    model = decoder(read, tensors)
    compiler = Counting()
    runs = [
        {"n": scalar(n), "start": np.asarray(start)} for n, start in ((4, [[2]]), (2, [[1, 4], [3, 5]]), (3, [[7]]))
    ]
    found = check(model, runs[:1], compiler)
    if programs is not None:
        assert len(compiler.graphs) <= programs
    for feeds in runs:
        (wanted,) = map(np.asarray, ReferenceEvaluator(model).run(None, dict(feeds)))
        np.testing.assert_array_equal(found.run(feeds)[0], wanted)


def test_nothing_to_append_to() -> None:
    found = staged_model(decoder(LAST, {"at": np.asarray(-1)}))
    with pytest.raises((InputError, ModelError), match="index into axis 1"):
        found.run({"n": scalar(2), "start": np.empty((1, 0), np.int64)})


def test_no_step_at_all() -> None:
    body = cell()
    body.output[2].CopyFrom(helper.make_tensor_value_info("seen", FLOAT, [2, 8]))
    model = cell_model()
    next(a for a in model.graph.node[2].attribute if a.name == "body").g.CopyFrom(body)
    found = staged_model(model)
    y, ys = found.run({"n": scalar(0), "x0": data(2, 8), "h0": data(2, 8, seed=1)})
    np.testing.assert_array_equal(y, -data(2, 8, seed=1))
    assert ys.shape == (0, 2, 8)
    assert ys.dtype == np.float32
    with pytest.raises(InputError, match="'loop' .*no step was taken.*'seen'"):
        staged_model(cell_model()).run({"n": scalar(0), "x0": data(2, 8), "h0": data(2, 8)})


def test_loops_in_loops_with_a_branch() -> None:
    then = graph([helper.make_node("Add", ["v", "outer"], ["r"])], [], ["r"])
    other = graph([helper.make_node("Sub", ["v", "outer"], ["q"])], [], ["q"])
    inner = graph(
        [
            helper.make_node("Identity", ["go2"], ["on2"]),
            helper.make_node("ReduceSum", ["v"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "zero"], ["negative"]),
            helper.make_node("If", ["negative"], ["v2"], then_branch=then, else_branch=other),
        ],
        ["j", "go2", "v"],
        ["on2", "v2"],
        {"zero": np.asarray(0, np.float32)},
    )
    outer = graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Relu", ["x"], ["outer"]),
            helper.make_node("Add", ["i", "one"], ["times"]),
            loop(inner, ["times", "go", "u"], ["u2"], "inner"),
        ],
        ["i", "go", "u"],
        ["on", "u2", "u2"],
        {"one": scalar(1)},
    )
    model = model_of([loop(outer, ["n", "yes", "x"], ["y", "ys"])], {"n": (INT, []), "x": (FLOAT, [4])}, ["y", "ys"],
                     {"yes": scalar(True)})  # fmt: skip
    check(model, [{"n": scalar(n), "x": data(4, seed=n)} for n in (1, 3, 4)])


def scan_model(steps: int | None, **attributes: Any) -> onnx.ModelProto:
    body = graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["p"]),
            helper.make_node("Add", ["p", "item"], ["s"]),
            helper.make_node("Tanh", ["s"], ["next"]),
            helper.make_node("Mul", ["next", "item"], ["seen"]),
        ],
        ["state", "item"],
        ["next", "seen"],
    )
    node = helper.make_node("Scan", ["h", "x"], ["last", "y"], num_scan_inputs=1, body=body, name="scan", **attributes)
    axis = (attributes.get("scan_input_axes") or [0])[0]
    dims: list[int | None] = [steps, 4, 4]
    if axis:
        dims = [4, steps, 4]
    tensors = {"w": data(4, 4) * np.float32(0.3)}
    return model_of([node], {"h": (FLOAT, [4, 4]), "x": (FLOAT, dims)}, ["last", "y"], tensors)


@pytest.mark.parametrize("attributes", [
    {}, {"scan_input_directions": [1]}, {"scan_output_directions": [1], "scan_input_axes": [1]},
    {"scan_output_axes": [-1]}, {"scan_output_axes": [1], "scan_output_directions": [1], "scan_input_directions": [1]},
])  # fmt: skip
def test_long_scans(attributes: dict[str, Any]) -> None:
    axis = attributes.get("scan_input_axes", [0])[0]
    for declared, lengths in ((None, (3, 200, 1)), (300, (300,))):
        model = scan_model(declared, **attributes)
        runs = []
        for steps in lengths:
            runs.append({"h": data(4, 4), "x": np.moveaxis(data(steps, 4, 4, seed=1), 0, axis).copy()})
        found = compile_or_stage(open_model(model.SerializeToString()), Making(Counting()))
        for feeds in runs:
            for array, expected in zip(found.run(feeds), scanned(model, feeds, attributes), strict=True):
                np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)


def scanned(model: onnx.ModelProto, feeds: Mapping[str, Array], attributes: Mapping[str, Any]) -> list[Array]:
    """What the Scan gives: the reference does not know its attributes."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    node = plain.graph.node[0]
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    x = np.moveaxis(feeds["x"], attributes.get("scan_input_axes", [0])[0], 0)
    x = x[::-1] if attributes.get("scan_input_directions") else x
    last, y = map(np.asarray, ReferenceEvaluator(plain).run(None, {"h": feeds["h"], "x": x.copy()}))
    y = y[::-1] if attributes.get("scan_output_directions") else y
    return [last, np.moveaxis(y, 0, attributes.get("scan_output_axes", [0])[0])]


def test_sequences_that_a_loop_carries() -> None:
    body = graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
            helper.make_node("Mul", ["x", "f"], ["item"]),
            helper.make_node("SequenceInsert", ["s", "item"], ["s2"]),
        ],
        ["i", "go", "s"],
        ["on", "s2"],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["empty"], dtype=FLOAT),
        loop(body, ["n", "yes", "empty"], ["items"]),
        helper.make_node("ConcatFromSequence", ["items"], ["y"], axis=0, new_axis=1),
        helper.make_node("SequenceLength", ["items"], ["count"]),
    ]
    model = model_of(nodes, {"n": (INT, []), "x": (FLOAT, [3])}, ["y", "count"], {"yes": scalar(True)})
    check(model, [{"n": scalar(n), "x": data(3)} for n in (1, 4)])


def run(model: onnx.ModelProto, feeds: Mapping[str, Any], **more: Any) -> list[Array]:
    found = compile_or_stage(open_model(model.SerializeToString()), Making(Counting(), **more))
    assert isinstance(found, StagedModel)
    return found.run(feeds)


def growing(op: Node, start: int = FLOAT) -> onnx.ModelProto:
    body = graph([helper.make_node("Identity", ["go"], ["on"]), op], ["i", "go", "h"], ["on", "next"])
    inputs: dict[str, tuple[int, Any]] = {"n": (INT, []), "x": (start, [4])}
    return model_of([loop(body, ["n", "", "x"], ["y"])], inputs)


def test_loops_that_never_end() -> None:
    body = graph([helper.make_node("Identity", ["h"], ["next"])], ["i", "go", "h"], ["go", "next"])
    model = model_of([loop(body, ["", "go0", "x"], ["y"])], {"x": (FLOAT, [4]), "go0": (BOOL, [])})
    with pytest.raises(InputError, match=r"node 'loop' \(Loop\): still going on after 100 steps; raise max_loop_steps"):
        run(model, {"x": data(4), "go0": scalar(True)}, max_loop_steps=100)


def endless(op: Node) -> onnx.ModelProto:
    """A Loop whose condition stays, with `op` making `next` of `h` and something of its own beside."""
    body = graph([op, helper.make_node("Tanh", ["h"], ["next"])], ["i", "go", "h"], ["go", "next"])
    return model_of([loop(body, ["", "go0", "x"], ["y"])], {"x": (FLOAT, [4]), "go0": (BOOL, [])})


NATIVE, IN_PYTHON = helper.make_node("Abs", ["h"], ["other"]), helper.make_node("NonZero", ["h"], ["other"])


@pytest.mark.parametrize("op", [NATIVE, IN_PYTHON])
def test_who_waits_for_a_loop_is_told(
    op: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_guard, "PATIENCE", 0.0)
    monkeypatch.setattr(loop_guard, "LATER", 1e9)
    with pytest.raises(InputError, match="still going on after 300 steps"):
        run(endless(op), {"x": data(4), "go0": scalar(True)}, max_loop_steps=300)
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert re.match(r"node 'loop' \(Loop\): still going on after \d+ steps in 0 s; .* after 300 steps", told)
    caplog.clear()
    run(
        growing(helper.make_node("Tanh", ["h"], ["next"])), {"n": scalar(300), "x": data(4)}
    )  # it is known when it ends
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody presses Ctrl-C while a loop that does not end takes its steps."""
    look = loop_guard.LoopGuard.look

    def interrupted(guard: loop_guard.LoopGuard, step: int) -> None:
        look(guard, step)
        if step and guard.most is not None:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop_guard.LoopGuard, "look", interrupted)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("op", [NATIVE, IN_PYTHON])
def test_an_interrupted_loop_says_where_it_was(op: Node) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"^node 'loop' \(Loop\): interrupted in step \d+$"):
        run(endless(op), {"x": data(4), "go0": scalar(True)})


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_loop_inside_a_loop() -> None:
    on = helper.make_node("Identity", ["go"], ["on"])
    inner = graph([helper.make_node("Tanh", ["v"], ["w"])], ["j", "more", "v"], ["more", "w"])
    body = graph([on, loop(inner, ["", "go0", "h"], ["next"], name="inner")], ["i", "go", "h"], ["on", "next"])
    model = model_of([loop(body, ["n", "", "x"], ["y"])], {"n": (INT, []), "x": (FLOAT, [4]), "go0": (BOOL, [])})
    told = r"node 'loop' \(Loop\): interrupted in step 0; node 'inner' \(Loop\): interrupted in step 64$"
    with pytest.raises(KeyboardInterrupt, match=told):
        run(model, {"n": scalar(2), "x": data(4), "go0": scalar(True)})


DOUBLES = helper.make_node("Concat", ["h", "h"], ["next"], axis=0)


def test_loops_that_outgrow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.machine.memory_bytes", lambda: 1 << 12)
    told = (
        r"node 'loop' \(Loop\): in step 5 it needs \d+ bytes for .* more than the 2048 .* 50 % of this machine's memory"
    )
    with pytest.raises(MemoryLimitError, match=told):
        run(growing(DOUBLES), {"n": scalar(100), "x": data(4)})
    monkeypatch.setattr("autotune.machine.memory_bytes", lambda: 0)  # not known
    assert len(run(growing(DOUBLES), {"n": scalar(9), "x": data(4)})[0]) == 4 << 9


def test_what_a_loop_may_not_have_it_does_not_take() -> None:
    limit = 4 << 20
    tracemalloc.start()
    try:
        with pytest.raises(MemoryLimitError, match=f"more than the {limit} that max_memory allows"):
            run(growing(DOUBLES), {"n": scalar(100), "x": data(4)}, max_memory=limit)
        assert limit / 8 < tracemalloc.get_traced_memory()[1] < limit * 1.5
    finally:
        tracemalloc.stop()


def collecting(nodes: Sequence[Node], result: str) -> onnx.ModelProto:
    """A Loop that goes on and gives what `nodes` make of `h`, collected."""
    on = helper.make_node("Identity", ["go"], ["on"])
    body = graph([on, *nodes, helper.make_node("Tanh", ["h"], ["next"])], ["i", "go", "h"], ["on", "next", result])
    return model_of([loop(body, ["n", "", "x"], ["y", "ys"])], {"n": (INT, []), "x": (FLOAT, [4])}, ["y", "ys"])


def doubling_and_computing() -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Concat", ["h", "h"], ["hh"], axis=0),
             helper.make_node("Tanh", ["hh"], ["next"])]  # fmt: skip
    return model_of([loop(graph(nodes, ["i", "go", "h"], ["on", "next"]), ["n", "", "x"], ["y"])],
                    {"n": (INT, []), "x": (FLOAT, [4])})  # fmt: skip


def sequence_of(item: Node) -> onnx.ModelProto:
    """A Loop that inserts what `item` makes at the front of a sequence."""
    front = helper.make_node("SequenceInsert", ["s", "item", "zero"], ["s2"])
    body = graph([helper.make_node("Identity", ["go"], ["on"]), item, front], ["i", "go", "s"], ["on", "s2"])
    nodes = [
        helper.make_node("SequenceEmpty", [], ["empty"], dtype=FLOAT),
        loop(body, ["n", "yes", "empty"], ["items"]),
        helper.make_node("SequenceLength", ["items"], ["y"]),
    ]
    return model_of(nodes, {"n": (INT, []), "x": (FLOAT, [4])}, tensors={"yes": scalar(True), "zero": scalar(0)})


OUTGROWING = {
    "programs": doubling_and_computing(),
    "outputs of native steps": collecting([], "next"),
    "outputs step by step": collecting([helper.make_node("NonZero", ["h"], ["seen"])], "seen"),
    "a sequence": sequence_of(helper.make_node("Mul", ["x", "x"], ["item"])),
}


@pytest.mark.parametrize("what", OUTGROWING)
def test_whatever_grows_is_refused(what: str) -> None:
    feeds = {"n": scalar(5000), "x": np.ones(4, np.float32)}
    with pytest.raises(MemoryLimitError, match=r"node 'loop' \(Loop\): in step \d+ it needs \d+ bytes"):
        run(OUTGROWING[what], feeds, max_memory=20_000)


def test_values_that_do_not_fit_together() -> None:
    feeds = {"n": scalar(3), "x": data(4)}
    changed = growing(helper.make_node("Cast", ["h"], ["next"], to=TensorProto.INT32))
    with pytest.raises(InputError, match=r"'loop' \(Loop\): the carried value 'h' is a tensor int32\[4\] after step 0"):
        run(changed, feeds)
    body = graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Concat", ["h", "h"], ["next"], axis=0)],
        ["i", "go", "h"],
        ["on", "next", "next"],
    )
    model = model_of([loop(body, ["n", "", "x"], ["y", "ys"])], {"n": (INT, []), "x": (FLOAT, [4])}, ["y", "ys"])
    with pytest.raises(InputError, match=r"scan output 'next' is a tensor float32\[16\] in step 1, and was a tensor"):
        run(model, feeds)
    two = model_of(
        [loop(cell(), ["n", "", "x"], ["y"])], {"n": (INT, [2]), "x": (FLOAT, [4])}, tensors={"w": data(4, 4)}
    )
    with pytest.raises(ModelError, match="the number of steps is one integer"):
        run(two, {"n": np.asarray([1, 2]), "x": data(4)})


def test_sequences_of_different_lengths() -> None:
    body = graph([helper.make_node("Add", ["a", "b"], ["s"])], ["a", "b"], ["s"])
    node = helper.make_node("Scan", ["x", "z"], ["y"], num_scan_inputs=2, body=body, name="scan")
    model = model_of([node], {"x": (FLOAT, ["N", 2]), "z": (FLOAT, ["M", 2])})
    with pytest.raises(ModelError, match=r"'scan' \(Scan\): the sequences have different lengths \[3, 4\]"):
        run(model, {"x": data(3, 2), "z": data(4, 2)})
