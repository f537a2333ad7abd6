"""Inverse, UnfoldTensor and others of ONNX Runtime's own, against it; or as specified, where CPUs have none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import evaluate_graph, load_model, optimize
from autotune.graph.frontend.contrib.relative_positions import buckets_of
from tests.graph.contrib_models import compare, model_of, numbers, refusal, theirs
from tests.graph.graph_models import Array, random


def as_said(op: str, feeds: dict[str, Array], expected: list[Array], tensors: Any = None, **rest: Any) -> None:
    """Ours is what the specification says."""
    graph = load_model(model_of(op, feeds, tensors or {}, **rest).SerializeToString())
    for form in (graph, optimize(graph)):
        for found, wanted in zip(evaluate_graph(form, feeds).values(), expected, strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4), (2, 3, 9, 9)])
def test_inverse(shape: tuple[int, ...]) -> None:
    """Of matrices that are far from having none."""
    x = (random(*shape) + 4 * np.eye(shape[-1])).astype(np.float32)
    compare("Inverse", {"x": x})
    model = model_of("Inverse", {"x": x}, {})
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], theirs(model, {"x": x})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize(("size", "step"), [(3, 1), (2, 2), (4, 3), (1, 5)])
def test_unfold_tensor(dim: int, size: int, step: int) -> None:
    compare("UnfoldTensor", {"x": random(4, 5, 7)}, dim=dim, size=size, step=step)
    compare("UnfoldTensor", {"x": numbers(4, 5, 7, dtype=np.int64)}, dim=dim, size=size, step=step)


def test_products_of_integers_of_sixteen_bits() -> None:
    a, b = (numbers(2, *shape, dtype=np.int16, seed=n) // np.int16(8) for n, shape in enumerate(((3, 9), (9, 5))))
    compare("MatMulInteger16", {"a": a}, {"b": b})
    wide = [x.astype(np.uint16) // np.uint16(16) for x in (a, b)]
    product = (wide[0].astype(np.uint32) @ wide[1].astype(np.uint32)).astype(np.uint32)
    as_said("MatMulInteger16", {"a": wide[0], "b": wide[1]}, [product])


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_embeddings_of_bytes(segments: bool, mask: bool, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {"i": rng.integers(0, 9, (2, 4)).astype(np.int32)}
    tables = {"w": (9, 8), "p": (6, 8), "s": (2, 8), "g": (8,), "b": (8,)}
    if segments:
        feeds["j"] = rng.integers(0, 2, (2, 4)).astype(np.int32)
    else:
        del tables["s"]
    if mask:
        feeds["m"] = np.asarray([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    tensors: dict[str, Array] = {}
    for seed, (name, shape) in enumerate(tables.items()):
        tensors[name] = numbers(*shape, dtype=dtype, seed=seed)
        tensors[f"{name}s"] = np.asarray(0.01 * (seed + 1), np.float32)
        tensors[f"{name}z"] = np.asarray(3 * seed + 2, dtype)
    names = "i j w p s g b m ws ps ss gs bs wz pz sz gz bz".split()
    order = " ".join(name if name in feeds | tensors else "-" for name in names)
    compare("QEmbedLayerNormalization", feeds, tensors, outputs=["y", "count"], order=order, epsilon=1e-5)


def test_sums_and_means_of_bytes() -> None:
    a, b = numbers(2, 3, 5), numbers(3, 5, dtype=np.int8, seed=1)
    tensors: dict[str, Array] = {"za": np.asarray(7, np.uint8), "zb": np.asarray(-3, np.int8)}
    product = (a.astype(np.int32) - 7) * (b.astype(np.int32) + 3)
    as_said("MulInteger", {"a": a, "b": b}, [product], tensors, order="a za b zb")
    as_said("MulInteger", {"a": a, "b": b}, [a.astype(np.int32) * b], order="a - b")
    as_said("ReduceSumInteger", {"a": a}, [a.sum((0, 2), dtype=np.uint32)], axes=[0, -1], keepdims=0)
    as_said("ReduceSumInteger", {"b": b}, [b.sum((0,), dtype=np.int32, keepdims=True)], axes=[0], keepdims=1)
    mean = (a.astype(np.float32) - 7).mean(1, keepdims=True) * np.float32(0.1)
    expected = np.clip(np.round(mean / np.float32(0.05)) + 9, 0, 255).astype(np.uint8)
    scales: dict[str, Array] = {"s": np.asarray(0.1, np.float32), "z": np.asarray(7, np.uint8),
                                "t": np.asarray(0.05, np.float32), "w": np.asarray(9, np.uint8)}  # fmt: skip
    as_said("QLinearReduceMean", {"a": a}, [expected], scales, axes=[1], keepdims=1)


def test_fused_for_other_devices() -> None:
    x, w, b = random(2, 3, 4), random(4, 5, seed=1), random(5, seed=2)
    y = x @ w + b
    gelu = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    as_said("GemmFastGelu", {"x": x}, [gelu.astype(np.float32)], {"w": w, "b": b})
    scores, bias = random(2, 3, 4, 5), random(2, 1, 1, 5, seed=1)
    powers = np.exp(scores + bias)
    soft = powers / powers.sum(3, keepdims=True)
    as_said("BiasSoftmax", {"x": scores, "b": bias}, [soft], axis=3, is_inner_broadcast=1)
    whole = powers / powers.sum((2, 3), keepdims=True)
    as_said("BiasSoftmax", {"x": scores, "b": bias}, [whole], axis=2, is_inner_broadcast=1)
    as_said("BiasDropout", {"x": x, "b": random(4), "r": x}, [x + random(4) + x, np.ones(x.shape, bool)],
            outputs=("y", "m"))  # fmt: skip
    as_said("TorchEmbedding", {"w": w, "i": np.asarray([[3, 0]])}, [w[[[3, 0]]]])


def test_buckets_of_distances() -> None:
    """Those of T5: each distance below 8 (16 in one direction), then wider ones up to 128."""
    both, back = (buckets_of(300, 300, 32, 128, both=two) for two in (True, False))
    assert [int(both[20, 20 - n]) for n in (0, 1, 7, 8, 11, 12, 16)] == [0, 1, 7, 8, 8, 9, 10]
    assert [int(both[20, 20 + n]) for n in (1, 7, 8, 200)] == [17, 23, 24, 31]
    assert [int(back[299, 299 - n]) for n in (0, 15, 16, 20, 127, 128, 299)] == [0, 15, 16, 17, 31, 31, 31]
    assert not np.triu(back).any()


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both: int) -> None:
    """The buckets of one head lie side by side."""
    table, length = random(32, 3), {n: np.asarray([40]) for n in ("q", "k")}
    places = buckets_of(40, 40, 32, 128, both=bool(both))
    expected = table.reshape(3, 32)[:, places][None]
    as_said("RelativePositionBias", {"t": table}, [expected], length, max_distance=128, is_bidirectional=both)


def test_gated_relative_position_bias() -> None:
    feeds = {"q": random(2, 5, 12), "b": random(12, seed=1), "p": random(1, 3, 5, 5, seed=2), "w": random(4, 8, seed=3),
             "c": random(8, seed=4), "a": random(1, 3, 1, 1, seed=5)}  # fmt: skip
    query = (feeds["q"] + feeds["b"]).reshape(2, 5, 3, 4).transpose(0, 2, 1, 3)
    sums = (query @ feeds["w"] + feeds["c"]).reshape(2, 3, 5, 2, 4).sum(-1)
    update, reset = np.split(1 / (1 + np.exp(-sums)), 2, -1)
    expected = (update * (reset * feeds["a"] - 1) + 2) * feeds["p"]
    as_said("GatedRelativePositionBias", feeds, [expected], num_heads=3)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transforms_of_real_signals(count: int, dtype: Any) -> None:
    """There, and back again."""
    x = random(3, 5, 7, 8).astype(dtype)
    axes = tuple(range(4 - count, 4))
    spectrum = np.fft.rfftn(x, axes=axes)
    pairs = np.stack([spectrum.real, spectrum.imag], -1).astype(dtype)
    as_said("Rfft", {"x": x}, [pairs], signal_ndim=count, onesided=1, normalized=0)
    as_said("Irfft", {"x": pairs}, [x], signal_ndim=count)


def test_products_of_complex_numbers() -> None:
    a, b = random(2, 3, 2), random(3, 2, seed=1)
    for op, other in (("ComplexMul", 1), ("ComplexMulConj", -1)):
        product = (a[..., 0] + 1j * a[..., 1]) * (b[..., 0] + other * 1j * b[..., 1])
        as_said(op, {"a": a, "b": b}, [np.stack([product.real, product.imag], -1).astype(np.float32)])


def test_unique_elements_in_their_order() -> None:
    x = np.asarray([2, 1, 1, 3, 4, 3, 2], np.float32)
    outputs = ("y", "i", "c")
    model = model_of("Unique", {"x": x}, {}, outputs=outputs)
    expected = theirs(model, {"x": x})
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    for found, wanted in zip(session.run(None, {"x": x}), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_refusals() -> None:
    wrong: dict[str, Any] = {"kind": ModelError}
    assert "size=9 and step=1 along dimension 1" in refusal("UnfoldTensor", {"x": random(2, 7)}, {}, size=9, **wrong)
    training = {"r": random(3), "n": np.asarray(0.5, np.float32), "t": np.asarray(True)}
    assert "training_mode=True is not supported" in refusal(
        "BiasDropout", {"x": random(2, 3), "b": random(3)}, training, order="x b - n t", kind=UnsupportedError
    )
    length = {n: np.asarray([40]) for n in ("q", "k")}
    said = refusal("RelativePositionBias", {"t": random(32, 3)}, length, max_distance=8, **wrong)
    assert "max_distance=8 with 32 buckets, 40 to 40 tokens" in said
    assert "only normalized=0" in refusal("Rfft", {"x": random(2, 8)}, {}, normalized=1)
    assert "signal_ndim=3 of data of shape (2, 8)" in refusal("Rfft", {"x": random(2, 8)}, {}, signal_ndim=3, **wrong)
    assert "a spectrum of shape (2, 8)" in refusal("Irfft", {"x": random(2, 8)}, {}, signal_ndim=1, **wrong)
    assert "has no pairs" in refusal("ComplexMul", {"a": random(2, 3), "b": random(2, 3)}, {}, **wrong)
    gated = {name: random(2, 5, 12) for name in "qbpwca"}
    assert "5 heads of queries (2, 5, 12)" in refusal("GatedRelativePositionBias", gated, {}, num_heads=5, **wrong)
