"""`autotune model`: the learned cost model that chooses untuned schedules and guides the search."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.group import Group
from autotune.cli.options import JsonOption, check_writable
from autotune.cli.status import working
from autotune.cli.text import finite, print_json, print_prose, print_table, size, table
from autotune.report.text import counted, percent

if TYPE_CHECKING:
    from autotune.cost_model.training import Score

DatabasesOption = Annotated[
    list[Path] | None,
    typer.Option("--db", metavar="FILE", help="A database to learn from; repeat [default: $AUTOTUNE_DB or your own]."),
]
SHOWN = 12


def train(
    db: DatabasesOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to [default: your own model].")
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Learn from these records alone, without the shipped model.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Learn from tuning records: untuned kernels get better schedules, the next search begins with more knowledge."""
    from autotune.api.model import train_model

    if output is not None:
        check_writable(output)
    with working("learning from the records"):
        trained = train_model(db or [None], output, from_scratch=from_scratch)
    if as_json:
        print_json({**dataclasses.asdict(trained), "path": str(trained.path)})
        return
    learned = f"{counted(trained.candidates, 'candidate')} of {counted(trained.tasks, 'task')}"
    print_prose(f"{trained.path}: {size(trained.bytes)}, from {learned}")
    if output is None:
        print_prose("it is in use from now on; `autotune model reset` goes back to the shipped one")


def evaluate(
    db: DatabasesOption = None,
    leave_out: Annotated[
        str,
        typer.Option(
            "--leave-out", metavar="WHAT", help="Train without this to test on it: task, operator, target, machine."
        ),
    ] = "task",
    as_json: JsonOption = False,
) -> None:
    """Test the model on what was measured: does it put the faster of two first, how good is its first choice?"""
    from autotune.api.model import evaluate_model

    with working("training without what is tested"):
        found = evaluate_model(db or [None], leave_out)
    if as_json:
        parts = {"before": found.before, "left_out": found.left_out}
        values = {name: [dataclasses.asdict(s) for s in scores] for name, scores in parts.items()}
        print_json({name: [{**s, "order": finite(s["order"])} for s in scores] for name, scores in values.items()})
        return
    if not found.left_out:
        print_prose("too little was measured to leave any of it out: tune more kernels")
    known = {score.name: score for score in found.before}
    shown = table("candidates", "order", "first", "best of 10", "in use: order", "first", "task",
                  right=("candidates", "order", "first", "best of 10", "in use: order"))  # fmt: skip
    for one in sorted(found.left_out, key=lambda s: s.first)[:SHOWN]:
        used = known.get(one.name)
        in_use = (percent(used.order), percent(used.first)) if used else ("", "")
        shown.add_row(str(one.candidates), *map(percent, (one.order, one.first, one.tenth)), *in_use, one.name)
    if found.left_out:
        print_table(shown)
    if len(found.left_out) > SHOWN:
        print_prose(f"the {SHOWN} known worst of {len(found.left_out)} tasks")
    for what, scores in ((f"trained without each {leave_out}", found.left_out), ("the model in use", found.before)):
        if scores:
            print_prose(f"{what}: {_summary(scores)}")


def _summary(scores: tuple[Score, ...]) -> str:
    orders = [
        score.order for score in scores if math.isfinite(score.order)
    ]  # of times that are all alike there is none
    first, tenth = (sum(getattr(s, name) for s in scores) / len(scores) for name in ("first", "tenth"))
    order = percent(sum(orders) / len(orders) if orders else None)
    return (
        f"{order} of pairs in the right order; its first choice reaches {percent(first)} of the best's speed, "
        f"the best of its first ten {percent(tenth)}"
    )


def explain(as_json: JsonOption = False) -> None:
    """Show which model is in use and what it looks at."""
    from autotune.api.model import model_in_use

    used = model_in_use()
    if used is None:
        if as_json:
            print_json({"path": None, "key": None, "note": None, "features": {}})
            return
        print_prose(
            "no model fits this version: untuned schedules come from a closed form; `autotune model train` makes one"
        )
        return
    forest, path = used
    shares = forest.attention()
    if as_json:
        print_json({"path": str(path), "key": forest.key, "note": forest.note, "features": shares})
        return
    shown = table("looks at", "share of its questions", right=("share of its questions",))
    for name, share in shares.items():
        shown.add_row(name, percent(share))
    print_table(shown)
    print_prose(f"{path}: {forest.note or 'no note'}")


def reset(as_json: JsonOption = False) -> None:
    """Remove your own model, so that the shipped one is used."""
    from autotune.api.model import reset_model

    removed = reset_model()
    if as_json:
        print_json({"removed": None if removed is None else str(removed)})
        return
    print_prose("there is no own model: the shipped one is in use" if removed is None else f"removed {removed}")


MODEL = Group(
    "Train, test and explain the learned cost model.",
    {"train": train, "evaluate": evaluate, "explain": explain, "reset": reset},
)
