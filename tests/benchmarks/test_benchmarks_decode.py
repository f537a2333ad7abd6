"""The decoders that are timed are right, with every kind of weights, and figures become rates and claims."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from autotune.api.session import InferenceSession
from benchmarks.decode import (
    MASK,
    MODELS,
    POSITIONS,
    TOKENS,
    WEIGHTS,
    Size,
    claims,
    gpt2,
    llama,
    product_of,
    reading,
)
from benchmarks.decode_caches import Bound, Plain, in_place_decoder, onnxruntime_session
from benchmarks.report import Report, Row

SMALL = Size(width=64, heads=2, layers=1, inner=96, vocabulary=50)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_that_of_onnxruntime(name: str, weights: str) -> None:
    model = {"gpt2": gpt2, "llama": llama}[name](product_of(weights), 3, SMALL)
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
    }
    ours = InferenceSession(model, database=False).run(None, feeds)
    peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, wanted in zip(ours, peer.run(None, feeds), strict=True):
        assert np.abs(found - wanted).max() <= 1e-4 * np.ptp(wanted)


@pytest.mark.parametrize("name", MODELS)
def test_caches_that_grow_are_those_of_onnxruntime(name: str) -> None:
    model = {"gpt2": gpt2, "llama": llama}[name](product_of("f32"), None, SMALL)
    ours = Plain(InferenceSession(model, database=False).run)
    session = onnxruntime_session(model.SerializeToString(), 1)
    peers = Plain(session.run), Bound(session)
    pasts = [value.name for value in model.graph.input if value.name.startswith("past")]
    for batch, rows in ((2, 0), (1, 5)):
        rng = np.random.default_rng(rows)
        caches = {name: rng.standard_normal((batch, 2, rows, 32), np.float32) for name in pasts}
        for decoder in (ours, *peers):
            decoder.start(caches)
        for tokens in (3, 1, 1):  # a prompt, then token by token
            mask = np.ones((batch, rows + tokens), np.int64)
            mask[1:, 0] = 0
            feeds = {
                TOKENS: rng.integers(0, 50, (batch, tokens)), MASK: mask,
                POSITIONS: np.tile(np.arange(rows, rows + tokens), (batch, 1)),
            }  # fmt: skip
            rows += tokens
            found, *wanted = (decoder.step(feeds) for decoder in (ours, *peers))
            for logits in wanted:
                assert np.abs(found - logits).max() <= 1e-4 * np.ptp(logits)


def test_a_step_in_place_is_that_of_onnxruntime() -> None:
    model = in_place_decoder(8, SMALL)
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
    }
    feeds["last"] = np.asarray([5], np.int32)
    ours, *caches = InferenceSession(model, database=False).run(None, feeds)
    theirs, *wanted = onnxruntime_session(model.SerializeToString(), 1).run(None, feeds)
    assert np.abs(ours - theirs).max() <= 1e-4 * np.ptp(theirs)
    for one, other in zip(caches, wanted, strict=True):  # behind the new row they have zeros, ours what was there
        np.testing.assert_allclose(one[:, :, :6], other[:, :, :6], rtol=1e-4, atol=1e-5)


def test_rates_are_of_the_weights() -> None:
    rows: list[Row] = [
        {"engine": "autotune exact", "ms": 2.0},
        {"engine": "onnxruntime exact", "ms": 3.0},
        {"engine": "openvino"},
    ]
    found = reading(rows, 60_000_000, 40.0)
    assert [row.get("of memory %") for row in found] == [75.0, 50.0, None]
    report = Report("decode", "", environment={})
    claims(report, "net", found)
    assert [(claim.value, claim.holds) for claim in report.claims] == [(1.5, True), (75.0, False)]
