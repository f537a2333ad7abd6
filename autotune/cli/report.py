"""`autotune report`: one page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.compile import tune_command
from autotune.cli.feeds import InputOption, load_arrays
from autotune.cli.loudness import note
from autotune.cli.options import (
    DbOption,
    ImportOption,
    JsonOption,
    LayerOption,
    ModelArgument,
    ShapeOption,
    TargetOption,
    check_writable,
    database_of,
    layer_words,
    load_imports,
    parse_shapes,
)
from autotune.cli.status import working
from autotune.cli.text import print_json, size
from autotune.report.text import duration


def report(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    against: Annotated[
        str, typer.Option("--against", metavar="ENGINE,...", help="Engines to compare with, or none.")
    ] = "onnxruntime,openvino",
    other: Annotated[
        Path | None, typer.Option("--other-db", metavar="FILE", help="A second database to compare the records with.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each engine has its turn.")] = 12,
    target: TargetOption = "native",
    shape: ShapeOption = None,
    inputs: InputOption = None,
    db: DbOption = None,
    layer: LayerOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model and write one HTML page: latency beside other engines, where time goes, what tuning brought.

    The page holds everything it shows; it can be sent and opened anywhere.
    """
    from autotune.api.report import write_report
    from autotune.engines.peers import peer_names

    check_writable(out)
    load_imports(imports)
    with working(f"measuring {model}"):
        page = write_report(
            model,
            out,
            target,
            database_of(db, layer),
            shapes=parse_shapes(shape),
            inputs=load_arrays(inputs, "--input"),
            peers=peer_names(against),
            other=other,
            rounds=rounds,
            command=tune_command(model, target, shape, inputs, db, more=layer_words(layer)),
        )
    if as_json:
        values = {
            "file": str(out),
            "bytes": out.stat().st_size,
            "kernels": len(page.profile.kernels),
            "latency": page.profile.latency,
            "exact": page.coverage.exact,
            "notes": list(page.notes),
        }
        print_json(values)
        return
    print(f"{out} ({size(out.stat().st_size)}): {duration(page.profile.latency)} a run; {page.coverage.line()}")
    for line in page.notes:
        note(line)
