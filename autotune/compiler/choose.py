"""Which schedule a kernel gets: the best exact record, else the template's analytic default.

A record outlives its template. Its config is used while it gives the code that was measured; then its stored steps are
replayed, and used while they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from autotune.codegen.kernel import KernelSource, generate
from autotune.errors import CodegenError, ConfigError, LoweringError, ScheduleError, WorkloadError
from autotune.ops.registry import known_algorithm
from autotune.ops.workload import Workload
from autotune.records import CLEARLY, TEMPLATE_INTERFACE, Database, Tier, Timed, TuningRecord
from autotune.schedule import Schedule
from autotune.search_spaces import Config, Interface, check_config, default_config, lookup, make_schedule, templates_for
from autotune.search_spaces.space.code_version import version_mark
from autotune.search_spaces.space.registry import names
from autotune.search_spaces.space.replay import Recorded, confirm
from autotune.target import Target

_OTHERS = 200
"""How many of the fastest trials are looked at for one that still gives the code that was measured."""

_LOWERED = 8
"""How many of their records are lowered to see it; more would take longer than the kernel is worth."""

WORSE = 1.5
"""How much slower than the fastest record another one may be that is used because the fastest is no longer valid."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A config and where it comes from.

    Attributes:
        config: template name and knobs.
        tier: how well the record fits (`exact` is the only one applied), `miss` without any.
        reason: for people.
        seconds: measured time of the record, None for a default.
        ir_hash: identity of the code that was measured, empty for a default.
        interface: JSON of the layouts it was measured with.
        recorded: the stored steps, where these and not the config say how the kernel is made.
    """

    config: Config
    tier: Tier
    reason: str
    seconds: float | None = None
    ir_hash: str = ""
    interface: str = ""
    recorded: Recorded | None = None

    @property
    def tuned(self) -> bool:
        return self.tier is Tier.EXACT

    @property
    def origin(self) -> str:
        """What the kernel is made from, as text: equal texts give equal kernels."""
        return self.config.to_json() if self.recorded is None else self.recorded.to_json()

    @property
    def algorithm(self) -> str:
        """By which the anchor is computed."""
        if self.recorded is not None:
            return self.recorded.algorithm
        return lookup(self.config.template or "").algorithm_of(self.config)

    def is_strict(self, workload: Workload) -> bool:
        """Whether errors are those of another order of summation; so the template says, or what the steps stand on."""
        if self.recorded is None:
            return lookup(self.config.template or "").strict
        known = known_algorithm(workload, self.recorded.algorithm)
        return known is not None and known.strict

    def schedule(self, workload: Workload, target: Target, interface: Interface | None = None) -> Schedule:
        """The schedule for operands in the layouts of an interface, or in those that it chooses by itself.

        Raises:
            ConfigError, ScheduleError: it cannot be made in these layouts.
        """
        if self.recorded is None:
            return make_schedule(workload, self.config, target, interface)
        return self.recorded.schedule(workload, interface)


Untuned = Callable[[Workload, bool], Config]
"""(workload, whether only strict templates are allowed) -> the config of a kernel without a record."""


class Chooser:
    """Looks schedules up in a database; without one every kernel gets its default."""

    def __init__(
        self,
        target: Target,
        database: Database | None,
        without: str = "no database",
        *,
        strict_fp: bool = False,
        strict_workloads: Collection[Workload] = (),
        untuned: Untuned | None = None,
    ) -> None:
        """
        Args:
            without: the reason given for defaults where there is no database to ask.
            strict_fp: allow strict templates only: no Winograd, no Strassen, no pieces of bf16.
            strict_workloads: where to allow strict templates only, besides.
            untuned: what a kernel gets without a record, for who remembers it; found anew for each if None.
        """
        self.target = target
        self._strict_fp, self._strict_workloads = strict_fp, strict_workloads
        self.database = database
        self._untuned = untuned or (lambda workload, strict: default_config(workload, target, strict_fp=strict))
        self._without = without
        self._known: dict[tuple[Workload, str | None], Choice] = {}
        self._measured: dict[Workload, dict[Interface, Choice]] = {}
        self._generated: dict[Schedule, KernelSource] = {}

    def __call__(self, workload: Workload, interface: Interface | None = None) -> Choice:
        """The choice for a workload; given an interface, only records measured with it count.

        Raises:
            WorkloadError: no template can compute it.
        """
        return self._remembered(workload, None if interface is None else interface.to_json())

    def own(self, workload: Workload) -> Choice:
        """The choice for a kernel whose template picks the layouts: records of that, else of any layouts."""
        choice = self._remembered(workload, TEMPLATE_INTERFACE)
        return choice if choice.tuned else self._remembered(workload, None)

    def measured(self, workload: Workload) -> Mapping[Interface, Choice]:
        """The fastest record for each interface that was asked for when it was measured."""
        if workload not in self._measured:
            found: dict[Interface, Choice] = {}
            for form in self.database.interfaces(workload.key, self.target.key) if self.database is not None else ():
                if form != TEMPLATE_INTERFACE and (choice := self._remembered(workload, form)).tuned:
                    found[Interface.from_json(form)] = choice
            self._measured[workload] = found
        return self._measured[workload]

    def without_record(self, workloads: Iterable[Workload]) -> Iterator[tuple[Workload, bool]]:
        """Those for which there is no exact record in any layouts, with whether only strict templates are allowed."""
        for workload in dict.fromkeys(workloads):
            tier = Tier.MISS
            if self.database is not None:
                tier = self.database.best(workload.key, self.target.key, self.target.to_json()).tier
            if tier is not Tier.EXACT:
                yield workload, self._strict(workload)

    def _remembered(self, workload: Workload, form: str | None) -> Choice:
        key = (workload, form)
        if key not in self._known:
            self._known[key] = self._look_up(workload, form)
        return self._known[key]

    def default(self, workload: Workload, reason: str, tier: Tier = Tier.MISS) -> Choice:
        """What a kernel gets without a record that fits."""
        return Choice(self._untuned(workload, self._strict(workload)), tier, reason)

    @property
    def has_generated(self) -> bool:
        """Whether code was generated for a choice that nobody has taken along yet."""
        return bool(self._generated)

    def generated(self, schedule: Schedule) -> KernelSource | None:
        """What a schedule becomes, where it had to be found out for a choice; the first who asks takes it along."""
        return self._generated.pop(schedule, None)

    def others(self, workload: Workload, reason: str) -> Iterator[Choice]:
        """The defaults of the templates behind the first, down to plain loops."""
        for entry in templates_for(workload, self.target, strict_fp=self._strict(workload))[1:]:
            config = entry.default(workload, self.target).replace(template=entry.name)
            yield Choice(config, Tier.MISS, reason)

    def _look_up(self, workload: Workload, form: str | None) -> Choice:
        if self.database is None:
            return self.default(workload, self._without)
        match = self.database.best(workload.key, self.target.key, self.target.to_json(), interface=form)
        if match.tier is not Tier.EXACT or match.record is None:
            return self.default(workload, match.reason, match.tier)
        why, lowered = "", 0
        fastest = _Fastest(self.database, workload.key, self.target.key, form)
        for trial in fastest.trials:
            if trial.seconds > WORSE * (match.record.seconds or 0.0):
                continue  # what is left over from a search says less than what today's templates would do by themselves
            if not self._proved(workload, trial, fastest):
                why = why or "the trials that are faster than the default were not timed in turn with it"
                continue
            record = fastest.record(trial)
            if record is None:
                continue
            if self._strict(workload) and not _may_be_strict(workload, record):
                why = why or f"template {record.template!r} is not strict"
                continue
            sure = _is_sure(workload, record)
            lowered += not sure
            if sure or lowered <= _LOWERED:
                found = self._chosen(workload, record, match.reason, sure)
                if isinstance(found, Choice):
                    return found
                why = why or found
        return self.default(workload, f"no record is used: {why}; tune again", Tier.COMPATIBLE)

    def _proved(self, workload: Workload, trial: Timed, fastest: _Fastest) -> bool:
        """Whether a trial may be used in place of the default's: it was timed in turn with it, or is far ahead."""
        near = [other for other in fastest.trials if other.is_near(trial)]
        dates = Counter(other.created for other in near)
        if dates[trial.created] > 1 and fastest.is_compared(trial):
            return True
        if all(other == trial or _is_clear(trial, other) for other in near):
            return True  # whichever of them is the default, which takes a while to find
        compared = next((other for other in near if dates[other.created] > 1 and fastest.is_compared(other)), None)
        if compared is not None:  # the fastest of those that were: as fast as the default, or faster
            return _is_clear(trial, compared)
        try:
            default = self._untuned(workload, self._strict(workload)).key
        except WorkloadError:  # no template makes it any more: there is nothing else to use
            return True
        beaten = next((other for other in near if other.config_key == default), None)
        return beaten is None or trial.config_key == default or _is_clear(trial, beaten)

    def _chosen(self, workload: Workload, record: TuningRecord, reason: str, sure: bool) -> Choice | str:
        """The choice that a record stands for, or why it stands for none; `sure`: its config need not be lowered."""
        try:
            chosen = _choice(record, reason)
            why = self._why_not_config(workload, chosen, sure)
            if not why:
                return chosen
            known = Recorded(record.steps or "[]", record.algorithm, record.ir_hash)
            recorded = confirm(workload, known, lambda schedule: self._hash(schedule, record.ir_hash))
        except ConfigError as error:
            return str(error)
        except ScheduleError as error:
            return f"{why}, and {error}"
        chosen = replace(chosen, recorded=recorded, reason=f"{reason}; made from its stored steps: {why}")
        if self._strict(workload) and not chosen.is_strict(workload):
            return f"algorithm {recorded.algorithm!r} is not strict"
        return chosen

    def _why_not_config(self, workload: Workload, choice: Choice, sure: bool) -> str:
        """Why the config of a record does not make it again; empty when it does."""
        if choice.config.template not in names():
            return f"there is no template {choice.config.template!r} now"
        form = None if choice.interface == TEMPLATE_INTERFACE else Interface.from_json(choice.interface)
        try:
            check_config(workload, choice.config, self.target)
            if sure or self._hash(choice.schedule(workload, self.target, form), choice.ir_hash) == choice.ir_hash:
                return ""
        except (ConfigError, ScheduleError, LoweringError, CodegenError) as error:
            return f"its config does not build now ({' '.join(str(error).split())})"
        return "its config gives other code now"

    def _hash(self, schedule: Schedule, wanted: str) -> str:
        """Of the code that a schedule gives, which is kept where that is the one wanted: others are built by nobody."""
        found = generate(schedule, self.target, check=False)
        if found.ir_hash == wanted:
            self._generated[schedule] = found
        return found.ir_hash

    def _strict(self, workload: Workload) -> bool:
        return self._strict_fp or workload in self._strict_workloads


