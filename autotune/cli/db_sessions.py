"""`autotune db sessions`: the tuning runs that a database knows."""

from __future__ import annotations

import time

from autotune.cli import text
from autotune.cli.options import DbOption, JsonOption, opened
from autotune.report.text import clock


def sessions(db: DbOption = None, as_json: JsonOption = False) -> None:
    """List the tuning runs: when, how they ended, what was typed. Newest first."""
    with opened(db) as database:
        found = sorted(database.sessions(), key=lambda session: -session.started)
    if as_json:
        text.print_json([one.to_mapping() for one in found])
        return
    if not found:
        print(f"{database.path} has no sessions: its records came from elsewhere")
        return
    shown = text.table(
        "session", "started", "took", "state", "host", "command",
        right=("took",), long=("command",), spare=("host", "session"),
    )  # fmt: skip
    for one in found:
        end = one.finished if one.finished is not None else time.time() if one.state.value == "running" else None
        shown.add_row(
            one.id[:8],
            text.date(one.started),
            "-" if end is None else clock(end - one.started),
            one.state.value,
            text.cell(one.host),
            text.cell(one.command) or "-",
        )
    text.print_table(shown)
