"""`autotune db diff`: what two databases know of the same kernels."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import text
from autotune.cli.options import DbOption, JsonOption, opened
from autotune.report.text import counted, duration


def diff(
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The database to compare with.", show_default=False)],
    db: DbOption = None,
    every: Annotated[bool, typer.Option("--all", help="List kernels whose best times are equal, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the best times of two databases, kernel by kernel."""
    from autotune.records import Database, compare

    with opened(db) as here, Database.open(other, read_only=True) as there:
        found = compare(here, there)
    if as_json:
        text.print_json([{**dataclasses.asdict(one), "ratio": one.ratio} for one in found])
        return
    shown = text.table(
        "here", "other", "other/here", "workload", "operator", "target",
        right=("here", "other", "other/here"), long=("operator",), spare=("target", "workload"),
    )  # fmt: skip
    listed = [one for one in found if every or one.here != one.other]
    for one in listed:
        shown.add_row(
            duration(one.here),
            duration(one.other),
            "-" if one.ratio is None else f"{one.ratio:.2f}×",
            one.workload_key,
            text.cell(one.description),
            one.target_key,
        )
    if listed:
        text.print_table(shown)
    both = [one.ratio for one in found if one.ratio is not None]
    parts = [
        (sum(ratio > 1 for ratio in both), "faster here"),
        (sum(ratio < 1 for ratio in both), "faster there"),
        (sum(ratio == 1 for ratio in both), "equal"),
        (sum(one.other is None and one.here is not None for one in found), "known here only"),
        (sum(one.here is None and one.other is not None for one in found), "known there only"),
    ]
    summary = ", ".join(f"{count} {what}" for count, what in parts if count)
    text.print_prose(f"{counted(len(found), 'kernel')}: {summary or 'none has a verified time'}")
