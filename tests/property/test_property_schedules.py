"""A fixed part of the fuzzer: random schedules of random definitions compute what the definition says.

`python -m tests.property.fuzz --cases 10000 --seed N` runs as many more as wanted.
"""

from __future__ import annotations

import pytest

from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.worker import Worker
from autotune.schedule import Schedule
from tests.property.kernel_check import case

BATCHES, SIZE = 10, 12


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_schedules_preserve_the_result(batch: int, kernel_worker: Worker) -> None:
    seeds: list[Json] = list(range(batch * SIZE, (batch + 1) * SIZE))
    answer = kernel_worker.call(Message({"seeds": seeds}), timeout=120.0)
    assert not isinstance(answer, Failure), f"one of the cases {seeds}: {answer.message}"
    assert answer.body["bad"] == {}


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_random_schedules_are_data(seed: int) -> None:
    _, schedule = case(seed)
    again = Schedule.from_json(schedule.to_json())
    assert again == schedule
    assert again.key == schedule.key
    assert again.to_json() == schedule.to_json()
    assert str(again.state) == str(schedule.state)
