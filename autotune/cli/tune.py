"""`autotune tune`: measure until the budget is spent, store every trial, show what it brought."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.feeds import InputOption, load_arrays
from autotune.cli.options import (
    DbOption,
    JsonOption,
    ShapeOption,
    StrictOption,
    TargetOption,
    database_path,
    parse_shapes,
)
from autotune.cli.text import duration, percent, print_json, print_table, table

if TYPE_CHECKING:
    from autotune.api.tune import TuneReport
    from autotune.search import TaskOutcome

INTERRUPTED = 130


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
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="A module or .py file with operators of yours; repeat."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find fast schedules for a model's kernels, or one operator. The same command, repeated, continues."""
    if sum(given is not None for given in (model, named, op)) != 1:
        raise typer.BadParameter(
            'give one thing to tune: MODEL, or --op TEXT such as --op "matmul a=128,768 b=768,3072"'
        )
    model = named if model is None else model
    from autotune.api.tune import tune as run_tune
    from autotune.cli.progress import showing

    path, given = database_path(db), load_arrays(inputs, "--input")
    command = shlex.join(
        [
            "autotune",
            *_words(model, op, target, shape, inputs, db, budget, trials, effort, strategy, seed, strict_fp, imports),
        ]
    )
    try:
        with showing() as progress:
            report = run_tune(
                str(op) if model is None else model,
                target,
                db,
                budget=budget,
                trials=trials,
                effort=effort,
                strategy=strategy,
                seed=seed,
                shapes=parse_shapes(shape),
                inputs=given,
                strict_fp=strict_fp,
                imports=tuple(imports or ()),
                callbacks=[progress],
                command=command,
            )
    except KeyboardInterrupt:
        _interrupted(path, command)
    if as_json:
        print_json(_values(report, command))
    else:
        _show(report)
    if report.interrupted:
        _interrupted(report.database, command)


def _interrupted(path: Path, command: str) -> None:
    print(f"interrupted; all finished trials are in {path}; to continue: {command}", file=sys.stderr)
    raise typer.Exit(INTERRUPTED)


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


def _show(report: TuneReport) -> None:
    found = report.search
    shown = table(
        "uses", "trials", "failed", "untuned", "tuned", "faster", "GFLOP/s", "of peak", "template", "operator",
        right=("uses", "trials", "failed", "untuned", "tuned", "faster", "GFLOP/s", "of peak"),
    )  # fmt: skip
    for task in sorted(found.tasks, key=_model_seconds, reverse=True):
        shown.add_row(
            f"{task.task.weight:g}",
            str(task.trials),
            str(task.failed),
            duration(task.default_seconds),
            duration(task.best.seconds if task.best else None),
            f"{task.speedup:.2f}×" if task.speedup else "-",
            f"{task.gflops:.1f}" if task.gflops else "-",
            percent(task.gflops / report.peak_gflops) if task.gflops else "-",
            (task.best.config.template or "-") if task.best else "-",
            task.task.name,
        )
    print_table(shown)
    total = sum(task.trials for task in found.tasks)
    print(
        f"{found.new_trials} trials in {found.seconds:.1f} s ({found.trials_per_second:.1f}/s), "
        f"{total} in {report.database}; FMA peak {report.peak_gflops:.0f} GFLOP/s"
    )
    if skipped := sum(task.skipped for task in found.tasks):
        print(f"{skipped} kernels were built and not run: their registers spill (`autotune db show` counts them)")
    print("time: " + ", ".join(f"{part} {percent(share)}" for part, share in found.shares().items()))
    if found.foresight is not None:
        seen = found.foresight
        print(
            f"cost model: in {seen.trials} trials that it chose, off by {percent(seen.error)} (median); "
            f"{percent(seen.order)} of pairs in the right order, where chance is 50 %"
        )
    if report.model is not None:
        verdict = report.model
        print(
            f"model: tuned {duration(verdict.tuned_seconds)}, untuned {duration(verdict.untuned_seconds)} "
            f"({verdict.speedup:.2f}×), timed in turn on {report.target.num_threads} threads"
        )
        if len(report.programs) > 1:
            kept = sum(program.tuned for program in report.programs)
            print(f"{len(report.programs)} programs, each timed for itself: {kept} tuned, the others stay untuned")
        elif not verdict.tuned:
            print("the tuned program is not better as a whole: the model stays untuned; a longer budget may change it")


def _model_seconds(task: TaskOutcome) -> float:
    return task.task.weight * (task.best.cost if task.best is not None else 0.0)


def _values(report: TuneReport, command: str) -> dict[str, Any]:
    found = report.search
    return {
        "command": command,
        "target": str(report.target),
        "database": str(report.database),
        "session": found.session_id,
        "interrupted": report.interrupted,
        "new_trials": found.new_trials,
        "seconds": found.seconds,
        "trials_per_second": found.trials_per_second,
        "shares": found.shares(),
        "foresight": asdict(found.foresight) if found.foresight else None,
        "peak_gflops": report.peak_gflops,
        "model": asdict(report.model) if report.model else None,
        "programs": [asdict(program) for program in report.programs],
        "tasks": [
            {
                "workload": task.task.workload.key,
                "operator": task.task.name,
                "uses": task.task.weight,
                "trials": task.trials,
                "new": task.new,
                "failed": task.failed,
                "skipped": task.skipped,
                "default_seconds": task.default_seconds,
                "best_seconds": task.best.seconds if task.best else None,
                "speedup": task.speedup,
                "gflops": task.gflops,
                "peak_share": task.gflops / report.peak_gflops if task.gflops else None,
                "config": dict(task.best.config) if task.best else None,
                "foresight": asdict(task.foresight) if task.foresight else None,
                "stopped": task.stopped,
            }
            for task in found.tasks
        ],
    }
