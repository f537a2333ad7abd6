"""`autotune machine`: what this CPU is, what of it may be used, and its measured limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from autotune.cli.text import print_json, size
from autotune.machine import Machine, this_machine
from autotune.measure.peaks import Peaks, measure_peaks
from autotune.target import Target


def machine(
    target: Annotated[str, typer.Option(help='Whose limits to measure, e.g. "x86 -mcpu=haswell".')] = "native",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    peaks: Annotated[bool, typer.Option("--peaks/--no-peaks", help="Measure the limits (a few seconds).")] = True,
) -> None:
    """Show this CPU, the cores and memory that may be used, and its measured limits."""
    parsed = Target.parse(target)
    here = this_machine()
    limits = measure_peaks(parsed) if peaks else None
    if as_json:
        found = {
            "machine": asdict(here),
            "target": {"text": str(parsed), "key": parsed.key, **asdict(parsed)},
            "peaks": asdict(limits) if limits else None,
        }
        print_json(found)
        return
    console = Console(highlight=False)
    console.print(_facts(here, parsed))
    if limits:
        console.print()
        console.print(_limits(limits, parsed.num_threads))
        if limits.fp32.all_cores < limits.fp32.one_core * (1 + parsed.num_threads) / 2:
            console.print("the threads disturbed one another, or other programs did: measure again when it is quiet")


def _facts(here: Machine, target: Target) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    quota = "none" if here.quota is None else f"{here.quota:g} cores"
    caches = here.caches
    for name, value in (
        ("CPU", f"{here.cpu} ({here.model})"),
        ("cores", f"{here.allowed_cores} to use (affinity: {len(here.cpus)} logical CPUs; quota: {quota})"),
        ("caches", f"L1 {size(caches.l1_bytes)}, L2 {size(caches.l2_bytes)}, L3 {size(caches.l3_bytes)}"),
        ("memory", size(here.memory_bytes)),
        ("target", str(target)),
        ("target key", target.key),
        ("vectors", f"{target.vector_bits} bits, {target.num_vector_registers} registers"),
        ("features", " ".join(target.features)),
    ):
        table.add_row(name, value)
    return table


def _limits(limits: Peaks, threads: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("measured")
    for heading in ("1 thread", f"{threads} threads") if threads > 1 else ("1 thread",):
        table.add_column(heading, justify="right")
    table.add_column("")
    for name, one, every, unit in _rates(limits):
        table.add_row(name, one, *([every] if threads > 1 else []), unit)
    return table


def _rates(limits: Peaks) -> Iterator[tuple[str, str, str, str]]:
    for name, rate, unit in (
        ("fp32 FMA", limits.fp32, "GFLOP/s"),
        ("int8 dot", limits.int8, "GOP/s"),
        ("bf16 dot", limits.bf16, "GFLOP/s"),
        ("L1 read", limits.l1, "GB/s"),
        ("L2 read", limits.l2, "GB/s"),
        ("L3 read", limits.l3, "GB/s"),
        ("DRAM read", limits.dram, "GB/s"),
    ):
        if rate is None:
            yield name, "-", "-", "no such instruction"
        else:
            yield name, f"{rate.one_core:.0f}", f"{rate.all_cores:.0f}", unit
