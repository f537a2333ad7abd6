"""The benchmark of large databases makes sound ones."""

from __future__ import annotations

import random
from pathlib import Path

from autotune.records import Database, verify
from autotune.target import Target
from benchmarks import database
from benchmarks.report import Report


def test_copied_trials_are_sound_and_measured(tmp_path: Path) -> None:
    target, rng = Target.parse("x86 -mcpu=haswell -num-cores=1"), random.Random(0)
    path = tmp_path / "db.sqlite"
    examples = database.fill(path, 9, 6, target, rng)
    with Database.open(path, read_only=True) as db:
        assert verify(db) == []
        assert len(db.workloads()) == 9
        assert sum(one.trials for one in db.workloads()) > len(examples)
    report = Report("database", "", quick=True)
    database.measure(report, path, target, examples, rng, added=20)
    assert {claim.relation for claim in report.claims} == {"at most", "at least"}
