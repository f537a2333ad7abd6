"""What `autotune bench` shows: a table and what it refers to, a table of several settings, CSV, JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.cli.compile import print_reasons
from autotune.cli.table import Table
from autotune.cli.text import print_prose, print_table, table
from autotune.machine import cpu_features
from autotune.report.text import counted, duration, percent, work

if TYPE_CHECKING:
    from autotune.api.bench import Timing
    from autotune.engines.compare import Comparison, EngineResult
    from autotune.measure.ratio import Ratio
    from autotune.target import Target

_SPARE = ("spread", "version", "p50", "GFLOP/s", "of peak", "p90", "runs/s", "p99")


def values_of(model: Path, timing: Timing, command: str) -> dict[str, Any]:
    """All that was found, as JSON."""
    from autotune.engines.environment import describe_environment

    setting, coverage = timing.setting, timing.coverage
    return {
        "model": str(model),
        "threads": setting.target.num_threads,
        "streams": setting.streams,
        "batch": setting.batch,
        "flops": timing.flops,
        **timing.comparison.to_dict(),
        "coverage": coverage.exact if coverage else None,
        "reasons": coverage.to_dict()["reasons"] if coverage else [],
        "to_tune": command if coverage and not coverage.complete else None,
        "environment": describe_environment(),
        "expected_error": timing.expected_error,
        "errors_from": timing.checked,
    }


def csv_lines(model: Path, found: Sequence[Timing]) -> Iterator[str]:
    """A heading, and a line for each engine in each setting; times in seconds, what is unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        "model threads streams batch engine version latency p50 p90 p99 throughput spread gflops peak_share"
        " speedup speedup_low speedup_high max_error rounds calls".split()
    )
    for timing in found:
        setting, compared = timing.setting, timing.comparison
        for one in compared.results:
            times, ratio = one.percentiles, compared.speedup(one)
            writer.writerow(
                [
                    model, setting.target.num_threads, setting.streams, setting.batch, one.name, one.version,
                    one.seconds, times.p50, times.p90, times.p99, one.throughput, one.spread, one.gflops,
                    one.peak_share, ratio.median, *(ratio.interval or (None, None)), one.max_error, compared.rounds,
                    len(one.calls),
                ]
            )  # fmt: skip
    yield from text.getvalue().splitlines()


def show_timing(timing: Timing, command: str | None) -> None:
    """One setting in full.

    Args:
        command: what tunes the model; None where the caller says how to go on.
    """
    show_comparison(timing.setting.target, timing.comparison, timing.flops, timing.checked, timing.setting.streams)
    if peer_saturates(timing, cpu_features()):
        print_prose(_SATURATES)
    if timing.coverage is not None:
        print_prose(timing.coverage.line())
        print_reasons(timing.coverage, command)


def peer_saturates(timing: Timing, features: Collection[str]) -> bool:
    """Whether answers are held against ONNX Runtime's of a quantised model, whose products of u8 and i8 saturate where
    there is no VNNI: the difference may be its error, not ours."""
    named = any(one.name == timing.checked == "onnxruntime" for one in timing.comparison.results)
    return named and timing.rounded and not {"avx512vnni", "avxvnni"} & set(features)


def show_sweep(found: Sequence[Timing]) -> None:
    """Several settings, a line for each engine in each."""
    batches = any(timing.setting.batch is not None for timing in found)
    shown = _engines("threads", *(["batch", "items/s"] if batches else []))
    for timing in found:
        setting = timing.setting
        for one in timing.comparison.results:
            batch = [f"{setting.batch}", f"{(setting.batch or 1) * one.throughput:.1f}"] if batches else []
            _add(shown, timing.comparison, one, str(setting.target.num_threads), *batch)
    print_table(shown)
    print_prose(_machine_line(found[0].comparison, found[0].setting.streams))
    print_prose(_RATIO_LINE)
    for timing in found:
        if timing.comparison.disturbance:
            print_prose(f"disturbed: {timing.comparison.disturbance}")
            break


def show_comparison(
    target: Target, found: Comparison, flops: int, right: str = "onnxruntime", streams: int = 1
) -> None:
    """A table of the engines, ours first, and what the figures refer to."""
    shown = _engines()
    for one in found.results:
        _add(shown, found, one)
    print_table(shown)
    threads = "1 thread" if target.num_threads == 1 else f"{target.num_threads} threads"
    print_prose(f"{threads} on {_machine_line(found, streams)}; {work(flops)}")
    checked = any(one.max_error is not None for one in found.results)
    errors = f"; errors are relative to {right}'s range" if checked else ""
    doubt = f", in doubt: {found.peak_doubt}" if found.peak_doubt else ""
    print_prose(f"FMA peak in the same rounds {found.peak_gflops:.0f} GFLOP/s{doubt}{errors}")
    if len(found.results) > 1:
        print_prose(_RATIO_LINE)
    if found.disturbance:
        print_prose(f"disturbed: {found.disturbance}")


_SATURATES = (
    "the model computes in 8 bits, and this CPU has no VNNI: ONNX Runtime's products of u8 and i8 may saturate here, "
    "ours are exact, so the error may be its own; `autotune bench --exact` holds both against float64"
)
_RATIO_LINE = "× our time: median of the rounds' ratios and its interval, which need not be the ratio of the latencies"


def _engines(*first: str) -> Table:
    numbers = ("latency", "p50", "p90", "p99", "runs/s", "spread", "GFLOP/s", "of peak", "× our time", "error")
    return table(*first, "engine", "version", *numbers, right=(*first, *numbers), spare=_SPARE)


def _add(shown: Table, found: Comparison, one: EngineResult, *first: str) -> None:
    times = one.percentiles
    shown.add_row(
        *first,
        one.name,
        one.version or "-",
        duration(one.seconds),
        *map(duration, (times.p50, times.p90, times.p99)),
        f"{one.throughput:.1f}",
        percent(one.spread),
        f"{one.gflops:.1f}",
        "-" if found.peak_doubt else percent(one.peak_share),
        "-" if one is found.results[0] else _faster(found.speedup(one)),
        "-" if one.max_error is None else f"{one.max_error:.1e}",
    )


def _machine_line(found: Comparison, streams: int) -> str:
    from autotune.machine import this_machine

    calls = sum(len(one.calls) for one in found.results)
    at_once = f"; {streams} streams at once" if streams > 1 else ""
    turns = " in turn" if len(found.results) > 1 else ""
    return f"{this_machine().model}; {counted(found.rounds, 'round')}{turns}, {calls} calls{at_once}"


def _faster(ratio: Ratio) -> str:
    shown = f"{ratio.median:.2f}×"
    return shown if ratio.interval is None else f"{shown} ({ratio.interval[0]:.2f} to {ratio.interval[1]:.2f})"
