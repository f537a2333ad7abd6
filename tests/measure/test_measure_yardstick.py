"""What a yardstick knows of calm times, and who succeeds it."""

from __future__ import annotations

from autotune.codegen.kernel import KernelObject
from autotune.measure.types import BuildResult
from autotune.measure.yardstick import Yardstick

BUILD = BuildResult(KernelObject("f", b"", "", (), 0, 64, 0, 0), "[]", "direct", 0.0)


def test_calm_times_are_the_best_quarter_of_all() -> None:
    yardstick = Yardstick.of(BUILD, 1.7)
    assert yardstick.calm == 1.7
    yardstick.seconds.extend([1.0, 1.7, 1.01, 1.7, 1.0, 1.69, 1.7])
    assert yardstick.calm == 1.0


def test_one_that_is_much_faster_succeeds_and_knows_as_well_what_is_calm() -> None:
    first = Yardstick.of(BUILD, 1.0)
    first.seconds.extend([1.0] * 9)
    assert [first.succeeded_by(seconds) for seconds in (0.9, 0.7, 0.6)] == [False, False, True]
    second = Yardstick.of(BUILD, 0.5, first)
    second.seconds.extend([0.9] * 3)  # of a slow time
    assert second.calm == 0.5
