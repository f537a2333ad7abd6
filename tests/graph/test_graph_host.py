"""Host functions against the ONNX reference, their edge cases against what the specification says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from autotune.errors import AutotuneError, InputError, ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host import host_operators, run_host
from autotune.graph.host.node import OWN
from tests.graph.graph_models import FEW

Array = npt.NDArray[Any]


def run(op: str, *arrays: Array | None, **attributes: Any) -> Sequence[Array]:
    names = ["" if array is None else f"x{n}" for n, array in enumerate(arrays)]
    proto = helper.make_node(op, names, ["y"], domain=OWN if op == "MaskedSelect" else "", **attributes)
    found = run_host(NodeAttributes(proto, 17, None), arrays)
    assert all(isinstance(array, np.ndarray) for array in found)
    return [array for array in found if isinstance(array, np.ndarray)]


def floats(*values: float) -> Array:
    return np.asarray(values, np.float32)


def test_the_set_is_this_and_no_other() -> None:
    of_sequences = ("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
                    "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
                    "SplitToSequence")  # fmt: skip
    of_strings = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")
    of_data = ("Compress", "MaskedSelect", "NonMaxSuppression", "NonZero", "TfIdfVectorizer", "Unique")
    assert host_operators() == tuple(sorted((*of_data, *of_sequences, *of_strings)))


@given(st.lists(st.integers(0, 3), max_size=4), st.sampled_from(["float32", "float16", "int8", "bool", "bfloat16"]))
@FEW
def test_nonzero(shape: list[int], dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    x = np.random.default_rng(0).integers(0, 2, shape).astype(kind)
    (found,) = run("NonZero", x)
    assert found.dtype == np.int64
    assert found.shape[0] == len(shape)
    if shape:
        np.testing.assert_array_equal(found, np.stack(np.nonzero(x.astype(np.int64))))


def test_nonzero_of_scalars() -> None:
    assert run("NonZero", np.asarray(3.0))[0].shape == (0, 1)
    assert run("NonZero", np.asarray(0))[0].shape == (0, 0)


@given(st.data())
@FEW
def test_unique(data: st.DataObject) -> None:
    """What comes out rebuilds what went in; each is there once, in order or as first seen."""
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    in_order = data.draw(st.booleans())
    dtype = data.draw(st.sampled_from([np.float32, np.int64, np.uint8, np.float16, ml_dtypes.bfloat16, np.bool_]))
    x = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 2, shape).astype(dtype)
    attributes = {"sorted": int(in_order), **({} if axis is None else {"axis": axis})}
    y, first, inverse, counts = run("Unique", x, **attributes)
    source, along = (x.reshape(-1), 0) if axis is None else (x, axis)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(np.take(y, inverse, along), source)
    np.testing.assert_array_equal(np.take(source, first, along), y)
    np.testing.assert_array_equal(np.bincount(inverse, minlength=len(counts)), counts)
    slices = [tuple(np.take(y, n, along).reshape(-1).astype(np.float32)) for n in range(y.shape[along])]
    assert len(set(slices)) == len(slices)
    if in_order:
        assert slices == sorted(slices)
    else:
        assert list(first) == sorted(first)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "bool"])
def test_unique_rows_of_any_integers(dtype: str) -> None:
    least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.random.default_rng(0).choice(np.asarray([least, most // 2, most], dtype), (40, 2, 2))
    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=0)
    for found, right in zip(run("Unique", x, axis=0), expected, strict=True):
        np.testing.assert_array_equal(found, right.reshape(found.shape))


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "uint64", "int32", "uint32", "int8", "bool"]
)
def test_unique_numbers(dtype: str) -> None:
    """As NumPy has it, for NaN and zeros of either sign and for the ends of integers, too."""
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    if kind.kind == "f":
        few = np.asarray([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1, -1], kind)
    elif kind.kind == "b":
        few = np.asarray([False, True])
    else:
        info = np.iinfo(kind)
        few = np.asarray([info.min, info.min + 1, info.max - 1, info.max], kind)
    for values in (few, few[:2], few[-2:], few[:1], few[3:7]):
        x = rng.choice(values, 50) if len(values) else few[:0]
        y, first, inverse, counts = run("Unique", x)
        expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        for found, wanted in zip((y, first, inverse, counts), expected):
            np.testing.assert_array_equal(found, wanted)


@given(st.data())
@FEW
def test_unique_strings(data: st.DataObject) -> None:
    """As numbers in their place, in the order of the characters' codes."""
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    attributes = {"sorted": data.draw(st.integers(0, 1)), **({} if axis is None else {"axis": axis})}
    texts = np.asarray(["", "B", "a", "ab", "é", "\uffff", "\U0001f600"], object)
    numbers = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, len(texts), shape)
    found, expected = run("Unique", texts[numbers], **attributes), run("Unique", numbers, **attributes)
    assert found[0].dtype == object
    for one, other in zip(found, (texts[expected[0]], *expected[1:]), strict=True):
        assert one.shape == other.shape and one.tolist() == other.tolist()