class _Fastest:
    """The fastest trials of a workload; a record is read, checked and unpacked where somebody asks for it.

    Attributes:
        trials: the fastest first, those measured beside other programs after all others.
    """

    def __init__(self, database: Database, workload_key: str, target_key: str, interface: str | None) -> None:
        self._database, self._task = database, (workload_key, target_key)
        self._read: dict[Timed, TuningRecord | None] = {}
        self.trials = database.times(*self._task, _OTHERS, interface=interface)

    def record(self, trial: Timed) -> TuningRecord | None:
        """All that is known of a trial; None where it has been deleted meanwhile."""
        if trial not in self._read:
            self._read[trial] = self._database.timed(*self._task, trial)
        return self._read[trial]

    def is_compared(self, trial: Timed) -> bool:
        """Whether a trial that shares its date was timed in turn with those others: somebody's own records are not."""
        record = self.record(trial)
        return record is not None and record.session_id is not None


def _is_clear(trial: Timed, other: Timed) -> bool:
    """Whether a trial is so much faster than another one that it need not have been timed in turn with it."""
    return trial.seconds <= CLEARLY * other.seconds


def _choice(record: TuningRecord, reason: str) -> Choice:
    config = Config.from_json(record.config)
    return Choice(config, Tier.EXACT, reason, record.seconds, record.ir_hash, record.interface)


def _is_sure(workload: Workload, record: TuningRecord) -> bool:
    """Whether a record's config, while it is valid, surely gives the code that was measured."""
    try:
        mark = version_mark(workload, Config.from_json(record.config))
    except ConfigError:
        return False
    return not record.ir_hash or (bool(mark) and record.autotune_version.endswith(mark))


def _may_be_strict(workload: Workload, record: TuningRecord) -> bool:
    """Whether neither the record's template, while there is one, nor its algorithm is known to err more."""
    known = known_algorithm(workload, record.algorithm)
    return (known is None or known.strict) and (record.template not in names() or lookup(record.template).strict)
