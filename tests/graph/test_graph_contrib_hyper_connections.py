"""Hyper-connections against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import ModelError
from tests.graph.contrib_models import compare, refusal
from tests.graph.graph_models import random


@pytest.mark.parametrize("gates", [(3,), (3, 1), (3, 8), (24,)])
@pytest.mark.parametrize("flat", [False, True])
def test_streams_before_a_block(gates: tuple[int, ...], flat: bool) -> None:
    feeds = {"x": random(2, 5, 24) if flat else random(2, 5, 3, 8), "g": random(2, 5, *gates, seed=1)}
    attrs: dict[str, Any] = {"num_branches": 3} if flat else {}
    if gates == (24,) and not flat:
        return
    compare("HyperConnectionPreMix", feeds, reduction_scale=0.5, **attrs)
    compare("HyperConnectionPreMix", feeds, **attrs)


@pytest.mark.parametrize("gates", [(3,), (3, 1), (3, 8)])
@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_streams_behind_a_block(gates: tuple[int, ...], matrix: bool, flat: bool) -> None:
    feeds = {"x": random(2, 5, 24) if flat else random(2, 5, 3, 8), "b": random(2, 5, 8, seed=1),
             "g": random(2, 5, *gates, seed=2)} | ({"m": random(2, 5, 3, 3, seed=3)} if matrix else {})  # fmt: skip
    attrs: dict[str, Any] = {"num_branches": 3} if flat else {}
    compare("HyperConnectionPostMix", feeds, **attrs)


@pytest.mark.parametrize("normed", [False, True])
def test_engram_gate(normed: bool) -> None:
    feeds = {"k": random(2, 5, 3, 8), "q": random(2, 5, 3, 8, seed=1), "v": random(2, 5, 8, seed=2)}
    scales = {"a": random(3, 8, seed=3), "b": random(3, 8, seed=4)} | ({"c": random(3, 8, seed=5)} if normed else {})
    compare("EngramGate", feeds, scales, outputs=["y", "n"] if normed else ["y"], epsilon=1e-3)


def test_halves() -> None:
    feeds = {"x": random(2, 3, 8).astype(np.float16), "g": random(2, 3, seed=1).astype(np.float16)}
    compare("HyperConnectionPreMix", feeds, within=5e-3)


def test_refusals() -> None:
    wrong: dict[str, Any] = {"kind": ModelError}
    feeds = {"x": random(2, 3, 8), "g": random(2, 2)}
    assert "gates of shape (2, 2) for streams (2, 3, 8)" in refusal("HyperConnectionPreMix", feeds, {}, **wrong)
    said = refusal("HyperConnectionPreMix", feeds, {}, num_branches=3, **wrong)
    assert "num_branches=3 of data of shape (2, 3, 8)" in said
    feeds = {"x": random(2, 3, 8), "b": random(2, 7), "g": random(2, 3)}
    said = refusal("HyperConnectionPostMix", feeds, {}, **wrong)
    assert "a block's output of shape (2, 7) for streams (2, 3, 8)" in said
    keys = {"k": random(2, 5, 3, 8), "q": random(2, 5, 3, 8), "v": random(2, 5, 7)}
    said = refusal("EngramGate", keys, {"a": random(3, 8), "b": random(3, 8)}, **wrong)
    assert "values (2, 5, 7) do not fit" in said
