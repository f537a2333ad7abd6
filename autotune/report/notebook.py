"""What a notebook shows of a value: a short HTML table, with nothing in it but escaped text."""

from __future__ import annotations

import html
from collections.abc import Sequence

MOST_ROWS = 20


def html_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table under a title, as wide as it needs; of many rows the first, and how many more there are. Texts stand to
    the left, where notebooks would put them to the right as numbers, and so does the table, which they may centre. A
    cell is one line: that is said of each, since notebooks say otherwise of each.

    Args:
        notes: lines below.
    """
    styles = [_style(cells) for cells in zip(*rows)] or [_style(())] * len(headings)
    head = _cells("th", styles, headings)
    body = "".join(f"<tr>{_cells('td', styles, row)}</tr>" for row in rows[:MOST_ROWS])
    more = [f"and {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else []
    below = "".join(f"<div>{html.escape(line)}</div>" for line in (*more, *notes))
    caption = f"<div><b>{html.escape(title)}</b></div>"
    table = f'<table style="margin-left: 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'{caption}<div style="overflow-x: auto">{table}</div>{below}'


def _cells(tag: str, styles: Sequence[str], texts: Sequence[str]) -> str:
    return "".join(f'<{tag} style="{style}">{html.escape(text)}</{tag}>' for style, text in zip(styles, texts))


def _style(cells: Sequence[str]) -> str:
    """Of a column: numbers, with their units, and dashes stay as the notebook has them."""
    numbers = all(text == "-" or text[:1].isdigit() for text in cells)
    return "white-space: nowrap" if numbers else "white-space: nowrap; text-align: left"
