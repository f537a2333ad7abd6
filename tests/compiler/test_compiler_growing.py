"""Decoders whose caches grow by Concat: right at every length, without a program or a copy for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autotune.api.session import InferenceSession
from autotune.compiler import growing
from autotune.compiler import steps as padded_steps
from autotune.compiler.growing import GrowingModel
from autotune.compiler.staged import StagedModel
from autotune.errors import InputError, MemoryLimitError
from autotune.graph import open_model
from autotune.graph.frontend.caches import caches_of
from tests.compiler.test_compiler_staged import model_of

pytestmark = pytest.mark.usefixtures("kept")

Array = np.ndarray[Any, Any]
HEADS, HEAD, WIDTH, WORDS = 2, 4, 8, 11
node = helper.make_node


def decoder(length: str = "past + tokens", other: Mapping[str, list[onnx.NodeProto]] | None = None) -> onnx.ModelProto:
    """A layer as exporters of transformers write it: positions and the causal mask are made from shapes.

    Args:
        length: symbol of the mask's dimension, which may be any.
        other: nodes in place of those that make the caches ("present"), the mask ("mask"), places ("positions") or the
            weights of values ("softmax"), or more of them.
    """
    other = other or {}
    rng = np.random.default_rng(0)
    tensors: dict[str, Array] = {
        "words": rng.standard_normal((WORDS, WIDTH), np.float32),
        "places": rng.standard_normal((64, WIDTH), np.float32),
        "into": rng.standard_normal((WIDTH, 3 * WIDTH), np.float32) / 3,
        "out": rng.standard_normal((WIDTH, WORDS), np.float32),
        "table": np.tril(np.ones((1, 1, 64, 64), bool)),
        "minus": np.asarray(-3.4e38, np.float32), "none": np.asarray(0.0, np.float32),
        "0": np.asarray(0), "1": np.asarray(1), "[0]": np.asarray([0]), "[1]": np.asarray([1]), "[2]": np.asarray([2]),
        "[3]": np.asarray([3]), "[-1]": np.asarray([-1]), "[0,1]": np.asarray([0, 1]), "[1,2]": np.asarray([1, 2]),
        "[1,2,3]": np.asarray([1, 2, 3]), "[0,2,3]": np.asarray([0, 2, 3]),
        "[0,1,3]": np.asarray([0, 1, 3]), "[0,1,2]": np.asarray([0, 1, 2]),
        "sink": rng.standard_normal((1, HEADS, 1, 1)).astype(np.float32),
        "heads": np.asarray([HEADS, HEAD]), "width": np.asarray([WIDTH]),
    }  # fmt: skip
    extents = [
        node("Shape", ["ids"], ["ids_shape"]),
        node("Gather", ["ids_shape", "0"], ["batch"]), node("Gather", ["ids_shape", "1"], ["tokens"]),
        node("Shape", ["past_k"], ["past_shape"], start=2, end=3), node("Squeeze", ["past_shape"], ["past"]),
        node("Add", ["past", "tokens"], ["total"]),
        *other.get("positions", [node("Range", ["0", "tokens", "1"], ["fresh"]),
                                 node("Add", ["fresh", "past"], ["positions"])]),
    ]  # fmt: skip
    mask = [
        node("Range", ["0", "total", "1"], ["keys"]), node("Unsqueeze", ["keys", "[0,1]"], ["keys3"]),
        node("Unsqueeze", ["keys3", "[2]"], ["keys4"]),
        node("Unsqueeze", ["positions", "[0,1]"], ["queries3"]), node("Unsqueeze", ["queries3", "[3]"], ["queries4"]),
        node("LessOrEqual", ["keys4", "queries4"], ["causal"]),
        node("Range", ["0", "batch", "1"], ["rows"]), node("Unsqueeze", ["rows", "[1,2]"], ["rows3"]),
        node("Unsqueeze", ["rows3", "[3]"], ["rows4"]), node("Max", ["rows4", "keys4"], ["both"]),
        node("Shape", ["both"], ["grid"]), node("Expand", ["rows4", "grid"], ["rowsN"]),
        node("Expand", ["keys4", "grid"], ["keysN"]), node("Unsqueeze", ["rowsN", "[-1]"], ["rows5"]),
        node("Unsqueeze", ["keysN", "[-1]"], ["keys5"]), node("Concat", ["rows5", "keys5"], ["where"], axis=-1),
        node("Cast", ["mask"], ["bools"], to=TensorProto.BOOL), node("GatherND", ["bools", "where"], ["given"]),
        node("And", ["causal", "given"], ["seen"]), node("Where", ["seen", "none", "minus"], ["added"]),
    ]  # fmt: skip
    present = [node("Concat", ["past_k", "k"], ["present_k"], axis=-2),
               node("Concat", ["past_v", "v"], ["present_v"], axis=2)]  # fmt: skip
    nodes = [
        *extents, *other.get("mask", mask),
        node("Gather", ["words", "ids"], ["embedded"]), node("Gather", ["places", "positions"], ["placed"]),
        node("Add", ["embedded", "placed"], ["x"]), node("MatMul", ["x", "into"], ["qkv"]),
        node("Split", ["qkv"], ["q3", "k3", "v3"], axis=2, num_outputs=3),
        node("Concat", ["ids_shape", "heads"], ["split"], axis=0),
        *(n for name in "qkv" for n in (node("Reshape", [f"{name}3", "split"], [f"{name}4"]),
                                        node("Transpose", [f"{name}4"], [name], perm=[0, 2, 1, 3]))),
        *other.get("present", present), *other.get("more", ()),
        node("Transpose", ["present_k"], ["turned"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "turned"], ["products"]),
        node("Add", ["products", "added"], ["scores"]),
        *other.get("softmax", [node("Softmax", ["scores"], ["weights"], axis=-1)]),
        node("MatMul", ["weights", "present_v"], ["mixed"]),
        node("Transpose", ["mixed"], ["mixed4"], perm=[0, 2, 1, 3]),
        node("Concat", ["ids_shape", "width"], ["join"], axis=0), node("Reshape", ["mixed4", "join"], ["joined"]),
        node("Add", ["x", "joined"], ["y"]), node("MatMul", ["y", "out"], ["logits"]),
    ]  # fmt: skip
    cache = (TensorProto.FLOAT, ("batch", HEADS, "past", HEAD))
    inputs = {"ids": (TensorProto.INT64, ("batch", "tokens")), "mask": (TensorProto.INT64, ("batch", length)),
              "past_k": cache, "past_v": cache}  # fmt: skip
    return model_of(nodes, inputs, ("logits", "present_k", "present_v"), tensors, opset=18)


SLICED = [
    node("Range", ["past", "total", "1"], ["queries"]),
    node("Unsqueeze", ["past", "[0]"], ["first"]), node("Unsqueeze", ["total", "[0]"], ["last"]),
    node("Slice", ["table", "first", "last", "[2]"], ["lines"]),
    node("Slice", ["lines", "[0]", "last", "[3]"], ["causal"]),
    node("Unsqueeze", ["mask", "[1,2]"], ["mask4"]), node("Cast", ["mask4"], ["given"], to=TensorProto.BOOL),
    node("And", ["causal", "given"], ["seen"]), node("Where", ["seen", "none", "minus"], ["added"]),
]  # fmt: skip
"""A mask that is cut out of a constant, as GPT-2 was exported for years."""

WRITTEN = [
    node("Range", ["past", "total", "1"], ["queries"]), node("Range", ["0", "total", "1"], ["keys"]),
    node("Unsqueeze", ["tokens", "[0]"], ["tokens1"]), node("Unsqueeze", ["total", "[0]"], ["total1"]),
    node("Concat", ["tokens1", "total1"], ["square"], axis=0), node("Expand", ["minus", "square"], ["filled"]),
    node("Trilu", ["filled", "1"], ["later"]), node("Unsqueeze", ["queries", "[1]"], ["column"]),
    node("Greater", ["keys", "column"], ["beyond"]), node("Cast", ["beyond"], ["times"], to=TensorProto.FLOAT),
    node("Mul", ["later", "times"], ["causal"]), node("Unsqueeze", ["causal", "[0,1]"], ["causal4"]),
    node("Unsqueeze", ["batch", "[0]"], ["batch1"]),
    node("Concat", ["batch1", "[1]", "tokens1", "total1"], ["grid"], axis=0),
    node("Expand", ["causal4", "grid"], ["whole"]),
    node("Unsqueeze", ["mask", "[1,2]"], ["mask4"]), node("Cast", ["mask4"], ["given"], to=TensorProto.BOOL),
    node("Where", ["given", "whole", "minus"], ["seen"]), node("Expand", ["seen", "grid"], ["updates"]),
    *(n for k, (count, axes) in enumerate((("batch", "[1,2,3]"), ("1", "[0,2,3]"), ("tokens", "[0,1,3]"),
                                           ("total", "[0,1,2]")))
      for n in (node("Range", ["0", count, "1"], [f"r{k}"]), node("Unsqueeze", [f"r{k}", axes], [f"u{k}"]),
                node("Expand", [f"u{k}", "grid"], [f"e{k}"]), node("Unsqueeze", [f"e{k}", "[-1]"], [f"i{k}"]))),
    node("Concat", ["i0", "i1", "i2", "i3"], ["where"], axis=-1),
    node("ScatterND", ["whole", "where", "updates"], ["added"]),
]  # fmt: skip
"""A mask that is written over another one, element by element, as LLaMA was."""


class Decoding:
    """Both ways to run a decoder, each of which goes on with its own caches."""

    def __init__(self, model: onnx.ModelProto, batch: int = 1, prompt: int = 2, max_memory: int | None = None) -> None:
        self.session = InferenceSession(model, database=False, target="native -num-cores=1", max_memory=max_memory)
        self.reference = ReferenceEvaluator(model)
        self.rng = np.random.default_rng(1)
        none = np.zeros((batch, HEADS, 0, HEAD), np.float32)
        first = self.feeds((none, none), prompt)
        self.theirs = list(self.reference.run(None, first))[1:]
        self.ours = [array.copy() for array in self.theirs]

    def feeds(self, caches: Sequence[Array], tokens: int) -> dict[str, Array]:
        k, v = caches
        ids = self.rng.integers(0, WORDS, (k.shape[0], tokens))
        mask = np.ones((k.shape[0], k.shape[2] + tokens), np.int64)
        mask[1:, 0] = 0  # a shorter prompt, padded on the left
        return {"ids": ids, "mask": mask, "past_k": k, "past_v": v}

    def step(self, tokens: int = 1) -> None:
        feeds = self.feeds(self.theirs, tokens)
        wanted = list(self.reference.run(None, feeds))
        found = self.session.run(None, {**feeds, "past_k": self.ours[0], "past_v": self.ours[1]})
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        self.theirs, self.ours = wanted[1:], found[1:]

    @property
    def model(self) -> GrowingModel:
        found = self.session._model
        assert isinstance(found, GrowingModel)
        return found

    @property
    def programs(self) -> int:
        return len(self.session.shapes())


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_steps, "LEAST_ROOM", 8)
    monkeypatch.setattr(padded_steps, "LEAST_SIZE", 2)
    monkeypatch.setattr(growing, "SOON", 1.0)


def test_steps_share_programs_and_memory() -> None:
    decoding = Decoding(decoder())
    for _ in range(5):
        before = decoding.ours
        decoding.step()
    assert decoding.programs == 1
    assert all(np.shares_memory(one, other) for one, other in zip(before, decoding.ours))
    for _ in range(4):  # beyond the room that there was
        decoding.step()
    assert decoding.programs == 2
    assert not any(np.shares_memory(one, other) for one, other in zip(before, decoding.ours))
    with pytest.raises(ValueError, match="read-only"):
        decoding.ours[0][:] = 0
    (steps,) = decoding.model._kinds
    labels = [call.label for call in steps.programs[8,].program.program.calls]  # type: ignore[union-attr]
    assert any("attention" in label and "lengths" in label for label in labels)  # no score behind the used rows


def test_large_caches_are_updated_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_steps, "LEAST_ROOM", 2048)
    decoding = Decoding(decoder())
    decoding.step()
    (steps,) = decoding.model._kinds
    program = steps.programs[2048,].program
    assert program is not None and len(program.program.updates) == 2


def test_arrays_keep_their_values_whoever_goes_on_from_them() -> None:
    """Two ways to go on from one step, a step taken back, and caches that somebody has copied."""
    decoding = Decoding(decoder(length="anything"), batch=2, prompt=3)
    decoding.step()
    fork = decoding.theirs, decoding.ours
    kept = [array.copy() for array in decoding.ours]
    for _ in range(2):
        decoding.theirs, decoding.ours = fork
        decoding.step()
        decoding.step()
    for one, other in zip(fork[1], kept):
        np.testing.assert_array_equal(one, other)
    decoding.theirs = [array[:, :, :3] for array in decoding.theirs]
    decoding.ours = [array[:, :, :3] for array in decoding.ours]
    decoding.step()
    decoding.ours = [np.asfortranarray(array) for array in decoding.ours]
    decoding.step()
    assert decoding.programs == 1


def test_caches_stay_within_the_limit() -> None:
    """Room is no more than the limit allows; the step beyond is refused before anything grows."""
    row, most = 2 * HEADS * HEAD * 4, 40
    decoding = Decoding(decoder())
    decoding.model._making = replace(decoding.model._making, max_memory=most * row)  # weights of the test take more
    decoding.step()
    caches = [np.zeros((1, HEADS, most - 2, HEAD), np.float32)] * 2
    for _ in range(2):
        caches = decoding.session.run(None, decoding.feeds(caches, 1))[1:]
    (steps,) = decoding.model._kinds
    assert sorted(steps.programs) == [(8,), (most,)]
    with pytest.raises(MemoryLimitError, match=rf"\(Concat\): with {most + 1} rows, 'past_k' and what is new in"
                       rf" 'present_k', the 2 cache\(s\) take {(most + 1) * row} bytes"):  # fmt: skip
        decoding.session.run(None, decoding.feeds(caches, 1))
    assert sorted(steps.programs) == [(8,), (most,)]


def test_caches_that_are_copied_stay_within_the_limit() -> None:
    mean = [node("ReduceMean", ["present_v", "[2]"], ["mean"]), node("Add", ["v", "mean"], ["more"])]
    model = decoder(other={"more": mean})
    model.graph.output.append(helper.make_empty_tensor_value_info("more"))
    decoding = Decoding(model, max_memory=20_000)
    with pytest.raises(MemoryLimitError, match="'present_k'"):
        decoding.session.run(None, decoding.feeds([np.zeros((1, HEADS, 1000, HEAD), np.float32)] * 2, 1))


def test_steps_of_several_tokens_and_bad_input() -> None:
    decoding = Decoding(decoder())
    decoding.step()
    bad = decoding.feeds(decoding.ours, 1)
    bad["ids"][:] = WORDS
    with pytest.raises(InputError, match="index"):
        decoding.session.run(None, bad)
    decoding.step()
    decoding.step(tokens=2)
    assert [steps.rows for steps in decoding.model._kinds] == ["tokens", 1]  # the last used first


def test_what_is_no_cache_runs_as_it_is() -> None:
    """What is done with old rows, besides, is done with theirs alone."""
    reads = [node("ReduceSum", ["past_v"], ["old"], keepdims=0)]
    front = [node("Concat", ["k", "past_k"], ["present_k"], axis=2),
             node("Concat", ["past_v", "v"], ["present_v"], axis=2)]  # fmt: skip
    twice = node("Concat", ["past_v", "past_v"], ["twice"], axis=2)
    inner = [node("Concat", ["past_k", "k"], ["present_k"], axis=2), twice,
             node("Concat", ["past_v", "v"], ["present_v"], axis=2)]  # fmt: skip
    for other in ({"more": reads}, {"present": front}, {"present": inner}):
        assert caches_of(open_model(decoder(other=other))) is None
    found = caches_of(open_model(decoder()))
    assert found is not None and found.symbol == "past"
    assert [(cache.past, cache.present, cache.new) for cache in found.each] == [
        ("past_k", "present_k", "k"), ("past_v", "present_v", "v"),
    ]  # fmt: skip


def test_a_length_that_is_computed_with_in_other_ways_is_not_padded() -> None:
    """A mean over keys counts the padding: its steps are compiled one by one."""
    mean = [node("ReduceMean", ["present_v", "[2]"], ["mean"]), node("Add", ["v", "mean"], ["more"])]
    model = decoder(other={"more": mean})
    model.graph.output.append(helper.make_empty_tensor_value_info("more"))
    decoding = Decoding(model)
    wanted = decoding.feeds(decoding.theirs[:2], 1)
    found, right = (run(None, wanted) for run in (decoding.session.run, decoding.reference.run))
    np.testing.assert_allclose(list(found)[3], list(right)[3], rtol=1e-4, atol=1e-5)
    assert not decoding.model._kinds


@pytest.mark.parametrize("mask", [SLICED, WRITTEN])
def test_masks_of_older_exporters(mask: list[onnx.NodeProto]) -> None:
    decoding = Decoding(decoder(other={"mask": mask}), batch=2)
    for tokens in (1, 1, 3):
        decoding.step(tokens)
    assert [sorted(steps.programs) for steps in decoding.model._kinds] == [[(8, 4)], [(8,)]]


@pytest.mark.parametrize("mask", [None, SLICED, WRITTEN])
def test_prompts_of_other_lengths_share_programs(mask: list[onnx.NodeProto] | None) -> None:
    """Nothing pads an empty cache: the prompt is a model without one, whose lengths and batches are like any others."""
    decoding = Decoding(decoder(other={} if mask is None else {"mask": mask}))
    for batch, tokens in ((1, 5), (1, 21), (1, 19), (2, 23), (1, 17), (1, 5), (2, 18), (1, 1)):
        empty = np.zeros((batch, HEADS, 0, HEAD), np.float32)
        decoding.theirs = decoding.ours = [empty, empty]
        decoding.step(tokens)
        decoding.step()
        decoding.model.wait()
    lengths = [use.inputs["ids"] for use in decoding.session.shapes() if use.inputs["ids"][1] > 1]
    assert len(lengths) <= 3 and not {length for _, length in lengths} & {5, 17, 18, 19, 21, 23}


def test_prompts_are_compiled_for_each_length_where_that_is_asked_for() -> None:
    model = decoder()
    session = InferenceSession(model, database=False, target="native -num-cores=1", on_new_shape="compile")
    empty = np.zeros((1, HEADS, 0, HEAD), np.float32)
    for tokens in (3, 5, 4):
        session.run(None, {"ids": np.zeros((1, tokens), np.int64), "mask": np.ones((1, tokens), np.int64),
                           "past_k": empty, "past_v": empty})  # fmt: skip
    assert sorted(use.inputs["ids"][1] for use in session.shapes()) == [3, 4, 5]


def test_steps_and_prompts_can_be_prepared() -> None:
    decoding = Decoding(decoder())
    decoding.session.prepare(batch=1, tokens=6, past=0, **{"past + tokens": 6})
    decoding.session.prepare(batch=1, tokens=1, past=6, **{"past + tokens": 7})
    before = [use.inputs for use in decoding.session.shapes()]
    assert len(before) == 2
    empty = np.zeros((1, HEADS, 0, HEAD), np.float32)
    decoding.theirs = decoding.ours = [empty, empty]
    decoding.step(6)
    decoding.step()
    assert [use.inputs for use in decoding.session.shapes()] == before


def translator(reduce: str = "ReduceSum") -> onnx.ModelProto:
    """A decoder that reads something of any length beside its tokens."""
    bias = [node(reduce, ["extra", "[0]"], ["sum"], keepdims=0), node("Add", ["logits", "sum"], ["more"])]
    model = decoder()
    model.graph.node.extend(bias)
    model.graph.input.append(helper.make_tensor_value_info("extra", TensorProto.FLOAT, ("extras",)))
    model.graph.output.append(helper.make_empty_tensor_value_info("more"))
    return model


@pytest.mark.parametrize("reduce", ["ReduceSum", "ReduceMean"])
def test_steps_beside_sources_of_many_lengths(reduce: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few programs serve all that may be padded; what may not be has one each, and the oldest are let go."""
    monkeypatch.setattr(growing, "MAX_KINDS", 3)
    model = translator(reduce)
    session = InferenceSession(model, database=False, target="native -num-cores=1")
    reference, rng = ReferenceEvaluator(model), np.random.default_rng(3)
    growing_model = session._model
    assert isinstance(growing_model, GrowingModel)
    for extras in (9, 5, 6, 7, 8, 4):
        ours = theirs = [rng.standard_normal((1, HEADS, 3, HEAD)).astype(np.float32) for _ in "kv"]
        for length in (4, 5, 6):
            feeds = {"ids": rng.integers(0, WORDS, (1, 1)), "mask": np.ones((1, length), np.int64),
                     "extra": rng.standard_normal(extras).astype(np.float32)}  # fmt: skip
            found = session.run(None, {**feeds, "past_k": ours[0], "past_v": ours[1]})
            wanted = list(reference.run(None, {**feeds, "past_k": theirs[0], "past_v": theirs[1]}))
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            ours, theirs = found[1:3], wanted[1:3]
        growing_model.wait()
        if reduce == "ReduceMean":
            assert growing_model._kinds[0].extents["extras"] == extras and len(growing_model._kinds) <= 3
            assert len(growing_model._kinds[0].programs) == 1
    if reduce == "ReduceSum":
        (steps,) = growing_model._kinds
        assert sorted(steps.programs) == [(8, 4), (8, 8), (8, 16)]
    assert StagedModel.shapes(growing_model) == []  # none was compiled for just one step


