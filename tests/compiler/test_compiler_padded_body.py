"""Loops that read all of what they append to: a program with room serves many lengths, by native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.native_steps import Taken
from autotune.compiler.staged import StagedModel, compile_or_stage
from autotune.compiler.stages import Making
from autotune.errors import InputError, ModelError
from autotune.graph import Graph, open_model
from tests.compiler.test_compiler_body_ways import choice, expected, looped, node
from tests.compiler.test_compiler_loops import FLOAT, INT, scalar
from tests.compiler.test_compiler_staged import TARGET, Array, data

pytestmark = pytest.mark.usefixtures("kept")

WORDS, WIDTH = 11, 6
TENSORS = {
    "table": data(WORDS, WIDTH), "wo": data(WIDTH, WORDS, seed=1), "last": np.asarray([-1]), "zero": scalar(0),
    "one": scalar(1), "half": np.asarray(0.5, np.float32), "eos": scalar(3), "axes": np.asarray([1]),
}  # fmt: skip


TOKENS: Any = {"tokens0": (INT, ["batch", "length"])}


def attention(more: str = "more") -> list[onnx.NodeProto]:
    """The next token by attention of all tokens so far, [batch, length], to each other."""
    return [
        node("Gather", "table tokens", "h"),
        node("Transpose", "h", "ht", perm=[0, 2, 1]),
        node("MatMul", "h ht", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
        node("MatMul", "shares h", "mixed"),
        node("Gather", "mixed last", "row", axis=1),
        node("MatMul", "row wo", "logits"),
        node("ArgMax", "logits", "best", axis=2, keepdims=0),
        node("Concat", "tokens best", more, axis=1),
    ]


def decoder(collected: str = "", goes_on: str = "go", extra: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    nodes = [*attention(), *(extra or [])]
    return looped(nodes, {"tokens": "more"}, collected, goes_on, tensors=TENSORS, starts=TOKENS)


def starts(batch: int, length: int) -> Array:
    return np.random.default_rng(length).integers(0, WORDS, (batch, length))


class Made:
    """Programs that were made, those that take part in attention counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Graph) -> CompiledModel:
        self.count += any(node.op in ("softmax", "attention", "argmax") for node in graph.nodes)
        return compile_graph(graph, TARGET)


def check(model: onnx.ModelProto, *runs: tuple[int, Array], **more: Array) -> Made:
    made = Made()
    found = compile_or_stage(open_model(model.SerializeToString()), Making(made))
    assert isinstance(found, StagedModel)
    for steps, tokens in runs:
        given = {"n": scalar(steps), "x": data(5), "tokens0": tokens, **more}
        wanted = expected(model, given)
        for _ in range(2):
            for array, one in zip(found.run(given), wanted, strict=True):
                assert array.dtype == one.dtype
                np.testing.assert_allclose(array, one, rtol=1e-4, atol=1e-5)
    return made


@pytest.mark.parametrize("batch", [1, 3])
def test_few_programs_serve_all_lengths(batch: int, taken: list[Taken]) -> None:
    runs = [(steps, starts(batch, length)) for steps, length in ((5, 2), (1, 1), (62, 2), (63, 2), (150, 7), (3, 64))]
    assert check(decoder("best logits"), *runs).count == 3  # for 64, 128 and 256
    assert not any(one.left for one in taken)
    assert {one.steps for one in taken} == {steps for steps, _ in runs}


def test_no_step_leaves_it_as_it_was(taken: list[Taken]) -> None:
    check(decoder(), (0, starts(1, 4)))
    assert not taken


def test_a_condition_ends_it(taken: list[Taken]) -> None:
    """Once a token is chosen; scripted decoders ask so for the end of the text."""
    extra = [node("ReduceSum", "best", "sum", keepdims=0), node("Equal", "sum eos", "is"), node("Not", "is", "on")]
    check(decoder("i", "on", extra), *((100, starts(1, length)) for length in range(1, 7)))
    assert not any(one.left for one in taken)


def test_two_values_grow_together(taken: list[Taken]) -> None:
    """Tokens, and what counts of them: along the last axis, and along the first one."""
    nodes = [
        *attention(),
        node("ReduceSum", "seen", "amount", keepdims=0),
        node("Mul", "amount half", "part"),
        node("Unsqueeze", "part zeros", "item"),
        node("Concat", "seen item", "seen2", axis=-1),
    ]
    tensors = {**TENSORS, "zeros": np.asarray([0])}
    made = looped(nodes, {"tokens": "more", "seen": "seen2"}, "part", tensors=tensors,
                  starts={**TOKENS, "seen0": (FLOAT, ["others"])})  # fmt: skip
    check(made, (9, starts(2, 3)), seen0=np.ones(3, np.float32))
    check(made, (70, starts(1, 5)), seen0=np.full(5, 1e-9, np.float32))
    assert not any(one.left for one in taken)
    taken.clear()
    check(made, (4, starts(2, 3)), seen0=np.ones(2, np.float32))  # of other lengths: each is compiled
    assert not taken


def test_a_branch_beside_what_grows(taken: list[Taken]) -> None:
    nodes = [*attention("unused"), node("ReduceSum", "best", "sum", keepdims=0), node("Less", "sum eos", "low"),
             choice("low", [node("Add", "best one", "up")], [node("Identity", "best", "same")], "item"),
             node("Concat", "tokens item", "more", axis=1)]  # fmt: skip
    made = looped(nodes, {"tokens": "more"}, "item", tensors=TENSORS,
                  starts=TOKENS)  # fmt: skip
    assert check(made, (80, starts(1, 2)), (20, starts(1, 9))).count <= 4
    assert not any(one.left for one in taken)


def test_what_cannot_be_padded_has_a_program_for_each_length(taken: list[Taken]) -> None:
    """Sorted along what grows, the padding comes between; and so it does before anything has been appended."""
    extra = [node("Cast", "tokens", "f", to=FLOAT), node("TopK", "f axes", "top place", axis=1)]
    check(decoder("top", extra=extra), (3, starts(1, 2)))
    assert not taken
    nodes = [node("ReduceSum", "tokens", "sum", keepdims=1), node("Concat", "tokens sum", "more", axis=1)]
    made = looped(nodes, {"tokens": "more"}, starts=TOKENS)
    check(made, (3, np.zeros((1, 0), np.int64)))
    assert not taken


@pytest.mark.parametrize("known", [True, False])
def test_a_table_that_is_shorter_than_the_room(known: bool, taken: list[Taken]) -> None:
    """What looks up places beyond its end in the padding runs exactly, and is refused where the step itself does."""
    nodes = [node("Shape", "tokens", "shape"), node("Gather", "shape one", "length"),
             node("Range", "zero length one", "places"), node("Mul", "tokens zero", "nought"),
             node("Add", "places nought", "where"), node("Gather", f"rows {'places' if known else 'where'}", "at"),
             node("ReduceSum", "at", "now", keepdims=0), *attention()]  # fmt: skip
    tensors = {**TENSORS, "rows": data(9, 2)}
    made = looped(nodes, {"tokens": "more"}, "now", tensors=tensors, starts=TOKENS)
    check(made, (6, starts(1, 3)))
    assert all(one.left for one in taken)
    assert bool(taken) is not known
    found = compile_or_stage(open_model(made.SerializeToString()), Making(Made()))
    with pytest.raises((InputError, ModelError), match=r"'at' \(Gather\): an index into axis 0 is outside of -9..8"):
        found.run({"n": scalar(8), "x": data(5), "tokens0": starts(1, 3)})
