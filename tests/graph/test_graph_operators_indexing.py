"""Converters against the ONNX reference: indexing, einsum, rearrangements, spectra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.errors import ModelError, UnsupportedError
from autotune.graph import evaluate_graph, load_model, optimize
from autotune.graph.frontend import spectrum
from tests.graph.graph_models import Array, build, check, random

# Indexing --------------------------------------------------------------------------------------------


def test_gathers_with_constant_indices() -> None:
    feeds = {"x": random(3, 4, 5)}
    cases: tuple[tuple[str, Array, dict[str, Any]], ...] = (
        ("GatherElements", np.arange(30).reshape(3, 2, 5) % 4, {"axis": 1}),
        ("GatherND", np.array([[0, -1], [2, 3]]), {}),
        ("GatherND", np.array([[1], [-3], [3]]), {"batch_dims": 1}),
    )
    for op, indices, attrs in cases:
        check(build(helper.make_node(op, ["x", "i"], ["y"], **attrs), feeds, {"i": indices}), feeds)
        with pytest.raises(ModelError, match="an index into .* is outside"):
            load_model(
                build(helper.make_node(op, ["x", "i"], ["y"], **attrs), feeds, {"i": indices - 9}).SerializeToString()
            )


def test_tuples_of_one_index_are_indices() -> None:
    feeds = {"x": random(4, 3, 5), "i": np.array([[[1], [-4]], [[3], [0]]])}
    model = build(helper.make_node("GatherND", ["x", "i"], ["y"]), feeds)
    check(model, feeds, [feeds["x"][feeds["i"][..., 0]]])
    assert {"gather", "reshape"} <= {node.op for node in load_model(model.SerializeToString()).nodes}


@pytest.mark.parametrize("opset", [9, 11, 18])
def test_scatter_elements(opset: int) -> None:
    op = "Scatter" if opset == 9 else "ScatterElements"
    attrs: dict[str, Any] = {"reduction": "max"} if opset == 18 else {}
    feeds = {"x": random(3, 4), "i": np.array([[1, 0, 3]]), "u": random(1, 3, seed=1)}
    expected = feeds["x"].copy()
    for n, at in enumerate((1, 0, 3)):
        update = feeds["u"][0, n]
        expected[0, at] = max(update, expected[0, at]) if attrs else update
    check(build(helper.make_node(op, ["x", "i", "u"], ["y"], axis=1, **attrs), feeds, opset=opset), feeds, [expected])


def test_scatter_nd() -> None:
    feeds = {"x": random(4, 5), "i": np.array([[1], [3], [1]]), "u": random(3, 5, seed=1)}
    for attrs in ({}, {"reduction": "add"}):
        check(build(helper.make_node("ScatterND", ["x", "i", "u"], ["y"], **attrs), feeds, opset=16), feeds)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    feeds = {"i": np.array([[1, -3], [7, 0]])}
    tensors = {"depth": np.asarray(4), "v": np.array([0, 3], np.int32)}
    check(build(helper.make_node("OneHot", ["i", "depth", "v"], ["y"], axis=axis), feeds, tensors), feeds)


@pytest.mark.parametrize("k", [None, 0, -(2**60), 2**60])
def test_trilu(k: int | None) -> None:
    feeds = {"x": random(2, 3, 4)}
    tensors = {} if k is None else {"k": np.asarray(k)}
    expected = [np.triu(feeds["x"], max(-9, min(9, k or 0)))]
    check(build(helper.make_node("Trilu", ["x", *tensors], ["y"]), feeds, tensors, opset=14), feeds, expected)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress_with_a_constant_condition(axis: int | None) -> None:
    feeds = {"x": random(2, 3)}
    tensors = {"c": np.array([False, True, False, True, True] if axis is None else [False, True])}
    attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
    check(build(helper.make_node("Compress", ["x", "c"], ["y"], **attrs), feeds, tensors), feeds)


def test_eye_like() -> None:
    feeds = {"x": random(3, 4)}
    cases: tuple[dict[str, Any], ...] = ({}, {"k": -1}, {"k": 2, "dtype": TensorProto.INT8})
    for attrs in cases:
        check(build(helper.make_node("EyeLike", ["x"], ["y"], **attrs), feeds), feeds)


def test_determinant() -> None:
    feeds = {"x": random(2, 4, 4)}
    check(build(helper.make_node("Det", ["x"], ["y"]), feeds), feeds)


# Rearrangements --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode: str) -> None:
    feeds = {"x": random(1, 8, 2, 3)}
    there = helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=mode)
    check(build(there, feeds), feeds)
    back = helper.make_node("SpaceToDepth", ["y"], ["z"], blocksize=2, **({} if mode == "DCR" else {"mode": mode}))
    model = build([there, back], feeds, outputs=["z"], opset=13 if mode == "DCR" else 28)
    model.ir_version = 13
    check(model, feeds, [feeds["x"]])


def test_tile() -> None:
    feeds = {"x": random(2, 1, 3)}
    for repeats in ((1, 1, 1), (2, 3, 1), (1, 4, 2), (0, 1, 1)):
        check(build(helper.make_node("Tile", ["x", "r"], ["y"]), feeds, {"r": np.asarray(repeats)}), feeds)
    old = {"n": np.asarray(3.0, np.float32), "a": np.asarray(1.0, np.float32)}
    node = helper.make_node("Tile", ["x", "n", "a"], ["y"])
    check(build(node, feeds, old, opset=5), feeds, [np.tile(feeds["x"], (1, 3, 1))])


# Einsum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "dims", "products"),
    [
        ("ij,jk", [(3, 4), (4, 5)], 1),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], 1),
        ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)], 1),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)], 1),
        ("...ij , ...jk -> i...k", [(2, 1, 3, 4), (5, 4, 5)], 1),
        ("ij,kj,kl->il", [(3, 4), (5, 4), (5, 6)], 2),
        ("bii,ij->bj", [(2, 3, 3), (3, 4)], 1),
        ("ijx,jk->ik", [(3, 4, 2), (4, 5)], 1),
        ("i,i", [(4,), (4,)], 1),
        ("i,j->ji", [(3,), (4,)], 0),
        ("ij,ij->ij", [(3, 4), (3, 4)], 0),
        ("...ii->...i", [(2, 4, 4)], 0),
        ("bij->jb", [(2, 3, 4)], 0),
        ("ji", [(3, 4)], 0),
        ("", [()], 0),
    ],
)
def test_einsum(equation: str, dims: list[tuple[int, ...]], products: int) -> None:
    feeds = {f"x{n}": random(*d, seed=n) for n, d in enumerate(dims)}
    expected = np.asarray(np.einsum(equation, *feeds.values()))
    model = build(helper.make_node("Einsum", list(feeds), ["y"], equation=equation), feeds)
    check(model, feeds, [expected])
    ops = [node.op for node in load_model(model.SerializeToString()).nodes]
    assert ops.count("matmul") == products
    if products:
        whole = {name: (array * 4).astype(np.int8) for name, array in feeds.items()}
        wrapped = np.asarray(np.einsum(equation, *whole.values()))
        check(build(helper.make_node("Einsum", list(feeds), ["y"], equation=equation), whole), whole, [wrapped])


@pytest.mark.parametrize("equation", ["ij", "ij,jk->i.k", "ijk,jk", "ij,jk->iz", "i;j,jk", "ij,ik->i"])
def test_einsum_refused(equation: str) -> None:
    feeds = {"a": random(3, 4), "b": random(4, 5)}
    with pytest.raises(ModelError):
        load_model(build(helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation), feeds).SerializeToString())


# Spectra ---------------------------------------------------------------------------------------------


def transform(x: Array, opset: int = 20, length: int | None = None, **attrs: Any) -> Array:
    """The model's result for DFT on run-time data."""
    tensors: dict[str, Array] = {} if length is None else {"n": np.asarray(length)}
    inputs = ["x", "n" if length is not None else ""]
    if opset >= 20 and "axis" in attrs:
        tensors["a"] = np.asarray(attrs.pop("axis"))
        inputs.append("a")
    model = build(helper.make_node("DFT", inputs, ["y"], **attrs), {"x": x}, tensors, opset=opset)
    return evaluate_graph(optimize(load_model(model.SerializeToString())), {"x": x})["y"]