def test_a_prompt_with_other_dimensions_of_its_length_by_chance() -> None:
    """An input that has nothing to do with tokens has as many elements as the first prompt."""
    model = translator()
    session = InferenceSession(model, database=False, target="native -num-cores=1")
    reference, rng = ReferenceEvaluator(model), np.random.default_rng(3)
    empty = np.zeros((1, HEADS, 0, HEAD), np.float32)
    for tokens, extras in ((5, 5), (6, 3), (7, 3), (6, 6), (9, 2)):
        feeds = {"ids": rng.integers(0, WORDS, (1, tokens)), "mask": np.ones((1, tokens), np.int64), "past_k": empty,
                 "past_v": empty, "extra": rng.standard_normal(extras, np.float32)}  # fmt: skip
        for one, other in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_caches_that_are_cast_to_what_they_are() -> None:
    """Attention in 32 bits, whatever the caches are of, as exported from a model whose caches are of 32 bits."""
    present = [node("Concat", ["past_k", "k"], ["joined_k"], axis=-2),
               node("Cast", ["joined_k"], ["present_k"], to=TensorProto.FLOAT),
               node("Concat", ["past_v", "v"], ["present_v"], axis=2)]  # fmt: skip
    decoding = Decoding(decoder(other={"present": present}))
    for _ in range(3):
        before = decoding.ours
        decoding.step()
    assert decoding.programs == 1
    assert all(np.shares_memory(one, other) for one, other in zip(before, decoding.ours))
    half = [*present[:1], node("Cast", ["joined_k"], ["present_k"], to=TensorProto.FLOAT16), *present[2:]]
    assert caches_of(open_model(decoder(other={"present": half}))) is None


