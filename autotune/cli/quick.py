"""`autotune MODEL`: check, tune a minute, compile, compare; each step is a command of its own, too."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.asked import Asked, AskedRanges
from autotune.cli.bench import bench
from autotune.cli.compile import LIBRARY, compile_model, refuse_other_kinds
from autotune.cli.loudness import quiet
from autotune.cli.options import (
    ModelArgument,
    check_writable,
    load_imports,
)
from autotune.cli.tune import tune

PEER = "onnxruntime"


def quick(
    model: ModelArgument,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="How long to tune: 90s, 5m.")] = "1m",
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write [default: MODEL.at, beside the model]."),
    ] = None,
    *,
    asked: Asked,
) -> None:
    """Do the obvious: check a model, tune it for a minute, compile it, compare it with ONNX Runtime where installed.

    The same command, repeated, continues to tune. `autotune MODEL` is short for it.
    """
    from autotune.compiler.outline import outline
    from autotune.graph import open_model

    load_imports(asked.imports)
    made = model.with_suffix(".at") if out is None else out
    whole = outline(open_model(model, asked.shapes)).graph is not None
    if whole:
        refuse_other_kinds(made, LIBRARY)
        check_writable(made)
    _say(f"{model} can be compiled; tuning for {budget}")
    tune(model, asked=AskedRanges(*astuple(asked)), budget=budget)
    if whole:
        _say(f"compiling to {made}")
        compile_model(
            model, made, asked.target, asked.shape, asked.db, asked.layer, precision=asked.precision,
            max_error=asked.max_error, imports=asked.imports,
        )  # fmt: skip
    against = PEER if importlib.util.find_spec(PEER) is not None else "none"
    _say(
        "comparing with ONNX Runtime" if against == PEER else "timing it (pip install onnxruntime, to compare with it)"
    )
    bench(model, against=against, asked=asked)
    _say(f"next: use it in Python: autotune.InferenceSession({str(made if whole else model)!r})")
    if not quiet():
        print("the same command again goes on tuning; `autotune profile` shows where the time goes")


def _say(text: str) -> None:
    """What comes now, with an empty line before it."""
    if not quiet():
        print(f"\n== {text}", flush=True)


def with_command(args: Sequence[str], commands: Collection[str]) -> list[str]:
    """The words of a command line; where the first one is a file and no command, `quick` comes before it."""
    words = list(args)
    if words and not words[0].startswith("-") and words[0] not in commands:
        path = Path(words[0])
        if path.suffix == ".onnx" or path.is_file():
            return ["quick", *words]
    return words
