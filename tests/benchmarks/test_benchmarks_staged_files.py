"""First answers of staged models in miniature."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import staged_files
from benchmarks.decode import Size


@pytest.mark.slow
def test_first_answers_from_onnx_and_from_a_file(tmp_path: Path) -> None:
    starts, made = staged_files.measure(staged_files.decoder(Size(32, 2, 1, 64, 50)), 1, 1, tmp_path)
    assert [row["from"] for row in starts] == ["ONNX, empty cache", "ONNX, warm cache", "staged file"]
    assert all(float(row["answer s"] or 0) > float(row["session s"] or 0) > 0 for row in starts)
    assert made["programs"] == 10
    objects = {name: [path for path in (tmp_path / name).rglob("*") if path.is_file()] for name in ("cache0", "empty0")}
    assert objects["cache0"], "the object cache was not where the benchmark put it"
    assert not objects["empty0"], "the staged file compiled something"
