"""The line that says what a command is doing."""

from __future__ import annotations

import io
import logging

import pytest

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


def test_it_is_not_said_where_the_log_is(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="autotune")
    assert "compiling m.onnx" not in said(monkeypatch, Terminal())
