"""Plan: whether a model runs on its tuned schedules, or stays untuned because they made it slower as a whole.

Kernels are measured one by one, and a model is more than their sum: layouts between them, caches, clocks. So the
tuner times the whole model both ways and stores the verdict; the compiler heeds it (docs/adr/0012).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The verdict on one model on one target. The newest one counts; times are of the same interleaved rounds.

    Attributes:
        model_key: identity of the model's kernels, whatever its weights.
        tuned: whether the tuned program is used.
        tuned_seconds, untuned_seconds: latency of either program.
        speedup: of tuned over untuned, the median of the rounds' ratios; `low` and `high`: its interval. None where
            nobody noted it.
        rounds: how many.
        error: largest difference between the answers of the two, relative to the output's range.
        programs: identity of the two programs that were timed; empty where nobody noted it.
        asked_for: somebody wanted it so, whatever was measured.
        disturbance: what other programs took while they were timed, in words; empty where it was quiet.
        created: seconds since the epoch.
    """

    model_key: str
    target_key: str
    tuned: bool
    tuned_seconds: float
    untuned_seconds: float
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int | None = None
    error: float | None = None
    programs: str = ""
    asked_for: bool = False
    disturbance: str = ""
    session_id: str | None = None
    created: float

    def __post_init__(self) -> None:
        fields.key("model_key", self.model_key)
        fields.key("target_key", self.target_key)
        fields.flag("tuned", self.tuned)
        for name in ("tuned_seconds", "untuned_seconds"):
            if fields.positive(name, getattr(self, name)) is None:
                raise DatabaseError(f"a plan needs {name}")
        for name in ("speedup", "low", "high"):
            fields.positive(name, getattr(self, name))
        fields.optional_count("rounds", self.rounds)
        fields.error_size("error", self.error)
        fields.short_name("programs", self.programs)
        fields.flag("asked_for", self.asked_for)
        fields.text("disturbance", self.disturbance)
        fields.optional_key("session_id", self.session_id)
        fields.number("created", self.created)


_COLUMNS = tuple(field.name for field in dataclasses.fields(Plan))


def store_plan(connection: Connection, plan: Plan) -> None:
    """Writes the plan, in place of an earlier one of the same model and target."""
    connection.execute(
        f"INSERT OR REPLACE INTO plans ({', '.join(_COLUMNS)}) VALUES ({', '.join(':' + name for name in _COLUMNS)})",
        dataclasses.asdict(plan),
    )


def find_plan(connection: Connection, model_key: str, target_key: str) -> Plan | None:
    rows = connection.rows("SELECT * FROM plans WHERE model_key = ? AND target_key = ?", (model_key, target_key))
    return plan_of(rows[0]) if rows else None


def plan_of(row: Mapping[str, Any]) -> Plan:
    """The plan of a row; DatabaseError where it is damaged."""
    return Plan(**{**row, **{name: bool(row[name]) for name in ("tuned", "asked_for")}})