def test_compress() -> None:
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(run("Compress", x, np.asarray([False, True]), axis=1)[0], x[:, 1:2])
    np.testing.assert_array_equal(run("Compress", x, np.asarray([True] * 11))[0], np.arange(11))
    assert run("Compress", x, np.zeros(3, np.bool_), axis=-2)[0].shape == (0, 4)
    with pytest.raises(InputError, match="selects 3 of an axis of extent 3"):
        run("Compress", x, np.ones(4, np.bool_), axis=0)
    for condition, axis in ((np.ones((1, 2), np.bool_), 0), (np.ones(2, np.int64), 0), (np.ones(2, np.bool_), 2)):
        with pytest.raises(ModelError):
            run("Compress", x, condition, axis=axis)


@given(st.lists(st.integers(0, 3), max_size=3), st.integers(0, 3), st.sampled_from(["float32", "int8", "bool", "O"]))
@FEW
def test_masked_select(shape: list[int], rank: int, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 9, shape).astype("U1" if dtype == "O" else dtype).astype(dtype)
    mask = np.random.default_rng(1).integers(-1, 2, shape[:rank]).astype(np.float32)
    (found,) = run("MaskedSelect", x, mask)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x[mask != 0])


def test_masks_of_another_shape() -> None:
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(run("MaskedSelect", x, np.asarray([[False, True]]))[0], [1])
    np.testing.assert_array_equal(run("MaskedSelect", x, np.asarray([True, False, False]))[0], [[0, 1, 2]])
    with pytest.raises(InputError, match=r"the mask, of shape \(3,\), selects what is not in data"):
        run("MaskedSelect", x, np.asarray([True, False, True]))
    with pytest.raises(ModelError, match="a mask of shape"):
        run("MaskedSelect", x, np.ones((1, 1, 1), np.bool_))


def test_non_max_suppression() -> None:
    boxes = floats(0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, 10, 1, 11, 1, 11.05, 0, 10.05).reshape(1, 4, 4)
    scores = floats(0.5, 0.9, 0.3, 0.3, 0.1, 0.2, 0.3, 0.4).reshape(1, 2, 4)
    ten, half = np.asarray([10]), floats(0.5)
    (found,) = run("NonMaxSuppression", boxes, scores, ten, half)
    assert found.tolist() == [[0, 0, 1], [0, 0, 2], [0, 1, 3], [0, 1, 1]]
    assert run("NonMaxSuppression", boxes, scores, np.asarray([1]), half)[0].tolist() == [[0, 0, 1], [0, 1, 3]]
    assert run("NonMaxSuppression", boxes, scores, ten, half, floats(0.3))[0].tolist() == [[0, 0, 1], [0, 1, 3]]
    assert run("NonMaxSuppression", boxes, scores)[0].shape == (0, 3)
    centred = np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, abs(boxes[..., 2:] - boxes[..., :2])], -1)
    same = run("NonMaxSuppression", centred, scores, ten, half, center_point_box=1)[0]
    np.testing.assert_array_equal(same, found)
    assert len(run("NonMaxSuppression", boxes[:, :0], scores[..., :0], ten, half)[0]) == 0
    for wrong in ((boxes[0], scores, ten, half), (boxes, scores[..., :3], ten, half), (boxes, scores, ten, floats(2))):
        with pytest.raises(AutotuneError):
            run("NonMaxSuppression", *wrong)


POOL = {
    "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6], "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
    "mode": "TF",
}  # fmt: skip


def test_ngrams() -> None:
    x = np.asarray([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)
    both: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 2, **POOL}
    assert run("TfIdfVectorizer", x, **both, max_skip_count=5)[0].tolist() == [
        [0, 3, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 1, 1, 1],
    ]
    assert run("TfIdfVectorizer", x[1], **both, max_skip_count=0)[0].tolist() == [0, 0, 1, 0, 1, 0, 1]
    weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    for mode, expected in (("IDF", [0, 2, 0, 0, 0, 0, 0]), ("TFIDF", [0, 6, 0, 0, 0, 0, 0])):
        settings = {**both, "mode": mode, "weights": weights, "max_skip_count": 0}
        assert run("TfIdfVectorizer", x[0], **settings)[0].tolist() == expected
    assert run("TfIdfVectorizer", x[:, :0], **both, max_skip_count=2**62)[0].shape == (2, 7)


def test_impossible_ngrams() -> None:
    good: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, **POOL}
    x = np.asarray([1, 2])
    changes: list[dict[str, Any]] = [
        {"ngram_counts": [0, 99]}, {"ngram_counts": [0, 5]}, {"ngram_indexes": [0]}, {"mode": "x"},
        {"ngram_indexes": [-1, 1, 2, 3, 4, 5, 6]}, {"ngram_indexes": [2**60, 1, 2, 3, 4, 5, 6]}, {"weights": [1.0]},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(ModelError):
            run("TfIdfVectorizer", x, **{**good, **change})
    with pytest.raises(ModelError, match="integers"):
        run("TfIdfVectorizer", floats(1), **good)
    with pytest.raises(ModelError, match="rows of integers, not a tensor string"):
        run("TfIdfVectorizer", np.asarray(["a"], object), **good)
    texts = {k: v for k, v in good.items() if k != "pool_int64s"} | {"pool_strings": ["a"] * 10}
    with pytest.raises(ModelError, match="rows of strings, not a tensor int64"):
        run("TfIdfVectorizer", x, **texts)
    with pytest.raises(ModelError, match="not both"):
        run("TfIdfVectorizer", x, **good, pool_strings=["a"])