FLAT = [
    node("Range", ["0", "total", "1"], ["keys"]), node("Unsqueeze", ["keys", "[0,1]"], ["keys3"]),
    node("Unsqueeze", ["keys3", "[2]"], ["keys4"]),
    node("Unsqueeze", ["positions", "[0,1]"], ["queries3"]), node("Unsqueeze", ["queries3", "[3]"], ["queries4"]),
    node("LessOrEqual", ["keys4", "queries4"], ["causal"]), node("Flatten", ["mask"], ["line"], axis=0),
    node("Squeeze", ["line", "[0]"], ["flat"]),
    node("Range", ["0", "batch", "1"], ["rows"]), node("Unsqueeze", ["rows", "[1,2]"], ["rows3"]),
    node("Unsqueeze", ["rows3", "[3]"], ["rows4"]), node("Mul", ["rows4", "total"], ["starts"]),
    node("Add", ["starts", "keys4"], ["places4"]), node("Gather", ["flat", "places4"], ["found"], axis=0),
    node("Cast", ["found"], ["given"], to=TensorProto.BOOL), node("And", ["causal", "given"], ["seen"]),
    node("Where", ["seen", "none", "minus"], ["added"]),
]  # fmt: skip
"""A mask that is looked up as one line, as tracing wrote it: padded for a batch of one, but for no other."""


