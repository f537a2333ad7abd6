"""Steps that append any number of rows, beside sources of any length: right at every length, by few programs."""

from __future__ import annotations

from collections.abc import Mapping
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
from autotune.compiler.background import Background
from autotune.compiler.growing import GrowingModel
from autotune.compiler.staged import StagedModel
from tests.compiler.test_compiler_growing import HEAD, HEADS, SINKS, SLICED, WORDS, WRITTEN, Decoding, decoder, node

pytestmark = pytest.mark.usefixtures("kept")

SUMMED = [
    node("CumSum", ["mask", "1"], ["seen_so_far"]), node("Sub", ["seen_so_far", "1"], ["all_positions"]),
    node("Unsqueeze", ["past", "[0]"], ["begin"]), node("Slice", ["all_positions", "begin", "end", "[1]"], ["later"]),
    node("Max", ["later", "0"], ["at_least"]), node("Range", ["past", "total", "1"], ["positions"]),
]  # fmt: skip
"""Places by the mask, of which those of the old rows are cut off, as OPT has them."""


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_steps, "LEAST_ROOM", 16)
    monkeypatch.setattr(padded_steps, "LEAST_SIZE", 4)
    monkeypatch.setattr(growing, "SOON", 1.0)


def by_mask() -> onnx.ModelProto:
    """A decoder whose places are counted along the mask."""
    model = decoder(other={"positions": SUMMED})
    (placed,) = [n for n in model.graph.node if "placed" in n.output]
    placed.input[1] = "at_least"
    model.graph.initializer.append(helper.make_tensor("end", TensorProto.INT64, [1], [2**63 - 1]))
    return model


IN_LINE = [
    node("Range", ["0", "total", "1"], ["keys"]), node("Unsqueeze", ["keys", "[0,1]"], ["keys3"]),
    node("Unsqueeze", ["keys3", "[2]"], ["keys4"]), node("Unsqueeze", ["positions", "[0,1]"], ["queries3"]),
    node("Unsqueeze", ["queries3", "[3]"], ["queries4"]), node("LessOrEqual", ["keys4", "queries4"], ["causal"]),
    node("Range", ["0", "batch", "1"], ["rows"]), node("Unsqueeze", ["rows", "[1,2]"], ["rows3"]),
    node("Unsqueeze", ["rows3", "[3]"], ["rows4"]), node("Cast", ["mask"], ["bools"], to=TensorProto.BOOL),
    node("Shape", ["bools"], ["of_mask"]), node("Gather", ["of_mask", "[1]"], ["long"]),
    node("Mul", ["rows4", "long"], ["begins"]), node("Add", ["keys4", "begins"], ["where"]),
    node("Flatten", ["bools"], ["line"], axis=2), node("Gather", ["line", "where"], ["found"]),
    node("Shape", ["where"], ["form"]), node("Reshape", ["found", "[-1]"], ["all"]),
    node("Reshape", ["all", "form"], ["given"]),
    node("And", ["causal", "given"], ["seen"]), node("Where", ["seen", "none", "minus"], ["added"]),
]  # fmt: skip
"""A mask that is looked up as one line, as tracing writes `mask[i, j]`."""


def by_rows() -> onnx.ModelProto:
    """A decoder whose products are of the rows of all sequences together, as GPT-2 has them."""
    model = decoder(other={"mask": IN_LINE})
    ((place, product),) = [(k, n) for k, n in enumerate(model.graph.node) if "qkv" in n.output]
    model.graph.node.remove(product)
    rows = [
        node("Concat", ["[-1]", "width"], ["lines"], axis=0), node("Reshape", ["x", "lines"], ["x_rows"]),
        node("Gemm", ["x_rows", "into"], ["qkv_rows"]), node("Shape", ["x"], ["of_x"]),
        node("Slice", ["of_x", "[0]", "[2]"], ["in_front"]), node("Concat", ["in_front", "[-1]"], ["back"], axis=0),
        node("Reshape", ["qkv_rows", "back"], ["qkv"]),
    ]  # fmt: skip
    for n, one in enumerate(rows):
        model.graph.node.insert(place + n, one)
    return model


