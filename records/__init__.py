"""Tuning records: every trial, good or failed, in one SQLite file. See docs/concepts/records.md."""

from __future__ import annotations

from autotune.records.database import Database, WorkloadSummary
from autotune.records.difference import TaskDifference, compare
from autotune.records.exchange import (
    MergeReport,
    export_lines,
    export_records,
    import_records,
    merge_database,
    read_items,
)
from autotune.records.layer import Layer
from autotune.records.layered import LayeredDatabase
from autotune.records.maintenance import Stats, prune, stats, verify
from autotune.records.match import Match, TargetFit, Tier, fit_target
from autotune.records.plan import Plan
from autotune.records.progress import silent
from autotune.records.record import CLEARLY, TEMPLATE_INTERFACE, Timed, TuningRecord
from autotune.records.repair import RepairReport, repair
from autotune.records.session import Session, SessionState

__all__ = [
    "CLEARLY",
    "Database",
    "Layer",
    "LayeredDatabase",
    "Match",
    "MergeReport",
    "Plan",
    "RepairReport",
    "Session",
    "SessionState",
    "Stats",
    "TEMPLATE_INTERFACE",
    "TargetFit",
    "TaskDifference",
    "Tier",
    "Timed",
    "TuningRecord",
    "WorkloadSummary",
    "compare",
    "export_lines",
    "export_records",
    "fit_target",
    "import_records",
    "merge_database",
    "prune",
    "read_items",
    "repair",
    "silent",
    "stats",
    "verify",
]
