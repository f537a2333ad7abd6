"""Plan: whether a model runs on its tuned schedules, or stays untuned because they made it slower as a whole.

Kernels are measured one by one, and a model is more than their sum: layouts between them, caches, clocks. So the
tuner times the whole model both ways and stores the verdict; the compiler heeds it (docs/adr/0012).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

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
        created: seconds since the epoch.
    """

    model_key: str
    target_key: str
    tuned: bool
    tuned_seconds: float
    untuned_seconds: float
    session_id: str | None = None
    created: float

    def __post_init__(self) -> None:
        fields.key("model_key", self.model_key)
        fields.key("target_key", self.target_key)
        fields.flag("tuned", self.tuned)
        for name in ("tuned_seconds", "untuned_seconds"):
            if fields.positive(name, getattr(self, name)) is None:
                raise DatabaseError(f"a plan needs {name}")
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
    return Plan(**{**rows[0], "tuned": bool(rows[0]["tuned"])}) if rows else None
