"""kill -9 on the tuner, and on its workers, at random moments: is every finished trial kept, is any process left?

python -m benchmarks.kill                    20 kills of each kind while one convolution is tuned
python -m benchmarks.kill --model resnet50   10 kills of each kind while a model is tuned
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

import autotune
from autotune.api.phase import Phase
from autotune.records import Database
from autotune.search import Event, TaskResumed, TrialFinished
from benchmarks import zoo
from benchmarks.report import ROOT, Report, Row, parser, progress

OPERATOR = "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1"
RESUME_BOUND = 2.0
CHILD = (sys.executable, "-m", "benchmarks.kill")
GONE_SECONDS = 5.0  # in which the workers of a killed tuner must have noticed
PATIENCE = 120.0
METHOD = (
    "A process tunes through autotune.tune and prints a line for every trial that it reports as finished. It, or one "
    "of its workers, gets SIGKILL at a random moment; then each trial whose line had arrived must be in the database, "
    "every process that it had started must be gone within 5 s, and the same call must continue. Resume: from starting "
    "Python until all earlier trials are counted as done and the search begins (median; the first new trial's time is "
    "shown too)."
)


def tune(subject: str, target: str, database: Path) -> None:
    """The process that gets killed: tunes without end, a line per event on standard output."""

    def say(event: Event | Phase) -> None:
        if isinstance(event, TrialFinished):
            key = [event.task.workload.key, event.trial.config.key]
            print(json.dumps({"trial": key, "good": event.trial.seconds is not None}), flush=True)
        elif isinstance(event, TaskResumed):
            print(json.dumps({"resumed": event.trials}), flush=True)
        elif isinstance(event, Phase):
            print(json.dumps({"phase": event.name}), flush=True)

    autotune.tune(subject, target, database, trials=10**6, callbacks=[say])


@dataclass
class Tuner:
    """A tuning process and what it has said."""

    subject: str
    target: str
    database: Path
    trials: list[tuple[str, str]] = field(default_factory=list)
    resumed: int = 0
    first_trial: float | None = None
    last_resumed: float | None = None

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        options = json.dumps([self.subject, self.target, str(self.database)])
        self.process = subprocess.Popen(
            [*CHILD, "--child", options],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # cut off in the middle: never said
            said, now = json.loads(line), time.monotonic() - self.begun
            if "trial" in said:
                self.trials.append((said["trial"][0], said["trial"][1]))
                self.first_trial = self.first_trial or now
            elif "resumed" in said:
                self.resumed += said["resumed"]
                self.last_resumed = now
            elif self.last_resumed is None:
                self.last_resumed = now

    def wait_for(self, count: int) -> bool:
        """Wait until `count` trials were reported; False when the process ends or nothing happens."""
        deadline = time.monotonic() + PATIENCE
        while len(self.trials) < count and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(self.trials) >= count

    def kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            progress(f"process {pid} had gone by itself")

    def finish(self) -> None:
        """Wait for the process, which was told to end, and for all that it said."""
        self.process.wait(60)
        self._reader.join(60)


def descendants(pid: int) -> set[int]:
    """All processes below one, by /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        fresh = [child for child in children.get(todo.pop(), []) if child not in found]
        found.update(fresh)
        todo += fresh
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run; a zombie does not."""
    running = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            running.add(pid)
    return running


def left_over(pids: set[int]) -> set[int]:
    """Those that still run after a grace period."""
    deadline = time.monotonic() + GONE_SECONDS
    while (left := alive(pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def lost(trials: list[tuple[str, str]], database: Path) -> int:
    """How many of the trials are not in the database."""
    said = set(trials)  # before the database is read: a tuner that lives goes on
    with Database.open(database, read_only=True) as opened:
        kept = {
            (workload, record.config_key)
            for workload in {workload for workload, _ in said}
            for record in opened.trials(workload)
        }
    return len(said - kept)


def kill_tuner(subject: str, target: str, database: Path, kills: int, rng: random.Random) -> list[Row]:
    """Kill the tuner again and again; each time it resumes from the same database."""
    rows: list[Row] = []
    for number in range(1, kills + 1):
        tuner = Tuner(subject, target, database)
        came = tuner.wait_for(1)
        moment = rng.uniform(0.0, 2.0)
        time.sleep(moment)
        family = descendants(tuner.process.pid)
        tuner.kill(tuner.process.pid)
        tuner.finish()
        rows.append(
            {
                "kill": number, "of": "tuner", "seconds after the first trial": moment, "went on": came,
                "reported": len(tuner.trials), "lost": lost(tuner.trials, database),
                "processes": len(family) + 1, "left": len(left_over(family)), "resumed trials": tuner.resumed,
                "resume s": tuner.last_resumed, "first trial s": tuner.first_trial,
            }
        )  # fmt: skip
        progress(str(rows[-1]))
    return rows


def kill_workers(subject: str, target: str, database: Path, kills: int, rng: random.Random) -> list[Row]:
    """Kill workers of one running tuner; it must go on, and end well when asked to."""
    tuner = Tuner(subject, target, database)
    tuner.wait_for(1)
    rows: list[Row] = []
    seen: set[int] = set()
    for number in range(1, kills + 1):
        moment = rng.uniform(0.2, 2.0)
        time.sleep(moment)
        family = descendants(tuner.process.pid)
        seen |= family
        before = len(tuner.trials)
        if family:
            tuner.kill(rng.choice(sorted(family)))
        came = tuner.wait_for(before + 1)
        rows.append(
            {
                "kill": number, "of": "worker", "seconds after the last": moment, "went on": came,
                "reported": len(tuner.trials), "lost": lost(tuner.trials, database), "processes": len(family) + 1,
            }
        )  # fmt: skip
        progress(str(rows[-1]))
    tuner.process.send_signal(signal.SIGINT)
    tuner.finish()
    rows.append(
        {
            "kill": kills + 1, "of": "nobody: Ctrl-C", "reported": len(tuner.trials),
            "lost": lost(tuner.trials, database), "left": len(left_over(seen)),
            "went on": tuner.process.returncode == 0,
        }
    )  # fmt: skip
    return rows


VICTIMS = {"tuner": kill_tuner, "workers": kill_workers}


def measure(
    report: Report, subject: str, target: str, folder: Path, kills: int, seed: int, victims: Sequence[str]
) -> None:
    """Fill the report."""
    rng = random.Random(seed)
    for name in victims:
        run = VICTIMS[name]
        progress(f"killing {name}")
        rows = run(subject, target, folder / f"{name}.sqlite", kills, rng)
        report.table(f"kill -9 on {name}", rows)
        report.claim(f"{name}: reported trials that are lost", _total(rows, "lost"), "at most", 0)
        report.claim(f"{name}: processes left", _total(rows, "left"), "at most", 0)
        report.claim(f"{name}: times that it did not go on", sum(not row["went on"] for row in rows), "at most", 0)
        resumes = [float(row["resume s"] or 0) for row in rows[1:] if row.get("resume s")]
        if name == "tuner" and resumes:
            report.claim("tuner: resume, median", statistics.median(resumes), "at most", RESUME_BOUND, " s")


def _total(rows: list[Row], column: str) -> int:
    return sum(int(row.get(column) or 0) for row in rows)


def main(arguments: list[str] | None = None) -> int:
    options = parser("kill", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--op", default=OPERATOR, help="an operator as `autotune tune --op` takes it")
    options.add_argument("--model", choices=zoo.names(), help="tune a model instead")
    options.add_argument("--target", default="native -num-cores=1")
    options.add_argument("--kills", type=int, help="of each kind (default: 20, with a model 10)")
    options.add_argument("--of", choices=VICTIMS, action="append", help="kill only these (default: both)")
    options.add_argument("--seed", type=int, default=0, help="of the random moments")
    options.add_argument("--child", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.child:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits that it is ignored
        subject, target, database = json.loads(given.child)
        tune(subject, target, Path(database))
        return 0
    kills = 2 if given.quick else given.kills or (10 if given.model else 20)
    report = Report("kill", METHOD, given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-kill-") as temporary:
        folder = Path(temporary)
        subject = given.op
        if given.model:
            subject = str(folder / f"{given.model}.onnx")
            onnx.save(zoo.build(given.model), subject)
        measure(report, subject, given.target, folder, kills, given.seed, given.of or list(VICTIMS))
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
