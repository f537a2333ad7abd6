"""One run of everything: each benchmark exists, takes its arguments, and a small one runs through."""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator
from pathlib import Path

import pytest

from benchmarks import closing, fuzz


@pytest.mark.parametrize("quick", [False, True])
def test_every_benchmark_exists_and_explains_itself(
    quick: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = closing.commands(quick, tmp_path / "t.sqlite", "5m", "1m")
    for name in sorted({words[0] for words in chosen.values()}):
        module = importlib.import_module(f"benchmarks.{name}")
        with pytest.raises(SystemExit) as ended:
            module.main(["--help"])
        assert ended.value.code == 0
        assert "--quick" in capsys.readouterr().out
    assert chosen["models"][-2:] == ["--tune", "5m"]


def test_options_that_cannot_be_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--only", "speed"], ["--tune", "5m"], ["--db", str(tmp_path / "absent.sqlite")]):
        with pytest.raises(SystemExit):
            closing.main(["-o", str(tmp_path), *words])
    assert "there is no database" in capsys.readouterr().err


@pytest.mark.slow
def test_a_quick_run_writes_figures_and_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert closing.main(["-o", str(tmp_path / "figures"), "--quick", "--only", "fuzz"]) == 0
    stored = json.loads((tmp_path / "figures" / "fuzz.json").read_text())
    assert [row["failures"] for row in stored["tables"]["property cases"]] == [0, 0, 0]
    assert "benchmark" in capsys.readouterr().out


def test_failures_are_counted_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    def cases() -> Generator[tuple[int, str], None, int]:
        yield 7, "crash: worker died\nand more"
        return 2

    row = fuzz.count("demo", cases(), 10)
    assert (row["failures"], row["refused"], row["cases"]) == (1, 2, 10)
    assert "demo, case 7: crash: worker died\n" in capsys.readouterr().err
