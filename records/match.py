"""Match: how well a stored record fits a target, and why.

Only an exact record is applied without measuring it again. Compatible ones may run here but were timed
under other conditions; foreign ones may not even run.
"""

from __future__ import annotations

import dataclasses
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


def fit_target(record_target: str, wanted_target: str) -> TargetFit:
    """Compares the JSON of two targets with different keys.

    Compatible: same architecture, and `wanted_target` has every ISA feature that the record's has.
    Seconds from different machines do not compare, so the distance counts what differs instead:
    the CPU weighs most, then the threads, then the caches.
    """
    theirs, ours = _target_facts(record_target), _target_facts(wanted_target)
    if theirs.arch != ours.arch:
        return TargetFit(Tier.FOREIGN, f"made for {theirs.arch}, this target is {ours.arch}", 0)
    missing = sorted(theirs.features - ours.features)
    if missing:
        return TargetFit(Tier.FOREIGN, f"made for {theirs.cpu}, which has {_listed(missing)}; this target has not", 0)
    differences = []
    distance = 0
    for name, weight in (("cpu", 4), ("threads", 2), ("caches", 1)):
        their, our = getattr(theirs, name), getattr(ours, name)
        if their != our:
            distance += weight
            differences.append(f"{name} {their}, here {our}" if name != "caches" else "other caches")
    if not differences:
        differences.append("other target settings")
    return TargetFit(Tier.COMPATIBLE, "measured with " + "; ".join(differences), distance)


def confirm_ir(match: Match, ir_hash: str) -> Match:
    """`match` after re-lowering its config gave `ir_hash`: an exact match with other code is only compatible."""
    if match.tier is not Tier.EXACT or match.record is None or match.record.ir_hash == ir_hash:
        return match
    reason = "the same config now gives other code than was measured (IR hash differs)"
    return dataclasses.replace(match, tier=Tier.COMPATIBLE, reason=reason)


@dataclass(frozen=True, slots=True)
class _TargetFacts:
    arch: str
    cpu: str
    features: frozenset[str]
    threads: Any
    caches: Any


def _target_facts(text: str) -> _TargetFacts:
    """The fields that matching reads; anything else in the JSON is part of the key only."""
    try:
        values = fields.parse_json(text)
    except ValueError as error:
        raise DatabaseError(f"a target must be a JSON object: {error}") from None
    if not isinstance(values, dict):
        raise DatabaseError(f"a target must be a JSON object, got {text[:60]!r}")
    arch, features = values.get("arch"), values.get("features")
    if not isinstance(arch, str):
        raise DatabaseError(f"a target needs the field 'arch', got {text[:60]!r}")
    if not isinstance(features, list) or not all(isinstance(feature, str) for feature in features):
        raise DatabaseError(f"a target needs 'features', a list of ISA feature names, got {text[:60]!r}")
    return _TargetFacts(
        arch, str(values.get("cpu", "unknown")), frozenset(features), values.get("threads"), values.get("caches")
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more features"
