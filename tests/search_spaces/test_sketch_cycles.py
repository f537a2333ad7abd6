"""Cycles asked for alone are those among all numbers of a nest; what parts of a sum do to them."""

from __future__ import annotations

import random

import pytest

from autotune.ops import parse_workload
from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.contraction import contraction
from autotune.search_spaces.sketch.nest_numbers import NAMES
from autotune.search_spaces.sketch.space import sketch_space
from autotune.search_spaces.space.config import Config, KnobValue
from autotune.target import Target
from tests.targets import fixed

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


def _numbers(target: Target, text: str, depth: int, **knobs: KnobValue) -> dict[str, float]:
    found = contraction(parse_workload(text), target)
    assert found is not None
    space = sketch_space(found, target)
    base = Config.of((k.name, k.values[0]) for k in space.knobs)
    ours: dict[str, KnobValue] = {
        "lanes": 8,
        "vector": "j",
        "tile": (4, 3),
        "inner": (1, 0),
        "outer": (0, 1),
        "block.i": 0,
        "block.j": 4,
    }
    (row,) = space.numbers.of(Batch.of(found, [space.tiling(base.replace(depth=depth, **(ours | knobs)))]))
    return dict(zip(NAMES, row))


def test_panels_of_a_part_of_a_sum_that_the_first_cache_holds_come_into_it_once() -> None:
    target, text = Target.parse("x86 -mcpu=znver3 -num-cores=1"), "matmul a=var:128,3072 b=const:3072,768"
    whole, part = (_numbers(target, text, depth=depth) for depth in (0, 128))
    assert part["l1"] < whole["l1"] / 3 and part["inner_footprint"] < 0 < whole["inner_footprint"]
    assert part["storing"] > whole["storing"]
    across: dict[str, KnobValue] = {"block.j": 0, "inner": (0, 1)}
    around = _numbers(target, text, depth=128, **across)  # all panels between two reads of one
    assert around["l1"] > 3 * part["l1"]


def test_partial_sums_cost_more_the_farther_away_they_are_added_up() -> None:
    target, text = fixed("x86 -mcpu=znver3 -num-cores=1"), "matmul a=var:512,3072 b=const:3072,768"
    blocks: tuple[dict[str, KnobValue], ...] = ({"block.i": 4, "block.j": 1}, {"block.j": 1}, {"block.j": 0})
    near, second, third = (_numbers(target, text, depth=128, **each)["storing"] for each in blocks)
    assert near < second < third
