"""The line that says what a command is doing."""

from __future__ import annotations

import ast
import inspect
import io
import logging
import re

import pytest

from autotune.cli.commands import COMMANDS
from autotune.cli.status import working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    """What is written on this stderr."""
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    logger = logging.getLogger("autotune.compiler")
    before = logging.getLogger("autotune").level
    with working("compiling m.onnx"):
        logger.info("built 3 kernels")
        logger.warning("the cache is damaged")
    assert logging.getLogger("autotune").level == before
    return stream.getvalue()


def test_it_is_for_those_who_look(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(monkeypatch, Terminal())
    assert "compiling m.onnx: built 3 kernels" in text and "the cache is damaged" in text
    assert "built" not in said(monkeypatch, io.StringIO())


def test_it_is_one_line_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said(monkeypatch, Terminal())).replace("\r", "\n").splitlines()
    assert any(line.startswith("⠋ compiling m.onnx") and line.rstrip().endswith("…") for line in drawn)
    assert not any("kernels" in line for line in drawn), "it would be on a second line"


def test_it_is_not_said_where_the_log_is(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="autotune")
    assert "compiling m.onnx" not in said(monkeypatch, Terminal())


ABOUT_A_MODEL = ("quick", "tune", "check", "tasks", "compile", "run", "bench", "profile", "explain", "report", "passes")


@pytest.mark.parametrize("name", ABOUT_A_MODEL)
def test_what_takes_a_second_to_import_is_imported_after_the_first_sign_of_life(name: str) -> None:
    command = COMMANDS[name]
    assert callable(command)
    (body,) = ast.parse(inspect.getsource(inspect.unwrap(command))).body
    assert isinstance(body, ast.FunctionDef)
    starting = next(one for one in body.body if isinstance(one, ast.With))
    assert ast.unparse(starting.items[0]) == "working('starting')"
    assert any(isinstance(one, ast.ImportFrom) for one in starting.body)
    assert not any(isinstance(one, ast.ImportFrom) for one in body.body)
