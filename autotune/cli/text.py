"""How values look on a terminal and in JSON: one form for all commands."""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime, timezone
from typing import Literal

from rich.console import Console
from rich.table import Table

_UNLIMITED = 1000
_LONGEST = 2000


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(table: Table) -> None:
    """As wide as the terminal; into a file or a pipe, as wide as the table."""
    Console(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED).print(table)


def table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    """A table without borders; columns named in `right` hold numbers. Only text behind the first column may wrap."""
    made = Table(box=None, padding=(0, 2, 0, 0))
    for position, heading in enumerate(headings):
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        made.add_column(heading, justify=justify, overflow="fold", no_wrap=heading in right or position == 0)
    return made


def facts(*rows: tuple[str, str]) -> Table:
    """Two columns without a heading: what it is called, and what it is."""
    made = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in rows:
        made.add_row(*row)
    return made


def cell(value: str) -> str:
    """Text out of a file, for a table: what a terminal would act on is left out, and what no line has room for."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in value[:_LONGEST])
    return shown if len(value) <= _LONGEST else f"{shown}..."


def duration(seconds: float | None) -> str:
    """A measured time: 812.4 µs, 12.345 ms."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def clock(seconds: float | None) -> str:
    """A waiting time: 0:07, 4:05, 1:02:03."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def date(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
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


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
