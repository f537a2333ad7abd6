"""What `autotune.tune` does: measure until the budget is spent, keep what is fastest, never make a model slower."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.api.allowance import Allowance
from autotune.api.locate import DatabaseLike, Layered, absent, file_of, reading, writing
from autotune.api.observe import ObservedProgram, observe, observe_shapes
from autotune.api.phase import Phase, TuneCallback
from autotune.api.progress import showing
from autotune.api.shapes import WantedShapes, shape_ranges
from autotune.api.verdict import ModelVerdict, check_wish, combined, judge
from autotune.api.workplace import Workplace, open_workplace
from autotune.codegen.object_cache import object_cache
from autotune.compiler.choose import Chooser
from autotune.compiler.defaults import Defaults
from autotune.compiler.precision import AS_THE_MODEL, Precision
from autotune.compiler.tasks import KernelTask, alternative_tasks, kernel_tasks, merged
from autotune.engines.race import RacerLike
from autotune.errors import ConfigError, InputError
from autotune.graph import partition
from autotune.measure.extensions import load_extensions
from autotune.measure.peaks import Peak, expected_peak
from autotune.measure.pipeline import Pipeline
from autotune.ops import Workload, parse_workload
from autotune.records import Database
from autotune.report.text import counted
from autotune.search import (
    STRATEGIES,
    Budget,
    TaskOutcome,
    TuneOptions,
    TuneOutcome,
    TuningTask,
    effort_of,
)
from autotune.search import tune as search
from autotune.search.recording import earlier_trials
from autotune.search_spaces.space.limit import Speed, limit
from autotune.target import Target
from autotune.tensor.shape_range import only_shape

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource

FOLLOW_UP = 8
"""Trials for each kernel whose layouts are others once its neighbours are tuned."""
ROUNDS = 3
"""How often to look for such kernels: what is measured in new layouts may change the layouts of its neighbours."""
PEAK_SECONDS, PEAK_SHARE = 5.0, 0.05
"""How long a quiet moment is waited for while the peak is in doubt, at most: seconds, and of the whole time."""


@dataclass(frozen=True, slots=True)
class TuneReport:
    """
    Attributes:
        search: what became of every task.
        programs: the verdicts on the programs of the model: none for an operator, and when the run was interrupted
            before; several where values of the run decide shapes, or where ranges of shapes were asked for.
        untimed: programs that there was no time to judge; the same call again goes on with them.
        peak: fp32 FMA peak of the target's threads, measured at the start, and whether it can be trusted.
        interrupted: ended by Ctrl-C; everything measured is kept, and the same call continues.
    """

    target: Target
    database: Path
    search: TuneOutcome
    programs: tuple[ModelVerdict, ...]
    untimed: int
    peak: Peak
    interrupted: bool

    @property
    def peak_gflops(self) -> float | None:
        """The peak; None when it is in doubt, and nothing should be compared with it."""
        return None if self.peak.doubt else self.peak.gflops

    @property
    def model(self) -> ModelVerdict | None:
        """The verdict on the model as a whole, where there is one."""
        return combined(self.programs) if self.programs else None

    def to_dict(self) -> dict[str, object]:
        """All of it, as JSON can hold it."""
        found = self.search
        return {
            "target": str(self.target),
            "database": str(self.database),
            "session": found.session_id,
            "interrupted": self.interrupted,
            "new_trials": found.new_trials,
            "seconds": found.seconds,
            "trials_per_second": found.trials_per_second,
            "shares": found.shares(),
            "foresight": asdict(found.foresight) if found.foresight else None,
            "peak_gflops": self.peak_gflops,
            "peak": asdict(self.peak),
            "model": asdict(self.model) if self.model else None,
            "programs": [asdict(program) for program in self.programs],
            "untimed": self.untimed,
            "tasks": [
                {
                    "workload": task.task.workload.key,
                    "operator": task.task.name,
                    "nodes": task.task.origins,
                    "uses": task.task.weight,
                    "trials": task.trials,
                    "new": task.new,
                    "failed": task.failed,
                    "skipped": task.skipped,
                    "default_seconds": task.default_seconds,
                    "default_seconds_alone": task.default_alone,
                    "default_disturbed": task.default_disturbed,
                    "best_seconds": task.best.seconds if task.best else None,
                    "speedup": task.speedup,
                    "gflops": task.gflops,
                    "peak_share": task.gflops / self.peak_gflops if task.gflops and self.peak_gflops else None,
                    "of_limit": task.of_limit if self.peak_gflops else None,
                    "disturbed": task.best.disturbed if task.best else None,
                    "config": dict(task.best.config) if task.best else None,
                    "foresight": asdict(task.foresight) if task.foresight else None,
                    "stopped": task.stopped,
                }
                for task in found.tasks
            ],
        }

    def __repr__(self) -> str:
        found, model = self.search, self.model
        gained = "" if model is None else f", {model.speedup:.2f}× as fast"
        return f"<TuneReport: {found.new_trials} trials of {counted(len(found.tasks), 'task')}{gained}>"

    def _repr_html_(self) -> str:
        from autotune.report.naming import task_name
        from autotune.report.notebook import html_table
        from autotune.report.text import duration

        model = self.model
        title = f"{self.search.new_trials} trials in {self.search.seconds:.1f} s"
        if model is not None:
            now = "tuned" if model.tuned else "untuned"
            times = f"{duration(model.untuned_seconds)} untuned, {duration(model.tuned_seconds)} tuned"
            title = f"{times}, in turn {model.speedup:.2f}× as fast; the model runs {now}; {title}"
        tasks = sorted(self.search.tasks, key=lambda task: -task.task.weight * (task.best.cost if task.best else 0.0))
        rows = [
            (duration(task.default_seconds), duration(task.best.seconds if task.best else None),
             f"{task.speedup:.2f}×" if task.speedup else "-", f"{task.task.weight:g}", str(task.trials),
             task_name(task.task.origins), task.task.name)
            for task in tasks
        ]  # fmt: skip
        headings = ("untuned", "tuned", "faster", "uses", "trials", "node", "operator")
        notes = ["interrupted: the same call continues"] if self.interrupted else []
        return html_table(title, headings, rows, [*notes, f"records in {self.database}"])


def run(
    model_or_op: ModelSource | Workload,
    target: str | Target | None,
    database: DatabaseLike,
    *,
    budget: str | float | Budget | None,
    trials: int | None,
    strategy: str,
    effort: str,
    seed: int,
    shapes: WantedShapes | None,
    inputs: Mapping[str, object] | None,
    strict_fp: bool,
    precision: str,
    max_error: float | None,
    verdict: str,
    imports: Sequence[str],
    callbacks: Sequence[TuneCallback],
    progress: bool | None,
    command: str,
    cluster: str | None,
    started: float,
) -> TuneReport:
    """See `tune`, which `started` at that time of the monotonic clock."""
    spending = effort_of(effort)
    limit = _budget(budget, trials, spending.budget)
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown search strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    check_wish(verdict)
    load_extensions(imports)
    options = TuneOptions.of(spending, strategy, seed)
    patience = PEAK_SECONDS if limit.seconds is None else min(PEAK_SECONDS, PEAK_SHARE * limit.seconds)
    with showing(progress) as shown:
        listeners: tuple[TuneCallback, ...] = (*callbacks, *([shown] if shown is not None else []))
        with open_workplace(target, cluster, imports) as place:
            _tell(listeners, Phase("reading the model"))
            with _earlier(database) as opened:
                wish = Precision.parse(precision, max_error)
                subject = _subject(model_or_op, place.target, shapes, inputs, seed, strict_fp, wish, opened)
            with writing(database) as opened:
                # The builders start while the runner does, before it has anything to measure.
                with place.runner() as runner, place.pipeline(runner, _Run.weight_bytes(subject)) as pipeline:
                    _tell(listeners, Phase("measuring what this CPU can do"))
                    peak = runner.peak(patience)
                    run = _Run(
                        place, opened, peak, options, strict_fp, verdict, listeners, command, started, limit.seconds
                    )
                    outcome = run.search(subject, limit, pipeline)
                    if run.peak.doubt and not outcome.interrupted and not (again := runner.peak(0.0)).doubt:
                        run.peak = again
                return run.judged(outcome, () if isinstance(subject, Workload) else subject)


class _Run:
    """One call of `tune`."""

    def __init__(
        self,
        place: Workplace,
        database: Database,
        peak: Peak,
        options: TuneOptions,
        strict_fp: bool,
        wish: str,
        callbacks: Sequence[TuneCallback],
        command: str,
        started: float,
        seconds: float | None,
    ) -> None:
        self.place, self.database, self.options = place, database, options
        self.target, self.peak = place.target, peak
        self.strict_fp, self.wish = strict_fp, wish
        self.defaults = Defaults(object_cache(), self.target)
        self.callbacks, self.command = callbacks, command
        likely = max(peak.gflops, expected_peak(self.target)) if peak.doubt else peak.gflops
        self.speed = Speed.of(self.target).at_peak(self.target, likely * 1e9)
        self.time = Allowance(seconds, likely, started)

    def search(self, subject: Workload | Sequence[ObservedProgram], budget: Budget, pipeline: Pipeline) -> TuneOutcome:
        """Tunes an operator, or the kernels of programs."""
        if isinstance(subject, Workload):
            task = TuningTask.of(
                subject,
                self.target,
                ideal_seconds=self._ideal(subject),
                strict_fp=self.strict_fp,
                space=self.defaults.space(subject, self.strict_fp),
                untuned=self.defaults(subject, self.strict_fp),
            )
            return self._search("tuning", [task], self.time.search(budget), pipeline)
        found = self._tasks(kernel_tasks, subject, None)
        weight_bytes = self.weight_bytes(subject)
        first = [self._task(task, weight_bytes) for task in found]
        outcome = self._search("tuning", first, self.time.first_search(budget, _flops(subject)), pipeline)
        return outcome if outcome.interrupted else self._follow_up(subject, weight_bytes, outcome, pipeline)

    def judged(self, outcome: TuneOutcome, programs: Sequence[ObservedProgram]) -> TuneReport:
        """What the run came to, the verdicts on its programs included."""
        if not programs or outcome.interrupted:
            return self._report(outcome, (), 0, outcome.interrupted)
        verdicts: dict[int, ModelVerdict] = {}
        # Those that most of a run's time goes into come first: there may be no time for all.
        shares = [program.weight * flops for program, flops in zip(programs, _flops(programs), strict=True)]
        todo = sorted(range(len(programs)), key=lambda place: shares[place], reverse=True)
        interrupted = False
        try:
            with self.place.racer() as racer:
                while todo and not (verdicts and self.time.over()):
                    verdicts[todo[0]] = self._judge(programs[todo[0]], outcome.session_id, racer)
                    del todo[0]
        except KeyboardInterrupt:
            interrupted = True
        return self._report(outcome, [verdicts[place] for place in sorted(verdicts)], len(todo), interrupted)

    @staticmethod
    def weight_bytes(subject: Workload | Sequence[ObservedProgram]) -> int:
        """Of a model; an operator's weights are warm."""
        if isinstance(subject, Workload):
            return 0
        arrays = {id(array): array.nbytes for program in subject for array in program.graph.constants.values()}
        return sum(arrays.values())

    def _follow_up(
        self, programs: Sequence[ObservedProgram], weight_bytes: int, outcome: TuneOutcome, pipeline: Pipeline
    ) -> TuneOutcome:
        """Tunes briefly the kernels that are new, because tuned neighbours give them other layouts, and those that
        would save a transform in other layouts; then again, for what follows from that."""
        for _ in range(ROUNDS):
            choose = Chooser(self.target, self.database, strict_fp=self.strict_fp)
            known = {(task.task.workload.key, task.task.interface) for task in outcome.tasks}
            every = (self._tasks(find, programs, self.database) for find in (kernel_tasks, alternative_tasks))
            found = merged(task for tasks in every for task in tasks)
            fresh = [
                self._task(task, weight_bytes)
                for task in found
                if (task.workload.key, task.interface) not in known and not choose(task.workload, task.interface).tuned
            ]
            if not fresh or outcome.interrupted:
                return outcome
            earlier = sum(len(earlier_trials(self.database, task)) for task in fresh)
            budget = self.time.follow_up(earlier + FOLLOW_UP * len(fresh), _flops(programs))
            if budget is None:
                return outcome
            outcome = _merged(outcome, self._search("tuning kernels in their new layouts", fresh, budget, pipeline))
        return outcome

    def _tasks(
        self,
        find: Callable[..., tuple[KernelTask, ...]],
        programs: Sequence[ObservedProgram],
        database: Database | None,
    ) -> tuple[KernelTask, ...]:
        """The kernels of all programs, as often as a run needs them."""
        return merged(
            replace(task, uses=task.uses * program.weight)
            for program in programs
            for task in find(program.graph, self.target, database, object_cache(), strict_fp=self.strict_fp)
        )

    def _judge(self, observed: ObservedProgram, session_id: str, racer: RacerLike) -> ModelVerdict:
        _tell(self.callbacks, Phase("timing the model, tuned and untuned in turn"))
        verdict = judge(
            observed,
            self.target,
            self.database,
            racer,
            rounds=self.time.rounds,
            session_id=session_id,
            strict_fp=self.strict_fp,
            wish=self.wish,
        )
        return replace(verdict, weight=observed.weight)

    def _task(self, task: KernelTask, weight_bytes: int) -> TuningTask:
        where = self.target.residency(weight_bytes)
        return TuningTask.of(
            task.workload,
            self.target,
            weight=task.uses,
            interface=task.interface,
            residency=where,
            ideal_seconds=self._ideal(task.workload, where),
            strict_fp=self.strict_fp,
            origins=task.origins,
            space=self.defaults.space(task.workload, self.strict_fp),
            untuned=self.defaults(task.workload, self.strict_fp),
        )

    def _ideal(self, workload: Workload, where: str = "") -> float:
        return limit(workload, self.target, self.speed, residency=where, strict_fp=self.strict_fp).seconds

    def _search(self, phase: str, tasks: list[TuningTask], budget: Budget, pipeline: Pipeline) -> TuneOutcome:
        _tell(self.callbacks, Phase(phase, tuple(tasks), 0.0 if self.peak.doubt else self.peak.gflops))
        return search(
            tasks,
            pipeline=pipeline,
            database=self.database,
            budget=budget,
            options=self.options,
            callbacks=self.callbacks,
            command=self.command,
        )

    def _report(
        self, outcome: TuneOutcome, verdicts: Sequence[ModelVerdict], untimed: int, interrupted: bool
    ) -> TuneReport:
        peak = self.peak.against(self.peak.gflops * max((self._of_peak(task) for task in outcome.tasks), default=0.0))
        return TuneReport(self.target, self.database.path, outcome, tuple(verdicts), untimed, peak, interrupted)

    def _of_peak(self, found: TaskOutcome) -> float:
        """What share of the peak its best kernel reaches for sure: with as few multiplications as it can have."""
        workload = found.task.workload
        if found.best is None or workload.anchor is None:
            return 0.0
        return limit(workload, self.target, self.speed, strict_fp=self.strict_fp).arithmetic / found.best.cost


