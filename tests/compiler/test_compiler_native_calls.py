"""Calls that native code takes together give, run after run, what they give one by one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autotune.api.session import InferenceSession
from autotune.compiler import native_calls
from autotune.compiler.host import prepared
from autotune.compiler.host_steps import HostSteps
from autotune.compiler.native_calls import LEAST_ROOM
from autotune.compiler.native_rows import NotNative
from autotune.compiler.specialisation import HostCall
from autotune.compiler.staged import StagedModel
from autotune.errors import AutotuneError, InputError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.ir import Array

Values = dict[str, Any]


def node(op: str, reads: Sequence[str], result: str, **attributes: Any) -> NodeAttributes:
    return NodeAttributes(helper.make_node(op, list(reads), [result], **attributes), 18, None)


def steps(nodes: Sequence[NodeAttributes], constants: Mapping[str, Array], wanted: frozenset[str]) -> HostSteps:
    calls = [
        HostCall(
            one, prepared(one), tuple(one.proto.input),
            {name: constants[name] for name in one.proto.input if name in constants}, tuple(one.proto.output),
        )
        for one in nodes
    ]  # fmt: skip
    return HostSteps(calls, [call.bind({}, ()) for call in calls], {}, wanted)


ONE, ROW, FLAT = np.asarray([1]), np.asarray(0), np.asarray([-1])
CHAIN = (
    node("Gather", ["found", "row"], "first"),
    node("Reshape", ["first", "flat"], "places"),
    node("Gather", ["x", "places"], "rows"),
    node("Transpose", ["found"], "pairs"),
    node("GatherND", ["x", "pairs"], "each"),
    node("Unsqueeze", ["each", "one"], "column"),
    node("Unsqueeze", ["places", "one"], "targets"),
    node("ScatterND", ["x", "targets", "rows"], "added", reduction="add"),
    node("ScatterND", ["added", "targets", "rows"], "twice", reduction="add"),
    node("ScatterND", ["twice", "targets", "rows"], "end"),
    node("Squeeze", ["column", "one"], "back"),
)
CONSTANTS = {"one": ONE, "row": ROW, "flat": FLAT}
WANTED = frozenset({"rows", "column", "end", "targets", "back"})


def compare(nodes: Sequence[NodeAttributes], runs: Sequence[Values], wanted: frozenset[str]) -> HostSteps:
    """All runs, and all of them again, by native code where that takes them."""
    one = steps(nodes, CONSTANTS, wanted)
    for feeds in [*runs, *runs]:
        values, others = dict(feeds), dict(feeds)
        one.run(values)
        steps(nodes, CONSTANTS, frozenset()).run(others)  # its first run is call by call
        for name in wanted:
            np.testing.assert_array_equal(values[name], others[name])
            assert (values[name].dtype, values[name].flags.c_contiguous) == (others[name].dtype, True)
        for name, array in feeds.items():
            assert values[name] is array
    return one


def found(rng: np.random.Generator, count: int) -> Array:
    return np.stack([rng.permutation(24)[:count], rng.integers(0, 5, count)])


def taken(one: HostSteps, feeds: Values, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether native code takes a run."""
    ran, took = native_calls._Plan.run, list[bool]()

    def run(plan: native_calls._Plan, values: Values) -> bool:
        took.append(ran(plan, values))
        return took[-1]

    with monkeypatch.context() as patch:
        patch.setattr(native_calls._Plan, "run", run)
        one.run(dict(feeds))
    return took == [True]


