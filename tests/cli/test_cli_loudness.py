"""--quiet leaves results and errors; --verbose says what takes time, with times; neither outlasts its command."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest

from autotune.cli.commands import COMMANDS
from autotune.cli.group import Group
from autotune.cli.loudness import loud, note, quiet
from tests.cli.cli_models import conv_model, invoke, save

LOGGER = logging.getLogger("autotune")


@pytest.fixture(autouse=True)
def _no_user_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "user.sqlite"))


@pytest.mark.parametrize(
    "words",
    [
        words
        for name, command in COMMANDS.items()
        for words in ([[name, inner] for inner in command.commands] if isinstance(command, Group) else [[name]])
    ],
    ids=" ".join,
)
def test_every_command_has_both(words: list[str]) -> None:
    shown = invoke(*words, "--help").stdout
    assert re.search(r"-q, --quiet|--quiet +-q", shown) and re.search(r"-v, --verbose|--verbose +-v", shown)


def test_quiet_tuning_has_results_alone(tmp_path: Path) -> None:
    words = ("tune", "--op", "relu data=64", "--trials", "1", "--db", tmp_path / "t.sqlite", "--json")
    plain = invoke(*words)
    assert "tuning: 1 task\n" in plain.stderr
    result = invoke(*words, "-q")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["tasks"]


def test_quiet_commands_say_their_errors() -> None:
    result = invoke("check", "nowhere.onnx", "--quiet")
    assert (result.exit_code, result.stdout) == (1, "") and result.stderr.startswith("error: ")


@pytest.mark.parametrize(("words", "detail"), [(("-v",), False), (("-vv",), True), (("--verbose", "--verbose"), True)])
def test_verbose_tells_passes_kernels_and_weights(
    words: tuple[str, ...], detail: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # with no program of an earlier session
    model = save(conv_model(), tmp_path / "m.onnx")
    result = invoke("run", model, "--random", "0", "--json", "--untuned", *words)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["y"]["dtype"] == "float32"
    for said in ("graph passes: ", "building the kernels of ", "packed "):
        assert re.search(rf"^\d\d:\d\d:\d\d\.\d{{3}} autotune\.[a-z._]+: {said}", result.stderr, re.MULTILINE)
    assert (" the kernel for conv2d " in result.stderr) == detail


def test_neither_outlasts_its_command(tmp_path: Path) -> None:
    before = (LOGGER.level, list(LOGGER.handlers))
    invoke("check", "nowhere.onnx", "-q")
    invoke("check", "nowhere.onnx", "-vv")
    assert (LOGGER.level, LOGGER.handlers) == before


def test_both_are_refused() -> None:
    result = invoke("passes", "-q", "-v")
    assert result.exit_code == 2 and "exclude each other" in result.stderr


def test_notes(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        note(f"quiet: {quiet()}")
        sys.stdout.write("result\n")

    loud(command)(quiet=False, verbose=0)
    assert capsys.readouterr() == ("result\n", "note: quiet: False\n")
    loud(command)(quiet=True, verbose=0)
    assert capsys.readouterr() == ("result\n", "")
