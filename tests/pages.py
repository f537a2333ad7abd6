"""The fenced blocks of README and docs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "docs/concepts/search.md",
    ROOT / "docs/concepts/records.md",
    ROOT / "docs/reference/operators.md",
]
_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """`language`: sh, python, toml, ...; `line`: where its text begins, from 1."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """In their order."""
    text = page.read_text()
    return [Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1) for found in _FENCE.finditer(text)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
