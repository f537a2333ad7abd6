"""Members: the workers of a cluster as its scheduler lists them, each checked before anything is asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from autotune.errors import ClusterError
from autotune.fleet.identity import Identity, parse_metrics
from autotune.measure.protocol import Json

IDENTITY, STATE = "autotune_identity", "autotune_state"
"""Under which names a worker hands both to its scheduler."""


@dataclass(frozen=True, slots=True)
class Member:
    """
    Attributes:
        address: where the scheduler reaches it; `name`: as it calls itself.
        resources: what it claims to offer, by which Dask matches tasks.
        last_seen: when it last told that it lives, by the scheduler's clock.
        identity: None when `problem` says why not.
        state: how it goes: trials `done` and `disturbed`, `drift` of its probe, and what Dask knows: `cpu`, `memory`,
            `executing`, `ready`.
    """

    address: str
    name: str
    resources: Mapping[str, float]
    last_seen: float
    identity: Identity | None
    state: Mapping[str, Json]
    problem: str = ""

    def offers(self, resource: str) -> bool:
        return self.resources.get(resource, 0.0) > 0


def members_of(scheduler: Mapping[str, object], mine: Identity) -> Iterator[Member]:
    """The workers in what a scheduler says of itself; `mine` is what they are to work with."""
    workers = scheduler.get("workers")
    for address, given in (workers if isinstance(workers, dict) else {}).items():
        yield _member(str(address), given, mine)


def _member(address: str, given: Mapping[str, object], mine: Identity) -> Member:
    metrics = cast("dict[str, object]", given.get("metrics") or {})
    counts = cast("dict[str, object]", metrics.get("task_counts") or {})
    state = {
        **parse_metrics(metrics.get(STATE)),
        **parse_metrics({"cpu": metrics.get("cpu"), "memory": metrics.get("memory")}),
        **parse_metrics({kind: counts.get(kind, 0) for kind in ("executing", "ready")}),
    }
    resources = {
        str(name): float(amount)
        for name, amount in cast("dict[str, float]", given.get("resources") or {}).items()
        if isinstance(amount, (int, float))
    }
    identity, problem = None, ""
    try:
        identity = Identity.from_json(given.get(IDENTITY))
        problem = mine.difference(identity)
        if not problem and identity.resources != resources:
            problem = "it claims to do other things than it describes"
    except ClusterError as error:
        problem = str(error)
    seen = given.get("last_seen")
    return Member(
        address,
        str(given.get("name", address)),
        resources,
        float(seen) if isinstance(seen, (int, float)) else 0.0,
        identity,
        state,
        problem,
    )
