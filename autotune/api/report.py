"""`autotune.write_report`: a model's report, gathered and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.api.feeds import complete_feeds, shapes_with
from autotune.api.load import Runnable, load
from autotune.api.locate import DatabaseLike, reading
from autotune.api.node_arg import NodeArg
from autotune.api.observe import run_observed
from autotune.arguments import checked
from autotune.compiler.compile import CompiledModel
from autotune.cost_model.features import FEATURES_VERSION
from autotune.cost_model.prior import in_use
from autotune.cost_model.training import score
from autotune.engines.compare import Comparison, compare
from autotune.engines.engine import Engine, Ours
from autotune.engines.float_environment import own_float_environment
from autotune.engines.peers import load_peer
from autotune.errors import EngineError, InputError
from autotune.machine import this_machine
from autotune.measure.peaks import measure_peaks
from autotune.measure.quiet import Watch
from autotune.records import Database
from autotune.report.coverage import Coverage
from autotune.report.history import Difference, History, differences, history
from autotune.report.page import Contender, Page, Quality, render
from autotune.report.profile import Profile, profile
from autotune.report.text import work
from autotune.search.learning import lessons_of
from autotune.search_spaces.sketch.nest_numbers import NAMES
from autotune.target import Target
from autotune.version import installed_version

MOST_ATTENTION = 10


@own_float_environment()
@checked
def write_report(
    model: str | Path,
    path: str | Path,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, object] | None = None,
    peers: Sequence[str] = (),
    other: str | Path | None = None,
    precision: str = "model",
    max_error: float | None = None,
    rounds: int = 12,
    command: str = "",
    title: str = "",
) -> Page:
    """Measure a model and write what is known about it to one HTML page that loads nothing from elsewhere.

    Args:
        model: a file. target, database, shapes: as for `autotune.compile`.
        path: the file.
        precision, max_error: as for `autotune.compile`.
        inputs: arrays by name; the others are drawn.
        peers: engines to compare with, by name; one that is missing or refuses the model is noted on the page.
        other: a second database, whose records are set beside those of the first.
        rounds: how often each engine has its turn.
        command: what the page tells to type in order to tune.
        title: of the page; None for the model's file name.

    Returns:
        What the page shows.

    Raises:
        InputError: the file cannot be written, or an input does not fit.
        ModelError, TargetError, DatabaseError: as for `autotune.compile`.
    """
    path, wanted = Path(path), Target.parse(target)
    named = title or Path(model).name
    every = shapes_with(shapes, inputs)
    ours, plain = (
        load(model, wanted, records, shapes=every, precision=precision, max_error=max_error)
        for records in (database, False)
    )
    feeds = complete_feeds([NodeArg.of(spec) for spec in ours.inputs], dict(inputs or {}), 0)
    programs = run_observed(ours, feeds, dict(inputs or {}))
    coverage = Coverage.of([kernel for program in programs for kernel in program.kernels])
    notes: list[str] = []
    engines: list[Engine] = [Ours(ours)]
    if _differ(ours, plain):
        engines.append(Ours(plain, "autotune untuned"))
    for name in peers:
        try:
            engines.append(load_peer(name, Path(model), wanted.num_threads, every))
        except EngineError as error:
            notes.append(f"{error}: left out")
    flops = sum(program.program.flops for program in programs)
    compared = compare(engines, feeds, wanted, flops=flops, rounds=rounds)
    passed = profile(ours, feeds, measure_peaks(wanted), 20, Watch(wanted.num_threads))
    notes += _disturbances(compared, passed)
    with reading(database) as records:
        page = Page(
            named,
            _facts(wanted, passed, flops),
            _contenders(compared),
            passed,
            coverage,
            "" if coverage.complete else command,
            _histories(records, passed, wanted),
            _quality(records, passed, wanted),
            _differences(records, other, passed, wanted),
            "" if other is None else str(other),
            tuple(notes),
        )
    try:
        path.write_text(render(page))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    return page


def _differ(ours: Runnable, plain: Runnable) -> bool:
    return not (isinstance(ours, CompiledModel) and isinstance(plain, CompiledModel) and ours.key == plain.key)


def _facts(target: Target, passed: Profile, flops: int) -> tuple[tuple[str, str], ...]:
    levels = ", ".join(f"{rate:.0f} GB/s from {name}" for name, _, rate in passed.levels)
    return (
        ("CPU", this_machine().model),
        ("target", str(target)),
        ("work", f"{work(flops)} a run"),
        ("limits", f"{passed.fp32:.0f} GFLOP/s in f32" + (f", {levels}" if levels else "")),
        ("autotune", installed_version() or "a checkout"),
    )


def _contenders(compared: Comparison) -> tuple[Contender, ...]:
    found = []
    for n, one in enumerate(compared.results):
        error = None if one.max_error == float("inf") else one.max_error
        if n == 0:
            found.append(Contender(one.name, one.seconds, None, None, error))
        else:
            ratio = compared.speedup(one)
            found.append(Contender(one.name, one.seconds, ratio.median, ratio.interval, error))
    return tuple(found)


def _disturbances(compared: Comparison, passed: Profile) -> list[str]:
    found = [f"disturbed while engines took turns: {compared.disturbance}"] if compared.disturbance else []
    found += [f"disturbed while kernels were timed: {passed.disturbance}"] if passed.disturbance else []
    return found + ([f"the limits are in doubt: {'; '.join(passed.doubts)}"] if passed.doubts else [])


def _histories(records: Database | None, passed: Profile, target: Target) -> tuple[tuple[History, float], ...]:
    """Of the kernels that have records, those with the most time first, each with its limit."""
    found: dict[str, tuple[History, float]] = {}
    for kernel in sorted(passed.kernels, key=lambda k: -k.seconds):
        workload = kernel.report.workload
        if records is not None and workload.key not in found:
            one = history(records, workload, target.key)
            if one.steps and one.trials > 1:  # of one trial there is no curve
                found[workload.key] = (one, kernel.least)
    return tuple(found.values())


def _quality(records: Database | None, passed: Profile, target: Target) -> Quality | None:
    used = in_use(NAMES, FEATURES_VERSION)
    if used is None:
        return None
    forest, file = used
    keys = {kernel.report.workload.key for kernel in passed.kernels}
    known = [] if records is None else [
        lesson for key in sorted(keys) for lesson in lessons_of(records.trials(key, target.key)) if lesson.useful
    ]  # fmt: skip
    attention = sorted(forest.attention().items(), key=lambda item: -item[1])[:MOST_ATTENTION]
    return Quality(str(file), tuple(attention), tuple(score(forest, lesson) for lesson in known))


def _differences(
    records: Database | None, other: str | Path | None, passed: Profile, target: Target
) -> tuple[Difference, ...]:
    if other is None:
        return ()
    with Database.open(Path(other), read_only=True) as there:
        workloads = [kernel.report.workload for kernel in passed.kernels]
        return tuple(differences(records, there, workloads, target.key))
