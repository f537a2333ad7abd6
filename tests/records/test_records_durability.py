"""Real processes, really killed: an acknowledged trial is never lost, and several writers get along."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.records import Database
from tests.records.records_samples import make_record

ROOT = Path(__file__).parents[2]

# Adds trials from `first` on and says so after each; waits for a line on stdin when everything is imported.
_WRITER = """
import sys
from autotune.records import Database
from tests.records.records_samples import make_record
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with Database.open(path) as db:
    for index in range(first, first + count):
        db.add(make_record(index))
        print(index, flush=True)
"""


def start_writer(path: Path, first: int, count: int = 10**6) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), str(first), str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def go(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()


def wait_for(writer: subprocess.Popen[str], trials: int) -> list[int]:
    assert writer.stdout is not None
    return [int(writer.stdout.readline()) for _ in range(trials)]


def acknowledged(writer: subprocess.Popen[str]) -> list[int]:
    """The trials that the writer said it had stored, read to its end; a last line cut by the kill does not count."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    said = writer.stdout.read()  # not communicate(): it would miss what wait_for left in the buffer
    writer.wait(timeout=60)
    writer.stdin.close()
    writer.stdout.close()
    return [int(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]


def stored_configs(path: Path) -> set[str]:
    """Opens the file as the next run would, checks that it is whole, and returns the config keys in it."""
    with Database.open(path) as db:
        assert db.connection.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        return {record.config_key for record in db.trials()}


def test_kill_minus_nine_loses_at_most_the_trial_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    rng = random.Random(20)
    safe: set[str] = set()
    first = 0
    for _ in range(8):
        writer = start_writer(path, first)
        go(writer)
        done = wait_for(writer, rng.randrange(1, 80))
        time.sleep(rng.uniform(0, 0.002))  # so that the kill falls anywhere within a trial
        writer.kill()
        done += acknowledged(writer)
        safe |= {make_record(index).config_key for index in done}
        stored = stored_configs(path)
        assert safe <= stored
        assert len(stored - safe) <= 1  # stored, and killed before it could say so
        safe = stored
        first += len(done) + 1


def test_two_writers_and_a_reader_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    count = 150
    writers = [start_writer(path, first, count) for first in (0, count)]
    for writer in writers:
        go(writer)
    # All three create the file, apply the migrations and switch to WAL at once.
    seen = [0]
    with Database.open(path) as reader:
        while any(writer.poll() is None for writer in writers):
            seen.append(sum(summary.trials for summary in reader.workloads()))
    assert seen == sorted(seen)
    for writer in writers:
        assert len(acknowledged(writer)) == count
        assert writer.returncode == 0
    assert stored_configs(path) == {make_record(index).config_key for index in range(2 * count)}


def test_one_of_two_writers_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    victim, survivor = start_writer(path, 0), start_writer(path, 10**5, 200)
    go(victim)
    go(survivor)
    done = wait_for(victim, 20)
    victim.kill()
    kept = {make_record(index).config_key for index in done + acknowledged(victim) + acknowledged(survivor)}
    assert survivor.returncode == 0
    assert kept <= stored_configs(path)


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.005, 0.01])
def test_a_kill_during_creation_leaves_a_usable_file(tmp_path: Path, moment: float) -> None:
    path = tmp_path / "db.sqlite"
    writer = start_writer(path, 0)
    go(writer)
    time.sleep(moment)
    writer.kill()
    done = acknowledged(writer)
    assert {make_record(index).config_key for index in done} <= stored_configs(path)
