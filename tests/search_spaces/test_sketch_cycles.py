"""Cycles asked for alone are those among all numbers of a nest."""

from __future__ import annotations

import random

import pytest

from autotune.ops import parse_workload
from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.contraction import contraction
from autotune.search_spaces.sketch.nest_numbers import NAMES
from autotune.search_spaces.sketch.space import sketch_space
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=znver4 -num-cores=2")


@pytest.mark.parametrize(
    "text", ["matmul a=96,64 b=64,128 + relu", "conv2d data=1,16,28,28 weight=16,1,3,3 groups=16 pad=1"]
)
def test_cycles_alone_are_those_among_the_numbers(text: str) -> None:
    found = contraction(parse_workload(text), TARGET)
    assert found is not None
    space, rng = sketch_space(found, TARGET), random.Random(0)
    batch = Batch.of(found, [space.tiling(space.sample(rng)) for _ in range(20)])
    assert (space.numbers.cycles(batch) == space.numbers.of(batch)[:, NAMES.index("cycles")]).all()
