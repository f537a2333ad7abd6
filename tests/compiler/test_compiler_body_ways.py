"""Loops whose steps decide what runs: native code goes from program to program, to what onnx's reference gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autotune.compiler import body_ways, native_steps
from autotune.compiler.native_steps import Taken
from autotune.compiler.specialisation import ProgramStep, Step
from autotune.compiler.staged import StagedModel
from autotune.errors import InputError, ModelError
from autotune.target import Target
from tests.compiler.test_compiler_fixed_loop import ready
from tests.compiler.test_compiler_loops import BOOL, FLOAT, INT, graph, loop, scalar
from tests.compiler.test_compiler_staged import Array, data, model_of

pytestmark = pytest.mark.usefixtures("kept")

Node = onnx.NodeProto
ZERO = np.asarray(0, np.float32)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Node:
    """Names are parted by blanks."""
    return helper.make_node(op, inputs.split(), outputs.split(), name=outputs, **attributes)


def choice(condition: str, then: Sequence[Node], other: Sequence[Node], result: str) -> Node:
    """An If that gives what the last node of a branch does."""
    branches = [graph(nodes, [], [nodes[-1].output[0]]) for nodes in (then, other)]
    return node("If", condition, result, then_branch=branches[0], else_branch=branches[1])


def looped(
    nodes: Sequence[Node], carried: Mapping[str, str], collected: str = "", goes_on: str = "go", extent: int = 5,
    tensors: Mapping[str, Array] | None = None, starts: Mapping[str, tuple[int, Any]] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A Loop of `n` steps; `carried` are the body's inputs and results. The body reads `x` from around it."""
    body = graph(nodes, ["i", "go", *carried], [goes_on, *carried.values(), *collected.split()], tensors)
    ends = [f"end{n}" for n in range(len(carried))] + [f"all{n}" for n in range(len(collected.split()))]
    forms: dict[str, tuple[int, Any]] = {"n": (INT, []), "x": (FLOAT, [extent])}
    forms.update({f"{name}0": (FLOAT, [extent]) for name in carried})
    forms.update(starts or {})
    around = [loop(body, ["n", "", *(f"{name}0" for name in carried)], ends), node("Add", "x x", "x2")]
    return model_of(around, forms, ends)


def feeds(model: onnx.ModelProto, steps: int, seed: int = 0, **more: Array) -> dict[str, Array]:
    found: dict[str, Array] = {"n": scalar(steps), **more}
    for number, info in enumerate(model.graph.input):
        if info.name not in found:
            found[info.name] = data(*(d.dim_value for d in info.type.tensor_type.shape.dim), seed=seed + number)
    return found


def expected(model: onnx.ModelProto, given: Mapping[str, Array]) -> list[Array]:
    """What the first node gives, a Loop or a Scan: onnx's reference runs the body, since it joins what steps collect
    otherwise than ONNX says."""
    around = model.graph.node[0]
    (body,) = (a.g for a in around.attribute if a.name == "body")
    inputs, outputs = [info.name for info in body.input], [info.name for info in body.output]
    free = [name for name in given if name not in inputs]
    own = graph(body.node, [*inputs, *free], outputs)
    own.initializer.extend(body.initializer)
    run: Any = ReferenceEvaluator(helper.make_model(own, opset_imports=model.opset_import))
    scans = around.op_type == "Scan"
    first = 0 if scans else 2
    carried = [given[name] for name in around.input[first:] if name != "cs"]
    steps = len(given["cs"]) if scans else int(given["n"])
    collected: list[list[Array]] = [[] for _ in range(len(outputs) - (not scans) - len(carried))]
    go, step = np.asarray(True), 0
    while step < steps and go:
        values: list[Any] = [*carried, given["cs"][step]] if scans else [np.asarray(step), go, *carried]
        results: Any = run.run(None, {**{name: given[name] for name in free}, **dict(zip(inputs, values))})
        if not scans:
            go, results = results[0], results[1:]
        carried, step = results[: len(carried)], step + 1
        for found, part in zip(collected, results[len(carried) :]):
            found.append(part)
    turned = next((list(a.ints) for a in around.attribute if a.name == "scan_output_directions"), [0] * len(collected))
    return [*carried, *(np.stack(parts[::-1] if back else parts) for parts, back in zip(collected, turned))]


def check(
    model: onnx.ModelProto, runs: Sequence[Mapping[str, Array]], taken: list[Taken], left: bool = False, **more: Any
) -> StagedModel:
    """Every run gives what it should; twice, since the second one knows the ways of the first."""
    found = ready(model, **more)
    for given in runs:
        wanted = expected(model, given)
        for _ in range(2):
            for array, one in zip(found.run(given), wanted, strict=True):
                assert array.dtype == one.dtype
                np.testing.assert_allclose(array, one, rtol=1e-5, atol=1e-6)
    assert taken
    assert any(one.left for one in taken) is left
    return found


