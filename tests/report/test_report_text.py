"""How values look to people."""

from __future__ import annotations

import pytest

from autotune.report.text import work


@pytest.mark.parametrize(
    ("flops", "shown"),
    [(0, "0 FLOP"), (812, "812 FLOP"), (352_256, "352.26 kFLOP"), (3.5e8, "350.00 MFLOP"), (8.178e9, "8.18 GFLOP")],
)
def test_work_has_the_unit_that_says_something(flops: float, shown: str) -> None:
    assert work(flops) == shown