DECODERS: Mapping[str, onnx.ModelProto] = {
    "plain": decoder(), "any mask": decoder(length="anything"), "sliced": decoder(other={"mask": SLICED}),
    "written": decoder(other={"mask": WRITTEN}), "sinks": decoder(other={"softmax": SINKS}), "by mask": by_mask(),
    "in line": decoder(other={"mask": IN_LINE}), "by rows": by_rows(),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "batch"), list(zip(DECODERS, (1, 2, 2, 1, 2, 2, 2, 3), strict=True)))
def test_turns_of_any_number_of_tokens(kind: str, batch: int) -> None:
    """Each turn of a conversation has other new tokens behind what was said before: two kinds of steps in all."""
    decoding = Decoding(DECODERS[kind], batch)
    for tokens in (1, 3, 1, 7, 5, 1, 2, 9, 6, 1, 8):
        decoding.step(tokens)
        decoding.model.wait()
    assert [steps.rows for steps in decoding.model._kinds] == ["tokens", 1]
    assert StagedModel.shapes(decoding.model) == []  # none was compiled for just one turn
    programs = {sizes for steps in decoding.model._kinds for sizes in steps.programs}
    assert programs <= {(room, *more) for room in (16, 32, 64) for more in ((), (4,), (8,), (16,))}


def test_rows_that_are_taken_back() -> None:
    """What a guess appended is cut off again, and other tokens come in its place."""
    decoding = Decoding(decoder(), batch=2, prompt=3)
    for tokens, kept in ((4, 2), (3, 3), (4, 1), (1, 1), (5, 0), (2, 2)):
        before = decoding.ours[0].shape[2]
        decoding.step(tokens)
        decoding.ours = [array[:, :, : before + kept] for array in decoding.ours]
        decoding.theirs = [array[:, :, : before + kept] for array in decoding.theirs]
    assert len(decoding.model._kinds) == 2


def test_padded_rows_stay_within_the_room() -> None:
    """They are written, too. What has moved to more room does not move back for a step that needs less."""
    decoding = Decoding(decoder(), prompt=10)
    for tokens, programs in ((3, [(16, 4)]), (2, [(16, 4), (32, 4)]), (2, [(16, 4), (32, 4)])):
        before = decoding.ours
        decoding.step(tokens)
        assert sorted(decoding.model._kinds[0].programs) == programs
    assert np.shares_memory(before[0], decoding.ours[0])
    decoding = Decoding(decoder(), prompt=10)
    decoding.model._making = replace(decoding.model._making, max_memory=16 * 2 * HEADS * HEAD * 4)
    for tokens in (3, 2):
        decoding.step(tokens)
    assert sorted(decoding.model._kinds[0].programs) == [(16, 2), (16, 4)]


def test_a_program_for_more_serves_while_its_own_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[Any] = []
    monkeypatch.setattr(Background, "offer", lambda self, work: offered.append(work))
    monkeypatch.setattr(padded_steps, "LEAST_ROOM", 64)
    decoding = Decoding(decoder())
    decoding.step(12)
    decoding.step(3)
    (steps,) = decoding.model._kinds
    assert sorted(steps.programs) == [(64, 16)] and len(offered) == 1
    offered[0]()
    decoding.step(3)
    assert sorted(steps.programs) == [(64, 4), (64, 16)] and len(offered) == 1
    decoding.step(20)  # none is large enough
    assert sorted(steps.programs) == [(64, 4), (64, 16), (64, 32)]


def test_a_turn_can_be_prepared() -> None:
    decoding = Decoding(decoder())
    decoding.session.prepare(batch=1, tokens=5, past=2, **{"past + tokens": 7})
    (steps,) = decoding.model._kinds
    assert sorted(steps.programs) == [(16, 8)]
    decoding.step(6)
    assert sorted(steps.programs) == [(16, 8)]


