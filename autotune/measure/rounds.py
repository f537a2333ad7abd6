"""What is looked at while kernels are timed: the machine at a moment, and batches between two such looks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

LEAST_OF_USUAL = 0.9
"""Of what the machine usually gives, what a quiet moment gives: clocks vary by less, a neighbour takes more."""
CALM = 0.96
"""Of the loads a cycle that a core gives alone, what a calm moment gives: a neighbour on the core's other hardware
thread who mostly waits takes 8 % of them, and up to 11 % of a kernel's speed; looks at a core alone differ by 2 %."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the machine gives at one moment.

    Attributes:
        ghz: the clock of the slowest core.
        gflops: fp32 multiply-adds of one core, in GFLOP/s.
        loads: vectors that one core loads, in 1e9/s.
        waited: share of the threads' time since the last moment in which they waited for a core that others had.
    """

    ghz: float
    gflops: float
    loads: float
    waited: float = 0.0

    @property
    def loads_a_cycle(self) -> float:
        """Whatever the clock."""
        return self.loads / self.ghz


class GaugeLike(Protocol):
    """What looks at the machine beside a measurement."""

    @property
    def ghz(self) -> float:
        """The clock at which kernels are timed: what is usual."""

    @property
    def loads_a_cycle(self) -> float:
        """Vectors that one core loads in a cycle when it is alone."""

    def look(self) -> Moment:
        """The machine at this moment."""

    def quiet(self, moment: Moment) -> bool:
        """Whether nobody disturbed the machine then, by what is known of it now."""


@dataclass(frozen=True, slots=True)
class Round:
    """Batches that ran one after the other, seconds per call of each, between two looks at the machine."""

    batches: tuple[float, ...]
    before: Moment
    after: Moment

    def at(self, ghz: float) -> list[float]:
        """What the batches would have taken at the usual clock, for all that keeps step with it.

        A look that was kept from its core has read no clock. Where both were, the batches stay as they are: at most too
        slow, as others make them.
        """
        read = [moment.ghz for moment in (self.before, self.after) if moment.ghz >= LEAST_OF_USUAL * ghz]
        clock = sum(read) / len(read) if read else ghz
        return [seconds * clock / ghz for seconds in self.batches]

    def quiet(self, gauge: GaugeLike) -> bool:
        # The wait before it is over: another round's, or nobody's.
        return gauge.quiet(replace(self.before, waited=0.0)) and gauge.quiet(self.after)

    @property
    def loads_a_cycle(self) -> float:
        """The fewer of those before and after it."""
        return min(self.before.loads_a_cycle, self.after.loads_a_cycle)

    def at_pace(self, times: float) -> Round:
        """As it would have been if all had been so many times as fast."""
        return replace(self, batches=tuple(float(batch / times) for batch in self.batches))


def is_calm(loads_a_cycle: float, gauge: GaugeLike) -> bool:
    """Whether a core that loads so many vectors in a cycle had no neighbour on its other hardware thread."""
    return loads_a_cycle >= CALM * gauge.loads_a_cycle


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds that a yardstick took in a round, and how many vectors the core loaded in a cycle beside it."""

    seconds: float
    loads_a_cycle: float