def test_rows_of_other_numbers_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    runs = [
        {"x": rng.standard_normal((24, 5)).astype(np.float32), "found": found(rng, n)}
        for n in (3, 7, 5, 4, 0, 1, 20, 24)
    ]
    one = compare(CHAIN, runs, WANTED)
    assert all(taken(one, feeds, monkeypatch) for feeds in runs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_places_that_are_named_twice_or_counted_from_the_end(dtype: type) -> None:
    rng = np.random.default_rng(1)
    runs = []
    for n in (9, 4, 6, 5, 12):
        places = np.stack([rng.integers(-3, 3, n), rng.integers(-5, 5, n)])
        runs.append({"x": rng.integers(-9, 9, (3, 5)).astype(dtype), "found": places})
    compare([*CHAIN[:9], CHAIN[10]], runs, WANTED - {"end"} | {"twice"})


def test_places_outside_are_for_the_definition_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    runs = [{"x": rng.standard_normal((24, 5)), "found": found(rng, n)} for n in (3, 7, 5, 4, 6)]
    one = compare(CHAIN, runs, WANTED)
    wrong = {"x": runs[0]["x"], "found": np.asarray([[1, 24], [0, 0]])}
    for _ in range(2):
        with pytest.raises(AutotuneError):
            one.run(dict(wrong))
    assert taken(one, runs[0], monkeypatch)


def test_what_fits_no_guess_is_taken_one_by_one_and_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)

    def feeds(rows: int, count: int, dtype: type = np.float32) -> Values:
        return {"x": rng.standard_normal((rows, 5)).astype(dtype), "found": found(rng, count) % [[rows], [5]]}

    runs = [feeds(24, n) for n in (3, 7, 5, 4)]
    one = compare(CHAIN, runs, WANTED)
    for odd in (feeds(30, 6), feeds(24, 3, np.float64), {**runs[0], "x": runs[0]["x"][::-1, ::-1]}):
        values, others = dict(odd), dict(odd)
        one.run(values)
        steps(CHAIN, CONSTANTS, frozenset()).run(others)
        np.testing.assert_array_equal(values["end"], others["end"])
    assert taken(one, feeds(30, 9), monkeypatch) and taken(one, feeds(24, 9), monkeypatch)


def test_few_operators_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    runs = [{"x": rng.standard_normal((24, 5)), "found": found(rng, n)} for n in (3, 7, 5, 4)]
    assert not taken(compare(CHAIN[:3], runs, frozenset({"rows"})), runs[0], monkeypatch)


def test_nothing_that_somebody_reads_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what the data of a ScatterND was before, nor its other readers' copy."""
    monkeypatch.setattr(native_calls, "LEAST_CALLS", 2)
    nodes = [
        node("Gather", ["x", "places"], "rows"),
        node("ScatterND", ["rows", "targets", "more"], "added", reduction="add"),
        node("ScatterND", ["rows", "targets", "more"], "again", reduction="add"),
    ]
    rng = np.random.default_rng(4)
    runs = [
        {"x": rng.standard_normal((6, 3)), "places": rng.integers(0, 6, n), "targets": rng.integers(0, n, (2, 1)),
         "more": rng.standard_normal((2, 3))}
        for n in (4, 5, 8, 3)
    ]  # fmt: skip
    compare(nodes, runs, frozenset({"rows", "added", "again"}))
    compare(nodes[:2], runs, frozenset({"rows", "added"}))
    assert taken(compare(nodes[:2], runs, frozenset({"added"})), runs[0], monkeypatch)


def test_there_is_no_room_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.compiler.native_rows.MOST_BYTES", 256)
    rng = np.random.default_rng(5)
    runs = [{"x": rng.standard_normal((24, 5)), "found": found(rng, n)} for n in (3, 7, 5, 4)]
    assert not taken(compare(CHAIN, runs, WANTED), runs[0], monkeypatch)


def test_few_views_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "MOST_VIEWS", 2)
    rng = np.random.default_rng(6)
    compare(CHAIN, [{"x": rng.standard_normal((24, 5)), "found": found(rng, n)} for n in range(3, 10)], WANTED)


