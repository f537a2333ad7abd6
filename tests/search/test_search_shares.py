from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.cost_model.features import Features
from autotune.cost_model.model import RandomModel
from autotune.search.shares import TimedModel, TimeShares


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_inner_parts_are_not_counted_twice() -> None:
    clock = Clock()
    shares = TimeShares(clock)
    with shares.spending("wait"):
        clock.now += 1
        with shares.spending("search"):
            clock.now += 2
            with shares.spending("model"):
                clock.now += 4
            clock.now += 8
        clock.now += 16
    shares.add("run", 3)
    assert shares.seconds == {"wait": 17, "search": 10, "model": 4, "record": 0, "build": 0, "run": 3}


def test_time_is_counted_when_the_part_fails() -> None:
    clock = Clock()
    shares = TimeShares(clock)

    def fail() -> None:
        with shares.spending("search"):
            clock.now += 5
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert shares.seconds["search"] == 5


def test_a_timed_model_answers_as_the_model_does() -> None:
    clock = Clock()
    shares = TimeShares(clock)

    class Slow(RandomModel):
        def predict(self, features: Features) -> np.ndarray:
            clock.now += 2
            return super().predict(features)

    timed = TimedModel(Slow(random.Random(0)), shares)
    features = Features(("a",), np.zeros((3, 1), np.float32))
    timed.fit(features, np.ones(3), np.zeros(3, np.int64))
    assert timed.predict(features).tolist() == RandomModel(random.Random(0)).predict(features).tolist()
    assert shares.seconds["model"] == 2
