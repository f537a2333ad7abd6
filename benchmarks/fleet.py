"""A fleet on this machine: what dies and what is kept, what a trial costs more than locally, and how far it scales.

python -m benchmarks.fleet                    all parts
python -m benchmarks.fleet --part kills       scheduler, 2 builders and 1 runner as processes, each killed 20 times
python -m benchmarks.fleet --part same        a model tuned locally and by 2 builders and 1 runner: which schedules win
python -m benchmarks.fleet --part overhead    trials through the cluster against the local ones, in turn
python -m benchmarks.fleet --part scale       simulated build and run times, 4 to 64 workers, 1,000 tasks
python -m benchmarks.fleet --part targets     two groups of runners, haswell and native, tuned at the same time
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import onnx

import autotune
from autotune.api.phase import Phase
from autotune.codegen.object_cache import object_cache
from autotune.compiler.defaults import Defaults
from autotune.fleet.engine import Fleet, Patience
from autotune.fleet.host import serve
from autotune.fleet.identity import Identity
from autotune.fleet.place import FleetPlace
from autotune.fleet.service import Service
from autotune.fleet.workers import FleetRunner
from autotune.measure.builder import build
from autotune.measure.protocol import Decoder, Message, encode
from autotune.measure.runner import Runner
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops import parse_workload
from autotune.records import Database
from autotune.search import Budget, Event, TrialFinished, TuneOptions, TuningTask
from autotune.search import tune as search
from autotune.search.outcome import TaskOutcome
from autotune.target import Target
from benchmarks import zoo
from benchmarks.report import ROOT, Report, Row, parser, progress

OPERATOR = "conv2d data=1,64,28,28 weight=64,64,3,3 pad=1"
HERE, HASWELL = "native -num-cores=1", "x86 -mcpu=haswell -num-cores=1"
PARTS = ("kills", "same", "overhead", "scale", "targets")
KILLS = 20
MODEL, MODEL_TRIALS = "squeezenet", 240
SAME = 1.03
"""Two runs of the same search differ by about as much."""
STUCK_SECONDS = 20.0
"""The next process is killed after another trial was reported, or after so long without one."""
WORKERS = (4, 16, 64)
TASKS = 1000
BUILD_SECONDS, RUN_SECONDS = 1.0, 1.0
"""Of the simulated trials: about what a convolution takes to build and to verify and time on one busy core."""
TRIALS_EACH = 24
"""Trials for each simulated worker, so that every number of workers is busy for the same time."""
METHOD = (
    "All processes run on this machine. kills: while a process tunes on the cluster, the scheduler, each builder and "
    "the runner get SIGKILL in random order at random moments, each that many times, and are started again; every "
    "trial that was reported must be in the database, and the run must end by its own budget. same: a model is tuned "
    "locally, then by such processes, with as many trials, then the two best kernels of every task are timed in turn,"
    " and their times added by the uses of each kernel. overhead: the same kernel timed by a local runner and by a "
    "cluster's, in turn, less what the runner says that it took; alone, one at a time; queued, all at once, by their "
    "number. scale: workers that sleep instead of building and running, half of them builders, half runners, in 4 "
    "processes, while a tuner works through 1,000 tasks with random search; trials per second of the middle two "
    "thirds against what as many workers could do, and the tuner's CPU seconds by wall time then. targets: two tuners"
    " at once, two runners with different target keys, one builder, one scheduler, one database: no row may be of "
    "another target, no kernel in both."
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Processes:
    """Named processes that can be killed and started again."""

    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def scheduler(self) -> None:
        code = "from distributed.cli.dask_scheduler import main; main()"
        self.start("scheduler", ["-c", code, "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"])

    def worker(self, name: str, *options: str) -> None:
        self.start(name, ["-m", "autotune", "worker", "--cluster", self.address, "--name", name, *options])

    def start(self, name: str, arguments: list[str]) -> None:
        self._commands[name] = arguments
        self._running[name] = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGKILL)
        self._running[name].wait()

    def again(self, name: str) -> None:
        self.start(name, self._commands[name])

    def revive(self) -> None:
        """As systemd would: what has ended is started again."""
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                self.again(name)

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def ready(self, names: Sequence[str], seconds: float = 120.0) -> None:
        """Waits until these workers have joined."""
        end = time.monotonic() + seconds
        while True:
            try:
                with Fleet(self.address, Identity.here()) as fleet:
                    while {member.name for member in fleet.refresh()} < set(names) and time.monotonic() < end:
                        time.sleep(0.2)
                    return
            except autotune.errors.ClusterError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.5)


@contextmanager
def processes() -> Iterator[Processes]:
    made = Processes()
    try:
        yield made
    finally:
        made.close()


def kills(count: int, trials: int, folder: Path) -> Row:
    """Kill each process `count` times while a tuner works; what was lost."""
    database = folder / "kills.sqlite"
    acknowledged: list[tuple[str, str]] = []

    def note(event: Event | Phase) -> None:
        if isinstance(event, TrialFinished):
            acknowledged.append((event.task.workload.key, event.trial.config.key))

    with processes() as fleet:
        fleet.scheduler()
        for name, options in WORKERS_KILLED.items():
            fleet.worker(name, *options)
        fleet.ready(list(WORKERS_KILLED))
        victims = [name for name in ("scheduler", *WORKERS_KILLED) for _ in range(count)]
        random.Random(0).shuffle(victims)
        done = threading.Event()

        def reap() -> None:
            rng = random.Random(1)
            while victims:
                before, end = len(acknowledged), time.monotonic() + STUCK_SECONDS
                while len(acknowledged) == before and time.monotonic() < end and not done.wait(0.05):
                    pass
                if done.wait(rng.uniform(0.0, 2.0)):
                    return
                fleet.kill(victims[-1])
                time.sleep(rng.uniform(0.0, 1.0))
                fleet.revive()
                progress(f"killed {victims.pop()}; {len(acknowledged)} trials, {len(victims)} kills to come")
            while not done.wait(1.0):
                fleet.revive()

        reaper = threading.Thread(target=reap)
        reaper.start()
        start = time.perf_counter()
        ended = "finished"
        try:
            # As many trials as the kills take, and some in peace at the end.
            while victims:
                begun = len(acknowledged)
                try:
                    autotune.tune(OPERATOR, HERE, database, trials=begun + trials, cluster=fleet.address,
                                  callbacks=[note], strategy="random")  # fmt: skip
                except autotune.errors.ClusterError:
                    if len(acknowledged) > begun:  # a run goes on without the scheduler; none begins without
                        raise
                    time.sleep(0.5)
        except autotune.errors.ClusterError as error:
            ended = str(error)
        finally:
            done.set()
            reaper.join()
        seconds = time.perf_counter() - start
    with Database.open(database, read_only=True) as opened:
        kept = {
            (record.workload_key, record.config_key)
            for summary in opened.workloads()
            for record in opened.trials(summary.workload_key, summary.target_key)
        }
        bad = [r.failure_message for s in opened.workloads() for r in opened.trials(s.workload_key, s.target_key)
               if r.failure_kind not in (None, "spills")]  # fmt: skip
    return {
        "kills of each": count, "kills": (1 + len(WORKERS_KILLED)) * count - len(victims),
        "reported": len(acknowledged),
        "lost": len(set(acknowledged) - kept), "failed trials": len(bad), "ended": ended, "seconds": seconds,
    }  # fmt: skip


WORKERS_KILLED = {
    "builder 1": ("--build", "--jobs", "1"),
    "builder 2": ("--build", "--jobs", "1"),
    "runner": ("--run", "--target", HERE),
}


def same(trials: int, folder: Path) -> list[Row]:
    """The best kernel of every task of a model, tuned locally and on a cluster, timed in turn."""
    path = folder / f"{MODEL}.onnx"
    onnx.save(zoo.build(MODEL), path)

    def tuned(place: str, cluster: str | None) -> list[TaskOutcome]:
        progress(f"{MODEL}: {trials} trials, {place}")
        found = autotune.tune(
            str(path), HERE, folder / f"{place}.sqlite", trials=trials, verdict="tuned", cluster=cluster
        )
        return sorted(found.search.tasks, key=lambda outcome: outcome.task.workload.key)

    alone = tuned("local", None)
    with processes() as started:
        started.scheduler()
        for name, options in WORKERS_KILLED.items():
            started.worker(name, *options)
        started.ready(list(WORKERS_KILLED))
        together = tuned("cluster", started.address)
    rows: list[Row] = []
    with Runner(Target.parse(HERE)) as runner:
        for one, other in zip(alone, together, strict=True):
            assert one.task.workload.key == other.task.workload.key and one.best and other.best
            candidates = [one.task.candidate(best.config) for best in (one.best, other.best)]
            builds = [made for made in map(build, candidates) if isinstance(made, BuildResult)]
            results = runner.compare(candidates[0], builds)
            seconds = [result.seconds for result in results if isinstance(result, MeasureResult)]
            assert len(seconds) == 2, f"{one.task.name}: {results}"
            rows.append(
                {
                    "operator": one.task.name, "uses": one.task.weight, "trials": one.trials, "cluster": other.trials,
                    "same kernel": builds[0].kernel.ir_hash == builds[1].kernel.ir_hash,
                    "local µs": 1e6 * seconds[0], "cluster µs": 1e6 * seconds[1], "ratio": seconds[1] / seconds[0],
                }
            )  # fmt: skip
    return rows


def overhead(rounds: int) -> Row:
    """One verified and timed kernel, locally and through a cluster, in turn."""
    target = Target.parse(HERE)
    task = TuningTask.of(parse_workload(OPERATOR), target)
    candidate = task.candidate(task.space.default())
    made = build(candidate)
    assert isinstance(made, BuildResult)
    with processes() as started, Runner(target) as local, ExitStack() as stack:
        started.scheduler()
        started.worker("runner", "--run", "--target", HERE)
        started.ready(["runner"])
        fleet = stack.enter_context(Fleet(started.address, Identity.here()))
        remote = FleetRunner(fleet, target)
        runners = (local, remote)
        walls: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds + 3):
            for runner, kept in zip(runners, walls):
                start = time.perf_counter()
                result = runner.run(candidate, made)
                # What the kernel itself took, which varies, is no overhead.
                spent = (
                    time.perf_counter() - start - (result.wall_seconds if isinstance(result, MeasureResult) else 0.0)
                )
                if number >= 3:
                    kept.append(1e3 * spent)
        queues = []
        for runner in runners:
            start = time.perf_counter()
            results = [future.result() for future in [runner.submit(candidate, made) for _ in range(rounds)]]
            spent = sum(result.wall_seconds for result in results if isinstance(result, MeasureResult))
            queues.append(1e3 * (time.perf_counter() - start - spent) / rounds)
    return {
        "rounds": rounds,
        "alone, local ms": statistics.median(walls[0]), "alone, cluster ms": statistics.median(walls[1]),
        "queued, local ms": queues[0], "queued, cluster ms": queues[1],
        "overhead queued ms": queues[1] - queues[0],
    }  # fmt: skip


class Sleeper(Service):
    """Takes the time that building or running takes, and none of the CPU."""

    def handle(self, frame: bytes, name: str = "") -> bytes:
        (request,) = Decoder().feed(frame)
        if request.body["do"] == "build":
            time.sleep(BUILD_SECONDS)
            candidate = MeasureInput.from_json(request.body)
            kernel = TEMPLATE.to_message()
            kernel.body["kernel"]["ir_hash"] = candidate.config.key  # type: ignore[index,call-overload]
            return encode(Message({"by": name, "reply": {**kernel.body, "seconds": BUILD_SECONDS}}, kernel.blobs))
        time.sleep(RUN_SECONDS)
        seconds = 1e-3 * random.uniform(1.0, 2.0)
        result = MeasureResult(seconds, 0.0, 8, 10, 100.0, 0.0, 0.0, 1e-5, RUN_SECONDS)
        return encode(Message({"by": name, "reply": {"result": result.to_json()}}))


def sleepers(address: str, builders: int, runners: int) -> None:
    """The process of some simulated workers."""
    global TEMPLATE  # one small build for all of them
    target = Target.parse(HERE)
    task = TuningTask.of(parse_workload("matmul a=8,8 b=8,8"), target)
    made = build(task.candidate(task.space.default()))
    assert isinstance(made, BuildResult)
    TEMPLATE = made
    kinds = [Identity.here(builders=1)] * builders + [Identity.here(targets=[target])] * runners

    async def run() -> None:
        await asyncio.gather(*(serve(Sleeper(kind), address) for kind in kinds))

    asyncio.run(run())


TEMPLATE: BuildResult


def scale(workers: int, tasks: Sequence[TuningTask], folder: Path) -> Row:
    """Trials per second of simulated workers, half of them builders."""
    parts = 4
    with processes() as started:
        started.scheduler()
        for part in range(parts):
            each = workers // 2 // parts + (part < workers // 2 % parts)
            if each:
                started.start(
                    f"workers {part}", ["-m", "benchmarks.fleet", "--sleep", json.dumps([started.address, each])]
                )
        with patiently(started.address) as fleet, Database.open(folder / f"{workers}.sqlite") as database:
            while len(fleet.refresh()) < workers:
                time.sleep(0.5)
            place = FleetPlace(fleet, tasks[0].target)
            finished: list[tuple[float, float]] = []  # wall and CPU seconds

            def note(event: Event) -> None:
                if isinstance(event, TrialFinished):
                    finished.append((time.perf_counter(), time.process_time()))

            with place.runner() as runner, place.pipeline(runner, 0) as pipeline:
                search(
                    tasks, pipeline=pipeline, database=database, callbacks=[note],
                    budget=Budget(trials=TRIALS_EACH * workers // 2),
                    options=TuneOptions(strategy="random", finalists=0, warmup=1),
                )  # fmt: skip
    # The first and the last trials pass while the pipeline fills and drains: the middle is what goes on for hours.
    middle = finished[len(finished) // 6 : -(len(finished) // 6)]
    wall, cpu = (last - first for first, last in zip(middle[0], middle[-1]))
    rate = (len(middle) - 1) / wall
    return {
        "workers": workers, "trials": len(finished), "trials / s": rate,
        "of linear": rate / (workers / 2 / max(BUILD_SECONDS, RUN_SECONDS)), "tuner, of a core": cpu / wall,
        "ms of the tuner, each": 1e3 * cpu / len(middle), "seconds": finished[-1][0] - finished[0][0],
    }  # fmt: skip


@contextmanager
def patiently(address: str) -> Iterator[Fleet]:
    """A fleet, once there is a scheduler."""
    while True:
        try:
            fleet = Fleet(address, Identity.here(), Patience())
            break
        except autotune.errors.ClusterError:
            time.sleep(0.5)
    with fleet:
        yield fleet


def thousand_tasks(count: int) -> list[TuningTask]:
    """As `autotune.tune` makes them, which knows what each gets untuned before it begins to search."""
    target = Target.parse(HERE)
    untuned = Defaults(object_cache(), target)
    workloads = [parse_workload(f"matmul a=64,{n} b={n},64") for n in range(16, 16 + count)]
    return [TuningTask.of(workload, target, untuned=untuned(workload, False)) for workload in workloads]


def targets(trials: int, folder: Path) -> Row:
    """Two tuners on one scheduler, each for a target of its own."""
    wanted = {name: Target.parse(name) for name in (HERE, HASWELL)}
    database = folder / "targets.sqlite"
    with processes() as started:
        started.scheduler()
        started.worker("builder", "--build", "--jobs", "1")
        for number, name in enumerate(wanted):
            started.worker(f"runner {number}", "--run", "--target", name)
        started.ready(["builder", "runner 0", "runner 1"])
        start = time.perf_counter()
        tuners = [
            subprocess.Popen(
                [sys.executable, "-m", "autotune", "tune", "--op", OPERATOR, "--target", name, "--db", str(database),
                 "--trials", str(trials), "--strategy", "random", "--cluster", started.address, "--quiet"],
                cwd=ROOT, stdout=subprocess.DEVNULL,
            )
            for name in wanted
        ]  # fmt: skip
        codes = [tuner.wait() for tuner in tuners]
        seconds = time.perf_counter() - start
    with Database.open(database, read_only=True) as opened:
        found = {summary.target_key: summary for summary in opened.workloads()}
        hashes = {
            key: {r.ir_hash for r in opened.trials(one.workload_key, key) if r.verified} for key, one in found.items()
        }
    known = {target.key for target in wanted.values()}
    return {
        "runs that ended well": codes.count(0),
        "targets": len(found), "foreign targets": len(found.keys() - known),
        "trials": sum(one.trials for one in found.values()), "failed": sum(one.failed for one in found.values()),
        "kernels shared": len(set.intersection(*hashes.values())) if len(hashes) == 2 else None, "seconds": seconds,
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    options = parser("fleet", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--part", action="append", choices=PARTS)
    options.add_argument("--kills", type=int, default=KILLS, help="of each process")
    options.add_argument("--trials", type=int, default=MODEL_TRIALS, help="of each tuning of the model")
    options.add_argument("--sleep", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if given.sleep:
        address, each = json.loads(given.sleep)
        sleepers(address, each, each)
        return 0
    parts = given.part or PARTS
    report = Report("fleet", METHOD, given.quick)
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="autotune-fleet-") as name:
        folder = Path(name)
        if "kills" in parts:
            row = kills(1 if given.quick else given.kills, 8, folder)
            report.table("kills", [row])
            report.claim("acknowledged trials lost", float(row["lost"] or 0), "at most", 0)
            report.claim("kills survived to the end of the run", float(row["ended"] == "finished"), "at least", 1)
        if "same" in parts:
            rows = same(30 if given.quick else given.trials, folder)
            report.table("same", rows)
            local, cluster = (
                sum(float(row["uses"] or 0) * float(row[place] or 0) for row in rows)
                for place in ("local µs", "cluster µs")
            )
            equal = sum(bool(row["same kernel"]) for row in rows)
            note = f"{equal} of {len(rows)} kernels are the same"
            report.claim(f"{MODEL}: the cluster's by the local schedules", cluster / local, "at most", SAME, "", note)
        if "overhead" in parts:
            row = overhead(5 if given.quick else 60)
            report.table("overhead", [row])
            report.claim("overhead per trial", float(row["overhead queued ms"] or 0), "at most", 5.0, " ms")
        if "scale" in parts:
            tasks = thousand_tasks(20 if given.quick else TASKS)
            rows = []
            for workers in WORKERS[:1] if given.quick else WORKERS:
                progress(f"{workers} workers")
                rows.append(scale(workers, tasks, folder))
            report.table("scale", rows)
            most = rows[-1]
            report.claim(f"of linear at {most['workers']} workers", float(most["of linear"] or 0), "at least", 0.9)
            report.claim("the tuner, of a core, there", float(most["tuner, of a core"] or 0), "at most", 0.3)
        if "targets" in parts:
            row = targets(6 if given.quick else 24, folder)
            report.table("targets", [row])
            mixed = float(row["foreign targets"] or 0) + float(row["kernels shared"] or 0)
            report.claim("rows of another target, and kernels of both", mixed, "at most", 0)
            report.claim("runs that ended well", float(row["runs that ended well"] or 0), "at least", 2)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