def test_what_cannot_be_made_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs do not move rows in vain up to a program that there will never be."""
    rng = np.random.default_rng(9)
    runs = [{"x": rng.standard_normal((24, 5)), "found": found(rng, n)} for n in (3, 7, 5, 4, 6)]

    def make(plan: native_calls._Plan, values: Values) -> None:
        raise NotNative

    monkeypatch.setattr(native_calls._Plan, "make", make)
    assert not taken(compare(CHAIN, runs, WANTED), runs[0], monkeypatch)


def test_after_many_forms_what_was_learned_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "MOST_FORMS", 4)
    rng = np.random.default_rng(10)
    runs = [{"x": rng.standard_normal((24, 5)), "found": found(rng, n)} for n in (3, 7, 5, 4, 6)]
    one = compare(CHAIN, runs, WANTED)
    wide = [{"x": rng.standard_normal((24 + n, 5)), "found": found(rng, n)} for n in range(4)]
    for feeds in wide:
        one.run(dict(feeds))
    assert all(taken(one, feeds, monkeypatch) for feeds in [*runs, *wide])  # the first of them was learned from


def mixture(experts: int, tokens: int, width: int) -> onnx.ModelProto:
    """A layer whose experts each take the tokens that chose them."""
    rng = np.random.default_rng(7)
    weights = {f"w{n}": rng.standard_normal((width, width)).astype(np.float32) for n in range(experts)}
    constants = {**weights, "none": np.asarray(0, np.float32), "one": ONE, "flat": FLAT, "row": ROW,
                 **{f"number{n}": np.asarray(n) for n in range(experts)}}  # fmt: skip
    nodes, total = [helper.make_node("Mul", ["x", "none"], ["total"])], "total"
    for n in range(experts):
        parts = [
            ("Equal", ["chosen", f"number{n}"], "mask"), ("NonZero", ["mask"], "found"),
            ("Gather", ["found", "row"], "first"), ("Reshape", ["first", "flat"], "places"),
            ("Gather", ["x", "places"], "rows"), ("MatMul", ["rows", f"w{n}"], "result"),
            ("Transpose", ["found"], "pairs"), ("GatherND", ["share", "pairs"], "each"),
            ("Unsqueeze", ["each", "one"], "column"), ("Mul", ["result", "column"], "shared"),
            ("Unsqueeze", ["places", "one"], "targets"),
        ]  # fmt: skip
        inner = {result for _, _, result in parts}
        for op, reads, result in parts:
            names = [f"{name}_{n}" if name in inner else name for name in reads]
            nodes.append(helper.make_node(op, names, [f"{result}_{n}"]))
        reads = [total, f"targets_{n}", f"shared_{n}"]
        total = f"total_{n}"
        nodes.append(helper.make_node("ScatterND", reads, [total], reduction="add"))
    inputs = {"x": (TensorProto.FLOAT, (tokens, width)), "share": (TensorProto.FLOAT, (tokens, 2)),
              "chosen": (TensorProto.INT64, (tokens, 2))}  # fmt: skip
    graph = helper.make_graph(
        nodes, "mixture", [helper.make_tensor_value_info(n, t, f) for n, (t, f) in inputs.items()],
        [helper.make_tensor_value_info(total, TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


EXPERTS, TOKENS, WIDTH = 3, 20, 8


def drawn(rng: np.random.Generator, share: Sequence[float] | None = None) -> dict[str, Array]:
    """Feeds of a mixture. `share`: of tokens that each expert takes."""
    return {
        "x": rng.standard_normal((TOKENS, WIDTH)).astype(np.float32),
        "share": rng.random((TOKENS, 2)).astype(np.float32),
        "chosen": rng.choice(EXPERTS, (TOKENS, 2), p=share),
    }


class Ran:
    """A session of a mixture, and how its runs went."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, max_memory: int) -> None:
        model, self.took = mixture(EXPERTS, TOKENS, WIDTH), Counter[bool]()
        self.evaluator = ReferenceEvaluator(model)
        self.session = InferenceSession(
            model.SerializeToString(), target="native -num-cores=1", database=False, max_memory=max_memory
        )
        ran = native_calls._Plan.run

        def run(plan: native_calls._Plan, values: Values) -> bool:
            found = ran(plan, values)
            self.took[found] += 1
            return found

        monkeypatch.setattr(native_calls._Plan, "run", run)

    def check(self, feeds: Mapping[str, Array]) -> Array:
        (wanted,) = map(np.asarray, self.evaluator.run(None, dict(feeds)))
        found: Array = self.session.run(None, feeds)[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        return found

    def wait(self) -> None:
        """Until no program is being made."""
        model = self.session._model
        assert isinstance(model, StagedModel)
        for opened in (call for special in model._workshop.cache.values() for call in special.opened):
            opened.model.wait()
        model.wait()

    def moved(self) -> int:
        """Bytes in which rows are moved, of all ways together."""
        return sum(use.arena_bytes for use in self.session.shapes() if not use.weight_bytes)


@pytest.fixture(scope="module")
def settled() -> Iterator[Ran]:
    """A session whose programs are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autotune.machine.allowed_cores", lambda: 2)  # on the core of runs programs are made later
        rng, one = np.random.default_rng(11), Ran(patch, 2**24)
        for _ in range(32):
            one.check(drawn(rng))
        assert one.took[True] > 8
        yield one


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_mixture_of_experts(settled: Ran, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(4):
        feeds = drawn(rng)
        kept = settled.check(feeds)
        wanted = kept.copy()
        settled.check({**feeds, "x": -feeds["x"]})
        np.testing.assert_array_equal(kept, wanted)  # nobody writes over a result


def test_an_expert_that_nobody_chose_has_nothing_to_compute(settled: Ran) -> None:
    rng = np.random.default_rng(12)
    feeds = [drawn(rng, shares) for shares in ([0.0, 0.5, 0.5], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]) * 2]
    for _ in range(4):  # what is wanted a second time is made
        for one in feeds:
            settled.check(one)
            settled.wait()
    before = settled.took[False]
    for one in feeds:
        settled.check(one)
    assert settled.took[False] == before


def test_inputs_that_are_not_contiguous_and_one_for_all(settled: Ran) -> None:
    rng = np.random.default_rng(13)
    for _ in range(3):
        feeds = drawn(rng, [1.0, 0.0, 0.0])  # more than there was room for
        settled.check({**feeds, "x": np.asfortranarray(feeds["x"])})
        feeds = drawn(rng)
        settled.check({**feeds, "x": np.repeat(feeds["x"], 2, 1)[:, ::2], "chosen": feeds["chosen"][::-1]})
        settled.check({**feeds, "share": np.broadcast_to(np.float32(0.5), (TOKENS, 2))})


def test_threads_may_run_one_session_at_once(settled: Ran) -> None:
    wrong: list[BaseException] = []

    def runs(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(10):
                settled.check(drawn(rng))
        except BaseException as error:  # noqa: BLE001  told by the thread that waits
            wrong.append(error)

    threads = [threading.Thread(target=runs, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_in_which_rows_are_moved_is_the_session_s(settled: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of `max_memory` beside the programs bounds it; without room, operators run one by one."""
    taken = settled.moved()
    assert 2 * EXPERTS * LEAST_ROOM * WIDTH * 4 < taken < 2**24
    rng, few = np.random.default_rng(14), Ran(monkeypatch, 4352)
    for _ in range(8):
        few.check(drawn(rng))
    assert not few.took[True] and not few.moved()


INDEXED = {
    "Gather": helper.make_node("Gather", ["x", "places"], ["y"], "bad"),
    "GatherND": helper.make_node("GatherND", ["x", "targets"], ["y"], "bad"),
    "ScatterND": helper.make_node("ScatterND", ["x", "targets", "rows"], ["y"], "bad"),
    "add": helper.make_node("ScatterND", ["x", "targets", "rows"], ["y"], "bad", reduction="add"),
}


@pytest.mark.parametrize("kind", INDEXED)
def test_places_outside_are_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "LEAST_CALLS", 2)
    parts = [
        ("NonZero", ["mask"], "found"), ("Gather", ["found", "row"], "first"), ("Gather", ["at", "first"], "places"),
        ("Gather", ["x", "first"], "rows"), ("Unsqueeze", ["places", "one"], "targets"),
    ]  # fmt: skip
    nodes = [helper.make_node(op, reads, [result]) for op, reads, result in parts]
    inputs = {"x": (TensorProto.FLOAT, (8, 3)), "mask": (TensorProto.BOOL, (8,)), "at": (TensorProto.INT64, (8,))}
    graph = helper.make_graph(
        [*nodes, INDEXED[kind]], "indexed", [helper.make_tensor_value_info(n, t, f) for n, (t, f) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session, evaluator = InferenceSession(model.SerializeToString(), database=False), ReferenceEvaluator(model)
    rng = np.random.default_rng(15)
    for n in range(8):
        feeds = {"x": rng.random((8, 3), np.float32), "mask": rng.random(8) < n / 6 + 0.1, "at": rng.integers(-8, 8, 8)}
        (wanted,) = map(np.asarray, evaluator.run(None, feeds))
        np.testing.assert_allclose(session.run(None, feeds)[0], wanted)
    for place in (8, -9, 2**62, -(2**63)):
        at, last = feeds["at"].copy(), session.run(None, feeds)[0]
        at[5] = place
        with pytest.raises(InputError, match=rf"^node 'bad' .*is outside of -8..7; give others \({place} is one\)$"):
            session.run(None, {**feeds, "mask": np.ones(8, bool), "at": at})
        np.testing.assert_array_equal(session.run(None, feeds)[0], last)
