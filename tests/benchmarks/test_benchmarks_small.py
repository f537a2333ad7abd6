"""Models of one tiny operator: each is what it is called, and ONNX Runtime's answer is ours."""

from __future__ import annotations

import pytest

from benchmarks.small import CASES, measure


@pytest.mark.parametrize("name", CASES)
def test_answers_agree(name: str) -> None:
    pytest.importorskip("onnxruntime")
    assert min(measure(CASES[name](), 1)) > 0
