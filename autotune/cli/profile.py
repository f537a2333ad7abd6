"""`autotune profile`: where a model's time goes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.asked import Asked
from autotune.cli.options import (
    DumpGraphOption,
    JsonOption,
    ModelArgument,
    SkipPassOption,
    UntunedOption,
    check_writable,
    write_text,
)
from autotune.cli.status import working
from autotune.cli.text import cell, percents, print_json, print_prose, print_table, size, table
from autotune.report.text import counted, duration, percent

if TYPE_CHECKING:
    from autotune.report.profile import HostProfile, KernelProfile, Profile


def profile(
    model: ModelArgument,
    *,
    asked: Asked,
    untuned: UntunedOption = False,
    skip_pass: SkipPassOption = None,
    dump_graph: DumpGraphOption = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Runs to take the medians of.")] = 30,
    top: Annotated[int, typer.Option("--top", min=1, help="How many kernels to list, the slowest first.")] = 20,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a Chrome trace of one pass.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Time every kernel of a model where it stands, beside what the machine could do and what tuning promised."""
    with working("starting"):
        from autotune.api.feeds import complete_feeds, shapes_with
        from autotune.api.load import load
        from autotune.api.node_arg import NodeArg
        from autotune.api.observe import run_observed
        from autotune.measure.peaks import measure_peaks
        from autotune.measure.quiet import Watch
        from autotune.report.profile import profile as profile_model

    if trace is not None:
        check_writable(trace)
    wanted, given = asked.parsed_target(), asked.arrays()
    with working(f"timing the kernels of {model}"):
        loaded = load(
            model,
            wanted,
            False if untuned else asked.database,
            shapes=shapes_with(asked.shapes, given),
            skip_passes=skip_pass or (),
            dump_graph=dump_graph,
            precision=asked.precision,
            max_error=asked.max_error,
        )
        feeds = complete_feeds([NodeArg.of(spec) for spec in loaded.inputs], given, 0)
        run_observed(loaded, feeds, given)
        found = profile_model(loaded, feeds, measure_peaks(wanted), rounds, Watch(wanted.num_threads))
    if trace is not None:
        write_text(trace, json.dumps(found.trace()))
    if as_json:
        print_json({"model": str(model), **found.to_dict()})
    else:
        _show(found, top, asked.tune_command(model))
        if trace is not None:
            print_prose(f"trace in {trace}: open it in chrome://tracing or ui.perfetto.dev")


def _show(found: Profile, top: int, command: str) -> None:
    from autotune.report.naming import kernel_name
    from autotune.report.profile import HostProfile

    numbers = ("time", "share", "GFLOP/s", "moves", "of limit", "tuned at", "slower")
    shown = table(
        *numbers, "node", "operator", "template", right=numbers, long=("operator", "node"), ends=("node",),
        spare=("moves", "GFLOP/s", "tuned at", "template", "slower", "of limit"),
    )  # fmt: skip
    rows: list[KernelProfile | HostProfile] = [*found.kernels, *found.hosts]
    rows.sort(key=lambda row: -row.seconds)
    shares = percents([found.share(row) for row in rows])
    for row, share in zip(rows[:top], shares):
        common = (duration(row.seconds), share)
        if isinstance(row, HostProfile):
            shown.add_row(*common, *["-"] * 5, cell(row.label), "NumPy on the host", "-")
            continue
        against = row.against_record
        shown.add_row(
            *common,
            f"{row.gflops:.1f}",
            size(row.report.nbytes),
            percent(found.limit_share(row)),
            duration(row.report.seconds),
            "-" if against is None else f"{against:.2f}×",
            cell(kernel_name(row.report.origins)),
            row.report.description,
            row.template,
        )
    print_table(shown)
    rest = rows[top:]
    if rest:
        together = duration(sum(row.seconds for row in rest))
        print_prose(f"and {counted(len(rest), 'more kernel')}, {together} together (--top {len(rows)})")
    parts = [(f"{counted(calls, 'kernel')} of {name}", seconds) for name, calls, seconds in found.by_template()]
    if found.hosts:
        parts.append((counted(len(found.hosts), "host function"), sum(host.seconds for host in found.hosts)))
    shares = percents([seconds / found.seconds if found.seconds else 0.0 for _, seconds in parts])
    for (what, _), share in zip(parts, shares):
        print_prose(f"{share:>8} in {what}", 9)
    hosts = f" and {counted(len(found.hosts), 'host function')}" if found.hosts else ""
    programs = "" if found.programs == 1 else f", in {found.programs} programs"
    print_prose(
        f"{duration(found.seconds)} in {counted(len(found.kernels), 'kernel')}{hosts}{programs};"
        f" a whole run takes {duration(found.latency)}"
    )
    if found.waiting is not None:
        print_prose(f"threads wait for the slowest of them for {percent(found.waiting)} of the time in kernels")
    count, here, record = found.recorded
    if count:
        held = f"{duration(here)} here, {duration(record)} when tuned ({here / record:.2f}×)"
        print_prose(
            f"{counted(count, 'kernel')} with a record: {held}; `slower` is the time here over the time when tuned"
        )
    elif found.kernels:
        reason = Counter(kernel.report.reason for kernel in found.kernels).most_common(1)[0][0]
        print_prose(f"no kernel has a record to hold its time against: {reason}")
        print(f"to tune them: {command}")
    if found.levels:
        levels = ", ".join(f"{rate:.0f} GB/s from {name}" for name, _, rate in found.levels)
        if found.disturbed:
            why = "; ".join(found.doubts) or "as kernels show: other programs ran while they were measured"
            print_prose(f"the limits are in doubt, {why}; repeat this when it is quiet")
        print_prose(f"limits: {found.fp32:.0f} GFLOP/s fp32, {levels}")
    if found.disturbance:
        print_prose(f"disturbed: {found.disturbance}")
