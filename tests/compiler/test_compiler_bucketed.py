"""Models that run in padded shapes and in pieces give what they give in exact ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.api.session import InferenceSession
from autotune.compiler.axes import Axes
from autotune.compiler.bucketed import BucketedModel
from autotune.compiler.buckets import enough, padded_size, padding_cost, pieces
from autotune.compiler.prepared import PreparedModel
from autotune.compiler.sizes import Sizes
from autotune.compiler.specialisation import Step
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.errors import AutotuneError, InputError
from autotune.graph import evaluate, open_model
from autotune.graph.evaluate import evaluate_node
from autotune.graph.ir import Node, Value
from autotune.ops import parse_workload
from autotune.target import Target
from autotune.tensor.dtype import DType
from tests.compiler.test_compiler_staged import TARGET, Counting, data, model_of
from tests.compiler.test_compiler_staged_damage import compiled
from tests.property.random_open_model import random_open_model

pytestmark = pytest.mark.usefixtures("kept")

Array = np.ndarray[Any, Any]
EXTENTS = ((1, 1), (2, 19), (5, 17), (3, 33))


def feeds(batch: int, length: int) -> dict[str, Array]:
    rng = np.random.default_rng(batch * 100 + length)
    return {"x": rng.standard_normal((batch, length, 4)).astype(np.float32),
            "m": rng.standard_normal((batch, length)).astype(np.float32)}  # fmt: skip


def watch(step: Step) -> None:
    """Runs that somebody watches go program by program: these here are evaluated by NumPy."""


def check(seed: int) -> tuple[str, ...]:
    """All three ways to run a random model agree; the dimensions that need not be exact."""
    source = random_open_model(seed)
    try:
        exact = StagedModel(open_model(source), Making(compiled))
        wanted = [exact.run(feeds(*extents), watch) for extents in EXTENTS]
    except (AutotuneError, RecursionError):
        return ()  # no model at all
    bucketed = BucketedModel(open_model(source), Making(compiled), TARGET)
    prepared = PreparedModel(open_model(source), Making(compiled))
    for (batch, length), right in zip(EXTENTS, wanted):
        prepared.prepare({"b": batch, "l": length})
        for model in (bucketed, prepared):
            for one, other in zip(model.run(feeds(batch, length), watch), right, strict=True):
                assert one.shape == other.shape and one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5, err_msg=str(seed))
    return tuple(axis.symbol for axis in bucketed.axes.open.free)


def test_random_models_give_the_same_in_buckets() -> None:
    free = [check(seed) for seed in range(50)]
    assert sum("l" in symbols for symbols in free) > 8
    assert sum("b" in symbols for symbols in free) > 8


def test_nobody_reads_what_kernels_leave_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even numbers stand behind the ends of results whose rest is left."""
    left = 0

    def evaluated(node: Node, types: Sequence[Value], arrays: Sequence[Array], dtype: DType | None = None) -> Array:
        nonlocal left
        found = evaluate_node(node, types, arrays, dtype)
        if ("rest", "any") in node.attrs and found.dtype.kind == "f":
            behind = [slice(None)] * found.ndim
            behind[int(node.number("axis"))] = slice(int(arrays[1]), None)
            left += found[tuple(behind)].size
            found[tuple(behind)] = np.nan
        return found

    monkeypatch.setattr(evaluate, "evaluate_node", evaluated)
    free = [check(seed) for seed in range(50, 80)]
    assert sum("l" in symbols for symbols in free) > 4
    exact = StagedModel(open_model(attention().SerializeToString()), Making(compiled))
    model = BucketedModel(open_model(attention().SerializeToString()), Making(compiled), SIZED)
    model.prepare({"batch": 2, "length": 64})
    for batch, length in ((1, 64), (2, 37), (5, 9), (1, 1)):
        x = data(batch, length, 16, seed=length)
        for one, other in zip(model.run({"x": x}, watch), exact.run({"x": x}, watch), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert left > 0


def test_padding_adds_a_sixteenth_at_most_and_pieces_are_the_whole() -> None:
    for extent in range(1, 600):
        for cost in (1.0, 0.5, 0.1):
            size = padded_size(extent, cost)
            assert extent <= size <= extent * (1 + 1 / 16 / cost) or size == extent
            assert padded_size(size, cost) == size
        for most in (1, 4, 64):
            found = pieces(extent, most)
            assert sum(found) == extent and max(found) <= most
            assert all(n & (n - 1) == 0 for n in found) and found == sorted(found, reverse=True)
            found = pieces(extent, most, whole=True)
            assert sum(found) == extent and set(found[:-1]) <= {most} and found[-1] <= most


def test_a_piece_is_as_large_as_hides_reading_the_weights() -> None:
    assert enough(1.0, 1 / 32) == 1
    assert enough(0.1, 0.1) == 16
    assert enough(0.1, 0.11) == 32
    assert enough(0.1, 0.0) == enough(0.0, 0.0) == 1


def attention() -> onnx.ModelProto:
    """Attention among the tokens of each sentence, then a pooled row of each."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
        helper.make_node("ReduceMax", ["y"], ["z"], axes=[1], keepdims=0),
    ]
    return model_of(nodes, {"x": (TensorProto.FLOAT, ["batch", "length", 16])}, ("y", "z"), {"w": data(16, 16)})


@pytest.fixture(autouse=True)
def a_core_that_runs_leave_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.machine.allowed_cores", lambda: 2)


SIZED = Target.parse("x86 -mcpu=znver5 -num-cores=1")
"""For what sizes are chosen: what is hidden behind what differs from CPU to CPU."""


def bucketed(counting: Counting) -> BucketedModel:
    source = open_model(attention().SerializeToString())
    return BucketedModel(source, Making(counting), SIZED)


def test_shapes_in_one_bucket_have_one_program() -> None:
    counting = Counting()
    model = bucketed(counting)
    exact = StagedModel(open_model(attention().SerializeToString()), Making(Counting()))
    for length in (100, 97, 99):
        x = data(1, length, 16, seed=length)
        for one, other in zip(model.run({"x": x}), exact.run({"x": x}), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert len(counting.graphs) == 1
    (use,) = model.shapes()
    assert use.inputs["x"] == (1, 128, 16) and use.runs == 3 and use.seconds > 0
    assert use.own_bytes == use.weight_bytes > 0 and "3 runs" in str(use)


def test_a_larger_program_answers_while_a_better_one_is_made() -> None:
    counting = Counting()
    model = bucketed(counting)
    model.prepare({"batch": 1, "length": 112})
    x = data(1, 9, 16)
    before = model.run({"x": x})
    model.wait()
    assert len(counting.graphs) == 1  # it may never come again
    model.run({"x": x})
    model.wait()
    sizes = [graph.inputs[0].shape for graph in counting.graphs]
    assert sizes[0] == (1, 128, 16) and len(sizes) == 2 and 9 <= sizes[1][1] < 64
    for one, other in zip(model.run({"x": x}), before, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert [use.runs for use in model.shapes()] == [2, 1]


def test_on_the_core_of_runs_a_program_is_made_when_as_much_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.machine.allowed_cores", lambda: 1)
    counting = Counting()
    model = bucketed(counting)
    model.prepare({"batch": 1, "length": 112})
    x, lost = data(1, 9, 16), 0.0
    model._took = 1.0
    model.run({"x": x})
    (lost,) = model._lost.values()
    assert 0 < lost < 1
    model._took = 2.5 * lost
    for made in (1, 2):  # by the second and the third run
        model.run({"x": x})
        model.wait()
        assert len(counting.graphs) == made


def test_what_padding_costs_no_exact_program_tells() -> None:
    """Its kernels have no ends: by them, padding would cost as much as all else, and each length have a program."""
    exact = StagedModel(open_model(attention().SerializeToString()), Making(Counting()))
    program = exact.prepare({"batch": 1, "length": 100})
    model = bucketed(Counting())
    assert program is not None
    kernels = [kernel.workload for kernel in program.kernels]
    model.expect({"batch": 1, "length": 100}, kernels, 1.0)
    assert padding_cost(kernels, SIZED) == 1.0 > model._sizes.padding and model._sizes.density is not None
    model.run({"x": data(1, 97, 16)})
    (padded,) = (one for one in model._made.values() if one is not None)
    assert model._sizes.padding == padding_cost([kernel.workload for kernel in padded.kernels], SIZED) < 1


def test_a_program_is_larger_for_less_where_its_kernels_end_with_the_run() -> None:
    ends = parse_workload("matmul a=1,64,8 b=8,8 + until end=scalar:i64 axis=1")
    keys = parse_workload("attention q=1,2,8,8 k=1,2,8,8 v=1,2,8,8 lengths=1:i64 extras=lengths q_heads=2 kv_heads=2")
    whole = parse_workload("matmul a=1,64,8 b=8,8")
    assert padding_cost([whole], SIZED) == padding_cost([], SIZED) == 1.0
    assert padding_cost([ends, keys], SIZED) < 0.3 < padding_cost([ends, whole], SIZED) < 1.0


def test_a_piece_runs_as_several_where_that_spares_a_wait() -> None:
    counting = Counting()
    model = bucketed(counting)
    model.prepare({"batch": 1, "length": 16})
    x = data(3, 16, 16)
    exact = StagedModel(open_model(attention().SerializeToString()), Making(Counting()))
    for _ in range(3):  # in three runs, twice, then in one
        for one, other in zip(model.run({"x": x}), exact.run({"x": x}), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        model.wait()
    assert [use.runs for use in model.shapes()] == [6, 1]


def test_a_program_is_larger_for_less_where_reading_the_weights_takes_most_of_the_time() -> None:
    axes = Axes.of(open_model(attention().SerializeToString())).open
    small, large = (Sizes(axes, SIZED, 0.1, 1e3, nbytes) for nbytes in (0, 10**9))
    wanted, made = (1, 16), (1, 64)
    assert small.seconds(made, wanted) / small.seconds(wanted, wanted) == pytest.approx(1.3)
    assert large.seconds(made, wanted) / large.seconds(wanted, wanted) < 1.001


def test_pieces_are_no_answer_where_they_take_longer_than_a_program_to_be_made() -> None:
    def runs(nbytes: int) -> list[int]:
        model = bucketed(Counting())
        model.prepare({"batch": 1, "length": 16})
        model._sizes, model._took = replace(model._sizes, weight_bytes=nbytes, density=1e3), 1.0
        for _ in range(2):
            model.run({"x": data(4, 16, 16)})
        model.wait()
        return [use.runs for use in sorted(model.shapes(), key=lambda use: use.inputs["x"])]

    assert runs(10**5) == [8, 0]
    assert runs(10**14) == [0, 2]


def test_what_a_bucket_cannot_run_runs_as_it_is() -> None:
    """A table shorter than the bucket, longer than the run."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Slice", ["t", "zero", "n", "zero"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    tensors = {"t": data(33, 4), "one": np.ones(1, np.int64), "zero": np.zeros(1, np.int64)}
    proto = model_of(nodes, {"x": (TensorProto.FLOAT, ["batch", "length", 4])}, tensors=tensors)
    source = open_model(proto.SerializeToString())
    model = BucketedModel(source, Making(Counting()), TARGET)
    assert [axis.symbol for axis in Axes.of(source).open.free] == ["length", "batch"]
    x = data(2, 33, 4)
    np.testing.assert_array_equal(model.run({"x": x})[0], x + tensors["t"])
    with pytest.raises(AutotuneError):
        model.run({"x": data(2, 34, 4)})


def test_a_prepared_model_refuses_other_shapes() -> None:
    counting = Counting()
    model = PreparedModel(open_model(attention().SerializeToString()), Making(counting))
    with pytest.raises(InputError, match=r"batch = 2, length = 3 .*prepared: none"):
        model.run({"x": data(2, 3, 16)})
    model.prepare({"batch": 2, "length": 3})
    assert len(model.run({"x": data(2, 3, 16)})) == 2
    with pytest.raises(InputError, match=r"prepared: batch = 2, length = 3"):
        model.run({"x": data(2, 4, 16)})
    with pytest.raises(InputError, match="an extent is missing"):
        model.prepare({"batch": 2})
    assert len(counting.graphs) == 1


def test_sessions_have_the_policies() -> None:
    source = attention().SerializeToString()
    x = data(2, 41, 16)
    right = InferenceSession(source, target=TARGET, database=False).run(None, {"x": x})
    session = InferenceSession(source, target=TARGET, database=False, on_new_shape="bucket")
    for one, other in zip(session.run(None, {"x": x}), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    (use,) = session.shapes()
    assert use.inputs["x"][0] <= 2 and use.inputs["x"][1] >= 41
    strict = InferenceSession(source, target=TARGET, database=False, on_new_shape="error")
    strict.prepare(batch=2, length=41)
    np.testing.assert_array_equal(strict.run(["z"], {"x": x})[0], right[1])
    with pytest.raises(InputError, match="on_new_shape is one of auto, compile, bucket, error"):
        InferenceSession(source, on_new_shape="guess")


def test_the_last_elements_are_those_before_the_padding() -> None:
    """As exporters write the last token of a prompt."""
    last = [helper.make_node("Gather", ["p", "minus"], ["a"], axis=1),
            helper.make_node("Slice", ["p", "minus1", "far", "one"], ["b"])]  # fmt: skip
    nodes = [helper.make_node("Softmax", ["x"], ["p"], axis=1), *last]
    tensors = {
        "minus": np.asarray(-1),
        "minus1": np.asarray([-1]),
        "far": np.asarray([2**63 - 1]),
        "one": np.asarray([1]),
    }
    made = model_of(nodes, {"x": (TensorProto.FLOAT, [2, "l", 3])}, ["a", "b"], tensors)
    compiler = Counting()
    found = BucketedModel(open_model(made.SerializeToString()), Making(compiler), TARGET)
    for length in (13, 16, 9, 1):
        x = data(2, length, 3, seed=length)
        shares = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        a, b = found.run({"x": x})
        np.testing.assert_allclose(a, shares[:, -1], rtol=1e-5)
        np.testing.assert_allclose(b, shares[:, -1:], rtol=1e-5)
    assert len(compiler.graphs) == 1