# h' = h + x where some sum is positive, else |h| - x
SUM = [node("ReduceSum", "h", "s", keepdims=0), node("Greater", "s zero", "pos")]
PLUS = [node("Add", "h x", "plus")]
MINUS = [node("Abs", "h", "size"), node("Sub", "size x", "minus")]
BODY = [*SUM, choice("pos", PLUS, MINUS, "h2"), node("Mul", "h2 h", "seen")]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("extent", [5, 20_000])  # small results are copied, large ones written where they belong
def test_a_branch_that_a_step_decides(threads: int, extent: int, taken: list[Taken]) -> None:
    made = looped(BODY, {"h": "h2"}, "seen h2 pos", tensors={"zero": ZERO}, extent=extent)
    runs = [feeds(made, steps, seed) for seed, steps in enumerate((1, 2, 7, 1, 130))]
    check(made, runs, taken, threads=threads)


def test_as_a_session_runs_it(taken: list[Taken]) -> None:
    made = looped(BODY, {"h": "h2"}, "seen", tensors={"zero": ZERO})
    runs = [feeds(made, 20, seed) for seed in range(3)]
    check(made, runs, taken, target=Target.parse("native -num-cores=1"))


def test_no_step_at_all(taken: list[Taken]) -> None:
    made = looped(BODY, {"h": "h2"}, tensors={"zero": ZERO})
    given = feeds(made, 0)
    (end,) = ready(made).run(given)
    np.testing.assert_array_equal(end, given["h0"])
    assert not taken


@pytest.mark.parametrize("last", [0, 3, 63, 64, 65, 700])
def test_a_branch_ends_it(last: int, taken: list[Taken]) -> None:
    """Only one of the branches asks whether to go on; room for what is collected grows on the way."""
    then = [node("Identity", "yes", "on1")]
    other = [node("Less", "i last", "on2")]
    nodes = [*SUM, choice("pos", then, other, "on"), node("Neg", "h", "h2")]  # the sign changes with every step
    tensors = {"zero": ZERO, "yes": scalar(True), "last": scalar(last)}
    made = looped(nodes, {"h": "h2"}, "i h2", goes_on="on", tensors=tensors)
    for sign in (1, -1):
        check(made, [feeds(made, 2000, h0=np.full(5, sign, np.float32))], taken)
    assert {len(one.collected[0]) for one in taken} <= {last + 1, last + 2}


def test_as_many_steps_as_there_may_be(taken: list[Taken]) -> None:
    body = graph(BODY, ["i", "go", "h"], ["go", "h2"], {"zero": ZERO})
    around = [loop(body, ["", "on", "h0"], ["end"])]
    made = model_of(around, {"h0": (FLOAT, [5]), "x": (FLOAT, [5]), "on": (BOOL, [])}, ["end"])
    with pytest.raises(InputError, match=r"'loop' \(Loop\): still going on after 1000 steps; raise max_loop_steps"):
        ready(made, max_loop_steps=1000).run({"h0": data(5), "x": data(5, seed=1), "on": scalar(True)})
    assert [one.steps for one in taken] == [1000]


def test_branches_in_branches_and_one_behind_another(taken: list[Taken]) -> None:
    inner = choice("big", [node("Mul", "h half", "less")], [node("Sub", "h x", "other")], "within")
    nodes = [
        *SUM,
        node("ReduceMax", "h", "top", keepdims=0),
        choice("pos", [node("Greater", "top one", "big"), inner], PLUS, "m"),
        node("ReduceMin", "m", "low", keepdims=0),
        node("Less", "low zero", "neg"),
        choice("neg", [node("Abs", "m", "a")], [node("Neg", "m", "b")], "h2"),
    ]
    tensors = {"zero": ZERO, "one": np.asarray(1, np.float32), "half": np.asarray(0.5, np.float32)}
    made = looped(nodes, {"h": "h2"}, "h2 m", tensors=tensors)
    check(made, [feeds(made, 50, seed) for seed in range(4)], taken)


def test_a_value_passes_through_a_branch(taken: list[Taken]) -> None:
    """As it was, or as a constant; two carried values change places meanwhile."""
    then = [node("Identity", "b", "same")]
    other = [node("Identity", "ones", "new")]
    nodes = [*SUM, choice("pos", then, other, "a2"), node("Sub", "h a", "h2")]
    tensors = {"zero": ZERO, "ones": np.ones(5, np.float32)}
    made = looped(nodes, {"h": "h2", "a": "a2", "b": "a"}, "a2 b", tensors=tensors)
    check(made, [feeds(made, 40, seed) for seed in range(4)], taken)


@pytest.mark.parametrize("where", ["carried", "scanned", "go"])
def test_conditions_that_nothing_computes(where: str, taken: list[Taken]) -> None:
    """The step begins with no program."""
    nodes = [choice("c", PLUS, MINUS, "h2")]
    if where == "carried":
        made = looped([*nodes, node("Not", "c", "d")], {"h": "h2", "c": "d"}, "h2", starts={"c0": (BOOL, [])})
        check(made, [feeds(made, 9, c0=scalar(first)) for first in (True, False)], taken)
    elif where == "go":
        made = looped([choice("go", PLUS, MINUS, "h2")], {"h": "h2"}, "h2")
        check(made, [feeds(made, 9)], taken)
    else:
        body = graph(nodes, ["h", "c"], ["h2", "h"])
        scan = helper.make_node("Scan", ["h0", "cs"], ["end", "all"], body=body, num_scan_inputs=1)
        made = model_of([scan], {"h0": (FLOAT, [5]), "x": (FLOAT, [5]), "cs": (BOOL, ["T"])}, ["end", "all"])
        for length in (300, 700):
            chosen = np.random.default_rng(length).random(length) > 0.5
            check(made, [{"h0": data(5), "x": data(5, seed=1), "cs": chosen}], taken)


