"""The commands of `autotune`: name on the command line -> function, whose docstring is the help text, or a group.

A new command is a file `autotune/cli/<command>.py` with one function, and one line here. Its module is imported
whenever `autotune` starts: what is slow to import and serves this command alone is imported inside the function.
"""

from __future__ import annotations

from autotune.cli.bench import bench
from autotune.cli.check import check
from autotune.cli.cluster import CLUSTER
from autotune.cli.compile import compile_model
from autotune.cli.db import DB
from autotune.cli.doctor import doctor
from autotune.cli.explain import explain
from autotune.cli.group import Command
from autotune.cli.machine import machine
from autotune.cli.model import MODEL
from autotune.cli.passes import passes
from autotune.cli.profile import profile
from autotune.cli.quick import quick
from autotune.cli.report import report
from autotune.cli.run import run
from autotune.cli.tasks import tasks
from autotune.cli.tune import tune
from autotune.cli.worker import worker

COMMANDS: dict[str, Command] = {
    "quick": quick,
    "tune": tune,
    "check": check,
    "tasks": tasks,
    "compile": compile_model,
    "run": run,
    "bench": bench,
    "profile": profile,
    "explain": explain,
    "report": report,
    "passes": passes,
    "db": DB,
    "model": MODEL,
    "machine": machine,
    "doctor": doctor,
    "worker": worker,
    "cluster": CLUSTER,
}
