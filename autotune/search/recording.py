"""Between trials and the tuning database: what a trial is as a record, and which records count as trials."""

from __future__ import annotations

import json
import os
import platform
import socket
import uuid
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import llvmlite.binding as llvm

from autotune.errors import ConfigError
from autotune.measure.failure import Failure
from autotune.measure.types import BuildResult, MeasureResult
from autotune.ops.family import family_key
from autotune.ops.registry import known_algorithm
from autotune.records import TEMPLATE_INTERFACE, Database, Session, SessionState, TuningRecord
from autotune.records.fields import rounded
from autotune.search.task import TuningTask
from autotune.search.trial import Trial
from autotune.search_spaces.space.code_version import untuned_mark, version_mark
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.replay import Recorded


class Recorder:
    """Writes the trials of one tuning run, each in its own transaction, and the run itself as a session."""

    def __init__(self, database: Database, now: float, command: str = "") -> None:
        """Begins a session at `now`, seconds since the epoch; sessions that died are marked as interrupted."""
        self._database = database
        self._llvm = ".".join(map(str, llvm.llvm_version_info))
        self._autotune = _installed("autotune-compiler")
        host = socket.gethostname()
        versions = {
            "autotune": self._autotune,
            "llvm": self._llvm,
            "python": platform.python_version(),
            "xgboost": _installed("xgboost"),
        }
        database.mark_stale_sessions(now, host=host)
        self.session_id = uuid.uuid4().hex
        database.add_session(
            Session(
                id=self.session_id,
                started=now,
                heartbeat=now,
                pid=os.getpid(),
                host=host,
                command=command,
                versions=json.dumps(versions),
            )
        )

    def add(
        self,
        task: TuningTask,
        config: Config,
        build: BuildResult | None,
        result: MeasureResult | Failure,
        now: float,
        predicted: float | None = None,
        *,
        replayed: bool = False,
    ) -> None:
        """Stores one trial; it replaces an earlier one of the same config.

        Args:
            predicted: seconds that were expected.
            replayed: the build came from stored steps: today the config gives other code, or none.
        """
        workload, target = task.workload, task.target
        record = TuningRecord(
            workload_key=workload.key,
            workload=workload.to_json(),
            anchor_key=workload.anchor_key,
            family_key=family_key(workload),
            description=task.name,
            target_key=target.key,
            target=target.to_json(),
            interface=_interface(task),
            residency=task.residency,
            config_key=config.key,
            config=config.to_json(),
            template=config.template or "",
            algorithm=build.algorithm if build else "",
            steps=build.steps if build else None,
            ir_hash=build.kernel.ir_hash if build else "",
            predicted=rounded(predicted),
            session_id=self.session_id,
            created=now,
            llvm_version=self._llvm,
            autotune_version=self._autotune + ("" if replayed else version_mark(workload, config)),
            untuned_by=untuned_mark(workload, task.strict_fp) if config == task.untuned else "",
            **_outcome(result),
        )
        self._database.add(record)

    def heartbeat(self, now: float) -> None:
        self._database.heartbeat(self.session_id, now)

    def finish(self, interrupted: bool, now: float) -> None:
        state = SessionState.INTERRUPTED if interrupted else SessionState.FINISHED
        self._database.finish(self.session_id, state, now)


def earlier_trials(database: Database, task: TuningTask) -> dict[Trial, TuningRecord]:
    """Finished trials of exactly this task, in the order in which they were made, each with its record but for steps.

    Records whose config is no point of the task's space any more, or whose output nobody verified, do not count.
    """
    found: dict[Trial, TuningRecord] = {}
    keys = task.workload.key, task.target.key
    records = list(database.trials(*keys, interface=_interface(task), residency=task.residency, steps=False))
    dates = Counter((record.session_id, record.created) for record in records)
    for record in records:
        config = Config.from_json(record.config)
        if record.failure_kind is not None:
            trial = Trial(config, failure=record.failure_kind, predicted=record.predicted)
        elif record.verified:
            trial = Trial(
                config,
                seconds=record.seconds,
                predicted=record.predicted,
                disturbed=record.disturbed,
                compared=dates[record.session_id, record.created] > 1,
            )
        else:
            continue
        if _is_valid(task, config):
            found[trial] = record
    return found


def gives_the_same_code(task: TuningTask, record: TuningRecord) -> bool:
    """Whether the record's config surely gives the code that was measured; if not, build it to see."""
    mark = version_mark(task.workload, Config.from_json(record.config))
    return bool(mark) and record.autotune_version.endswith(mark)


def replayable(database: Database, task: TuningTask, count: int) -> list[tuple[Trial, Recorded]]:
    """The fastest earlier trials of exactly this task as their stored steps have them, whatever their configs give now.

    Not the default's, which the search measures anew, and where that matters not those of algorithms that err more.
    """
    records = database.top(
        task.workload.key, task.target.key, count, interface=_interface(task), residency=task.residency
    )
    found = []
    for record in records:
        config = Config.from_json(record.config)
        known = known_algorithm(task.workload, record.algorithm)
        if config == task.space.default() or (task.strict_fp and (known is None or not known.strict)):
            continue
        beside = any(record.timed_beside(other) for other in records)
        trial = Trial(
            config, seconds=record.seconds, predicted=record.predicted, disturbed=record.disturbed, compared=beside
        )
        found.append((trial, Recorded(record.steps or "[]", record.algorithm, record.ir_hash)))
    return found


def _is_valid(task: TuningTask, config: Config) -> bool:
    try:
        task.space.validate(config)
    except ConfigError:
        return False
    return True


def _interface(task: TuningTask) -> str:
    return TEMPLATE_INTERFACE if task.interface is None else task.interface.to_json()


def _outcome(result: MeasureResult | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"failure_kind": result.kind, "failure_message": result.message}
    return {
        "seconds": result.seconds,
        "spread": rounded(result.spread),
        "number": result.number,
        "batches": result.batches,
        "probe_gflops": rounded(result.probe_gflops or None),
        "max_abs_err": rounded(result.max_abs_err),
        "max_rel_err": rounded(result.max_rel_err),
        "tolerance": result.tolerance,
        "disturbed": result.disturbed,
        "verified": True,  # a runner times nothing that it has not verified
    }


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