def test_the_other_branch_is_not_looked_at(taken: list[Taken]) -> None:
    """What no step comes to may be impossible, look outside of a tensor, or divide by zero."""
    wrong = {
        "shape": ([node("Reshape", "h seven", "wrong")], ModelError, r"wrong' \(Reshape\)"),
        "index": ([node("Gather", "h i", "got"), node("Add", "got h", "wrong")], InputError,
                  r"got' \(Gather\): an index into axis 0 is outside"),
    }  # fmt: skip
    for nodes, kind, message in wrong.values():
        body = [node("Less", "i last", "soon"), choice("soon", PLUS, nodes, "h2")]
        made = looped(body, {"h": "h2"}, tensors={"last": scalar(6), "seven": np.asarray([7])})
        check(made, [feeds(made, 6)], taken)
        found = ready(made)
        for _ in range(2):
            found.run(feeds(made, 6))
            with pytest.raises(kind, match=message):
                found.run(feeds(made, 9))


def test_a_branch_that_changes_the_shape(taken: list[Taken]) -> None:
    """Native code begins, and the steps that are left are taken one by one."""
    body = [node("Less", "i last", "soon"), choice("soon", PLUS, [node("Concat", "h x", "more", axis=0)], "h2"),
            node("ReduceSum", "h2", "s", keepdims=0)]  # fmt: skip
    made = looped(body, {"h": "h2"}, "s i", extent=1, tensors={"last": scalar(4)})
    check(made, [feeds(made, steps) for steps in (3, 6)], taken, left=True)


def test_a_branch_that_runs_on_the_host(taken: list[Taken]) -> None:
    then = [node("NonZero", "h", "where"), node("ReduceSum", "where", "count", keepdims=0),
            node("Cast", "count", "f", to=FLOAT), node("Add", "h f", "t")]  # fmt: skip
    body = [*SUM, choice("pos", then, MINUS, "h2")]
    made = looped(body, {"h": "h2"}, "h2", tensors={"zero": ZERO})
    check(made, [feeds(made, 12, h0=np.full(5, -3, np.float32), x=np.ones(5, np.float32) / 2)], taken, left=True)


def test_scans_that_native_code_leaves(taken: list[Taken]) -> None:
    """Scan outputs that begin with the last step, of which native code has taken the first ones."""
    then = [node("NonZero", "h", "where"), node("ReduceSum", "where", "count", keepdims=0),
            node("Cast", "count", "f", to=FLOAT), node("Add", "h f", "t")]  # fmt: skip
    body = graph([choice("c", then, PLUS, "h2"), node("Neg", "h2", "m")], ["h", "c"], ["h2", "h2", "m"])
    scan = helper.make_node(
        "Scan", ["h0", "cs"], ["end", "a", "b"], body=body, num_scan_inputs=1, scan_output_directions=[0, 1]
    )
    made = model_of([scan], {"h0": (FLOAT, [5]), "x": (FLOAT, [5]), "cs": (BOOL, ["T"])}, ["end", "a", "b"])
    chosen = np.arange(300) == 200
    check(made, [{"h0": data(5), "x": data(5, seed=1), "cs": chosen}], taken, left=True)
    assert {one.steps for one in taken if one.left} == {200}


def test_more_ways_than_are_kept(taken: list[Taken], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (body_ways, native_steps):
        monkeypatch.setattr(module, "MAX_LEGS", 4)
    nodes = [node("Mod", "i two", "odd"), node("Cast", "odd", "c", to=BOOL), choice("c", PLUS, MINUS, "m"),
             node("Div", "i two", "half"), node("Mod", "half two", "odd2"), node("Cast", "odd2", "d", to=BOOL),
             choice("d", [node("Neg", "m", "m1")], [node("Add", "m m", "m2")], "h2")]  # fmt: skip
    made = looped(nodes, {"h": "h2"}, "h2 i", tensors={"two": scalar(2)})
    check(made, [feeds(made, 15)], taken, left=True)
    assert {one.steps for one in taken} == {3}  # a first program, and three of the four ways


def test_who_watches_is_told_of_each_program(taken: list[Taken]) -> None:
    made = looped(BODY, {"h": "h2"}, tensors={"zero": ZERO})
    found, seen = ready(made), list[Step]()
    for given, count in ((feeds(made, 1), 2), (feeds(made, 60, 3), 3)):
        seen.clear()
        found.run(given, watch=seen.append)
        programs = [step for step in seen if isinstance(step, ProgramStep) and "h" in step.feeds]
        assert len(programs) == count
        for step in programs:
            step.program.run(step.feeds)
        np.testing.assert_array_equal(programs[0].feeds["h"], given["h0"])
