"""A database of millions of trials: is it still quick to open, to ask, to write to and to count, and how large is it?

python -m benchmarks.database                              5 million trials of 20,000 tasks
python -m benchmarks.database --tasks 2000 --trials 500    of each task
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from autotune.errors import ScheduleError
from autotune.measure.builder import algorithm_of
from autotune.ops import parse_workload
from autotune.ops.family import family_key
from autotune.records import Database, TuningRecord, stats
from autotune.records.fields import rounded
from autotune.search.task import TuningTask
from autotune.search_spaces import Config
from autotune.search_spaces.space.code_version import version_mark
from autotune.search_spaces.space.registry import make_schedule
from autotune.target import Target
from benchmarks.report import Report, parser, progress

OPERATORS = (
    "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1",
    "conv2d data=1,32,112,112 weight=32,1,3,3 pad=1 groups=32",
    "matmul a=128,768 b=768,3072",
    "softmax data=12,128,128",
)
FAILED = 0.05
ELITE, MUTATED = 10, 0.7
ADDITIONS = 4000
OPEN_MS, BEST_MS, STATS_S, ADDED, BYTES = 50.0, 1.0, 5.0, 500.0, 400.0
METHOD = (
    "Trials of a few operators are drawn from their spaces, most of them by a mutation of one of the best ten so far, "
    "with the steps of their schedules and random times, and stored through autotune.records. Their rows are then "
    "copied for as many workloads as are wanted, one trial of each in turn, as a search over many tasks stores them, "
    "with other keys and times. Open: Database.open for reading, median. Best: of workloads drawn at random, each "
    "asked once. One by one: a transaction per trial, over random tasks. Stats: in this process, and as a command with "
    "the start of Python. Bytes: of the file, all tables and indexes included."
)


def drawn(text: str, count: int, target: Target, rng: random.Random) -> Iterator[TuningRecord]:
    """Trials of an operator as a search stores them, most of them near the best so far; their times are drawn."""
    task = TuningTask.of(parse_workload(text), target)
    workload = task.workload
    best: list[tuple[float, Config]] = []
    session = f"{rng.getrandbits(128):032x}"
    for _ in range(count):
        if best and rng.random() < MUTATED:
            config = task.space.mutate(rng.choice(best)[1], rng)
        else:
            config = task.space.sample(rng)
        try:
            schedule = make_schedule(workload, config, target)
        except ScheduleError:
            continue
        failed, seconds = rng.random() < FAILED, rng.uniform(1e-4, 1e-2)
        best = sorted([*best, (seconds, config)], key=lambda pair: pair[0])[:ELITE]
        yield TuningRecord(
            workload_key=workload.key, workload=workload.to_json(), anchor_key=workload.anchor_key,
            family_key=family_key(workload), description=task.name,
            target_key=target.key, target=target.to_json(), residency="L2",
            config_key=f"{rng.getrandbits(64):016x}", config=config.to_json(), template=config.template or "",
            algorithm=algorithm_of(workload, schedule), steps=schedule.steps_json(),
            ir_hash=f"{rng.getrandbits(256):064x}",
            seconds=None if failed else seconds, spread=rounded(rng.random() / 10), number=rng.randrange(1, 999),
            batches=5, probe_gflops=rounded(rng.uniform(100, 120)), max_abs_err=rounded(rng.random() * 1e-5),
            max_rel_err=rounded(rng.random() * 1e-5), tolerance=2.5e-05, verified=not failed,
            failure_kind="timeout" if failed else None, failure_message="longer than 10 s" if failed else None,
            predicted=rounded(rng.uniform(1e-4, 1e-2)), session_id=session,
            created=1.7e9 + rng.random() * 1e7, llvm_version="20.1.8",
            autotune_version=f"0.1.0{version_mark(workload, config)}",
        )  # fmt: skip


def fill(path: Path, tasks: int, trials: int, target: Target, rng: random.Random) -> list[TuningRecord]:
    """Makes the database; some of its records, as examples to add more of their kind."""
    examples: list[TuningRecord] = []
    with Database.open(path) as db:
        for text in OPERATORS:
            progress(f"drawing {trials} trials of {text}")
            records = list(drawn(text, trials, target, rng))
            db.add_many(records)
            examples += records
        connection = db.connection
        connection.execute("PRAGMA cache_size = -1000000")
        connection.execute("CREATE TEMP TABLE copies (original INTEGER, copy INTEGER, PRIMARY KEY (original, copy))")
        with db.transaction():
            for number in range(tasks - len(OPERATORS)):
                parameters: dict[str, object] = {"original": number % len(OPERATORS) + 1}
                connection.execute(
                    "INSERT INTO workloads (key, anchor_key, family_key, json, description) SELECT "
                    "lower(hex(randomblob(8))), anchor_key, lower(hex(randomblob(8))), json, description "
                    "FROM workloads WHERE id = :original",
                    parameters,
                )
                connection.execute("INSERT INTO copies VALUES (:original, last_insert_rowid())", parameters)
            connection.execute(
                "INSERT INTO bases (workload_id, template, details) "
                "SELECT copy, template, details FROM bases JOIN copies ON original = workload_id"
            )
        for first in range(0, trials, 10):
            progress(f"copying trials {first} and following of {trials} of each task")
            with db.transaction():
                for number in range(first, min(first + 10, trials)):
                    connection.execute(_COPY_TRIALS, {"number": number})
    return examples


_COPY_TRIALS = """
    INSERT INTO trials (workload_id, target_id, interface_id, residency, config_key, seconds, verified, disturbed,
                        failure_kind, created, base_id, details)
    SELECT copy, target_id, interface_id, residency, lower(hex(randomblob(8))),
           seconds * (1 + abs(random() % 1000000) / 1e6), verified, disturbed, failure_kind,
           created + abs(random() % 1000000), new.id, trials.details
    FROM copies
    JOIN trials ON trials.id = (
        SELECT id FROM trials AS t WHERE t.workload_id = original ORDER BY t.id LIMIT 1 OFFSET :number
    )
    JOIN bases AS old ON old.id = trials.base_id
    JOIN bases AS new ON new.workload_id = copy AND new.template = old.template
