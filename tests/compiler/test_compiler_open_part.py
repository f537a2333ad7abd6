"""Parts that run on as many elements as data decides: right for any number, and nothing is compiled for most."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autotune.compiler.again import OFTEN
from autotune.compiler.bucketed import BucketedModel
from autotune.compiler.open_form import Form, OpenForm
from autotune.compiler.open_part import OpenCall
from autotune.compiler.specialisation import ProgramStep, Step
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.errors import AutotuneError
from autotune.graph import open_model
from tests.compiler.test_compiler_staged import TARGET, Array, Counting, model_of
from tests.compiler.test_compiler_staged_damage import compiled

pytestmark = pytest.mark.usefixtures("kept")

COUNTS = (5, 9, 3, 20, 17, 1, 9, 12, 31, 2)
MOST, WIDTH = 40, 6
PICKED = (
    helper.make_node("Greater", ["x", "zero"], ["mask"]),
    helper.make_node("NonZero", ["mask"], ["found"]),
    helper.make_node("Transpose", ["found"], ["places"]),
    helper.make_node("GatherND", ["table", "places"], ["rows"]),
)
"""The rows of a table where x is more than 0."""
TENSORS: dict[str, Array] = {
    "zero": np.zeros((), np.float32),
    "one": np.ones(1, np.int64),
    "all": np.asarray([-1], np.int64),
    "two": np.asarray([2], np.int64),
    "three": np.asarray([3], np.int64),
    "none": np.asarray([0], np.int64),
    "table": np.random.default_rng(1).standard_normal((MOST, WIDTH)).astype(np.float32),
    "weights": np.random.default_rng(2).standard_normal((WIDTH, 8)).astype(np.float32),
    "pairs": np.asarray([-1, 2, WIDTH // 2], np.int64),
}


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], **attributes)


def model_with(*nodes: onnx.NodeProto, outputs: Sequence[str] = ("y",)) -> onnx.ModelProto:
    return model_of([*PICKED, *nodes], {"x": (TensorProto.FLOAT, (MOST,))}, outputs, TENSORS)


def feeds(count: int, seed: int = 0) -> dict[str, Array]:
    """So many elements are more than 0."""
    rng = np.random.default_rng(seed)
    x = -rng.random(MOST, np.float32)
    x[rng.permutation(MOST)[:count]] = 1.0
    return {"x": x}


def staged(model: onnx.ModelProto, compiler: Any) -> StagedModel:
    return StagedModel(open_model(model.SerializeToString()), Making(compiler, target=TARGET))


def check(
    model: onnx.ModelProto, compiler: Any = None, counts: Sequence[int] = COUNTS, tolerance: float = 1e-5
) -> StagedModel:
    """Every run gives what the reference gives."""
    found, reference = staged(model, compiler or Counting()), ReferenceEvaluator(model)
    for count in counts:
        given = feeds(count, count)
        for one, other in zip(found.run(given), reference.run(None, given), strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), count
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    return found


def calls(model: StagedModel) -> list[OpenCall]:
    held = [call for one in model._workshop.cache.values() for call in one.opened]
    return [one for one in held if isinstance(one, OpenCall)]


def test_rows_run_in_programs_for_more_rows() -> None:
    compiler = Counting()
    found = check(model_with(node("MatMul", ["rows", "weights"], "z"), node("Softmax", ["z"], "y", axis=-1)), compiler)
    (call,) = calls(found)
    call.model.wait()
    # one without rows, one for the first count; 16, 32 and perhaps 64 rows
    assert len(compiler.graphs) <= 5
    before = len(compiler.graphs)
    found.run(feeds(15, 99))
    assert len(compiler.graphs) == before
    assert found.segments == 2


def test_shapes_that_are_computed_follow() -> None:
    found = check(
        model_with(
            node("Shape", ["rows"], "extents"),
            node("Gather", ["extents", "none"], "count"),
            node("Concat", ["count", "two", "all"], "form", axis=0),
            node("MatMul", ["rows", "weights"], "wide"),
            node("Reshape", ["wide", "form"], "z"),
            node("Exp", ["z"], "y"),
        )
    )
    assert calls(found)


def test_what_extents_tell_goes_on() -> None:
    """To another part, which is made for the number itself."""
    found = check(
        model_with(
            node("Shape", ["rows"], "extents"),
            node("Gather", ["extents", "none"], "count"),
            node("MatMul", ["rows", "weights"], "wide"),
            node("Relu", ["wide"], "z"),
            node("NonZero", ["z"], "where"),
            node("Cast", ["where"], "floats", to=TensorProto.FLOAT),
            node("Cast", ["count"], "number", to=TensorProto.FLOAT),
            node("Add", ["floats", "number"], "y"),
            outputs=("y", "count", "z"),
        )
    )
    assert any(call.tells for call in calls(found))


def test_what_cannot_be_padded_runs_at_once() -> None:
    """Two lists of rows one after the other, and the best of them, as many as there are."""
    compiler = Counting()
    nodes = (
        node("Less", ["x", "zero"], "others"),
        node("NonZero", ["others"], "left"),
        node("Transpose", ["left"], "left places"),
        node("GatherND", ["table", "left places"], "other rows"),
        node("Concat", ["rows", "other rows", "rows"], "joined", axis=0),
        node("Slice", ["joined", "none", "one", "one"], "column"),
        node("Reshape", ["column", "all"], "scores"),
        node("Shape", ["scores"], "length"),
        node("Min", ["length", "three"], "few"),
        helper.make_node("TopK", ["scores", "few"], ["best", "order"]),
        node("Gather", ["joined", "order"], "z"),
        node("ReduceSum", ["z"], "y"),
    )
    found = check(model_with(*nodes, outputs=("y", "best", "z")), compiler)
    assert not calls(found)
    before = len(compiler.graphs)
    assert before <= 3
    for count in (0, 7, 40):
        found.run(feeds(count, 50 + count))
    assert len(compiler.graphs) == before


def test_what_computes_behind_it_is_padded() -> None:
    """Rows are put together at once; what multiplies them is a program for more of them."""
    compiler = Counting()
    nodes = (
        node("Concat", ["rows", "rows"], "joined", axis=0),
        node("MatMul", ["joined", "weights"], "z"),
        node("Tanh", ["z"], "y"),
    )
    found = check(model_with(*nodes), compiler)
    assert len(calls(found)) == 1
    calls(found)[0].model.wait()
    assert len(compiler.graphs) <= 7


@pytest.mark.parametrize("counts", [(0, 5, 7, 0, 9), (5, 0, 7, 3), (4, 4, 6, 0)])
def test_nothing_is_a_number_too(counts: tuple[int, ...]) -> None:
    compiler = Counting()
    found = check(model_with(node("MatMul", ["rows", "weights"], "y")), compiler, counts=counts)
    for call in calls(found):
        call.model.wait()
    made = len(compiler.graphs)
    for count in (0, 6, 0, 8):
        found.run(feeds(count, 40 + count))
    assert len(compiler.graphs) == made
    check(model_with(node("Concat", ["rows", "rows"], "z", axis=0), node("Relu", ["z"], "y")), counts=counts)


def test_regions_of_an_image() -> None:
    """What is cut out of the features goes through layers, and the best of each is kept."""
    nodes = (
        node("Slice", ["rows", "none", "four", "one"], "corners"),
        node("Abs", ["corners"], "regions"),
        node("Shape", ["rows"], "extents"),
        node("Gather", ["extents", "none"], "count"),
        helper.make_node(
            "ConstantOfShape",
            ["count"],
            ["images"],
            value=helper.make_tensor("images", TensorProto.INT64, [1], [0]),
        ),
        node("RoiAlign", ["features", "regions", "images"], "cut", output_height=2, output_width=2, sampling_ratio=2),
        node("Flatten", ["cut"], "flat"),
        node("MatMul", ["flat", "head"], "z"),
        helper.make_node("TopK", ["z", "three"], ["y", "order"], axis=1),
        node("GatherElements", ["z", "order"], "again", axis=1),
    )
    model = model_with(*nodes, outputs=("y", "order", "again"))
    rng = np.random.default_rng(5)
    for name, array in (
        ("four", np.asarray([4], np.int64)),
        ("features", rng.standard_normal((1, 3, 8, 8)).astype(np.float32)),
        ("head", rng.standard_normal((12, 7)).astype(np.float32)),
    ):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    (call,) = calls(check(model, tolerance=1e-4))
    assert set(call.writes) == {"y", "order", "again"}


def test_what_two_runs_have_in_common_is_no_law() -> None:
    """The least of the extent and 3 is 3 for most."""
    nodes = (
        node("Shape", ["rows"], "extents"),
        node("Gather", ["extents", "none"], "count"),
        node("Min", ["count", "three"], "few"),
        node("Relu", ["rows"], "z"),
        node("NonZero", ["z"], "where"),
        node("Cast", ["where"], "floats", to=TensorProto.FLOAT),
        node("Cast", ["few"], "number", to=TensorProto.FLOAT),
        node("Add", ["floats", "number"], "y"),
    )
    check(model_with(*nodes, outputs=("y", "few")), counts=(5, 9, 2, 1, 12))


def test_of_what_is_behind_only_the_beginning_may_be_padded() -> None:
    """Experts: rows of a table go through layers, and are added to the rows of others."""
    compiler = Counting()
    nodes = (
        node("MatMul", ["rows", "weights"], "hidden"),
        node("Tanh", ["hidden"], "z"),
        node("ScatterND", ["start", "places", "z"], "added", reduction="add"),
        node("Relu", ["added"], "y"),
    )
    model = model_with(*nodes)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((MOST, 8), np.float32), "start"))
    found = check(model, compiler)
    assert len(calls(found)) == 1
    calls(found)[0].model.wait()
    before = len(compiler.graphs)
    assert before <= 8
    for count in (7, 14, 11):
        found.run(feeds(count, 70 + count))
    calls(found)[0].model.wait()
    assert len(compiler.graphs) == before


def test_an_if_that_data_decides() -> None:
    then = helper.make_graph([node("Identity", ["rows"], "t")], "then", [], [helper.make_empty_tensor_value_info("t")])
    other = helper.make_graph([node("Neg", ["rows"], "e")], "else", [], [helper.make_empty_tensor_value_info("e")])
    nodes = (
        node("Shape", ["rows"], "extents"),
        node("Gather", ["extents", "none"], "count"),
        node("Less", ["count", "nine"], "few"),
        helper.make_node("If", ["few"], ["z"], then_branch=then, else_branch=other),
        node("Concat", ["z", "rows"], "y", axis=0),
    )
    model = model_with(*nodes)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray([9], np.int64), "nine"))
    check(model)


def test_a_wrong_index_is_told() -> None:
    nodes = (
        node("Cast", ["places"], "numbers", to=TensorProto.FLOAT),
        node("ReduceMax", ["x"], "most", keepdims=0),
        node("Mul", ["numbers", "most"], "far"),
        node("Cast", ["far"], "there", to=TensorProto.INT64),
        node("GatherND", ["table", "there"], "y"),
    )
    found = check(model_with(*nodes))
    with pytest.raises(AutotuneError, match="index"):
        found.run({"x": feeds(7)["x"] * 50})
    assert found.run(feeds(7))[0].shape == (7, WIDTH)


def test_a_watched_run_tells_of_the_programs_it_ran_in() -> None:
    found = check(model_with(node("MatMul", ["rows", "weights"], "z"), node("Relu", ["z"], "y")))
    steps: list[Step] = []
    (watched,) = found.run(feeds(11, 3), steps.append)
    (plain,) = found.run(feeds(11, 3))
    np.testing.assert_array_equal(watched, plain)
    programs = [step for step in steps if isinstance(step, ProgramStep)]
    assert programs[-1].program.program.inputs[0].shape != (11, WIDTH)
    assert "MatMul" in calls(found)[0].label or "Relu" in calls(found)[0].label


@pytest.mark.parametrize("nodes", [
    (node("MatMul", ["rows", "weights"], "z"), node("Tanh", ["z"], "y")),
    (node("Concat", ["rows", "rows"], "z", axis=0), node("Exp", ["z"], "y")),
])  # fmt: skip
def test_threads_teach_each_other(nodes: tuple[onnx.NodeProto, ...]) -> None:
    """Each run is right, whatever others have found out about the part meanwhile."""
    model = model_with(*nodes)
    found, reference = staged(model, Counting()), ReferenceEvaluator(model)
    wanted = {count: next(iter(reference.run(None, feeds(count, count)))) for count in range(18)}

    def runs(seed: int) -> None:
        r = random.Random(seed)
        for _ in range(25):
            count = r.randrange(18)
            np.testing.assert_allclose(found.run(feeds(count, count))[0], wanted[count], rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(runs, range(6)))


def test_a_form_that_comes_again_and_again_gets_a_program() -> None:
    compiler = Counting()
    found = check(model_with(node("Concat", ["rows", "rows"], "z", axis=0), node("Exp", ["z"], "y")), compiler)
    before = len(compiler.graphs)
    wanted = found.run(feeds(12, 5))
    for _ in range(OFTEN + 1):
        found.run(feeds(12, 5))
    found._workshop.background.wait()
    assert len(compiler.graphs) > before
    first = found._stages.first
    assert first is not None and first.rest is not None and len(first.rest.usual) == 1
    np.testing.assert_allclose(found.run(feeds(12, 5))[0], wanted[0], rtol=1e-6)
    made = len(compiler.graphs)
    for count in (12, 7, 12, 9):
        found.run(feeds(count, count))
    assert len(compiler.graphs) == made


def test_forms_that_have_nothing_in_common() -> None:
    def form(*shapes: tuple[int, ...]) -> Form:
        return Form({f"x{n}": shape for n, shape in enumerate(shapes)}, {}, {})

    found = OpenForm.of([form((3, 4), (3,)), form((5, 4), (5,))])
    assert found is not None and found.dims == {"x0": ("data0", 4), "x1": ("data0",)}
    values = {"x0": np.zeros((7, 4)), "x1": np.zeros(7)}
    assert found.extents(values) == {"data0": 7}
    for other in ({"x0": np.zeros((7, 4)), "x1": np.zeros(8)}, {"x0": np.zeros((7, 5)), "x1": np.zeros(7)},
                  {"x0": np.zeros(7), "x1": np.zeros(7)}):  # fmt: skip
        assert found.extents(other) is None
    split = OpenForm.of([form((3, 4), (3,)), form((5, 4), (5,)), form((6, 4), (2,))])
    assert split is not None and split.dims == {"x0": ("data0", 4), "x1": ("data1",)}
    assert found.extents({"x0": np.zeros((0, 4)), "x1": np.zeros(0)}) == {"data0": 0}
    for others in (form((3, 4), (3,)), form((3, 4, 1), (3,)), form((3, 4))):
        assert OpenForm.of([form((3, 4), (3,)), others]) is None


def random_tail(r: random.Random) -> onnx.ModelProto:
    """Some operators on the rows, each on what those before it gave."""
    nodes: list[onnx.NodeProto] = []
    values = ["rows"]
    if r.random() < 0.6:  # then it takes a program
        nodes.append(node("MatMul", ["rows", "weights"], "wide"))
        values.append("wide")
    for number in range(r.randint(1, 6)):
        x, name = r.choice(values[-2:]), f"v{number}"
        op = r.choice(("Relu", "Softmax", "Add", "Sum", "Mean", "Concat", "Beside", "Cut", "Best", "Again", "Wide",
                       "Cumulated", "Turned", "Reshaped"))  # fmt: skip
        if op == "Relu":
            nodes.append(node("Relu", [x], name))
        elif op == "Softmax":
            nodes.append(node("Softmax", [x], name, axis=r.choice((0, 1))))
        elif op == "Add":
            nodes.append(node("Add", [x, x], name))
        elif op in ("Sum", "Mean"):
            axis = r.choice((0, 1))
            nodes.append(node("ReduceMax" if op == "Sum" else "ReduceMean", [x], name, axes=[axis], keepdims=1))
            nodes.append(node("Sub", [x, name], f"{name} less"))
            name = f"{name} less"
        elif op == "Concat":
            nodes.append(node("Concat", [x, x], name, axis=0))
        elif op == "Beside":
            nodes.append(node("Concat", [x, x], name, axis=1))
        elif op == "Cut":
            nodes.append(node("Slice", [x, "none", "three", r.choice(("none", "one"))], name))
        elif op == "Best":
            nodes.append(helper.make_node("TopK", [x, "one"], [name, f"{name} order"], axis=r.choice((0, 1))))
        elif op == "Again":
            nodes += [node("Greater", [x, "zero"], f"{name} m"), node("NonZero", [f"{name} m"], f"{name} n"),
                      node("Transpose", [f"{name} n"], f"{name} t"), node("GatherND", [x, f"{name} t"], f"{name} g"),
                      node("Unsqueeze", [f"{name} g", "one"], name)]  # fmt: skip
        elif op == "Wide":
            nodes += [node("Shape", [x], f"{name} s"), node("ConstantOfShape", [f"{name} s"], f"{name} c"),
                      node("Sub", [f"{name} c", x], name)]  # fmt: skip
        elif op == "Cumulated":
            nodes.append(node("CumSum", [x, "none"], name))
        elif op == "Turned":
            nodes.append(node("Transpose", [x], name))
        else:
            nodes += [node("Reshape", [x, "all"], f"{name} flat"), node("Unsqueeze", [f"{name} flat", "one"], name)]
        values.append(name)
    return model_with(*nodes, outputs=(values[-1],))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_tails(seed: int) -> None:
    model = random_tail(random.Random(seed))
    reference, found = ReferenceEvaluator(model), staged(model, compiled)
    for count in (4, 6, 3, 6, 11, 2):
        try:
            with np.errstate(all="ignore"):
                wanted = list(reference.run(None, feeds(count, count)))
        except Exception:  # noqa: BLE001  of nothing there is no best, and no largest
            continue
        for one, other in zip(found.run(feeds(count, count), lambda _: None), wanted, strict=True):
            assert one.shape == other.shape, (count, one.shape, other.shape)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_bucketed_model_may_be_inside_and_around() -> None:
    model = model_with(node("MatMul", ["rows", "weights"], "y"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.initializer[[t.name for t in model.graph.initializer].index("table")]
    table = np.random.default_rng(3).standard_normal((64, WIDTH)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    found = BucketedModel(open_model(model.SerializeToString()), Making(Counting(), target=TARGET), TARGET)
    reference = ReferenceEvaluator(model)
    for count, length in ((4, 40), (6, 41), (3, 64), (11, 17), (9, 40)):
        given = {"x": np.resize(feeds(count)["x"], length)}
        wanted = list(reference.run(None, given))
        np.testing.assert_allclose(found.run(given)[0], wanted[0], rtol=1e-4, atol=1e-4)
