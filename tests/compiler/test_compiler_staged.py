"""Models whose shapes depend on the run: the values of the reference, whatever comes when, and bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.compiler import stages
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.staged import StagedModel, compile_or_stage
from autotune.compiler.stages import Making
from autotune.errors import InputError, MemoryLimitError, ModelError, UnsupportedError, WorkloadError
from autotune.graph import Graph, load_model, open_model
from autotune.target import Target

pytestmark = pytest.mark.usefixtures("kept")

Array = npt.NDArray[Any]
TARGET = Target.parse("native -num-cores=1")
Dims = Sequence[int | str | None] | None


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Dims]],
    outputs: Sequence[str] = ("y",),
    tensors: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, dtype, dims) for name, (dtype, dims) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (tensors or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


class Counting:
    """Compiles graphs and counts them."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def __call__(self, graph: Graph) -> CompiledModel:
        self.graphs.append(graph)
        return compile_graph(graph, TARGET)


def staged_model(model: onnx.ModelProto, compiler: Counting | None = None) -> StagedModel:
    found = compile_or_stage(open_model(model.SerializeToString()), Making(compiler or Counting()))
    assert isinstance(found, StagedModel)
    return found


def check(model: onnx.ModelProto, runs: Sequence[Mapping[str, Array]], compiler: Counting | None = None) -> StagedModel:
    """Every run gives what the reference gives."""
    found, reference = staged_model(model, compiler), ReferenceEvaluator(model)
    for feeds in runs:
        wanted = reference.run(None, dict(feeds))
        for array, expected in zip(found.run(feeds), wanted, strict=True):
            assert array.dtype == expected.dtype
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    return found


