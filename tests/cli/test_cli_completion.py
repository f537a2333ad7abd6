"""The shell completes commands and options, whatever the settings say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def completed(words: str, folder: Path) -> list[str]:
    """What bash would be offered for the last word."""
    asked = {"_AUTOTUNE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "autotune"], env={**os.environ, **asked, "PYTHONPATH": str(ROOT)}, cwd=folder,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("settings", ["", "nonsense = 1"])
def test_commands_and_options(settings: str, tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").write_text(settings)
    assert completed("autotune tas", tmp_path) == ["tasks"]
    assert completed("autotune db ver", tmp_path) == ["verify"]
    assert completed("autotune tune --bud", tmp_path) == ["--budget"]
