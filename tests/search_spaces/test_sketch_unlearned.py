"""What is not left to models: costs as they say, but for tilings about which they err."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.ops import parse_workload
from autotune.search_spaces.sketch.batch import Batch, Decoder
from autotune.search_spaces.sketch.contraction import contraction
from autotune.search_spaces.sketch.space import sketch_space
from autotune.search_spaces.sketch.unlearned import IN_PARTS, as_asking, unless_in_parts
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=znver4 -num-cores=1")


def drawn() -> Batch:
    c = contraction(parse_workload("matmul a=var:128,768 b=const:768,768"), TARGET)
    assert c is not None
    decoder = Decoder(c, sketch_space(c, TARGET).knobs, TARGET)
    return decoder.batch(decoder.draw(np.random.default_rng(0), 64))


def test_a_sum_in_parts_has_to_promise_more() -> None:
    batch = drawn()
    cost = unless_in_parts(lambda batch: np.ones(len(batch.depth)))(batch)
    assert 0 < (batch.depth > 0).sum() < len(batch.depth)
    np.testing.assert_allclose(cost, np.where(batch.depth > 0, 1 + IN_PARTS, 1.0))


def test_what_is_expected_is_of_tilings_that_ask() -> None:
    seen: list[NDArray[np.bool_]] = []

    def cost(batch: Batch) -> NDArray[np.float64]:
        seen.append(np.asarray(batch.ahead > 0))
        return np.zeros(len(batch.depth))

    as_asking(cost)(drawn())
    assert seen[0].all()
