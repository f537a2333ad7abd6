"""Gauge: what the cores of a thread pool give at this moment, beside what they usually give.

Three short loops run on every thread: a chain of additions that wait for each other, whose rate is the clock and
nothing else; multiply-adds, which a lower clock slows down and a neighbour who multiplies too; and loads, which need
most of what a core can issue: they are slower as soon as anything else runs on the core's other hardware thread. A
virtual machine often cannot see that one: it is no process of its own and no stolen time.
"""

from __future__ import annotations

import time
from typing import final

from autotune.measure.core_probes import clock_kernel, load_kernel
from autotune.measure.peaks import least_clock, least_loads, least_peak
from autotune.measure.pool_probe import PoolProbe
from autotune.measure.probes import fma_kernel
from autotune.measure.quiet import Waiting
from autotune.measure.rounds import LEAST_OF_USUAL, Moment
from autotune.measure.usual import SELDOM, Usual
from autotune.runtime.threads import ThreadPool
from autotune.target import Target

_SECONDS = 2e-5  # of each try of a loop
_FIRST_LOOKS = 20
_WAITED = 0.1  # of the time since the last look, spent waiting for a core: others were there


@final
class Gauge:
    """Looks at the cores of a pool.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """

    def __init__(self, target: Target, pool: ThreadPool) -> None:
        target.require_host()
        self._threads = pool.num_threads
        self._waiting = Waiting()
        self._waited_before = (time.monotonic(), self._waiting.seconds())
        self._clock = PoolProbe(clock_kernel(target.vector_bits), target, pool, _SECONDS)
        self._multiplies = PoolProbe(fma_kernel(target), target, pool, _SECONDS)
        self._loads = PoolProbe(load_kernel(target), target, pool, _SECONDS)
        # Beside neighbours even what is usual is slow: then what the CPU should do is the yardstick.
        self._usual_ghz = Usual(least_clock(target))
        self._usual_gflops = Usual(least_peak(target.with_threads(1)))
        self._usual_loads = Usual(least_loads(target))
        self._loads_a_cycle = Usual(share=SELDOM)
        for _ in range(_FIRST_LOOKS):
            self.look()

    def look(self) -> Moment:
        """What the slowest of the cores gives now, and how long threads have waited for one since the last look."""
        moment = Moment(self._clock.run(), self._multiplies.run(), self._loads.run(), self._waited())
        self._usual_ghz.add(moment.ghz)
        self._usual_gflops.add(moment.gflops)
        self._usual_loads.add(moment.loads)
        self._loads_a_cycle.add(moment.loads_a_cycle)
        return moment

    @property
    def ghz(self) -> float:
        """The clock at which kernels are timed."""
        return self._usual_ghz.value

    @property
    def loads_a_cycle(self) -> float:
        """Vectors that a core loads in a cycle when it is alone, which may be seldom."""
        return self._loads_a_cycle.value

    @property
    def usual(self) -> Moment:
        """What the cores usually give."""
        return Moment(self._usual_ghz.value, self._usual_gflops.value, self._usual_loads.value)

    def quiet(self, moment: Moment) -> bool:
        """Whether nobody disturbed the machine then, by what is known of it now."""
        near = (
            moment.ghz >= LEAST_OF_USUAL * self._usual_ghz.value
            and moment.gflops >= LEAST_OF_USUAL * self._usual_gflops.value
            and moment.loads >= LEAST_OF_USUAL * self._usual_loads.value
        )
        return near and moment.waited <= _WAITED

    def _waited(self) -> float:
        (then, before), now = self._waited_before, (time.monotonic(), self._waiting.seconds())
        self._waited_before = now
        return max(0.0, now[1] - before) / max(now[0] - then, 1e-9) / self._threads
