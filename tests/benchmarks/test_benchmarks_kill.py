"""The kill benchmark in miniature: one kill of each kind, and its accounting."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.records import Database
from benchmarks import kill

HASTY = "from benchmarks.kill import main; from tests.hasty import be_hasty; be_hasty(); main()"
SMALL = "conv2d data=1,16,9,9 weight=16,16,3,3 pad=1"
TARGET = "native -num-cores=1"


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "CHILD", (sys.executable, "-c", HASTY))
    database = tmp_path / "t.sqlite"
    (row,) = kill.kill_tuner(SMALL, TARGET, database, 1, random.Random(0))
    assert row["went on"] and row["reported"] and row["lost"] == 0 and row["left"] == 0
    rows = kill.kill_workers(SMALL, TARGET, database, 1, random.Random(0))
    assert [row["lost"] for row in rows] == [0, 0] and rows[-1]["left"] == 0
    assert all(row["went on"] for row in rows)


def test_a_trial_that_is_not_in_the_database_counts_as_lost(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    Database.open(database).close()
    assert kill.lost([("0123456789abcdef", "config"), ("0123456789abcdef", "config")], database) == 1


def test_descendants_are_found_and_the_dead_are_not_alive() -> None:
    inner = f"import subprocess, sys; subprocess.run([{sys.executable!r}, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE) as process:
        while len(family := kill.descendants(process.pid)) < 1:
            pass
        assert kill.alive(family) == family and family <= kill.descendants(os.getpid())
        process.communicate(b"\n")
    assert kill.left_over({*family, process.pid}) == set()
