"""Words that may not come again, distances, and regions of images, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune.errors import InputError, ModelError
from tests.graph.contrib_models import compare, model_of, refusal, theirs
from tests.graph.graph_models import random

WORDS = np.asarray([[1, 2, 1, 3, 1, 2], [0, 0, 0, 0, 0, 0], [4, 3, 2, 1, 0, 4]])


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7])
def test_words_that_come_again(size: int) -> None:
    compare("NGramRepeatBlock", {"words": WORDS, "scores": random(3, 5)}, ngram_size=size)


def test_compiled_and_out_of_range() -> None:
    feeds = {"words": WORDS, "scores": random(3, 5)}
    model = model_of("NGramRepeatBlock", feeds, {}, ngram_size=2)
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    np.testing.assert_array_equal(session.run(None, feeds)[0], theirs(model, feeds)[0])
    with pytest.raises(InputError, match=r"a word is outside of 0\.\.4"):
        session.run(None, feeds | {"words": WORDS + 1})


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str) -> None:
    compare("CDist", {"a": random(3, 4), "b": random(5, 4, seed=1)}, metric=metric)


@pytest.mark.parametrize("size", [[3, 3], [1, 4], [5, 1]])
def test_regions(size: list[int]) -> None:
    """Turned around, across the border, of either image."""
    regions = np.asarray([[0.1, 0.2, 0.8, 0.9], [-0.1, 0, 1.2, 1], [0.9, 0.8, 0.1, 0.2]], np.float32)
    feeds = {"x": random(2, 2, 6, 7), "r": regions, "i": np.asarray([0, 1, 0], np.int32)}
    tensors = {"s": np.asarray(size, np.int32)}
    model = model_of("CropAndResize", feeds, tensors, extrapolation_value=0.5)
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    np.testing.assert_allclose(session.run(None, feeds)[0], theirs(model, feeds)[0], rtol=1e-4, atol=1e-5)


def test_refusals() -> None:
    words = {"words": WORDS, "scores": random(3, 5)}
    assert "ngram_size=0 of words" in refusal("NGramRepeatBlock", words, {}, kind=ModelError, ngram_size=0)
    said = refusal("CDist", {"a": random(3, 4), "b": random(5, 4)}, {}, kind=ModelError, metric="cosine")
    assert "metric='cosine' of points (3, 4) and (5, 4)" in said
    feeds = {"x": random(2, 2, 6, 7), "r": random(3, 4), "i": np.zeros(3, np.int32)}
    size = {"s": np.asarray([3, 3], np.int32)}
    assert "'mode' is not 'bilinear'" in refusal("CropAndResize", feeds, size, mode="nearest")
    wrong = feeds | {"i": np.zeros(2, np.int32)}
    assert "regions (3, 4) of images (2,)" in refusal("CropAndResize", wrong, size, kind=ModelError)