"""
_SAME_OPERATOR = "SELECT key FROM workloads WHERE json = ?"


def milliseconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


def measure(
    report: Report, path: Path, target: Target, examples: list[TuningRecord], rng: random.Random, added: int = ADDITIONS
) -> None:
    """Ask, write and count, and claim."""
    opened = [milliseconds(lambda: Database.open(path, read_only=True).close()) for _ in range(20)]
    with Database.open(path, read_only=True) as db:
        keys = [row["key"] for row in db.connection.rows("SELECT key FROM workloads")]
        asked = rng.sample(keys, min(1000, len(keys)))
        best = [milliseconds(partial(db.best, key, target.key, target.to_json())) for key in asked]
        missed = [milliseconds(partial(db.best, key[::-1], target.key, target.to_json())) for key in asked]
        earlier = [milliseconds(partial(_all_trials, db, key, target)) for key in asked[:20]]
        counting = milliseconds(lambda: stats(db)) / 1e3
        listing = milliseconds(db.workloads) / 1e3
        found = stats(db)
    command = milliseconds(
        lambda: subprocess.run(
            [sys.executable, "-m", "autotune", "db", "stats", "--db", str(path)], check=True, stdout=subprocess.DEVNULL
        )
    ) / 1e3  # fmt: skip
    with Database.open(path) as db:
        alike = {
            record.workload: [row["key"] for row in db.connection.rows(_SAME_OPERATOR, (record.workload,))]
            for record in examples
        }
        fresh = [
            dataclasses.replace(
                record, workload_key=rng.choice(alike[record.workload]), config_key=f"{rng.getrandbits(64):016x}"
            )
            for record in rng.choices(examples, k=added)
        ]
        stored = [milliseconds(partial(db.add, record)) for record in fresh]
    report.table(
        f"{found.trials} trials of {found.workloads} tasks, {found.size_bytes / 2**20:.0f} MiB",
        [
            _row("open", opened),
            _row("best", best),
            _row("best of an unknown workload", missed),
            _row("all trials of a task", earlier),
            _row("add one trial", stored),
            _row("db stats, in this process", [counting * 1e3]),
            _row("db stats, the command", [command * 1e3]),
            _row("db list, in this process", [listing * 1e3]),
        ],
    )
    report.claim("open, median", statistics.median(opened), "at most", OPEN_MS, " ms")
    report.claim("best query, median", statistics.median(best), "at most", BEST_MS, " ms")
    report.claim("trials stored one by one", len(stored) / sum(stored) * 1e3, "at least", ADDED, "/s")
    report.claim("db stats, the command", command, "at most", STATS_S, " s")
    report.claim("size of a trial", found.size_bytes / found.trials, "at most", BYTES, " bytes")


def _all_trials(db: Database, key: str, target: Target) -> int:
    return sum(1 for _ in db.trials(key, target.key))


def _row(name: str, values: list[float]) -> dict[str, str | int | float]:
    return {
        "": name, "times": len(values), "median ms": statistics.median(values),
        "99 % ms": _percentile(values, 0.99), "longest ms": max(values),
    }  # fmt: skip


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main(arguments: list[str] | None = None) -> int:
    options = parser("database", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--tasks", type=int, default=20_000)
    options.add_argument("--trials", type=int, default=250, help="of each task")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--keep", type=Path, metavar="FILE", help="make it here, and leave it")
    given = options.parse_args(arguments)
    tasks, trials = (40, 20) if given.quick else (given.tasks, given.trials)
    report, rng = Report("database", METHOD, given.quick), random.Random(given.seed)
    target = Target.parse("x86 -mcpu=znver5 -num-cores=1")
    with tempfile.TemporaryDirectory(prefix="autotune-database-") as folder:
        path = given.keep or Path(folder) / "large.sqlite"
        if path.exists():
            examples = [record for text in OPERATORS for record in drawn(text, 50, target, rng)]
        else:
            examples = fill(path, tasks, trials, target, rng)
        measure(report, path, target, examples, rng)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
