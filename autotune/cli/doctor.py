"""`autotune doctor`: what makes numbers wrong or models slow here, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import text
from autotune.cli.asked_target import AskedTarget
from autotune.cli.machine import SOURCES
from autotune.cli.options import DbOption, JsonOption
from autotune.cli.status import working
from autotune.errors import AutotuneError
from autotune.measure.finding import Finding
from autotune.report.text import counted

if TYPE_CHECKING:
    from autotune.target import Target

PEERS = ("onnxruntime", "openvino", "MNN", "distributed", "fsspec", "cryptography", "torch")
"""Packages that commands use where they are installed."""


def doctor(
    *,
    asked: AskedTarget,
    db: DbOption = None,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=3600, help="How long to look who disturbs.")
    ] = 5.0,
    as_json: JsonOption = False,
) -> None:
    """Look for what makes measurements wrong or models slow here: who disturbs, and what is out of order.

    The exit code is 1 where something spoils what is measured, or is broken.
    """
    with working("looking at this machine"):
        target = asked.parsed_target()
        found = [*_machine(target, seconds), _packages(), _cache(), _database(target, db)]
    spoiled = any(finding.harmful for finding in found)
    if as_json:
        text.print_json({"healthy": not spoiled, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found)
    if spoiled:
        raise typer.Exit(1)


def _print(found: list[Finding]) -> None:
    text.print_table(text.facts(*((f"{_mark(one):<4}  {one.about}", one.text) for one in found)))
    advised = [one for one in found if one.advice]
    for one in advised:
        print()
        text.print_prose(f"{one.about}: {one.advice}")
    if not advised:
        print("\nnothing is in the way: what is measured now can be trusted")


def _mark(one: Finding) -> str:
    return "!!" if one.harmful else "note" if one.advice else "ok"


def _machine(target: Target, seconds: float) -> Iterator[Finding]:
    from autotune.machine import this_machine
    from autotune.measure.checkup import disturbers, large_pages, limits_found, observe
    from autotune.measure.peaks import measure_peaks

    here = this_machine()
    yield Finding(
        "CPU",
        f"{target.cpu} ({here.model}), {counted(target.num_threads, 'thread')}; figures"
        f" {SOURCES[target.core.source]}",
        "this CPU is not among those that are known: autotune machine --measure keeps what it does in a cycle"
        if target.core.source == "features" else "",
    )  # fmt: skip
    target.require_host()
    many = target.num_threads > here.allowed_cores
    cores = f"{here.topology.describe()}; {here.allowed_cores} to use"
    yield Finding("cores", cores, f"{target.num_threads} threads are more than are worth running" if many else "", many)
    yield from disturbers(observe(target, seconds), target.core)
    yield from limits_found(target.core, measure_peaks(target), target.cpu == here.cpu)
    yield large_pages()


def _packages() -> Finding:
    import platform

    from autotune.packages import version
    from autotune.version import installed_version

    there = [f"{name} {found}" for name in PEERS if (found := version(name))]
    own = installed_version()
    return Finding(
        "packages",
        f"autotune {own or 'from a checkout'}, Python {platform.python_version()}, llvmlite {version('llvmlite')}; "
        f"{', '.join(there) or 'none of the optional ones'}",
    )


def _cache() -> Finding:
    from autotune.codegen.object_cache import default_cache_directory, object_cache
    from autotune.machine import environment

    cache, wanted = object_cache(), default_cache_directory(environment())
    if cache.directory is not None:
        return Finding("object cache", str(cache.directory))
    why = cache.trouble or "there is no home folder; set HOME or XDG_CACHE_HOME"
    found = "none" if wanted is None else f"{wanted} is not used"
    return Finding("object cache", found, f"each start compiles all again: {why}", True)


def _database(target: Target, db: Path | None) -> Finding:
    from autotune.api.locate import absent, reading
    from autotune.cli.options import database_path

    try:
        path = database_path(db)
        if db is None and absent(path):
            return Finding("database", f"{path}: none yet; autotune tune MODEL makes it")
        with reading(path) as database:
            summaries = database.workloads() if database is not None else []
    except AutotuneError as error:
        return Finding("database", "cannot be used", str(error), True)
    own = sum(summary.target_key == target.key for summary in summaries)
    trials = sum(summary.trials for summary in summaries)
    found = f"{path}: {counted(trials, 'trial')} of {counted(len(summaries), 'workload')}, {own} for this target"
    none = bool(summaries) and not own
    return Finding("database", found, f"no record is for {target.key}: autotune tune MODEL makes some" if none else "")
