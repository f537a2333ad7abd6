"""The command lines in README and docs exist: every command, every option."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from autotune.cli.commands import COMMANDS
from autotune.cli.group import Group
from autotune.cli.quick import with_command
from tests.cli.cli_models import invoke
from tests.pages import PAGES, blocks


def command_lines(page: Path) -> list[str]:
    """What stands in shell blocks, and between backticks."""
    shell = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    lines = [line for line in shell if line.startswith("autotune ")]
    lines += re.findall(r"`(autotune [a-z][^`]*)`", page.read_text())
    return [line.split("  #")[0] for line in lines if "..." not in line]


LINES = [(page, line) for page in PAGES for line in command_lines(page)]


def test_there_are_some() -> None:
    assert len(LINES) > 20


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page.name}: {line[:50]}" for page, line in LINES])
def test_commands_and_options_exist(page: Path, line: str) -> None:
    words = with_command(shlex.split(line)[1:], COMMANDS)
    names = words[0].split("|")
    command = COMMANDS[names[0]]
    inner = words[1].split("|") if isinstance(command, Group) and len(words) > 1 else [""]
    for name in inner:
        if isinstance(command, Group) and name:
            assert name in command.commands
        shown = invoke(names[0], *([name] if name else []), "--help").stdout
        for option in re.findall(r"(?<![\w=\"])--?[a-z-]+", " ".join(word for word in words if " " not in word)):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown), f"{page.name}: no {option} in autotune {name}"
