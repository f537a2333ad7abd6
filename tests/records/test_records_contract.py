"""The texts that other packages hand over fit into records, and come back as the same values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

from autotune.measure.failure import Failure, FailureKind
from autotune.measure.timing import HIGH_SPREAD
from autotune.ops.registry import compute_def
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.records import Database, Tier, TuningRecord, export_records, import_records, record
from autotune.schedule import Schedule
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.records.records_samples import make_record

WORKLOAD = Workload(
    (WorkloadInput(TensorType("f32", (8, 64))),),
    (WorkloadNode.make("clip", (0,), min=0.0, max=math.inf),),
    (1,),
)
CONFIG = Config.of(template="elementwise", tile=16, order=(1, 0), unroll=True)
INTERFACE = Interface((Layout.blocked(2, [(1, 16)]), Layout.row_major(2)))
HERE = Target.parse("x86 -mcpu=haswell -num-cores=1")


def record_of(target: Target, schedule: Schedule) -> TuningRecord:
    return TuningRecord(
        workload_key=WORKLOAD.key,
        workload=WORKLOAD.to_json(),
        anchor_key=WORKLOAD.anchor_key,
        family_key="f" * 16,
        description=str(WORKLOAD.inputs[0].type),
        target_key=target.key,
        target=target.to_json(),
        interface=INTERFACE.to_json(),
        config_key=CONFIG.key,
        config=CONFIG.to_json(),
        template="elementwise",
        algorithm="direct",
        steps=schedule.steps_json(),
        seconds=1e-6,
        verified=True,
        created=1.0,
    )


def test_workload_target_config_interface_and_steps_come_back(tmp_path: Path) -> None:
    compute = compute_def(WORKLOAD)
    plain = Schedule(compute)
    last = plain.state.stages[-1]
    schedule = plain.parallel(last.name, last.loops[0].name)
    record = record_of(HERE, schedule)
    with Database.open(tmp_path / "a.sqlite") as db, Database.open(tmp_path / "b.sqlite") as copy:
        db.add(record)
        export_records(db, tmp_path / "out.jsonl")
        import_records(copy, tmp_path / "out.jsonl")
        assert list(copy.trials()) == [record]
        match = copy.best(WORKLOAD.key, HERE.key, HERE.to_json(), interface=INTERFACE.to_json())
        assert [record.config_key for record in copy.trials(WORKLOAD.key, HERE.key)] == [CONFIG.key]
    assert match.tier is Tier.EXACT
    stored = match.record
    assert stored is not None
    assert stored.steps is not None
    assert Workload.from_json(stored.workload) == WORKLOAD
    assert Target.from_json(stored.target) == HERE
    assert Config.from_json(stored.config) == CONFIG
    assert Interface.from_json(stored.interface) == INTERFACE
    assert Schedule.replay(compute, stored.steps).key == schedule.key


def test_real_targets_fall_into_tiers(tmp_path: Path) -> None:
    older = Target.parse("x86 -mcpu=haswell -num-cores=2")
    newer = Target.parse("x86 -mcpu=skylake-avx512 -num-cores=1")
    schedule = Schedule(compute_def(WORKLOAD))
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add(record_of(newer, schedule))
        assert db.best(WORKLOAD.key, HERE.key, HERE.to_json()).tier is Tier.FOREIGN
        db.add(record_of(older, schedule))
        match = db.best(WORKLOAD.key, HERE.key, HERE.to_json())
    assert (match.tier, match.reason) == (Tier.COMPATIBLE, "measured with num_threads 2, here 1")


def test_every_failure_fits(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        for index, kind in enumerate(get_args(FailureKind)):
            failure = Failure(kind, "x" * 10_000)
            db.add(
                make_record(
                    index,
                    seconds=None,
                    verified=False,
                    failure_kind=failure.kind,
                    failure_message=failure.message,
                )
            )
        messages = {record.failure_message for record in db.trials()}
    assert messages == {Failure("crash", "x" * 10_000).message}


def test_measuring_and_records_call_the_same_spread_high() -> None:
    assert record.HIGH_SPREAD == HIGH_SPREAD
