"""Decoders of ONNX Runtime's attention, which holds its caches itself: as those whose caches grow by Concat."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.api.session import InferenceSession
from autotune.compiler import growing
from autotune.compiler import steps as padded_steps
from autotune.compiler.growing import GrowingModel
from autotune.graph import open_model
from autotune.graph.frontend.cache_joints import with_joints
from autotune.graph.frontend.caches import caches_of
from tests.compiler.test_compiler_staged import model_of
from tests.graph.contrib_models import DOMAIN, theirs

pytestmark = pytest.mark.usefixtures("kept")

Array = np.ndarray[Any, Any]
LAYERS, HEADS, HEAD, WIDTH, WORDS = 2, 2, 4, 8, 11
WHOLE, HALVES, BYTES = "Attention", "MultiHeadAttention", "QAttention"
node = helper.make_node


def decoder(op: str, bias: bool = False, scores: bool = False, fused: bool = False, **attrs: Any) -> onnx.ModelProto:
    """Layers of one operator, whose mask is given.

    Args:
        bias: there is a bias of the scores instead of the mask. `scores`: what they are is an output.
        fused: what ONNX Runtime's optimiser fuses is around the attention, and attention to something else behind it.
    """
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32) / 2

    tensors = {
        "words": weight(WORDS, WIDTH), "places": weight(64, WIDTH), "out": weight(WIDTH, WORDS), "scale": weight(WIDTH),
        "shift": weight(WIDTH), "wide": weight(WIDTH, WIDTH), "narrow": weight(WIDTH, WIDTH),
        "other": weight(1, HEADS, 3, HEAD),
    }  # fmt: skip
    nodes, outputs = [node("Gather", ["words", "ids"], ["x0"])], ["logits"]
    norm = ["scale", "shift"]
    if fused:
        nodes = [node("EmbedLayerNormalization", ["ids32", "", "words", "places", "", *norm], ["x0", ""],
                      domain=DOMAIN)]  # fmt: skip
        nodes.insert(0, node("Cast", ["ids"], ["ids32"], to=TensorProto.INT32))
    inputs: dict[str, tuple[int, Any]] = {"ids": (TensorProto.INT64, ("batch", "tokens"))}
    if bias:
        inputs["bias"] = TensorProto.FLOAT, (1, HEADS, "tokens", "total")
    else:
        inputs["mask"] = TensorProto.INT32, ("batch", "total")
    masks = ["" if bias else "mask", "bias" if bias else ""]
    attrs |= {"num_heads": HEADS, "domain": DOMAIN}
    for n in range(LAYERS):
        tensors[f"b{n}"] = weight(3 * WIDTH)
        if op == WHOLE:
            tensors[f"w{n}"] = weight(WIDTH, 3 * WIDTH)
            operands = [f"x{n}", f"w{n}", f"b{n}", masks[0], f"past{n}", masks[1]]
            pasts, presents = [f"past{n}"], [f"present{n}"]
        elif op == BYTES:
            tensors[f"w{n}"] = rng.integers(-64, 64, (WIDTH, 3 * WIDTH)).astype(np.int8)
            tensors |= {"ws": np.asarray(0.01, np.float32), "wz": np.asarray(0, np.int8)}
            tensors |= {"xs": np.asarray(0.05, np.float32), "xz": np.asarray(60, np.uint8)}
            nodes.append(node("QuantizeLinear", ["x0", "xs", "xz"], [f"q{n}"]))  # no sum that is rounded differently
            operands = [f"q{n}", f"w{n}", f"b{n}", "xs", "ws", masks[0], "xz", "wz", f"past{n}"]
            pasts, presents = [f"past{n}"], [f"present{n}"]
        else:
            for name in "qkv":
                tensors[f"{name}w{n}"] = weight(WIDTH, WIDTH)
                nodes.append(node("MatMul", [f"x{n}", f"{name}w{n}"], [f"{name}{n}"]))
            pasts, presents = [f"past_k{n}", f"past_v{n}"], [f"present_k{n}", f"present_v{n}"]
            operands = [f"q{n}", f"k{n}", f"v{n}", f"b{n}", *masks, *pasts]
        inputs |= {name: (TensorProto.FLOAT, (*[2] * (op != HALVES), "batch", HEADS, "past", HEAD)) for name in pasts}
        results = [f"a{n}", *presents, *([f"scores{n}"] if scores else [])]
        nodes.append(node(op, operands, results, name=f"layer{n}", **attrs))
        if fused:
            nodes += [
                node("SkipLayerNormalization", [f"x{n}", f"a{n}", *norm], [f"n{n}", "", "", f"s{n}"], domain=DOMAIN),
                node("MultiHeadAttention", [f"n{n}", "other", "other"], [f"c{n}"], num_heads=HEADS, domain=DOMAIN),
                node("MatMul", [f"c{n}", "wide"], [f"w{n}/wide"]),
                node("BiasGelu", [f"w{n}/wide", "shift"], [f"g{n}"], domain=DOMAIN),
                node("FusedMatMul", [f"g{n}", "narrow"], [f"m{n}"], transB=1, alpha=0.5, domain=DOMAIN),
                node("Add", [f"s{n}", f"m{n}"], [f"x{n + 1}"]),
            ]
        else:
            nodes.append(node("Add", [f"x{n}", f"a{n}"], [f"x{n + 1}"]))
        outputs += results[1:]
    nodes.append(node("MatMul", [f"x{LAYERS}", "out"], ["logits"]))
    model = model_of(nodes, inputs, outputs, tensors)
    for info in model.graph.output:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    model.ir_version = 9
    return model


class Decoding:
    """A decoder, and ONNX Runtime, each of which goes on with its own caches."""

    def __init__(self, model: onnx.ModelProto, batch: int = 1) -> None:
        self.onnx, self.batch = model, batch
        self.session = InferenceSession(model, database=False, target="native -num-cores=1")
        self.names = [i.name for i in model.graph.input if i.name.startswith("past")]
        self.places = [n for n, o in enumerate(model.graph.output) if o.name.startswith("present")]
        self.rng = np.random.default_rng(1)
        self.empty()

    def empty(self) -> None:
        dims = {i.name: len(i.type.tensor_type.shape.dim) for i in self.onnx.graph.input}
        shapes = [(*[2] * (dims[name] == 5), self.batch, HEADS, 0, HEAD) for name in self.names]
        self.ours = self.theirs = [np.zeros(shape, np.float32) for shape in shapes]

    def step(self, tokens: int = 1) -> None:
        total = self.theirs[0].shape[-2] + tokens
        feeds: dict[str, Array] = {"ids": self.rng.integers(0, WORDS, (self.batch, tokens))}
        if "bias" in {i.name for i in self.onnx.graph.input}:
            feeds["bias"] = self.rng.standard_normal((1, HEADS, tokens, total)).astype(np.float32)
        else:
            feeds["mask"] = np.ones((self.batch, total), np.int32)
            feeds["mask"][1:, 0] = 0  # a shorter prompt, padded on the left
        wanted = theirs(self.onnx, feeds | dict(zip(self.names, self.theirs)))
        found = self.session.run(None, feeds | dict(zip(self.names, self.ours)))
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        self.ours, self.theirs = ([results[n] for n in self.places] for results in (found, wanted))

    @property
    def model(self) -> GrowingModel:
        found = self.session._model
        assert isinstance(found, GrowingModel)
        return found


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_steps, "LEAST_ROOM", 8)
    monkeypatch.setattr(padded_steps, "LEAST_SIZE", 2)
    monkeypatch.setattr(growing, "SOON", 1.0)


@pytest.mark.parametrize(("op", "batch"), [(WHOLE, 1), (WHOLE, 2), (HALVES, 2), (BYTES, 1)])
def test_steps_share_programs_and_memory(op: str, batch: int) -> None:
    decoding, copied = Decoding(decoder(op, unidirectional=int(batch == 1)), batch), 0
    decoding.step(3)
    for _ in range(20):
        before = decoding.ours
        decoding.step()
        shared = {np.shares_memory(one, other) for one, other in zip(before, decoding.ours)}
        assert len(shared) == 1
        copied += shared == {False}
    assert copied == 3  # to rooms of 8, 16 and 32 rows
    (steps,) = decoding.model._kinds
    assert sorted(steps.programs) == [(8,), (16,), (32,)] and len(decoding.session.shapes()) == 4
    labels = [call.label for call in steps.programs[8,].program.program.calls]  # type: ignore[union-attr]
    assert any("attention" in label and "lengths" in label for label in labels)  # no score behind the used rows


@pytest.mark.parametrize("op", [WHOLE, HALVES])
def test_large_caches_are_updated_in_place(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    monkeypatch.setattr(padded_steps, "LEAST_ROOM", 2048)
    decoding = Decoding(decoder(op, unidirectional=1))
    decoding.step(2)
    decoding.step()
    (steps,) = decoding.model._kinds
    program = steps.programs[2048,].program
    assert program is not None and len(program.program.updates) == len(decoding.names)


@pytest.mark.parametrize("causal", [0, 1])
def test_prompts_of_other_lengths_share_programs(causal: int) -> None:
    """Queries are padded there like keys, and those of no direction must not see the padding."""
    decoding = Decoding(decoder(WHOLE, unidirectional=causal))
    for tokens in (5, 21, 19, 23, 17):
        decoding.empty()
        decoding.step(tokens)
        decoding.step(2)
        decoding.model.wait()
    lengths = {use.inputs["ids"][1] for use in decoding.session.shapes() if use.inputs["ids"][1] > 2}
    assert len(lengths) <= 3 and not lengths & {17, 19, 21, 23}


def test_a_bias_of_the_scores_and_what_they_are() -> None:
    """Scores are an output, whose last dimension grows, too."""
    decoding = Decoding(decoder(HALVES, bias=True, scores=True))
    for tokens in (2, 1, 1, 2, 1):
        decoding.step(tokens)
    assert [sorted(steps.programs) for steps in decoding.model._kinds] == [[(8,)], [(8, 2)]]


@pytest.mark.parametrize("op", [WHOLE, HALVES])
def test_what_is_fused_around_attention(op: str) -> None:
    decoding = Decoding(decoder(op, fused=True, unidirectional=1))
    for tokens in (5, 21, 19, 23):
        decoding.empty()
        for count in (tokens, 1, 1, 1):
            before = decoding.ours
            decoding.step(count)
        assert all(np.shares_memory(one, other) for one, other in zip(before, decoding.ours))
        decoding.model.wait()
    lengths = {use.inputs["ids"][1] for use in decoding.session.shapes() if use.inputs["ids"][1] > 1}
    assert len(lengths) <= 3 and not lengths & {19, 21, 23}


def test_what_is_not_written_out() -> None:
    """Caches that come from elsewhere, or of other heads than the node says: its own converter looks at those."""
    whole = open_model(decoder(WHOLE))
    assert caches_of(whole) is None and caches_of(with_joints(whole)) is not None
    for op in (WHOLE, HALVES):
        other = decoder(op)
        for declared in other.graph.input[2:]:
            declared.type.tensor_type.shape.dim[-3].dim_value = HEADS + 1
        model = open_model(other)
        assert with_joints(model) is model
