"""The reference page is current, and says what `--help` says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.cli.reference import reference
from tests.cli.cli_models import invoke

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "run `python -m autotune.cli.reference > docs/reference/cli.md`"


@pytest.mark.parametrize(
    "section", re.split(r"^##+ ", reference(), flags=re.MULTILINE)[1:], ids=lambda s: s.split("`")[1]
)
def test_help_knows_every_option_of_the_page(section: str) -> None:
    words = re.match(r"`autotune ([a-z ]+?)(?: [A-Z[-].*)?`", section)
    assert words
    shown = invoke(*words[1].split(), "--help").stdout
    for name in re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE):
        assert name in shown
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE)) - {"--help", "--quiet", "--verbose"}
    assert options == set(re.findall(r"^\| `(?:[^`]*, )?(--[a-z-]+)", section, re.MULTILINE))
