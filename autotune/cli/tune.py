"""`autotune tune`: measure until the budget is spent, store every trial, show what it brought."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.asked import AskedRanges
from autotune.cli.ending import INTERRUPTED, failure
from autotune.cli.loudness import quiet
from autotune.cli.options import (
    ClusterOption,
    JsonOption,
    OpOption,
    StrictOption,
    database_path,
    require_cluster,
)
from autotune.cli.status import working
from autotune.cli.text import print_json
from autotune.errors import ClusterError

if TYPE_CHECKING:
    from autotune.api.tuning import TuneReport


def tune(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="An ONNX model.", show_default=False)] = None,
    named: Annotated[Path | None, typer.Option("--model", metavar="MODEL", help="The same, as an option.")] = None,
    op: OpOption = None,
    *,
    asked: AskedRanges,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="How long: 90s, 5m, 1h30m [default: as --effort says]."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, metavar="N", help="How many, those already in the database included."),
    ] = None,
    effort: Annotated[
        str,
        typer.Option(
            "--effort",
            metavar="NAME",
            help="How to spend the time: quick (1m unless --budget says otherwise; kernels that gain no more end "
            "early), default (5m), or thorough (30m; every kernel gets more trials first, more finalists).",
        ),
    ] = "default",
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="What to try next: guided (evolution and descent, whichever finds more), evolution (breed what the "
            "cost model likes), descent (neighbours of the best), random (a baseline), or grid (all, in order).",
        ),
    ] = "guided",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything random.")] = 0,
    strict_fp: StrictOption = False,
    verdict: Annotated[
        str,
        typer.Option(
            "--verdict",
            metavar="NAME",
            help="Whether the model is to run tuned: measured (not again while nothing changes), again (measured "
            "anew), tuned or untuned (as you want).",
        ),
    ] = "measured",
    cluster: ClusterOption = None,
    every: Annotated[bool, typer.Option("--all", help="List every task, not only those that take longest.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find fast schedules for a model's kernels, or one operator. The same command, repeated, continues."""
    if sum(given is not None for given in (model, named, op)) != 1:
        raise typer.BadParameter(
            'give one thing to tune: MODEL, or --op TEXT such as --op "matmul a=128,768 b=768,3072"'
        )
    model = named if model is None else model
    with working("starting"):
        from autotune.api.tune import tune as run_tune
        from autotune.cli.tune_report import show_report

    path, subject = database_path(asked.db), str(op) if model is None else str(model)
    command = shlex.join(
        [
            "autotune",
            "tune",
            *(["--op", subject] if model is None else [subject]),
            *asked.words(),
            *([] if budget is None else ["--budget", budget]),
            *([] if trials is None else ["--trials", str(trials)]),
            *([] if effort == "default" else ["--effort", effort]),
            *([] if strategy == "guided" else ["--strategy", strategy]),
            *([] if seed == 0 else ["--seed", str(seed)]),
            *(["--strict-fp"] if strict_fp else []),
            *([] if verdict == "measured" else ["--verdict", verdict]),
            *([] if cluster is None else ["--cluster", require_cluster(cluster)]),
        ]
    )
    with continuing(path, command):
        report = run_tune(
            subject if model is None else model,
            asked.target,
            asked.database,
            budget=budget,
            trials=trials,
            effort=effort,
            strategy=strategy,
            seed=seed,
            shapes=asked.ranges,
            inputs=asked.arrays(),
            strict_fp=strict_fp,
            precision=asked.precision,
            max_error=asked.max_error,
            verdict=verdict,
            imports=tuple(asked.imports or ()),
            progress=not quiet(),
            command=command,
            cluster=cluster,
        )
    if as_json:
        stopped = failure("KeyboardInterrupt", to_continue(report.database, command)) if report.interrupted else {}
        print_json({"command": command, **report.to_dict(), **stopped})
    else:
        show_report(report, subject, _following(report, model, subject, asked, command), every)
    end_interrupted(report, command)


@contextmanager
def continuing(path: Path, command: str) -> Iterator[None]:
    """Of a run that is interrupted, or loses its cluster, says what is kept in the database and how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(to_continue(path, command)) from None
    except ClusterError as error:
        kept = f"; finished trials are in {path}; to continue: {command}" if path.exists() else ""
        raise ClusterError(f"{error}{kept}") from error


def to_continue(path: Path, command: str) -> str:
    """What is said of a run that was interrupted."""
    return f"interrupted; all finished trials are in {path}; to continue: {command}"


def end_interrupted(report: TuneReport, command: str) -> None:
    """Ends the command where its run was interrupted, and what was found until then has been shown."""
    if report.interrupted:
        print(to_continue(report.database, command), file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _following(report: TuneReport, model: Path | None, op: str, asked: AskedRanges, command: str) -> str:
    """The command to go on with: more of the same where nothing was gained, else one that uses what was found."""
    if model is None:
        known = AskedRanges(target=asked.target, db=asked.db, layer=asked.layer)
        return shlex.join(["autotune", "db", "best", op, *known.words()])
    if report.model is None or not report.model.tuned or report.model.same:
        return command
    from autotune.tensor.shape_range import only_shape

    several = only_shape(asked.ranges) is None
    if asked.inputs or (len(report.programs) > 1 and not several):  # values decide: a session compiles
        return shlex.join(["autotune", "bench", str(model), *asked.words()])
    return shlex.join(["autotune", "compile", str(model), *asked.words(), "-o", str(model.with_suffix(".at"))])
