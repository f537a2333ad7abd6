"""Models in which data decides: they are right, and each has as much to find as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotune
from benchmarks import found


@pytest.mark.parametrize("name", sorted(found.CASES))
def test_answers_are_those_of_onnx_runtime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    case = found.CASES[name]()
    ours = autotune.InferenceSession(case.model, target="native -num-cores=1", database=False)
    theirs = onnxruntime.InferenceSession(case.model, providers=["CPUExecutionProvider"])
    rng, shapes = np.random.default_rng(0), set()
    for _ in range(5):
        feeds = case.feeds(rng)
        (one,), (other,) = ours.run(None, feeds), theirs.run(None, feeds)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        shapes.add(one.shape)
    assert len(shapes) > 1 or name == "experts"


def test_a_file_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "own.onnx"
    path.write_bytes(found.boxes().model)
    assert found.main(["--model", str(path), "--quick"]) == 0
    assert "own" in capsys.readouterr().out
    for wrong in (["nothing"], ["--model", str(tmp_path / "none.onnx")], ["--model", __file__]):
        with pytest.raises(SystemExit):
            found.main(wrong)
        assert len(capsys.readouterr().err.strip().splitlines()[-1]) > 20
