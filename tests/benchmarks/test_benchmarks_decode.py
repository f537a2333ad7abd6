"""The decoders that are timed are right, with every kind of weights, and figures become rates and claims."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from autotune.api.session import InferenceSession
from benchmarks.decode import MODELS, WEIGHTS, Size, claims, gpt2, llama, product_of, reading
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
