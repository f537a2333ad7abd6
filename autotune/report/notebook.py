"""What a notebook shows of a value: a short HTML table, with nothing in it but escaped text."""

from __future__ import annotations

import html
from collections.abc import Sequence

MOST_ROWS = 20


def html_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table under a title; of many rows the first, and how many more there are.

    Args:
        notes: lines below.
    """
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows[:MOST_ROWS])
    more = [f"and {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else []
    below = "".join(f"<div>{html.escape(line)}</div>" for line in (*more, *notes))
    caption = f"<div><b>{html.escape(title)}</b></div>"
    return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
