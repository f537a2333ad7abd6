"""`autotune run`: run a model once and show, or save, what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.asked import Asked
from autotune.cli.options import (
    DumpGraphOption,
    RunnableArgument,
    SkipPassOption,
    TrustOption,
    UntunedOption,
)
from autotune.cli.status import working
from autotune.cli.text import print_json, print_table, table
from autotune.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autotune.runtime.executor import Array


def run(
    model: RunnableArgument,
    random: Annotated[
        int | None, typer.Option("--random", metavar="SEED", min=0, help="Draw the inputs that have no file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Save every output there as NAME.npy.")
    ] = None,
    *,
    asked: Asked,
    trust: TrustOption = None,
    untuned: UntunedOption = False,
    skip_pass: SkipPassOption = None,
    dump_graph: DumpGraphOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outputs, all values included, as JSON.")] = False,
) -> None:
    """Run a model once."""
    with working("starting"):
        from autotune.api.feeds import complete_feeds
        from autotune.api.session import InferenceSession
        from autotune.runtime.file_head import is_compiled_file

    asked.note_compiled(model, untuned=untuned, skip_pass=skip_pass, dump_graph=dump_graph)
    target, given = asked.parsed_target(), asked.arrays()
    with working(f"{'loading' if is_compiled_file(model) else 'compiling'} {model}"):
        session = InferenceSession(
            model,
            target=target,
            database=False if untuned else asked.database,
            trust=trust or None,
            shapes=asked.shapes,
            skip_passes=skip_pass or (),
            dump_graph=dump_graph,
            precision=asked.precision,
            max_error=asked.max_error,
        )
        feeds = complete_feeds(session.get_inputs(), given, random)
        results = dict(zip((spec.name for spec in session.get_outputs()), session.run(None, feeds), strict=True))
    saved = _save(results, output) if output is not None else {}
    if as_json:
        print_json({name: _values(array) for name, array in results.items()})
        return
    shown = table("output", "type", "shape", "minimum", "mean", "maximum", *(["saved as"] if saved else []))
    for name, array in results.items():
        extra = [str(saved[name])] if saved else []
        shown.add_row(name, str(array.dtype), str(list(array.shape)), *_range(array), *extra)
    print_table(shown)


def _save(results: Mapping[str, Array], folder: Path) -> dict[str, Path]:
    """One file per output; characters that make poor file names become _."""
    import numpy as np

    saved: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in results.items():
            path = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name) or '_'}.npy"
            if path in saved.values():
                path = folder / f"{path.stem}.{len(saved)}.npy"
            np.save(path, array, allow_pickle=False)
            saved[name] = path
    except OSError as error:
        raise InputError(f"cannot write the outputs to {folder}: {error.strerror}") from None
    return saved


def _range(array: Array) -> list[str]:
    if not array.size or array.dtype.kind not in "fiu":
        return ["-", "-", "-"]
    values = array.astype("float64")
    return [f"{found:.6g}" for found in (values.min(), values.mean(), values.max())]


def _values(array: Array) -> dict[str, Any]:
    """dtype, shape and row-major values; what JSON has no number for is text ("nan", "inf")."""
    import math

    flat = array.reshape(-1)
    plain = flat.tolist() if array.dtype.kind in "biuf" else flat.astype("float32").tolist()
    values = [str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in plain]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": values}