def test_a_mask_as_one_line_is_padded_for_a_batch_of_one() -> None:
    decoding = Decoding(decoder(other={"mask": FLAT}))
    for batch, tokens in ((2, 5), (1, 7), (1, 20), (1, 18), (2, 9), (1, 23), (1, 19)):
        empty = np.zeros((batch, HEADS, 0, HEAD), np.float32)
        decoding.theirs = decoding.ours = [empty, empty]
        decoding.step(tokens)
        decoding.step()
        decoding.model.wait()
    prompts = [use.inputs["ids"] for use in decoding.session.shapes() if use.inputs["ids"][1] > 1]
    assert {(2, 5), (2, 9)} <= set(prompts) and len(prompts) <= 4 and (1, 7) not in prompts
    assert decoding.model._prompts is not None
    refused = [kind.model is None for kind in decoding.model._prompts._kinds]
    assert refused == [False, True]  # what serves none comes last, though it came first


SINKS = [
    node("ReduceMax", ["scores", "[-1]"], ["highest"]), node("Mul", ["highest", "none"], ["nothing"]),
    node("Add", ["nothing", "sink"], ["sinks"]), node("Concat", ["scores", "sinks"], ["with"], axis=-1),
    node("ReduceMax", ["with", "[-1]"], ["top"]), node("Sub", ["with", "top"], ["below"]),
    node("Softmax", ["below"], ["shares"], axis=-1), node("Slice", ["shares", "[0]", "[-1]", "[-1]"], ["weights"]),
]  # fmt: skip
"""Attention that may look at nothing, as GPT-OSS does: a score more, behind those of the keys."""


def test_a_score_behind_those_of_the_keys() -> None:
    decoding = Decoding(decoder(other={"softmax": SINKS}), batch=2)
    for tokens in (1, 1, 3, 1):
        decoding.step(tokens)
    assert [sorted(steps.programs) for steps in decoding.model._kinds] == [[(8,)], [(8, 4)]]
    for tokens in (5, 19, 23, 17):
        empty = np.zeros((1, HEADS, 0, HEAD), np.float32)
        decoding.theirs = decoding.ours = [empty, empty]
        decoding.step(tokens)
        decoding.model.wait()
    assert len([use for use in decoding.session.shapes() if use.inputs["ids"][1] > 4]) <= 2
