"""LayeredDatabase: a database over others, which are read only and say what it does not."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from autotune.records.database import Database, WorkloadSummary
from autotune.records.record import Timed, TuningRecord


class LayeredDatabase(Database):
    """What is written goes to the uppermost, what is read comes from all. Of trials of one identity the upper counts.

    Verdicts on models and sessions are those of the uppermost: they are of one machine.
    """

    def __init__(self, layers: Sequence[Database]) -> None:
        super().__init__(layers[0].connection, layers[0].name)
        self.layers = tuple(layers)

    def close(self) -> None:
        for layer in self.layers:
            layer.close()

    def has(self, record: TuningRecord) -> bool:
        return any(layer.has(record) for layer in self.layers)

    def find(self, record: TuningRecord) -> TuningRecord | None:
        return next((found for layer in self.layers if (found := layer.find(record)) is not None), None)

    def origin(self, record: TuningRecord) -> str:
        return next((layer.name for layer in self.layers if layer.has(record)), self.name)

    def times(self, workload_key: str, target_key: str, k: int, *, interface: str | None = None) -> list[Timed]:
        records = [
            record
            for disturbed in (False, True)
            for record in self.top(workload_key, target_key, k, interface=interface, disturbed=disturbed)
        ]
        return [Timed(r.interface, r.residency, r.config_key, r.seconds or 0.0, r.created) for r in records]

    def timed(self, workload_key: str, target_key: str, trial: Timed) -> TuningRecord | None:
        found = (layer.timed(workload_key, target_key, trial) for layer in self.layers)
        return next((record for record in found if record is not None), None)

    def top(
        self,
        workload_key: str,
        target_key: str,
        k: int,
        *,
        interface: str | None = None,
        residency: str | None = None,
        disturbed: bool | None = None,
    ) -> list[TuningRecord]:
        found: list[list[TuningRecord]] = []
        for number, layer in enumerate(self.layers):
            count = k
            while True:
                records = layer.top(
                    workload_key, target_key, count, interface=interface, residency=residency, disturbed=disturbed
                )
                seen = [record for record in records if not self._hidden(record, number)]
                if len(seen) >= k or len(records) < count:
                    break
                count *= 4
            found.append(seen)
        merged = heapq.merge(*found, key=lambda record: (record.disturbed, record.seconds, record.config_key))
        return list(itertools.islice(merged, k))

    def _hidden(self, record: TuningRecord, number: int) -> bool:
        """Whether a layer above the one of this number has a trial of the same identity."""
        return any(layer.has(record) for layer in self.layers[:number])

    def trials(
        self,
        workload_key: str | None = None,
        target_key: str | None = None,
        *,
        interface: str | None = None,
        residency: str | None = None,
        damaged: list[str] | None = None,
        by_task: bool = False,
        steps: bool = True,
    ) -> Iterator[TuningRecord]:
        for number, layer in enumerate(self.layers):
            for record in layer.trials(
                workload_key,
                target_key,
                interface=interface,
                residency=residency,
                damaged=damaged,
                by_task=by_task,
                steps=steps,
            ):
                if not self._hidden(record, number):
                    yield record

    def family(self, family_key: str, target_key: str) -> dict[str, str]:
        below = [layer.family(family_key, target_key) for layer in reversed(self.layers)]
        return {key: text for found in below for key, text in found.items()}

    def interfaces(self, workload_key: str, target_key: str) -> list[str]:
        return list(dict.fromkeys(text for layer in self.layers for text in layer.interfaces(workload_key, target_key)))

    def workload_keys(self, start: str) -> list[str]:
        return sorted({key for layer in self.layers for key in layer.workload_keys(start)})

    def workloads(self) -> list[WorkloadSummary]:
        """One summary per workload, target and layer."""
        found = [summary for layer in self.layers for summary in layer.workloads()]
        return sorted(found, key=lambda one: (one.description, one.workload_key, one.target_key))

    def _targets(self, workload_key: str) -> dict[str, str]:
        return {key: text for layer in self.layers for key, text in layer._targets(workload_key).items()}

    def _counts(self, workload_key: str) -> tuple[int, int]:
        counts = [layer._counts(workload_key) for layer in self.layers]
        return sum(trials for trials, _ in counts), sum(verified for _, verified in counts)
