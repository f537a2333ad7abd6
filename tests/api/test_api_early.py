"""Helper processes start for large models, before these are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import machine
from autotune.api import early
from autotune.api.early import LARGE, helpers


def test_only_large_models_have_helpers_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_cores", lambda: 2)
    path = tmp_path / "model.onnx"
    for size, count in ((LARGE - 1, 0), (LARGE, 1)):
        path.write_bytes(bytes(size))
        for model in (path, str(path), bytes(size)):
            with helpers(model) as beside:
                assert len(beside._helpers) == count


def test_what_is_no_file_is_left_to_who_opens_it(tmp_path: Path) -> None:
    assert early._size(tmp_path / "none.onnx") == early._size("a\0b.onnx") == 0 and early._size(3) == 0  # type: ignore[arg-type]
