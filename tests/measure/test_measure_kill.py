"""kill -9 at random moments of a real run: every trial ends, most of them well, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path

from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.pipeline import Pipeline
from autotune.measure.runner import Runner
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import MeasureInput, MeasureResult
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.search_spaces.space.config import Config
from autotune.target import Target

TEMPLATE = str(Path(__file__).parent / "toy_template.py")
KILLS = 6


def product(rows: int) -> Workload:
    sides = (WorkloadInput(TensorType("f32", (rows, 64))), WorkloadInput(TensorType("f32", (64, 32)), constant=True))
    return Workload(sides, (WorkloadNode.make("matmul", (0, 1), trans_a=False, trans_b=False),), (2,))


def test_kill_9_at_random_moments() -> None:
    target = Target.parse("native -num-cores=1")
    rng = random.Random(7)
    config = Config.of(template="toy.rows", rows=2, trouble="none")
    killed: set[int] = set()
    outcomes: list[MeasureResult | Failure] = []
    with (
        Builder(1, timeout=60, imports=(TEMPLATE,)) as builder,
        Runner(target, TimingPolicy(rounds=2), timeout=60) as runner,
    ):

        def kill_some() -> None:
            while len(killed) < KILLS:
                time.sleep(rng.uniform(0.05, 0.5))
                pid = rng.choice([*builder.pids, *runner.pids, 0])
                if pid:
                    killed.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_some, daemon=True)
        killer.start()
        pipeline = Pipeline(builder, runner, ahead=4, take_turns=False)
        rows = 0
        while killer.is_alive():
            rows += 1
            outcomes += [m.result for m in pipeline.measure([MeasureInput(product(rows), config, None, target)])]
        outcomes += [m.result for m in pipeline.measure([MeasureInput(product(rows + 1), config, None, target)])]
        survivors = {*builder.pids, *runner.pids}
    assert len(killed) == KILLS
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert {failure.kind for failure in failures} <= {"crash"}
    assert len(failures) <= KILLS // 2  # it takes two kills to lose a trial
    assert isinstance(outcomes[-1], MeasureResult)
    assert not any(Path(f"/proc/{pid}").exists() for pid in killed | survivors)
