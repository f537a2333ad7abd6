"""`autotune profile`: where a model's time goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    DbOption,
    JsonOption,
    ModelArgument,
    ShapeOption,
    TargetOption,
    UntunedOption,
    check_writable,
    parse_shapes,
)
from autotune.cli.text import duration, percent, print_json, print_table, size, table

if TYPE_CHECKING:
    from autotune.report.profile import KernelProfile, Profile


def profile(
    model: ModelArgument,
    target: TargetOption = "native",
    shape: ShapeOption = None,
    db: DbOption = None,
    untuned: UntunedOption = False,
    passes: Annotated[int, typer.Option("--passes", min=1, help="Runs to take the medians of.")] = 30,
    top: Annotated[int, typer.Option("--top", min=1, help="How many kernels to list, the slowest first.")] = 20,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a Chrome trace of one pass.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Time every kernel of a model where it stands, beside what the machine could do and what tuning promised."""
    from autotune.api.compile import compile
    from autotune.measure.peaks import measure_peaks
    from autotune.report.profile import profile as profile_model
    from autotune.runtime.feeds import random_feeds
    from autotune.target import Target

    if trace is not None:
        check_writable(trace)
    wanted = Target.parse(target)
    compiled = compile(model, wanted, False if untuned else db, shapes=parse_shapes(shape))
    found = profile_model(compiled, random_feeds(compiled.program.inputs, 0), measure_peaks(wanted), passes)
    if trace is not None:
        trace.write_text(json.dumps(found.trace()))
    if as_json:
        print_json(_values(model, found))
    else:
        _show(found, top)
        if trace is not None:
            print(f"trace in {trace}: open it in chrome://tracing or ui.perfetto.dev")


def _show(found: Profile, top: int) -> None:
    shown = table(
        "kernel", "time", "share", "GFLOP/s", "moves", "of limit", "vs record", "template",
        right=("time", "share", "GFLOP/s", "moves", "of limit", "vs record"),
    )  # fmt: skip
    slowest = sorted(found.kernels, key=lambda kernel: -kernel.seconds)
    for kernel in slowest[:top]:
        ratio = kernel.against_record
        shown.add_row(
            kernel.report.description,
            duration(kernel.seconds),
            percent(found.share(kernel)),
            f"{_gflops(kernel):.1f}",
            size(kernel.report.nbytes),
            percent(kernel.of_limit),
            "-" if ratio is None else f"{ratio:.2f}×",
            kernel.template,
        )
    print_table(shown)
    rest = slowest[top:]
    if rest:
        print(f"and {len(rest)} more kernels, {duration(sum(kernel.seconds for kernel in rest))} together")
    for name, calls, seconds in found.by_template():
        print(f"{percent(seconds / found.seconds):>8} in {calls} kernels of {name}")
    print(f"{duration(found.seconds)} in {len(found.kernels)} kernels")
    levels = ", ".join(f"{rate:.0f} GB/s from {name}" for name, _, rate in found.levels)
    print(
        f"limits: {found.fp32:.0f} GFLOP/s fp32, {levels}; Winograd needs fewer multiplications than it is counted by"
    )


def _gflops(kernel: KernelProfile) -> float:
    return kernel.report.flops / kernel.seconds * 1e-9 if kernel.seconds else 0.0


def _values(model: Path, found: Profile) -> dict[str, object]:
    return {
        "model": str(model),
        "seconds": found.seconds,
        "peak_gflops": found.fp32,
        "bandwidth": {name: rate for name, _, rate in found.levels},
        "kernels": [
            {
                "kernel": kernel.report.description,
                "start": kernel.start,
                "seconds": kernel.seconds,
                "share": found.share(kernel),
                "gflops": _gflops(kernel),
                "bytes": kernel.report.nbytes,
                "of_limit": kernel.of_limit,
                "record_seconds": kernel.report.seconds,
                "template": kernel.template,
                "tier": kernel.report.tier.value,
            }
            for kernel in found.kernels
        ],
    }