def data(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_number_of_a_shape_waits_for_the_host() -> None:
    """Scalars that are known beforehand are arrays without axes, as others are (rows of FCOS's candidates)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["columns"]),
        helper.make_node("NonZero", ["flags"], ["found"]),
        helper.make_node("Mod", ["found", "columns"], ["y"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, (2, 3)), "flags": (TensorProto.BOOL, (6,))}
    model = model_of(nodes, inputs, tensors={"last": np.asarray(1)})
    check(model, [{"x": data(2, 3), "flags": np.arange(6) % 5 != seed} for seed in range(3)])


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def reshape_model() -> onnx.ModelProto:
    """A convolution that is always the same, then a shape that is an input."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Reshape", ["c", "s"], ["r"]),
        helper.make_node("MatMul", ["r", "m"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    tensors = {"w": data(4, 2, 1, 1), "b": data(3), "m": data(8, 3)}
    return model_of(nodes, {"x": (1, [1, 2, 4, 4]), "s": (7, [2])}, tensors=tensors)


def test_a_shape_that_is_an_input() -> None:
    compiler = Counting()
    runs = [{"x": data(1, 2, 4, 4, seed=n), "s": shape} for n, shape in enumerate([ints(8, 8), ints(-1, 8)] * 2)]
    found = check(reshape_model(), runs, compiler)
    assert found.segments == 2
    assert found.host_nodes == ()
    # The convolution once, the rest for each of the two shapes; the weights of the rest are its own constants.
    assert len(compiler.graphs) == 3
    assert [node.op for node in compiler.graphs[0].nodes] == ["conv2d"]
    assert {array.shape for array in compiler.graphs[1].constants.values()} == {(8, 3), (3,)}


def test_what_needs_no_value_is_one_program() -> None:
    model = model_of([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (1, [4])}, tensors={"s": ints(2, 2)})
    assert isinstance(compile_or_stage(open_model(model.SerializeToString()), Making(Counting())), CompiledModel)


def test_values_of_the_run_are_refused_where_one_program_is_wanted() -> None:
    with pytest.raises(UnsupportedError, match=r"1 node.*the shape \('s'\) is computed at run time.*InferenceSession"):
        load_model(reshape_model().SerializeToString())


def test_several_levels() -> None:
    """Each shape is computed from what the reshape before gave."""
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["a"]),
        helper.make_node("ReduceSum", ["a", "axis"], ["sums"], keepdims=0),
        helper.make_node("Cast", ["sums"], ["counts"], to=TensorProto.INT64),
        helper.make_node("Abs", ["counts"], ["sizes"]),
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("Shape", ["zeros"], ["shape"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Expand", ["total", "shape"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, [6]), "s": (7, [2])}, ["y", "sums"], {"axis": ints(1)})
    x = np.asarray([1, 2, 0, 1, 1, 0], np.float32)
    found = check(model, [{"x": x, "s": ints(2, 3)}, {"x": x, "s": ints(3, 2)}, {"x": x * 2, "s": ints(2, 3)}])
    assert found.segments == 3


def test_open_dimensions_are_bound_by_the_feeds() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    model = model_of(nodes, {"x": (1, ["N", 4])}, tensors={"w": data(4, 3)})
    compiler = Counting()
    found = check(model, [{"x": data(n, 4)} for n in (1, 3, 0, 3, 1)], compiler)
    assert len(compiler.graphs) == 3
    assert found.segments == 1
    assert found.inputs[0].dims == ("N", 4)
    unknown = model_of(nodes, {"x": (1, None)}, tensors={"w": data(4, 3)})
    check(unknown, [{"x": data(2, 4)}, {"x": data(2, 3, 4)}])


def test_feeds_are_checked_against_open_dimensions() -> None:
    node = helper.make_node("Add", ["x", "z"], ["y"])
    found = staged_model(model_of([node], {"x": (1, ["N", 4]), "z": (1, ["N", None])}))
    good = {"x": data(2, 4), "z": data(2, 4)}
    assert found.run(good)[0].shape == (2, 4)
    bad: list[tuple[dict[str, Array], str]] = [
        ({"x": data(2, 4)}, "the model takes x: f32.N,4., z: f32.N,.."),
        ({**good, "z": data(3, 4)}, "'z' must be f32.N,.., got f32.3, 4. where N = 2"),
        ({**good, "x": data(2, 5)}, "'x' must be f32.N,4."),
        ({**good, "x": data(2)}, "'x' must be"),
        ({**good, "x": data(2, 4).astype(np.float64)}, "got f64"),
        ({**good, "q": data(1)}, "the model takes"),
        ({**good, "x": np.asarray([["a"] * 4] * 2)}, "got <U1"),
    ]
    for feeds, text in bad:
        with pytest.raises((InputError, ModelError), match=text):
            found.run(feeds)
    with pytest.raises(ModelError, match="broadcast"):
        found.run({**good, "z": data(2, 3)})
    assert found.run(good)[0].shape == (2, 4)


def test_outputs_belong_to_the_caller() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Reshape", ["x", "s"], ["y"])]
    found = staged_model(model_of(nodes, {"x": (1, ["N"]), "s": (7, [1])}, ["same", "y", "k"], {"k": data(2)}))
    x = data(4)
    same, y, k = found.run({"x": x, "s": ints(4)})
    for array in (same, y, k):
        array[...] = 7
    assert (x != 7).all()
    np.testing.assert_array_equal(found.run({"x": x, "s": ints(4)})[2], data(2))


def test_a_value_changed_in_place_is_seen() -> None:
    found = staged_model(reshape_model())
    x, shape = data(1, 2, 4, 4), ints(8, 8)
    first = found.run({"x": x, "s": shape})[0]
    shape[:] = (1, 64)
    with pytest.raises(ModelError):
        found.run({"x": x, "s": shape})
    shape[:] = (8, 8)
    np.testing.assert_array_equal(found.run({"x": x, "s": shape})[0], first)


def test_many_shapes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_SPECIALISATIONS", 4)
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, ["N"])})
    found = check(model, [{"x": data(n)} for n in range(1, 25)])
    assert found.specialisations == 4


def test_threads_share_specialisations() -> None:
    compiler = Counting()
    found = staged_model(reshape_model(), compiler)
    x = data(1, 2, 4, 4)
    wrong: list[int] = []
    shapes = [ints(8, 8), ints(-1, 8)]

    def work(seed: int) -> None:
        for n in range(6):
            array = found.run({"x": x, "s": shapes[(n + seed) % 2]})[0]
            if not np.array_equal(array, expected):
                wrong.append(seed)

    expected = staged_model(reshape_model()).run({"x": x, "s": shapes[0]})[0]
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(compiler.graphs) == 3


