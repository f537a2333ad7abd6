"""How values look on a terminal and in JSON: one form for all commands."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from datetime import datetime, timezone

from autotune.cli.table import Facts, Table

_LONGEST = 2000


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(table: Table | Facts) -> None:
    """As wide as the terminal; into a file or a pipe, as wide as the table, unless $COLUMNS says otherwise."""
    for line in table.lines(shown_width()):
        print(line)


def print_prose(text: str, hanging: int = 0) -> None:
    """A line for people, on a terminal broken between words. Commands to be copied are printed as they are.

    Args:
        hanging: how many letters the lines after the first are indented.
    """
    width = shown_width()
    if width is not None:
        indent = " " * hanging
        text = textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    print(text)


def shown_width() -> int | None:
    """How many letters a line may have; None where nobody minds."""
    given = os.environ.get("COLUMNS", "")
    if not sys.stdout.isatty() and not (given.isdecimal() and int(given)):
        return None
    return shutil.get_terminal_size().columns


def table(
    *headings: str,
    right: Sequence[str] = (),
    long: Sequence[str] = (),
    spare: Sequence[str] = (),
    ends: Sequence[str] = (),
) -> Table:
    """A table without borders, one line a row; see `Table`."""
    return Table(headings, right, long, spare, ends)


def facts(*rows: tuple[str, str]) -> Facts:
    """What things are called, and what they are; see `Facts`."""
    return Facts(rows)


def printable(value: str) -> str:
    """Text that may come out of a file: what a terminal would act on is left out."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in value)


def cell(value: str) -> str:
    """Text out of a file, for a table: `printable`, and without what no line has room for."""
    shown = printable(value[:_LONGEST])
    return shown if len(value) <= _LONGEST else f"{shown}..."


def date(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g}"


def size(count: float) -> str:
    """Bytes: 812 B, 32 KiB, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def finite(value: float | None) -> float | None:
    """The value as JSON can hold it: None for infinity and NaN."""
    return value if value is not None and math.isfinite(value) else None


def percents(shares: Sequence[float]) -> list[str]:
    """Shares of one whole, rounded so that what is shown adds up to what they add up to."""
    exact = [1000 * share for share in shares]
    shown = [math.floor(share) for share in exact]
    missing = round(sum(exact)) - sum(shown)
    for n in sorted(range(len(exact)), key=lambda n: shown[n] - exact[n])[:missing]:
        shown[n] += 1
    return [f"{share / 10:.1f} %" for share in shown]
