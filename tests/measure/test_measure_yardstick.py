"""What a yardstick knows of calm times, and who succeeds it."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.codegen.kernel import KernelObject
from autotune.measure.rounds import Moment, Taken
from autotune.measure.timing import Timing
from autotune.measure.types import BuildResult
from autotune.measure.yardstick import Yardstick

BUILD = BuildResult(KernelObject("f", b"", "", (), 0, 64, 0, 0), "[]", "direct", 0.0)


@dataclass
class FakeGauge:
    """A core that loads so many vectors a cycle when it is alone."""

    loads_a_cycle: float = 1.0
    ghz: float = 4.0

    def look(self) -> Moment:
        return Moment(self.ghz, 100.0, self.loads_a_cycle * self.ghz)

    def quiet(self, moment: Moment) -> bool:
        return True


def timed(seconds: float, loads: float = 1.0) -> Timing:
    return Timing(seconds, 0.0, 8, 1, 100.0, loads_a_cycle=loads)


def rounds(*seconds: float, loads: float = 1.0) -> list[Taken]:
    return [Taken(one, loads) for one in seconds]


def test_calm_times_are_the_best_quarter_of_all() -> None:
    yardstick = Yardstick.of(BUILD, timed(1.7))
    assert yardstick.calm(FakeGauge()) == 1.7
    yardstick.rounds.extend(rounds(1.0, 1.7, 1.01, 1.7, 1.0, 1.69, 1.7))
    assert yardstick.calm(FakeGauge()) == 1.0


def test_calm_times_are_those_without_a_neighbour_by_what_is_known_now() -> None:
    yardstick = Yardstick.of(BUILD, timed(1.1, 0.92))
    yardstick.rounds.extend(rounds(*[1.1] * 50, loads=0.92))
    assert yardstick.calm(FakeGauge(0.92)) == yardstick.calm(FakeGauge()) == 1.1
    yardstick.rounds.extend(rounds(1.0))
    assert yardstick.calm(FakeGauge()) == 1.0


def test_one_that_is_much_faster_succeeds_and_knows_as_well_what_is_calm() -> None:
    gauge = FakeGauge()
    first = Yardstick.of(BUILD, timed(1.0))
    first.rounds.extend(rounds(*[1.0] * 9))
    assert [first.succeeded_by(seconds, gauge) for seconds in (0.9, 0.7, 0.6)] == [False, False, True]
    second = Yardstick.of(BUILD, timed(0.5), first)
    second.rounds.extend(rounds(*[0.9] * 3))  # of a slow time
    assert second.calm(gauge) == 0.5
