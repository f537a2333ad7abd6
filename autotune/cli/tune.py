"""`autotune tune`: measure until the budget is spent, store every trial, show what it brought."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.ending import INTERRUPTED, failure
from autotune.cli.feeds import InputOption, load_arrays
from autotune.cli.loudness import quiet
from autotune.cli.options import (
    ClusterOption,
    DbOption,
    ImportOption,
    JsonOption,
    LayerOption,
    MaxErrorOption,
    PrecisionOption,
    ShapeOption,
    StrictOption,
    TargetOption,
    database_of,
    database_path,
    layer_words,
    parse_shapes,
    precision_words,
    require_cluster,
)
from autotune.cli.status import working
from autotune.cli.text import print_json
from autotune.errors import ClusterError

if TYPE_CHECKING:
    from autotune.api.tune import TuneReport


def tune(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="An ONNX model.", show_default=False)] = None,
    named: Annotated[Path | None, typer.Option("--model", metavar="MODEL", help="The same, as an option.")] = None,
    op: Annotated[
        str | None,
        typer.Option("--op", metavar="TEXT", help='Or one operator: "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1".'),
    ] = None,
    target: TargetOption = "native",
    shape: ShapeOption = None,
    inputs: InputOption = None,
    db: DbOption = None,
    layer: LayerOption = None,
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
    precision: PrecisionOption = "model",
    max_error: MaxErrorOption = None,
    verdict: Annotated[
        str,
        typer.Option(
            "--verdict",
            metavar="NAME",
            help="Whether the model is to run tuned: measured (not again while nothing changes), again (measured "
            "anew), tuned or untuned (as you want).",
        ),
    ] = "measured",
    imports: ImportOption = None,
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
    with working("starting"):  # what is imported now takes a second
        from autotune.api.tune import tune as run_tune
        from autotune.cli.tune_report import show_report

    path, given = database_path(db), load_arrays(inputs, "--input")
    precise = precision_words(precision, max_error)
    command = shlex.join(
        [
            "autotune",
            *_words(model, op, target, shape, inputs, db, budget, trials, effort, strategy, seed, strict_fp, imports),
            *layer_words(layer),
            *precise,
            *([] if verdict == "measured" else ["--verdict", verdict]),
            *([] if cluster is None else ["--cluster", require_cluster(cluster)]),
        ]
    )
    try:
        report = run_tune(
            str(op) if model is None else model,
            target,
            database_of(db, layer),
            budget=budget,
            trials=trials,
            effort=effort,
            strategy=strategy,
            seed=seed,
            shapes=parse_shapes(shape),
            inputs=given,
            strict_fp=strict_fp,
            precision=precision,
            max_error=max_error,
            verdict=verdict,
            imports=tuple(imports or ()),
            progress=not quiet(),
            command=command,
            cluster=cluster,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_continuing(path, command)) from None
    except ClusterError as error:
        kept = f"; finished trials are in {path}; to continue: {command}" if path.exists() else ""
        raise ClusterError(f"{error}{kept}") from error
    stopped = _continuing(report.database, command)
    if as_json:
        values = {"command": command, **report.to_dict()}
        print_json({**values, **failure("KeyboardInterrupt", stopped)} if report.interrupted else values)
    else:
        words = [*layer_words(layer), *precise]
        following = _following(report, model, str(op), target, shape, inputs, db, words, command)
        show_report(report, str(op) if model is None else str(model), following, every)
    if report.interrupted:
        print(stopped, file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _following(
    report: TuneReport,
    model: Path | None,
    op: str,
    target: str,
    shape: list[str] | None,
    inputs: list[str] | None,
    db: Path | None,
    words: list[str],
    command: str,
) -> str:
    """The command to go on with: more of the same where nothing was gained, else one that uses what was found.

    `words`: what else was typed.
    """
    more = [] if target == "native" else ["--target", target]
    more += [] if db is None else ["--db", str(db)]
    if model is None:
        return shlex.join(["autotune", "db", "best", op, *more])
    if report.model is None or not report.model.tuned:
        return command
    more += words
    for text in shape or ():
        more += ["--shape", text]
    if len(report.programs) > 1 or inputs:  # its shapes may depend on values: a session compiles what a run needs
        for text in inputs or ():
            more += ["--input", text]
        return shlex.join(["autotune", "bench", str(model), *more])
    return shlex.join(["autotune", "compile", str(model), *more, "-o", str(model.with_suffix(".at"))])


def _continuing(path: Path, command: str) -> str:
    return f"interrupted; all finished trials are in {path}; to continue: {command}"


def _words(
    model: Path | None,
    op: str | None,
    target: str,
    shape: list[str] | None,
    inputs: list[str] | None,
    db: Path | None,
    budget: str | None,
    trials: int | None,
    effort: str,
    strategy: str,
    seed: int,
    strict_fp: bool,
    imports: list[str] | None,
) -> list[str]:
    """The command as typed, defaults left out."""
    words = ["tune", "--op", op] if op is not None else ["tune", str(model)]
    words += [] if target == "native" else ["--target", target]
    for text in shape or ():
        words += ["--shape", text]
    for text in inputs or ():
        words += ["--input", text]
    words += [] if db is None else ["--db", str(db)]
    words += [] if budget is None else ["--budget", budget]
    words += [] if trials is None else ["--trials", str(trials)]
    words += [] if effort == "default" else ["--effort", effort]
    words += [] if strategy == "guided" else ["--strategy", strategy]
    words += [] if seed == 0 else ["--seed", str(seed)]
    words += ["--strict-fp"] if strict_fp else []
    for text in imports or ():
        words += ["--import", text]
    return words