def test_an_impossible_value_is_refused_every_time() -> None:
    found = staged_model(reshape_model())
    for _ in range(2):
        with pytest.raises(ModelError, match="does not fit|'s'|Reshape"):
            found.run({"x": data(1, 2, 4, 4), "s": ints(7, 8)})
    assert found.specialisations == 0


def test_a_branch_that_the_run_decides() -> None:
    """One specialisation per branch; what is before the If is compiled once."""

    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node(op, ["h"], ["v"])], op, [], [helper.make_empty_tensor_value_info("v")]
        )

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("If", ["c"], ["z"], then_branch=branch("Neg"), else_branch=branch("Exp")),
        helper.make_node("Abs", ["z"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, [2, 4]), "c": (9, [])}, tensors={"w": data(4, 3)})
    compiler = Counting()
    runs = [{"x": data(2, 4, seed=n), "c": np.asarray(n % 3 == 0)} for n in range(6)]
    assert check(model, runs, compiler).segments == 2
    assert len(compiler.graphs) == 3


def test_host_functions_between_programs() -> None:
    """Two host functions in a row, a program before, between and after."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["where"]),
        helper.make_node("Unique", ["where"], ["rows"], axis=1),
        helper.make_node("Transpose", ["rows"], ["pairs"]),
        helper.make_node("GatherND", ["r", "pairs"], ["found"]),
        helper.make_node("Greater", ["found", "level"], ["high"]),
        helper.make_node("Compress", ["found", "high"], ["kept"]),
        helper.make_node("Neg", ["kept"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, [4, 5])}, ["y", "where"], {"level": np.asarray(0.5, np.float32)}, opset=17)
    found = check(model, [{"x": data(4, 5, seed=n)} for n in range(3)])
    assert [label.split("(")[1] for label in found.host_nodes] == ["NonZero)", "Unique)", "Compress)"]
    assert found.segments == 3


def test_values_of_the_run_that_make_no_sense() -> None:
    """Each is refused in one line, and the model still runs afterwards."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Slice", ["wide", "start", "end"], ["cut"]),
        helper.make_node("TopK", ["cut", "k"], ["top", "places"]),
        helper.make_node("Gather", ["top", "index"], ["y"], axis=1),
    ]
    types: dict[str, tuple[int, Dims]] = {
        "x": (1, [1, 4]), "shape": (7, [2]), "start": (7, [1]), "end": (7, [1]), "k": (7, [1]), "index": (7, [1]),
    }  # fmt: skip
    found = staged_model(model_of(nodes, types))
    good = {"x": data(1, 4), "shape": ints(3, 4), "start": ints(0), "end": ints(2), "k": ints(2), "index": ints(1)}
    wanted = np.sort(np.repeat(good["x"], 2, 0), axis=1)[:, ::-1][:, 1:2]
    np.testing.assert_array_equal(found.run(good)[0], wanted)
    bad = [
        {"shape": ints(2**62, 4)},
        {"shape": ints(-1, 4)},
        {"shape": ints(3, 5)},
        {"k": ints(99)},
        {"k": ints(-(2**63))},
    ]
    for change in bad:
        with pytest.raises((ModelError, WorkloadError)) as caught:
            found.run({**good, **change})
        assert "\n" not in str(caught.value)
    with pytest.raises(MemoryLimitError, match="more than there is"):
        found.run({**good, "shape": ints(2**37, 4), "end": ints(2**37)})
    # A slice beyond the end is clamped; an index is not.
    assert found.run({**good, "end": ints(2**62)})[0].shape == (3, 1)
    for index in (2**62, -(2**63)):
        with pytest.raises(InputError, match="an index into axis 1 is outside of -2..1"):
            found.run({**good, "index": ints(index)})
    np.testing.assert_array_equal(found.run(good)[0], wanted)


def test_a_deep_model_of_open_shape_needs_no_recursion() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["v0"])]
    nodes += [helper.make_node("Sin", [f"v{n}"], [f"v{n + 1}"]) for n in range(3000)]
    model = model_of(nodes, {"x": (1, ["N"]), "s": (7, [1])}, ["v3000"])
    found = staged_model(model)
    for count in (2, 3):
        (y,) = found.run({"x": np.zeros(count, np.float32), "s": ints(-1)})
        np.testing.assert_array_equal(y, np.zeros(count))
