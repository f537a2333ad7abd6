"""`autotune MODEL`: check, tune a minute, compile, compare; each step is a command of its own, too."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from autotune.cli.asked import Asked
from autotune.cli.bench import refuse_wrong
from autotune.cli.bench_table import show_timing, values_of
from autotune.cli.compile import LIBRARY, file_values, refuse_other_kinds, show_file
from autotune.cli.ending import failure
from autotune.cli.loudness import note, quiet
from autotune.cli.options import (
    JsonOption,
    ModelArgument,
    OutputOption,
    check_writable,
    database_path,
)
from autotune.cli.status import working
from autotune.cli.text import print_json
from autotune.cli.tune import continuing, end_interrupted, to_continue
from autotune.errors import ConfigError

PEER = "onnxruntime"
BUDGET = "1m"


def quick(
    model: ModelArgument,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="How long to tune: 90s, 5m.")] = BUDGET,
    out: OutputOption = None,
    *,
    asked: Asked,
    as_json: JsonOption = False,
) -> None:
    """Tune a model for a minute, compile it, compare with ONNX Runtime.

    It compares where ONNX Runtime is installed. The same command, repeated, continues to tune. `autotune MODEL` is
    short for it.
    """
    with working("starting"):
        from autotune.compiler.outline import outline
        from autotune.compiler.precision import Precision
        from autotune.graph import open_model
        from autotune.search.budget import Budget

    Precision.parse(asked.precision, asked.max_error)
    if Budget.parse(budget).seconds is None:
        raise ConfigError(f"--budget {budget!r} is no time; write for example --budget 5m")
    asked.parsed_target()
    made = model.with_suffix(".at") if out is None else out
    with working(f"checking {model}"):
        whole = outline(open_model(model, asked.shapes)).graph is not None
    if whole:
        refuse_other_kinds(made, LIBRARY)
        check_writable(made)
    command = shlex.join(
        [
            "autotune",
            str(model),
            *asked.words(),
            *([] if budget == BUDGET else ["--budget", budget]),
            *([] if out is None else ["--output", str(out)]),
        ]
    )
    say = partial(_say, sys.stderr if as_json else sys.stdout)
    say(f"{model} can be compiled; tuning for {budget}")
    tuned = _tune(model, asked, budget, command, as_json)
    compiled = None
    if whole:
        say(f"compiling to {made}")
        compiled = _compile(model, asked, made, as_json)
    against = PEER if importlib.util.find_spec(PEER) is not None else "none"
    say("comparing with ONNX Runtime" if against == PEER else "timing it (pip install onnxruntime, to compare with it)")
    timed = _compare(model, asked, against, as_json)
    if as_json:
        print_json({"model": str(model), "tune": tuned, "compile": compiled, "bench": timed})
        return
    say(f"next: use it in Python: autotune.InferenceSession({str(made if whole else model)!r})")
    if not quiet():
        shown = shlex.quote(str(model))
        print(f"the same command again goes on tuning; `autotune profile {shown}` shows where the time goes")


def _tune(model: Path, asked: Asked, budget: str, command: str, as_json: bool) -> dict[str, Any]:
    """Tunes, and shows what it brought, without what `autotune tune` would propose to do next."""
    with working("starting"):
        from autotune.api.tune import tune
        from autotune.cli.tune_report import show_report
    with continuing(database_path(asked.db), command):
        report = tune(
            model, asked.target, asked.database, budget=budget, shapes=asked.shapes, inputs=asked.arrays(),
            precision=asked.precision, max_error=asked.max_error, imports=tuple(asked.imports or ()),
            progress=not quiet(), command=command,
        )  # fmt: skip
    if not as_json:
        show_report(report, str(model), None, every=False)
    elif report.interrupted:
        stopped = failure("KeyboardInterrupt", to_continue(report.database, command))
        print_json({"model": str(model), "tune": report.to_dict(), **stopped})
    end_interrupted(report, command)
    return report.to_dict()


def _compile(model: Path, asked: Asked, made: Path, as_json: bool) -> dict[str, Any]:
    from autotune.api.compile import compile
    from autotune.report.coverage import Coverage

    start = time.perf_counter()
    with working(f"compiling {model}"):
        compiled = compile(
            model, asked.target, asked.database, shapes=asked.shapes, precision=asked.precision,
            max_error=asked.max_error,
        )  # fmt: skip
        compiled.save(made)
    seconds = time.perf_counter() - start
    if not as_json:
        show_file(made, compiled, seconds)
    return file_values(made, compiled, Coverage.of(compiled.kernels), seconds)


def _compare(model: Path, asked: Asked, against: str, as_json: bool) -> dict[str, Any]:
    from autotune.api.bench import Ask, bench_model, settings
    from autotune.api.feeds import shapes_with
    from autotune.engines.peers import peer_names

    given = asked.arrays()
    ask = Ask(
        model, asked.database, shapes_with(asked.shapes, given), given, peer_names(against),
        precision=asked.precision, max_error=asked.max_error,
    )  # fmt: skip
    (setting,) = settings(model, asked.parsed_target())
    with working(f"timing {model}"):
        found = bench_model(ask, setting, note)
    values = values_of(model, found, asked.tune_command(model))
    refuse_wrong(found, values if as_json else None)
    if not as_json:
        show_timing(found, None)
    return values


def _say(stream: TextIO, text: str) -> None:
    """What comes now, with an empty line before it."""
    if not quiet():
        print(f"\n== {text}", file=stream, flush=True)


def with_command(args: Sequence[str], commands: Collection[str]) -> list[str]:
    """The words of a command line; where the first one is no command, but a file, or like the name of one, `quick`
    comes before it."""
    words = list(args)
    if words and not words[0].startswith("-") and words[0] not in commands:
        if "." in words[0] or "/" in words[0] or os.path.isfile(words[0]):
            return ["quick", *words]
    return words
