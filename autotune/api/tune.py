"""`autotune.tune`: measure until the budget is spent, keep what is fastest, never make a model slower."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from autotune.api.allowance import Allowance
from autotune.api.locate import DatabaseLike, object_cache
from autotune.api.observe import ObservedProgram, observe
from autotune.compiler.choose import Chooser
from autotune.compiler.compile import compile_graph
from autotune.compiler.tasks import KernelTask, alternative_tasks, kernel_tasks, merged, model_key
from autotune.engines.compare import ALLOWED_ERROR, compare
from autotune.engines.engine import Ours
from autotune.errors import ConfigError, DatabaseError, InputError
from autotune.graph import partition
from autotune.machine import environment
from autotune.measure.extensions import load_extensions
from autotune.measure.peaks import FmaPeak
from autotune.measure.pipeline import Pipeline, open_pipeline
from autotune.measure.timing import paired_speedup
from autotune.measure.weights import residency
from autotune.ops import Workload, parse_workload
from autotune.records import Database, Plan, default_database_path
from autotune.search import (
    DEFAULT_EFFORT,
    DEFAULT_STRATEGY,
    STRATEGIES,
    Budget,
    Event,
    TuneOptions,
    TuneOutcome,
    TuningTask,
    effort_of,
)
from autotune.search import tune as search
from autotune.search.recording import earlier_trials
from autotune.search_spaces.limit import Speed, limit
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource

FOLLOW_UP = 8
"""Trials for each kernel whose layouts are others once its neighbours are tuned."""
ROUNDS = 3
"""How often to look for such kernels: what is measured in new layouts may change the layouts of its neighbours."""
PEAK_ROUNDS = 50
"""F(4×4, 3×3) needs a quarter of the multiplications that the definition counts."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a tuning run does from now on.

    Attributes:
        name: in a few words.
        tasks: those that it works on.
        peak_gflops: fp32 FMA peak of the target's threads, which speeds may be compared with.
    """

    name: str
    tasks: tuple[TuningTask, ...] = ()
    peak_gflops: float = 0.0


TuneCallback: TypeAlias = Callable[["Event | Phase"], None]


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """The whole model, tuned and untuned, timed in turn.

    Attributes:
        tuned_seconds, untuned_seconds: latency, medians of the rounds.
        speedup: of tuned over untuned, the median of the rounds' ratios.
        tuned: whether compilers will use the tuned schedules: they are no slower, and the answers agree.
        error: largest difference between the answers of the two, relative to the output's range.
    """

    tuned_seconds: float
    untuned_seconds: float
    speedup: float
    tuned: bool
    error: float


@dataclass(frozen=True, slots=True)
class TuneReport:
    """
    Attributes:
        search: what became of every task.
        programs: the verdicts on the programs of the model: none for an operator, and when the run was interrupted
            before; several where values of the run decide shapes.
        peak_gflops: fp32 FMA peak of the target's threads, measured at the start.
        interrupted: ended by Ctrl-C; everything measured is kept, and the same call continues.
    """

    target: Target
    database: Path
    search: TuneOutcome
    programs: tuple[ModelVerdict, ...]
    peak_gflops: float
    interrupted: bool

    @property
    def model(self) -> ModelVerdict | None:
        """The verdict on the model as a whole, where there is one."""
        if len(self.programs) < 2:
            return self.programs[0] if self.programs else None
        tuned, untuned = (
            sum(verdict.tuned_seconds for verdict in self.programs),
            sum(verdict.untuned_seconds for verdict in self.programs),
        )
        error = max(verdict.error for verdict in self.programs)
        return ModelVerdict(tuned, untuned, untuned / tuned, all(v.tuned for v in self.programs), error)


def tune(
    model_or_op: ModelSource | Workload,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    budget: str | float | Budget | None = None,
    trials: int | None = None,
    strategy: str = DEFAULT_STRATEGY,
    effort: str = DEFAULT_EFFORT,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, object] | None = None,
    strict_fp: bool = False,
    imports: Sequence[str] = (),
    callbacks: Sequence[TuneCallback] = (),
    command: str = "",
) -> TuneReport:
    """Find fast schedules for a model's kernels, or for one operator, and store every trial.

    Trials in the database are not repeated, so a second call continues the first. For a model, the program that
    results is timed in turn with the untuned one; if it is slower, the model stays untuned.

    Args:
        model_or_op: an ONNX model as for `InferenceSession`; or a Workload, or text such as
            "matmul a=128,768 b=768,3072".
        target: as for `autotune.compile`.
        database: a file, created if need be; an open Database; None for the user's default file.
        budget: a time such as "5m" or 90.0 seconds; `trials`: how many, those found in the database included.
            Whichever is reached first ends the search; if neither is given, the effort says how long: "5m".
        strategy: a name among `autotune.search.STRATEGIES`: "guided", "evolution", "descent", "random" or "grid".
        effort: how thoroughly to spend the budget, a name among `autotune.search.EFFORTS`: "quick", "default" or
            "thorough".
        seed: of everything random.
        shapes: dimensions of a model's inputs by name, where it leaves them open.
        inputs: arrays by name, to time the model with; the others are drawn. A model whose shapes depend on values is
            run once with them, and the programs of that run are tuned.
        strict_fp: as for `autotune.compile`.
        imports: modules or .py files with the user's own operators and templates.
        callbacks: told of every event.
        command: what the user typed, for the session's row.

    Raises:
        ModelError, UnsupportedError, WorkloadError, TargetError, DatabaseError, ConfigError, InputError,
            ExtensionError: as their names say.
    """
    started = time.monotonic()
    wanted = Target.parse(target)
    wanted.require_host()
    spending = effort_of(effort)
    limit = _budget(budget, trials, spending.budget)
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown search strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    load_extensions(imports)
    subject = _subject(model_or_op, wanted, shapes, inputs, seed, strict_fp)
    options = TuneOptions.of(spending, strategy, seed)
    with _writing(database) as opened:
        run = _Run(wanted, opened, options, strict_fp, tuple(imports), callbacks, command, started, limit.seconds)
        if isinstance(subject, Workload):
            return run.tune_operator(subject, limit)
        return run.tune_model(subject, limit)


class _Run:
    """One call of `tune`."""

    def __init__(
        self,
        target: Target,
        database: Database,
        options: TuneOptions,
        strict_fp: bool,
        imports: tuple[str, ...],
        callbacks: Sequence[TuneCallback],
        command: str,
        started: float,
        seconds: float | None,
    ) -> None:
        self.target, self.database, self.options = target, database, options
        self.strict_fp = strict_fp
        self.imports, self.callbacks, self.command = imports, callbacks, command
        probe = FmaPeak(target)
        self.peak = max(probe.run() for _ in range(PEAK_ROUNDS))
        self.speed = Speed.of(target).at_peak(target, self.peak * 1e9)
        self.time = Allowance(seconds, self.peak, started)

    def tune_operator(self, workload: Workload, budget: Budget) -> TuneReport:
        task = TuningTask.of(workload, self.target, ideal_seconds=self._ideal(workload), strict_fp=self.strict_fp)
        with open_pipeline(self.target, imports=self.imports) as (pipeline, _):
            outcome = self._search("tuning", [task], self.time.search(budget), pipeline)
        return self._report(outcome, (), outcome.interrupted)

    def tune_model(self, programs: Sequence[ObservedProgram], budget: Budget) -> TuneReport:
        weight_bytes = sum(array.nbytes for program in programs for array in program.graph.constants.values())
        found = merged(
            task
            for program in programs
            for task in kernel_tasks(program.graph, self.target, None, object_cache(), strict_fp=self.strict_fp)
        )
        first = [self._task(task, weight_bytes) for task in found]
        with open_pipeline(self.target, weight_bytes=weight_bytes, imports=self.imports) as (pipeline, _):
            outcome = self._search("tuning", first, self.time.first_search(budget, _flops(programs)), pipeline)
            if not outcome.interrupted:
                outcome = self._follow_up(programs, weight_bytes, outcome, pipeline)
        verdicts: list[ModelVerdict] = []
        try:
            while not outcome.interrupted and len(verdicts) < len(programs):
                verdicts.append(self._judge(programs[len(verdicts)], outcome.session_id))
        except KeyboardInterrupt:
            return self._report(outcome, verdicts, True)
        return self._report(outcome, verdicts, outcome.interrupted)

    def _follow_up(
        self, programs: Sequence[ObservedProgram], weight_bytes: int, outcome: TuneOutcome, pipeline: Pipeline
    ) -> TuneOutcome:
        """Tunes briefly the kernels that are new, because tuned neighbours give them other layouts, and those that
        would save a transform in other layouts; then again, for what follows from that."""
        for _ in range(ROUNDS):
            choose = Chooser(self.target, self.database, strict_fp=self.strict_fp)
            known = {(task.task.workload.key, task.task.interface) for task in outcome.tasks}
            found = merged(
                task
                for find in (kernel_tasks, alternative_tasks)
                for program in programs
                for task in find(program.graph, self.target, self.database, object_cache(), strict_fp=self.strict_fp)
            )
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

    def _judge(self, observed: ObservedProgram, session_id: str) -> ModelVerdict:
        """Times the tuned program in turn with the untuned one, and stores which is to be used."""
        self._tell(Phase("timing the model, tuned and untuned in turn"))
        graph, cache = observed.graph, object_cache()
        tuned = compile_graph(graph, self.target, self.database, cache, heed_plan=False, strict_fp=self.strict_fp)
        untuned = compile_graph(graph, self.target, None, cache, strict_fp=self.strict_fp)
        engines = [Ours(tuned.executor, "tuned"), Ours(untuned.executor, "untuned")]
        flops = tuned.program.flops
        rounds = self.time.rounds(flops)
        found = compare(engines, observed.feeds, self.target, flops=flops, rounds=rounds, reference="untuned")
        ours, before = found.results
        error = ours.max_error if ours.max_error is not None else 0.0
        gain = paired_speedup(ours.samples, before.samples)
        keep = gain >= 1.0 and error <= ALLOWED_ERROR
        self.database.set_plan(
            Plan(
                model_key=model_key(partition(graph)),
                target_key=self.target.key,
                tuned=keep,
                tuned_seconds=ours.seconds,
                untuned_seconds=before.seconds,
                session_id=session_id,
                created=time.time(),
            )
        )
        return ModelVerdict(ours.seconds, before.seconds, gain, keep, error)

    def _task(self, task: KernelTask, weight_bytes: int) -> TuningTask:
        where = residency(weight_bytes, self.target)
        return TuningTask.of(
            task.workload,
            self.target,
            weight=task.uses,
            interface=task.interface,
            residency=where,
            ideal_seconds=self._ideal(task.workload, where),
            strict_fp=self.strict_fp,
            origins=task.origins,
        )

    def _ideal(self, workload: Workload, where: str = "") -> float:
        return limit(workload, self.target, self.speed, residency=where, strict_fp=self.strict_fp).seconds

    def _search(self, phase: str, tasks: list[TuningTask], budget: Budget, pipeline: Pipeline) -> TuneOutcome:
        self._tell(Phase(phase, tuple(tasks), self.peak))
        return search(
            tasks,
            pipeline=pipeline,
            database=self.database,
            budget=budget,
            options=self.options,
            callbacks=self.callbacks,
            command=self.command,
        )

    def _tell(self, phase: Phase) -> None:
        for callback in self.callbacks:
            callback(phase)

    def _report(self, outcome: TuneOutcome, verdicts: Sequence[ModelVerdict], interrupted: bool) -> TuneReport:
        return TuneReport(self.target, self.database.path, outcome, tuple(verdicts), self.peak, interrupted)


def _flops(programs: Sequence[ObservedProgram]) -> list[int]:
    return [sum(group.workload.flops for group in partition(program.graph)) for program in programs]


@contextmanager
def _writing(database: DatabaseLike) -> Iterator[Database]:
    if database is False:
        raise DatabaseError("tuning needs a database to keep its trials in; give a file, or None for the default one")
    if isinstance(database, Database):
        yield database
        return
    default = database is None
    path = default_database_path(environment()) if database is None else Path(database)
    with Database.open(path, make_parents=default) as opened:
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
    return budget if trials is None else replace(budget, trials=trials)


def _subject(
    given: ModelSource | Workload,
    target: Target,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, object] | None = None,
    seed: int = 0,
    strict_fp: bool = False,
) -> Workload | tuple[ObservedProgram, ...]:
    """An operator, or a model's programs. Text is an operator when it reads like one ("name operand=...") and names no
    file."""
    text = isinstance(given, str) and "=" in given and not Path(given).exists()
    if isinstance(given, Workload) or text:
        if shapes or inputs:
            raise InputError("shapes and inputs are for a model; an operator's text has its shapes already")
        return given if isinstance(given, Workload) else parse_workload(str(given))
    found = observe(given, target, shapes=shapes, inputs=inputs, seed=seed, strict_fp=strict_fp)
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
