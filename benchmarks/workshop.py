"""Kernels of one workload: built in processes, verified, and timed in turn with an FMA probe."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from autotune.codegen.kernel import build_kernel
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.pipeline import open_pipeline
from autotune.measure.runner import Runner
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops.workload import Workload
from autotune.records import Database, Tier
from autotune.schedule import Schedule
from autotune.search.budget import Budget
from autotune.search.task import TuningTask
from autotune.search.tuner import tune
from autotune.search_spaces import Config
from autotune.search_spaces.space.registry import lookup
from autotune.search_spaces.space.space import Member, TaskSpace
from autotune.target import Target
from benchmarks.report import Cell

Outcome = MeasureResult | Failure


class Workshop:
    """One builder process and one runner process for a target; the processes end with the context."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._builder = Builder(1, timeout=120.0)
        self._runner = Runner(target, TimingPolicy(), timeout=120.0)

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *ending: object) -> None:
        self._builder.close()
        self._runner.close()

    def race(self, workload: Workload, entries: Mapping[str, Config | Schedule], rounds: int) -> dict[str, Outcome]:
        """The outcome of each entry, all of them timed in turn, with the probe between them."""
        builds = {label: self._build(workload, entry) for label, entry in entries.items()}
        good = {label: build for label, build in builds.items() if isinstance(build, BuildResult)}
        candidate = MeasureInput(workload, Config(()), None, self.target)
        found: dict[str, Outcome] = {label: build for label, build in builds.items() if isinstance(build, Failure)}
        found.update(zip(good, self._runner.compare(candidate, list(good.values()), rounds), strict=True))
        return {label: found[label] for label in entries}

    def _build(self, workload: Workload, entry: Config | Schedule) -> BuildResult | Failure:
        if isinstance(entry, Config):
            return self._builder.build(MeasureInput(workload, entry, None, self.target))
        start = time.monotonic()
        kernel = build_kernel(entry, self.target)
        return BuildResult(kernel, entry.steps_json(), "direct", time.monotonic() - start)


def default_of(template: str, workload: Workload, target: Target) -> Config | None:
    """The analytic default of one template; None when it does not apply."""
    chosen = lookup(template)
    if not chosen.applies(workload, target):
        return None
    return chosen.default(workload, target).replace(template=template)


def tuned_by(template: str, workload: Workload, target: Target, trials: int, database: Path) -> Config | None:
    """The best config of one template after so many trials in `database`; those already there count."""
    chosen = lookup(template)
    member = Member(chosen.space(workload, target), chosen.default(workload, target), chosen.weight)
    task = TuningTask(workload, target, TaskSpace({template: member}))
    with Database.open(database) as opened, open_pipeline(target) as (pipeline, _):
        outcome = tune([task], pipeline=pipeline, database=opened, budget=Budget(trials=trials))
    best = outcome.tasks[0].best
    return best.config if best is not None else None


def recorded(workload: Workload, target: Target, database: Path) -> Config | None:
    """The best exact record of the workload, whatever its template."""
    with Database.open(database, read_only=True) as opened:
        match = opened.best(workload.key, target.key, target.to_json())
    exact = match.tier is Tier.EXACT and match.record is not None
    return Config.from_json(match.record.config) if exact and match.record is not None else None


def figures(workload: Workload, outcome: Outcome) -> dict[str, Cell]:
    """Time, speed and error of a kernel, or what went wrong."""
    if isinstance(outcome, Failure):
        return {"note": f"{outcome.kind}: {outcome.message}"}
    gflops = workload.flops / outcome.seconds * 1e-9
    return {
        "µs": outcome.seconds * 1e6,
        "GFLOP/s": gflops,
        "probe": outcome.probe_gflops,
        "% of probe": 100 * gflops / outcome.probe_gflops,
        "spread %": 100 * outcome.spread,
        "error": outcome.max_abs_err,
        "allowed": outcome.tolerance,
    }