def _tell(callbacks: Sequence[TuneCallback], phase: Phase) -> None:
    for callback in callbacks:
        callback(phase)


def _flops(programs: Sequence[ObservedProgram]) -> list[int]:
    return [sum(group.workload.flops for group in partition(program.graph)) for program in programs]


@contextmanager
def _earlier(database: DatabaseLike) -> Iterator[Database | None]:
    """What runs before this one have left, where there is anything."""
    one = database.database if isinstance(database, Layered) else database
    path = file_of(one)
    missing = path is not None and absent(path)
    if path is not None and not missing:
        with writing(one):  # which upgrades what an older autotune wrote: readers do not
            pass
    with reading(False if missing and one is database else database, tell=False) as opened:
        yield opened


def _budget(budget: str | float | Budget | None, trials: int | None, usual: str) -> Budget:
    if budget is None and trials is None:
        budget = usual
    if isinstance(budget, str):
        budget = Budget.parse(budget)
    elif isinstance(budget, (int, float)):
        budget = Budget(seconds=float(budget))
    if budget is None:
        return Budget(trials=trials)
    if not isinstance(budget, Budget):
        raise ConfigError(f"a budget is a text such as '5m', seconds or a Budget, not {budget!r}")
    return budget if trials is None else replace(budget, trials=trials)


