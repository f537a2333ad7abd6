"""Which schedule a kernel gets: the best exact record, else the template's analytic default."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from autotune.errors import ConfigError
from autotune.ops.workload import Workload
from autotune.records import TEMPLATE_INTERFACE, Database, Tier, TuningRecord
from autotune.search_spaces import Config, Interface, check_config, default_config, templates_for
from autotune.target import Target

_OTHERS = 200
"""How many of the fastest records are looked at for one whose config is still valid."""


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
    """

    config: Config
    tier: Tier
    reason: str
    seconds: float | None = None
    ir_hash: str = ""
    interface: str = ""

    @property
    def tuned(self) -> bool:
        return self.tier is Tier.EXACT


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
    ) -> None:
        """
        Args:
            without: the reason given for defaults where there is no database to ask.
            strict_fp: allow strict templates only: no Winograd.
            strict_workloads: where to allow strict templates only, besides.
        """
        self.target = target
        self._strict_fp, self._strict_workloads = strict_fp, strict_workloads
        self.database = database
        self._without = without
        self._known: dict[tuple[Workload, str | None], Choice] = {}
        self._measured: dict[Workload, dict[Interface, Choice]] = {}

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

    def _remembered(self, workload: Workload, form: str | None) -> Choice:
        key = (workload, form)
        if key not in self._known:
            self._known[key] = self._look_up(workload, form)
        return self._known[key]

    def default(self, workload: Workload, reason: str, tier: Tier = Tier.MISS) -> Choice:
        """What a kernel gets without a record that fits."""
        return Choice(default_config(workload, self.target, strict_fp=self._strict(workload)), tier, reason)

    def others(self, workload: Workload, reason: str) -> Iterator[Choice]:
        """The defaults of the templates behind the first."""
        for entry in templates_for(workload, self.target, strict_fp=self._strict(workload))[1:]:
            config = entry.default(workload, self.target).replace(template=entry.name)
            yield Choice(config, Tier.MISS, reason)

    def _look_up(self, workload: Workload, form: str | None) -> Choice:
        if self.database is None:
            return self.default(workload, self._without)
        match = self.database.best(workload.key, self.target.key, self.target.to_json(), interface=form)
        if match.tier is not Tier.EXACT or match.record is None:
            return self.default(workload, match.reason, match.tier)
        if self._is_valid(workload, match.record):
            return _chosen(match.record, match.reason)
        others = self.database.top(workload.key, self.target.key, _OTHERS, interface=form)
        for record in others[1:]:
            if (record.seconds or 0.0) > WORSE * (match.record.seconds or 0.0):
                break  # what is left over from a search says less than what today's templates would do by themselves
            if self._is_valid(workload, record):
                return _chosen(record, match.reason)
        reason = "no record with an allowed template of this version; tune again"
        return self.default(workload, reason, Tier.COMPATIBLE)

    def _is_valid(self, workload: Workload, record: TuningRecord) -> bool:
        """Whether today's templates still know the record's config: a database outlives the knobs of its time."""
        try:
            chosen = check_config(workload, Config.from_json(record.config), self.target)
        except ConfigError:
            return False
        return chosen.strict or not self._strict(workload)

    def _strict(self, workload: Workload) -> bool:
        return self._strict_fp or workload in self._strict_workloads


def _chosen(record: TuningRecord, reason: str) -> Choice:
    config = Config.from_json(record.config)
    return Choice(config, Tier.EXACT, reason, record.seconds, record.ir_hash, record.interface)
