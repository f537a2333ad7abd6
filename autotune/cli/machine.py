"""`autotune machine`: what this CPU is, what of it may be used, and its limits: as known, or measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.asked_target import AskedTarget
from autotune.cli.options import JsonOption
from autotune.cli.table import Facts, Table
from autotune.cli.text import facts, print_json, print_prose, print_table, size, table
from autotune.core import KINDS, WIDTHS, Core
from autotune.errors import TargetError

if TYPE_CHECKING:
    from autotune.machine import Machine
    from autotune.measure.peaks import Peaks
    from autotune.target import Target

SOURCES = {
    "measured": "measured on this machine",
    "shipped": "shipped for this CPU",
    "features": "derived from its features",
}


def machine(
    *,
    asked: AskedTarget,
    as_json: JsonOption = False,
    peaks: Annotated[bool, typer.Option("--peaks/--no-peaks", help="Measure the limits (a few seconds).")] = True,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure what a core does in a cycle, and keep it for later runs.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --measure: keep figures that other programs seem to have disturbed.")
    ] = False,
) -> None:
    """Show this CPU, the cores and memory that may be used, and its limits: as known, or measured."""
    from autotune.machine import this_machine
    from autotune.measure.checkup import slow_memory
    from autotune.measure.peaks import measure_peaks

    parsed = asked.parsed_target()
    here = this_machine()
    if measure:
        if asked.target != "native":
            raise TargetError(
                f"--measure is of this machine as it is, not of {asked.target!r}: leave out --target and --threads"
            )
        _measure(here, parsed, as_json, force)
        return
    if force:
        raise TargetError("--force goes with --measure")
    limits = measure_peaks(parsed) if peaks else None
    if as_json:
        found = {
            "machine": asdict(here),
            "target": {"text": str(parsed), "key": parsed.key, **asdict(parsed)},
            "peaks": asdict(limits) if limits else None,
        }
        print_json(found)
        return
    print_table(_facts(here, parsed))
    print()
    print_table(_figures({SOURCES[parsed.core.source]: parsed.core}))
    if limits:
        print()
        print_table(_limits(limits, parsed.num_threads))
        for doubt in limits.doubts:
            print_prose(f"in doubt: {doubt}")
        if limits.doubts:
            print("measure again when it is quiet")
        if asked.target == "native" and (advice := slow_memory(parsed.core, limits)):
            print_prose(advice)


def _measure(here: Machine, target: Target, as_json: bool, force: bool) -> None:
    """Measures, shows, and keeps what was measured; refuses what is in doubt.

    Raises:
        TargetError: the figures are in doubt, or there is no place for them.
    """
    from autotune.cores import core_of, keep_measured
    from autotune.machine import environment
    from autotune.measure.calibrate import measure_core
    from autotune.measure.seen_peaks import forget_peaks
    from autotune.target import Target

    found = measure_core(target)
    before = target.core if target.core.source == "measured" else None
    core = found.core.rounded(before)
    known = core_of(here.cpu, here.features)
    if not as_json:
        columns = {"measured": found.core, "kept": core, known.source: known}
        print_table(_figures(columns))
    if found.doubts and not force:
        raise TargetError(
            f"not kept: other programs disturbed {_listed(found.doubts)}; measure again when it is quiet, or --force"
        )
    path = keep_measured(core, here, environment())
    forget_peaks()  # what was seen before may be of a faster machine than this has become
    key = Target.parse("native").with_threads(target.num_threads).key
    if as_json:
        print_json(
            {
                "measured": asdict(found.core),
                "kept": asdict(core),
                known.source: asdict(known),
                "doubts": found.doubts,
                "file": str(path),
                "key": {"before": target.key, "now": key},
            }
        )
        return
    print(f"kept in {path}")
    if key != target.key:
        print_prose(
            f"the target is {key} now, was {target.key}: what was tuned before seeds the search, but is not applied"
        )


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more figures"


def _moment(threads: int) -> str:
    """What the machine does meanwhile."""
    from autotune.measure.quiet import Watch, wait_until_quiet

    found = wait_until_quiet(Watch(threads), seconds=0.0)
    return found.describe() or f"quiet (load {found.load:.1f})"


def _facts(here: Machine, target: Target) -> Facts:
    quota = "none" if here.quota is None else f"{here.quota:g} cores"
    caches = here.caches
    return facts(
        ("CPU", f"{here.cpu} ({here.model})"),
        ("cores", f"{here.allowed_cores} to use (affinity: {here.topology.describe()}; quota: {quota})"),
        ("caches", f"L1 {size(caches.l1_bytes)}, L2 {size(caches.l2_bytes)}, L3 {size(caches.l3_bytes)}"),
        ("memory", size(here.memory_bytes)),
        ("now", _moment(target.num_threads)),
        ("target", str(target)),
        ("target key", target.key),
        ("vectors", f"{target.vector_bits} bits, {target.num_vector_registers} registers"),
        ("features", " ".join(target.features)),
    )


def _figures(cores: dict[str, Core]) -> Table:
    """A column per core, a row per figure."""
    shown = table("what a core does per cycle", *cores)
    for row in zip(*[_rows(core) for core in cores.values()], strict=True):
        shown.add_row(row[0][0], *(value for _, value in row))
    return shown


def _rows(core: Core) -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        pipes = [pipe for bits in WIDTHS if (pipe := core.pipe(kind, bits))]
        if pipes:
            rates = ", ".join(f"{pipe.per_cycle:.3g}" for pipe in pipes)
            latencies = ", ".join(dict.fromkeys(f"{pipe.latency:.2g}" for pipe in pipes))
            widths = ", ".join(str(pipe.bits) for pipe in pipes)
            yield f"{kind} of {widths} bits", f"{rates}; latency {latencies}"
    yield "loads, stores", f"{core.loads:.3g}, {core.stores:.3g}"
    yield "additions", "beside multiply-adds" if core.adds_beside_multiplies else "share units with multiply-adds"
    yield "read from L1, L2", f"{core.l1:.3g}, {core.l2:.3g} bytes"
    yield "read from L3", f"{core.l3:.3g} bytes; all threads {core.l3_shared:.3g}"
    yield "read from DRAM", f"{core.dram:.3g} bytes; all threads {core.dram_shared:.3g}"
    yield "clock, barrier", f"{core.ghz:.3g} GHz, {core.barrier_cycles:.3g} cycles"


def _limits(limits: Peaks, threads: int) -> Table:
    headings = ("1 thread", f"{threads} threads") if threads > 1 else ("1 thread",)
    shown = table("measured", *headings, "unit", right=headings)
    for name, one, every, unit in _rates(limits):
        shown.add_row(name, one, *([every] if threads > 1 else []), unit)
    return shown


def _rates(limits: Peaks) -> Iterator[tuple[str, str, str, str]]:
    for name, rate, unit in (
        ("fp32 FMA", limits.fp32, "GFLOP/s"),
        ("int8 dot", limits.int8, "GOP/s"),
        ("bf16 dot", limits.bf16, "GFLOP/s"),
        ("int8 tiles", limits.int8_tiles, "GOP/s"),
        ("bf16 tiles", limits.bf16_tiles, "GFLOP/s"),
        ("f16 tiles", limits.f16_tiles, "GFLOP/s"),
        ("L1 read", limits.l1, "GB/s"),
        ("L2 read", limits.l2, "GB/s"),
        ("L3 read", limits.l3, "GB/s"),
        ("DRAM read", limits.dram, "GB/s"),
    ):
        if rate is None:
            yield name, "-", "-", "no such instruction"
        else:
            yield name, f"{rate.one_core:.0f}", f"{rate.all_cores:.0f}", unit
