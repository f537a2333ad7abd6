"""Operators and templates of the user's own: imported once, in the tuner and in its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.errors import ExtensionError
from autotune.measure.extensions import load_extensions

HALVE = """
from autotune.ops.activation import pointwise
from autotune.ops.registry import operator

@operator("halve", elementwise=True)
def halve(inputs, attrs):
    return pointwise("halve", inputs, lambda x: x * 0.5)
"""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('first\\nsecond')", "ValueError: first second"),
        ("def x(:", "SyntaxError: "),
        ("import sys; sys.exit('no')", "SystemExit: no"),
        (None, "FileNotFoundError: "),
    ],
)
def test_a_script_that_fails_is_one_line(tmp_path: Path, source: str | None, reason: str) -> None:
    script = tmp_path / "mine.py"
    if source is not None:
        script.write_text(source)
    with pytest.raises(ExtensionError, match=reason) as caught:
        autotune.tune("relu data=8", database=tmp_path / "t.sqlite", trials=1, imports=[str(script)])
    assert str(script) in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "t.sqlite").exists()


def test_a_module_that_is_missing() -> None:
    with pytest.raises(ExtensionError, match="cannot import no_such_module: ModuleNotFoundError"):
        load_extensions(["no_such_module"])


def test_a_script_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "counts_itself.py"
    script.write_text(f"with open({str(tmp_path / 'log')!r}, 'a') as log:\n    log.write('x')\n")
    load_extensions([str(script)])
    load_extensions([str(script)])
    assert (tmp_path / "log").read_text() == "x"


def test_an_operator_of_ones_own_is_tuned_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HALVE)
    command = [sys.executable, "-m", "autotune.cli.main", "tune", "--op", "halve data=64 + relu", "--trials", "1",
               "--import", "mine.py", "--db", "t.sqlite"]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(Path(autotune.__file__).parents[1]), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "halve data=64 + relu" in done.stdout
