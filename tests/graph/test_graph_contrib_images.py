"""Operators of images with their channels last: against ONNX Runtime, or what they say where it has them elsewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from autotune.errors import ModelError, UnsupportedError
from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.contrib_models import compare, model_of, numbers, refusal
from tests.graph.graph_models import Array, random


def as_said(op: str, feeds: dict[str, Array], expected: list[Array], **rest: Any) -> None:
    model = model_of(op, feeds, {}, **rest)
    graph = load_model(model.SerializeToString())
    for form in (graph, optimize(graph)):
        for found, wanted in zip(evaluate_graph(form, feeds).values(), expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=2e-5 if found.dtype == np.float32 else 2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_largest_of_windows(dtype: Any) -> None:
    for attrs in ({"pads": [1, 0, 1, 0]}, {"strides": [2, 1], "ceil_mode": 1}, {"dilations": [2, 1]}):
        compare("NhwcMaxPool", {"x": numbers(1, 6, 7, 3, dtype=dtype)}, kernel_shape=[3, 2], **attrs)


def normalised(x: Array, groups: int, scale: Array, bias: Array, epsilon: float) -> Array:
    parts = x.astype(np.float64).reshape(len(x), x.shape[1] * x.shape[2], groups, -1)
    mean, spread = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    return np.asarray(((parts - mean) / np.sqrt(spread + epsilon)).reshape(x.shape) * scale + bias)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("silu", [0, 1])
def test_group_norm(dtype: Any, silu: int) -> None:
    x = random(2, 3, 5, 8).astype(dtype)
    weights = {"g": random(8, seed=1), "b": random(8, seed=2)}
    attrs: dict[str, Any] = {"groups": 4, "activation": silu, "epsilon": 1e-3}

    def wanted(data: Array) -> Array:
        found = normalised(data, 4, weights["g"], weights["b"], 1e-3)
        return np.asarray(found / (1 + np.exp(-found)) if silu else found).astype(dtype)

    as_said("GroupNorm", {"x": x, **weights}, [wanted(x)], **attrs)
    for shape in ((2, 3, 5, 8), (2, 1, 1, 8), (2, 8)):
        skip, bias = random(*shape, seed=3).astype(dtype), random(8, seed=4).astype(dtype)
        total = x + (skip if len(shape) == 4 else skip[:, None, None]) + bias
        as_said("SkipGroupNorm", {"x": x, **weights, "s": skip, "c": bias}, [wanted(total), total],
                outputs=("y", "sum"), **attrs)  # fmt: skip


def test_biases() -> None:
    x, bias, skip = random(2, 4, 8), random(8, seed=1), random(2, 4, 8, seed=2)
    as_said("BiasAdd", {"x": x, "b": bias, "s": skip}, [x + bias + skip])
    left, right = np.split(x + bias, 2, 2)
    gelu = right * (1 + np.vectorize(math.erf)(right / math.sqrt(2))).astype(np.float32) / 2
    as_said("BiasSplitGelu", {"x": x, "b": bias}, [left * gelu])


def test_refusals() -> None:
    weights = {"g": random(8), "b": random(8)}
    assert "groups=3 of data of shape (2, 3, 5, 8)" in refusal(
        "GroupNorm", {"x": random(2, 3, 5, 8)}, weights, kind=ModelError, groups=3
    )
    assert "channels_last=0 is not supported" in refusal(
        "GroupNorm", {"x": random(2, 8, 3, 5)}, weights, kind=UnsupportedError, groups=4, channels_last=0
    )
    said = refusal("SkipGroupNorm", {"x": random(2, 3, 5, 8)}, weights | {"s": random(3, 8)}, kind=ModelError, groups=4)
    assert "a skip of shape (3, 8) for data of shape (2, 3, 5, 8)" in said
    assert "has no halves" in refusal("BiasSplitGelu", {"x": random(2, 7)}, {"b": random(7)}, kind=ModelError)