def test_bad_tokens_say_what_is_wrong() -> None:
    decoding = Decoding(decoder())
    decoding.step(3)
    bad = decoding.feeds(decoding.ours, 3)
    bad["ids"][0, 2] = WORDS
    with pytest.raises(Exception, match="index"):
        decoding.session.run(None, bad)
    decoding.step(3)


def translator() -> onnx.ModelProto:
    """A decoder that looks at a source as well, whose keys and values were computed once."""
    model = decoder()
    rng = np.random.default_rng(5)
    del model.graph.node[-1:]
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(rng.standard_normal((HEADS * HEAD, HEADS * HEAD), np.float32), "ask")
    )
    model.graph.node.extend([
        node("MatMul", ["y", "ask"], ["asked3"]), node("Reshape", ["asked3", "split"], ["asked4"]),
        node("Transpose", ["asked4"], ["asked"], perm=[0, 2, 1, 3]),
        node("Transpose", ["source_k"], ["turned_source"], perm=[0, 1, 3, 2]),
        node("MatMul", ["asked", "turned_source"], ["source_products"]),
        node("Cast", ["source_mask"], ["said"], to=TensorProto.BOOL), node("Unsqueeze", ["said", "[1,2]"], ["said4"]),
        node("Where", ["said4", "none", "minus"], ["source_added"]),
        node("Add", ["source_products", "source_added"], ["source_scores"]),
        node("Softmax", ["source_scores"], ["source_weights"], axis=-1),
        node("MatMul", ["source_weights", "source_v"], ["source_mixed"]),
        node("Transpose", ["source_mixed"], ["source_mixed4"], perm=[0, 2, 1, 3]),
        node("Reshape", ["source_mixed4", "join"], ["source_joined"]), node("Add", ["y", "source_joined"], ["z"]),
        node("MatMul", ["z", "out"], ["logits"]),
    ])  # fmt: skip
    for name in ("source_k", "source_v"):
        dims = ("batch", HEADS, "source", HEAD)
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
    model.graph.input.append(helper.make_tensor_value_info("source_mask", TensorProto.INT64, ("batch", "source")))
    return model


@pytest.mark.parametrize("batch", [1, 2])
def test_sources_of_any_length(batch: int) -> None:
    """One kind of steps serves all translations: no token waits where a source as long has been there."""
    model = translator()
    session = InferenceSession(model, database=False, target="native -num-cores=1")
    reference, rng = ReferenceEvaluator(model), np.random.default_rng(3)
    growing_model = session._model
    assert isinstance(growing_model, GrowingModel)
    for source in (9, 5, 7, 3, 30, 20, 6):
        cross = rng.standard_normal((2, batch, HEADS, source, HEAD), np.float32)
        said = np.ones((batch, source), np.int64)
        said[1:, source - 2 :] = 0
        ours = theirs = [rng.standard_normal((batch, HEADS, 1, HEAD), np.float32) for _ in "kv"]
        for length in range(2, 6):
            feeds = {"ids": rng.integers(0, WORDS, (batch, 1)), "mask": np.ones((batch, length), np.int64),
                     "source_k": cross[0], "source_v": cross[1], "source_mask": said}  # fmt: skip
            found = session.run(None, {**feeds, "past_k": ours[0], "past_v": ours[1]})
            wanted = list(reference.run(None, {**feeds, "past_k": theirs[0], "past_v": theirs[1]}))
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            ours, theirs = found[1:], wanted[1:]
        growing_model.wait()
    (steps,) = growing_model._kinds
    assert steps.extents == {"batch": batch, "tokens": 1}
    empty = {**feeds, "past_k": ours[0][:, :, :5], "past_v": ours[1][:, :, :5], "source_mask": said[:, :0],
             "source_k": cross[0][:, :, :0], "source_v": cross[1][:, :, :0]}  # fmt: skip
    empty["mask"] = np.ones((batch, 6), np.int64)
    for one, other in zip(session.run(None, empty), reference.run(None, empty), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert sorted(steps.programs) == [(16, 4), (16, 8), (16, 16), (16, 32)]
    assert len(StagedModel.shapes(growing_model)) <= 1  # of the empty source