def as_complex(pairs: Array) -> Array:
    return np.asarray(pairs[..., 0] + 1j * pairs[..., 1])


@pytest.mark.parametrize("length", [1, 7, 12, 16, None])
@pytest.mark.parametrize("opset", [17, 20])
def test_dft(length: int | None, opset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct, and split at divisors as long transforms are."""
    signal, pairs = random(3, 12, 5, 1), random(3, 12, 5, 2)
    for direct in (512, 2):
        monkeypatch.setattr(spectrum, "MAX_DIRECT", direct)
        found = transform(signal, opset, length, axis=1)
        np.testing.assert_allclose(as_complex(found), np.fft.fft(signal[..., 0], length, 1), atol=1e-5)
        half = transform(signal, opset, length, axis=1, onesided=1)
        np.testing.assert_allclose(as_complex(half), np.fft.rfft(signal[..., 0], length, 1), atol=1e-5)
        wide = np.fft.fft(as_complex(pairs.astype(np.float64)), length, -1)
        np.testing.assert_allclose(as_complex(transform(pairs, opset, length, axis=-2)), wide, atol=1e-5)
        back = transform(pairs, opset, length, axis=1, inverse=1)
        np.testing.assert_allclose(as_complex(back), np.fft.ifft(as_complex(pairs), length, 1), atol=1e-5)
        if length != 1:
            real = transform(pairs, opset, length, axis=1, inverse=1, onesided=1)
            np.testing.assert_allclose(real[..., 0], np.fft.irfft(as_complex(pairs), length, 1), atol=1e-5)


def test_dft_of_a_long_prime_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a transform of length 16381, which has no divisors"):
        transform(random(1, 16381, 1), axis=1)


@pytest.mark.parametrize("windowed", [True, False])
def test_stft(windowed: bool) -> None:
    feeds = {"x": random(2, 40, 1)}
    tensors = {"step": np.asarray(4), "size": np.asarray(10)}
    names = ["x", "step", "", "size"]
    if windowed:
        tensors["w"] = np.hanning(10).astype(np.float32)
        names[2] = "w"
    for onesided in (0, 1):
        node = helper.make_node("STFT", names, ["y"], onesided=onesided)
        check(build(node, feeds, tensors, opset=17), feeds)


def test_mel_weight_matrix() -> None:
    numbers = {"a": 8, "b": 64, "c": 8192, "d": 10.0, "e": 4000.0}
    tensors = {k: np.asarray(v, np.float32 if isinstance(v, float) else np.int64) for k, v in numbers.items()}
    feeds = {"x": random(33, 8)}
    nodes = [helper.make_node("MelWeightMatrix", list(tensors), ["m"]), helper.make_node("Add", ["x", "m"], ["y"])]
    check(build(nodes, feeds, tensors, opset=17), feeds)
