"""Match: how well a stored record fits a target, and why.

Only an exact record is applied without measuring it again. Compatible ones may run here but were timed
under other conditions; foreign ones may not even run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.record import TuningRecord


class Tier(str, Enum):
    EXACT = "exact"
    COMPATIBLE = "compatible"
    FOREIGN = "foreign"
    MISS = "miss"


@dataclass(frozen=True, slots=True)
class Match:
    """The best record of a workload for a target; `record` is None for a miss only."""

    tier: Tier
    reason: str
    record: TuningRecord | None = None


@dataclass(frozen=True, slots=True)
class TargetFit:
    """How records made for one target fit another. `distance` orders compatible targets: the nearest is best."""

    tier: Tier
    reason: str
    distance: int


# How far apart two targets are: code differs most between CPUs, then between thread counts.
_WEIGHTS = {"cpu": 64, "num_threads": 16, "features": 4}


def fit_target(record_target: str, wanted_target: str) -> TargetFit:
    """Compares the JSON of two targets with different keys, of which `arch` and `features` must be known.

    Compatible: same architecture, and `wanted_target` has every ISA feature that the record's has.
    Seconds from different machines do not compare, so the distance counts what differs instead.
    """
    theirs, ours = _target_fields(record_target), _target_fields(wanted_target)
    if theirs["arch"] != ours["arch"]:
        return TargetFit(Tier.FOREIGN, f"made for {theirs['arch']}, this target is {ours['arch']}", 0)
    their_features, our_features = set(theirs["features"]), set(ours["features"])
    if not their_features <= our_features:
        missing = _listed(sorted(their_features - our_features))
        return TargetFit(Tier.FOREIGN, f"made for a CPU with {missing}, which this target lacks", 0)
    differing = sorted(
        (name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)),
        key=lambda name: (-_WEIGHTS.get(name, 1), name),
    )
    reasons = [_reason(name, theirs, ours) for name in differing]
    distance = sum(_WEIGHTS.get(name, 1) for name in differing)
    return TargetFit(Tier.COMPATIBLE, "measured " + ("; ".join(reasons) or "under another target key"), distance)


def _reason(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    match name:
        case "features":
            return f"without {_listed(sorted(set(ours['features']) - set(theirs['features'])))}"
        case "core":
            return "with other figures of the core" if name in theirs else "before targets had the core's figures"
    what, there, here = (fields.shortened(str(value)) for value in (name, theirs.get(name), ours.get(name)))
    return f"with {what} {there}, here {here}"


def _target_fields(text: str) -> dict[str, Any]:
    values: Any = fields.embed(text)
    match values:
        case {"arch": str(), "features": list(features)} if all(isinstance(feature, str) for feature in features):
            return dict(values)
    raise DatabaseError(f"a target needs the fields arch and features (ISA feature names), got {text[:60]!r}")


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(fields.shortened, names[:4]))
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more features"
