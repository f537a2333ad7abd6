"""`autotune report`: one page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.asked import Asked
from autotune.cli.loudness import note
from autotune.cli.options import (
    AgainstOption,
    JsonOption,
    ModelArgument,
    check_writable,
)
from autotune.cli.status import working
from autotune.cli.text import print_json, print_prose, size
from autotune.errors import InputError
from autotune.report.text import duration


def report(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    against: AgainstOption = "onnxruntime,openvino",
    other: Annotated[
        Path | None, typer.Option("--other-db", metavar="FILE", help="A second database to compare the records with.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each engine has its turn.")] = 12,
    *,
    asked: Asked,
    as_json: JsonOption = False,
) -> None:
    """Measure a model and write one HTML page: latency beside other engines, where time goes, what tuning brought.

    The page holds everything it shows; it can be sent and opened anywhere.
    """
    with working("starting"):
        from autotune.api.report import write_report
        from autotune.engines.peers import peer_names

    if out.suffix.lower() not in ("", ".html", ".htm"):
        raise InputError(f"cannot write {out}: a report is an HTML page; name it {out.with_suffix('.html')}")
    check_writable(out)
    target = asked.parsed_target()
    with working(f"measuring {model}"):
        page = write_report(
            model,
            out,
            target,
            asked.database,
            shapes=asked.shapes,
            inputs=asked.arrays(),
            peers=peer_names(against),
            other=other,
            rounds=rounds,
            precision=asked.precision,
            max_error=asked.max_error,
            command=asked.tune_command(model),
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
    print_prose(f"{out} ({size(out.stat().st_size)}): {duration(page.profile.latency)} a run; {page.coverage.line()}")
    for line in page.notes:
        note(line)
