"""Engines that are kept to AVX2 answer as the others do, and what is not installed is said."""

from __future__ import annotations

from pathlib import Path

import onnx

from benchmarks.avx2 import race
from benchmarks.engines import available
from benchmarks.models import example
from benchmarks.quantized import quantized
from tests.benchmarks.test_benchmarks_quantized import network


def test_both_files_are_run_by_both_engines(tmp_path: Path) -> None:
    floating = tmp_path / "net.onnx"
    onnx.save(network(), floating)
    rows = race(floating, quantized(floating, "u8s8"), example(network()), 1, 1)
    found = {str(row["engine"]): row for row in rows}
    assert set(found) == {"autotune f32", "autotune int8", "openvino f32", "openvino int8"}
    assert float(found["autotune f32"]["SNR dB"] or 0) > 90 and float(found["autotune int8"]["SNR dB"] or 0) > 20
    for what in ("f32", "int8"):
        assert available("openvino") or "not installed" in str(found[f"openvino {what}"]["note"])
