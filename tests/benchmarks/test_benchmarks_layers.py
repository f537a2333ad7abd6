"""The benchmark of large layers makes a sound one and asks it."""

from __future__ import annotations

import random
from pathlib import Path

from autotune.records import Layer, verify
from autotune.target import Target
from benchmarks import layers


def test_copied_trials_are_sound_and_asked(tmp_path: Path) -> None:
    folder = tmp_path / "layer"
    folder.mkdir()
    target = Target.parse("x86 -mcpu=znver5 -num-cores=1")
    keys = layers.write_segment(folder, 9, 6, target, random.Random(0))
    found = layers.ask(str(folder), tmp_path / "cache", keys[:3], True)
    assert found.keys() == {"open", "first best", "further best", "stats", "list", "MiB"}
    told: list[str] = []
    db = Layer(str(folder), tmp_path / "cache").open(told.append)
    assert db is not None
    with db:
        assert {one.workload_key for one in db.workloads()} == set(keys)
        db.read_all()
        assert verify(db) == told == []
