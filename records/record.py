"""TuningRecord: one trial, as a value. Strings and numbers only, so that no other package is needed to read it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from autotune.errors import DatabaseError
from autotune.records import fields

HIGH_SPREAD = 0.5
"""Of batches, beyond which a time counts as disturbed, whoever stored it."""
TEMPLATE_INTERFACE = "null"
"""The interface of a trial that took the layouts its template chose by itself."""
CLEARLY = 0.95
"""Of the time of the default, what a trial reaches at most that is used without having been timed in turn with it: the
fastest of many trials owes up to some percent of its lead to the moment in which it ran."""


class Timed(NamedTuple):
    """Which trial of a task it is, its time, and its date: what is known of it without reading the rest."""

    interface: str
    residency: str
    config_key: str
    seconds: float
    created: float

    def is_near(self, other: Timed) -> bool:
        """Whether another one is of the same layouts, with the weights in the same place."""
        return (self.interface, self.residency) == (other.interface, other.residency)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRecord:
    """What was tried (workload, target, interface, residency, config) and what came out: a time, or a failure.

    JSON texts are brought into canonical form. `seconds` and `failure_kind` exclude each other and one of
    them is set; `verified` says that the output was compared with the reference and lies within `tolerance`.
    Raises DatabaseError for a value that its field cannot have.
    """

    workload_key: str
    workload: str  # canonical JSON
    anchor_key: str | None = None
    family_key: str | None = None
    description: str = ""  # for people: the operator and its shapes
    target_key: str
    target: str  # canonical JSON: arch, cpu, features, num_threads, caches
    interface: str = TEMPLATE_INTERFACE  # canonical JSON: one layout per operand
    residency: str = ""  # where the weights were while it was timed: L2, L3, DRAM
    config_key: str
    config: str  # canonical JSON
    template: str
    algorithm: str = ""  # by which the steps compute the workload; empty where nobody noted it
    steps: str | None = None  # canonical JSON; None when the schedule could not be made
    ir_hash: str = ""
    seconds: float | None = None  # minimum of the batches, per call
    spread: float | None = None  # (median - minimum) / minimum of the batches
    number: int | None = None  # calls per batch
    batches: int | None = None
    probe_gflops: float | None = None  # the FMA probe around this trial
    disturbed: bool = False  # the machine was busy with other things: such a time counts less than any other
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    tolerance: float | None = None
    verified: bool = False
    failure_kind: str | None = None
    failure_message: str | None = None
    predicted: float | None = None  # seconds that the cost model expected when it chose it; None when it was not asked
    session_id: str | None = None
    created: float  # seconds since the epoch; what was timed in turn bears one date
    llvm_version: str = ""
    autotune_version: str = ""
    untuned_by: str = ""  # what made this the config of kernels without a record; empty where they had another

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        object.__setattr__(self, "disturbed", self.disturbed or (self.spread or 0.0) > HIGH_SPREAD)
        for name in _OBJECT_FIELDS:
            if not getattr(self, name).startswith("{"):
                raise DatabaseError(f"{name} must be a JSON object, got {fields.shortened(getattr(self, name))}")
        if (self.seconds is None) == (self.failure_kind is None):
            raise DatabaseError(
                f"a trial has either seconds or a failure_kind, got {self.seconds!r} and {self.failure_kind!r}"
            )
        if self.verified and self.seconds is None:
            raise DatabaseError(f"a failed trial ({self.failure_kind}) cannot be verified")
        if self.failure_message is not None and self.failure_kind is None:
            raise DatabaseError("a trial with a failure_message needs a failure_kind")

    @property
    def interface_key(self) -> str:
        return fields.text_key(self.interface)

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """What is one row in the database: a second trial of the same identity replaces the first."""
        return (self.workload_key, self.target_key, self.interface_key, self.residency, self.config_key)

    def timed_beside(self, other: TuningRecord) -> bool:
        """Whether another record is of the same comparison: kernels of one task, timed in turn."""
        mine, theirs = (self.session_id, self.created), (other.session_id, other.created)
        return (
            mine == theirs
            and self.session_id is not None
            and self.identity[:-1] == other.identity[:-1]
            and (self.config_key != other.config_key)
        )

    def to_json(self) -> str:
        """One line of canonical JSON; unset fields are left out, JSON texts are embedded."""
        out: dict[str, object] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name in _JSON_FIELDS:
                out[field.name] = fields.embed(value)
            else:
                out[field.name] = "inf" if value == math.inf else value
        return fields.dump_json(out)

    @classmethod
    def from_json(cls, line: str) -> TuningRecord:
        """The record that `to_json` wrote; DatabaseError naming the field for anything else."""
        try:
            values = fields.parse_json(line)
        except ValueError as error:
            raise DatabaseError(f"a record must be a JSON object: {error}") from None
        return cls.from_mapping(values)

    @classmethod
    def from_mapping(cls, values: object) -> TuningRecord:
        """As `from_json`, from the parsed object."""
        if not isinstance(values, dict):
            raise DatabaseError(f"a record must be a JSON object, got {type(values).__name__}")
        unknown = sorted(set(values) - set(_CHECKS))
        if unknown:
            raise DatabaseError(f"a record has no field {fields.shown(unknown[0])}")
        missing = [name for name in _REQUIRED if name not in values]
        if missing:
            raise DatabaseError(f"a record needs the field {missing[0]!r}")
        return cls(**{name: _plain(name, value) for name, value in values.items()})


def _plain(name: str, value: object) -> Any:
    if name in _JSON_FIELDS:
        return fields.unembed(value)
    return math.inf if name in _ERROR_FIELDS and value == "inf" else value


_CHECKS: Mapping[str, Callable[[str, object], object]] = {
    "workload_key": fields.key,
    "workload": fields.shared_json,
    "anchor_key": fields.optional_key,
    "family_key": fields.optional_key,
    "description": fields.text,
    "target_key": fields.key,
    "target": fields.shared_json,
    "interface": fields.shared_json,
    "residency": fields.short_name,
    "config_key": fields.key,
    "config": fields.own_json,
    "template": fields.key,
    "algorithm": fields.short_name,
    "steps": fields.optional_json,
    "ir_hash": fields.short_name,
    "seconds": fields.positive,
    "spread": fields.non_negative,
    "number": fields.optional_count,
    "batches": fields.optional_count,
    "probe_gflops": fields.positive,
    "disturbed": fields.flag,
    "max_abs_err": fields.error_size,
    "max_rel_err": fields.error_size,
    "tolerance": fields.non_negative,
    "verified": fields.flag,
    "failure_kind": fields.failure_kind,
    "failure_message": fields.message,
    "predicted": fields.optional_number,
    "session_id": fields.optional_key,
    "created": fields.number,
    "llvm_version": fields.text,
    "autotune_version": fields.text,
    "untuned_by": fields.short_name,
}
_JSON_FIELDS = frozenset({"workload", "target", "interface", "config", "steps"})
_OBJECT_FIELDS = ("workload", "target", "config")
_ERROR_FIELDS = frozenset({"max_abs_err", "max_rel_err"})
_REQUIRED = tuple(field.name for field in dataclasses.fields(TuningRecord) if field.default is dataclasses.MISSING)