def _subject(
    given: ModelSource | Workload,
    target: Target,
    shapes: WantedShapes | None = None,
    inputs: Mapping[str, object] | None = None,
    seed: int = 0,
    strict_fp: bool = False,
    precision: Precision = AS_THE_MODEL,
    database: Database | None = None,
) -> Workload | tuple[ObservedProgram, ...]:
    """An operator, or a model's programs. Text is an operator when it reads like one ("name operand=...") and names no
    file."""
    text = isinstance(given, str) and "=" in given and not os.path.exists(given)
    if isinstance(given, Workload) or text:
        if shapes or inputs:
            raise InputError("shapes and inputs are for a model; an operator's text has its shapes already")
        return given if isinstance(given, Workload) else parse_workload(str(given))
    ranges = shape_ranges(shapes) if shapes else []
    one = only_shape(ranges)
    if one is None:
        if inputs:
            raise InputError("inputs have shapes of their own: give either them or several shapes")
        return observe_shapes(given, target, ranges, database, seed=seed, strict_fp=strict_fp, precision=precision)
    found = observe(
        given, target, database, shapes=one, inputs=inputs, seed=seed, strict_fp=strict_fp, precision=precision
    )
    return tuple({id(program.graph): program for program in found}.values())


def _merged(first: TuneOutcome, second: TuneOutcome) -> TuneOutcome:
    """Two searches of one run as one outcome."""
    return TuneOutcome(
        tasks=first.tasks + second.tasks,
        seconds=first.seconds + second.seconds,
        time={part: first.time[part] + second.time[part] for part in first.time},
        interrupted=first.interrupted or second.interrupted,
        session_id=first.session_id,
    )
