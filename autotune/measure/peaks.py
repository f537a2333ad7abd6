"""The limits of this machine as measured: multiply-add throughput, and read bandwidth from each cache level.

Every percentage "of peak" that autotune prints refers to these, or to an FMA probe run beside the measurement.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from autotune import machine
from autotune.errors import MeasureError
from autotune.measure.pool_probe import PoolProbe
from autotune.measure.probes import Kernel, Probe, bf16_kernel, fma_kernel, int8_kernel, read_kernel
from autotune.measure.protocol import Json
from autotune.measure.quiet import Watch, wait_until_quiet
from autotune.measure.seen_peaks import keep_peak, seen_peak
from autotune.measure.tile_probes import tile_peaks
from autotune.runtime.threads import ThreadPool
from autotune.target import Target

_log = logging.getLogger(__name__)

_ROUNDS = 8
_SECONDS = 0.005  # of one round: long against waking a thread, short against a time slice
_SWEEPS = 2  # over all limits: a neighbour who disturbs one is often gone a second later
_MOST_SWEEPS = 6
_PAUSE_SECONDS = 0.2
_SETTLE_SECONDS = 6.0  # in which further sweeps begin
_SCALES = 0.8  # of the threads' number, what throughput that threads do not share reaches at least
_SHARED_SCALES = 0.9  # of one thread's rate, what the threads reach together where they share
_PEAK_SECONDS = 5e-4  # of a try of `fma_peak`, so short that some fall between two disturbances
_FREAKS = 2  # of them, the best that do not count
_PEAK_ROUNDS = 170  # of some tries each, before the next look at the machine
_PATIENCE = 0.2  # seconds for one that stays below what was seen, which is known: more is not worth a wait
_LEAST_SHARE = {"measured": 0.85, "shipped": 0.75, "given": 0.75, "features": 0.4}
"""By where a core's figures are from: what of their peak a machine reaches at least, when nobody disturbs it."""
_LEAST_OF_MEASURED = 0.97  # and of a peak that was measured in quiet with as many threads
_BEATEN = 1.05
_MAX_DRAM_BYTES = 1 << 29
_LEAST_L3_BYTES = 1 << 24  # to read: outside of L2, and inside the share of L3 that a virtual machine may hope for


@dataclass(frozen=True, slots=True)
class Rate:
    """Throughput in units of 1e9 per second: of one core alone, and of all threads of the target together."""

    one_core: float
    all_cores: float


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured limits of a target on this machine.

    Attributes:
        fp32, int8, bf16: GFLOP/s or GOP/s, counting a multiply-add as two; None where no such instruction exists.
        int8_tiles, bf16_tiles, f16_tiles: the same of instructions that multiply tiles.
        l1, l2, l3, dram: GB/s read from a buffer of half that cache, or of four times the L3. All threads share the
            L3 and DRAM buffers' sizes and have L1 and L2 buffers of their own.
        doubts: in words, why some of them are likely too low; empty when nothing speaks against them.
    """

    fp32: Rate
    int8: Rate | None
    bf16: Rate | None
    l1: Rate
    l2: Rate
    l3: Rate
    dram: Rate
    int8_tiles: Rate | None = None
    bf16_tiles: Rate | None = None
    f16_tiles: Rate | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Peak:
    """fp32 FMA throughput of all threads of a target.

    Attributes:
        gflops: as measured.
        doubt: why it is likely too low, in words; empty when nothing speaks against it.
    """

    gflops: float
    doubt: str = ""

    def against(self, gflops: float) -> Peak:
        """The same, in doubt when a kernel did so many operations that need one each: a limit cannot be beaten."""
        if self.doubt or gflops <= _BEATEN * self.gflops:
            return self
        return Peak(self.gflops, f"a kernel reaches {gflops:.0f} GFLOP/s")

    def to_json(self) -> dict[str, Json]:
        return {"gflops": self.gflops, "doubt": self.doubt}

    @staticmethod
    def from_json(data: Json) -> Peak:
        """Inverse of `to_json`.

        Raises:
            MeasureError: it is no peak.
        """
        match data:
            case {"gflops": float(gflops), "doubt": str(doubt)} if 0 < gflops < math.inf:
                return Peak(gflops, doubt)
        raise MeasureError(f"no peak: {str(data)[:200]}")


def expected_peak(target: Target) -> float:
    """fp32 GFLOP/s of all threads: as measured in quiet, else by what is known of the core; no less than was seen."""
    return max(_known_peak(target), seen_peak(target))


def _known_peak(target: Target) -> float:
    core = target.core
    counted = 2 * core.ghz * core.best_lane_rate("fma.f32") / 32 * target.num_threads
    return dict(core.peaks).get(target.num_threads, counted)


def least_peak(target: Target) -> float:
    """fp32 GFLOP/s that all threads reach for sure, by what is known of the core, when nobody disturbs them."""
    measured = target.num_threads in dict(target.core.peaks)
    return (_LEAST_OF_MEASURED if measured else _LEAST_SHARE[target.core.source]) * _known_peak(target)


def least_clock(target: Target) -> float:
    """The same of one core's clock, in GHz; 0 of a core that nobody has measured."""
    core = target.core
    return 0.0 if core.source == "features" else _LEAST_SHARE[core.source] * core.ghz


def least_loads(target: Target) -> float:
    """The same for vectors that one core loads, in 1e9 per second."""
    return least_clock(target) * target.core.loads


def doubt_of(target: Target, gflops: float) -> str:
    """Why so many fp32 GFLOP/s cannot be the peak of all threads, in words; empty when nothing speaks against it."""
    least = max(least_peak(target), _LEAST_OF_MEASURED * seen_peak(target))
    return "" if gflops >= least else f"this CPU should reach {expected_peak(target):.0f} GFLOP/s"


def fma_peak(target: Target, patience: float = 2.0) -> Peak:
    """The best of many short rounds; while it is in doubt, quiet moments are waited for, so many seconds at most.

    In doubt is what stays below what this machine was seen to reach; that is known, and not waited for for long. Where
    nothing was seen yet, all of that time is taken, since clocks wander, and what was measured while other programs ran
    is in doubt, too: clocks are lower then.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """
    probe, every_core, before = FmaPeak(target), Watch(machine.allowed_cores()), seen_peak(target)
    found = steady_peak(
        target, probe.run, lambda seconds: wait_until_quiet(every_core, seconds),
        min(patience, _PATIENCE) if before else patience,
        quiet=lambda: bool(before) or every_core.look().quiet, first=not before,
    )  # fmt: skip
    if before or not found.doubt:
        keep_peak(target, found.gflops)
    return found


def steady_peak(
    target: Target,
    probe: Callable[[], float],
    wait: Callable[[float], object],
    patience: float,
    clock: Callable[[], float] = time.monotonic,
    quiet: Callable[[], bool] = lambda: True,
    first: bool = False,
) -> Peak:
    """`fma_peak` by any probe.

    Args:
        wait: returns with the next quiet moment, after so many seconds at most.
        quiet: whether nothing has disturbed the machine since this was asked last; some rounds must say so.
        first: nothing is known that the peak could be held against: all of the time is used.
    """
    end = clock() + patience
    best, calm = 0.0, False
    while True:
        quiet()
        # One round may be what no other comes near: a clock that was set meanwhile, a counter misread.
        best = max(best, sorted(probe() for _ in range(_PEAK_ROUNDS))[-_FREAKS - 1])
        calm = quiet() or calm
        doubt = doubt_of(target, best) or ("" if calm else "other programs ran, and it was never measured in quiet")
        left = end - clock()
        if left <= 0 or not (doubt or first):
            return Peak(best, doubt)
        wait(left)


@final
class FmaPeak:
    """fp32 FMA throughput of all threads of a target at this moment: run between timings, it is their yardstick.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """

    def __init__(self, target: Target) -> None:
        self._threads = target.num_threads
        self._probe = PoolProbe(fma_kernel(target), target, ThreadPool(self._threads), _PEAK_SECONDS)

    def run(self) -> float:
        """GFLOP/s of all threads together."""
        return self._threads * self._probe.run()


def measure_peaks(target: Target) -> Peaks:
    """Measure the limits of `target` on this machine; takes about two seconds, up to six beside busy neighbours.

    Each limit is the best of rounds in two sweeps. One thread that is nearly as fast as all of them together means that
    somebody else was running: such limits are measured again.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """
    _log.info("measuring the limits of %s: some seconds", target)
    own = _SCALES * target.num_threads
    limits = {"fp32": Limit(fma_kernel(target), target, own), **read_limits(target)}
    for name, kernel in (("int8", int8_kernel(target)), ("bf16", bf16_kernel(target))):
        if kernel is not None:
            limits[name] = Limit(kernel, target, own)
    limits |= {kind: Limit(kernel, target, own) for kind, kernel in tile_peaks(target).items()}
    watch = Watch(target.num_threads)
    settle(list(limits.values()))
    rates = {name: limit.rate for name, limit in limits.items()}
    low = [name for name, limit in limits.items() if not limit.plausible]
    found = (
        doubt_of(target, rates["fp32"].all_cores),
        f"the threads together hardly exceed one alone in {', '.join(low)}" if low else "",
        watch.look().describe(),
    )
    return Peaks(
        fp32=rates["fp32"],
        int8=rates.get("int8"),
        bf16=rates.get("bf16"),
        l1=rates["l1"],
        l2=rates["l2"],
        l3=rates["l3"],
        dram=rates["dram"],
        int8_tiles=rates.get("tile.u8"),
        bf16_tiles=rates.get("tile.bf16"),
        f16_tiles=rates.get("tile.f16"),
        doubts=tuple(doubt for doubt in found if doubt),
    )


def read_limits(target: Target) -> dict[str, Limit]:
    """The bandwidths of `Peaks` by name, not measured yet."""
    threads, kernel = target.num_threads, read_kernel(target)
    own, shared = _SCALES * threads, _SHARED_SCALES
    # Half of a cache is safely inside it, unless it is said to be larger than this machine's share of it; four times
    # the last level is safely outside.
    l3 = min(target.l3_bytes // 2, max(4 * target.l2_bytes * threads, _LEAST_L3_BYTES))
    dram = min(4 * target.l3_bytes, _MAX_DRAM_BYTES, machine.memory_bytes() // 8)
    return {
        "l1": Limit(kernel, target, own, target.l1_bytes // 2, target.l1_bytes // 2),
        "l2": Limit(kernel, target, own, target.l2_bytes // 2, target.l2_bytes // 2),
        "l3": Limit(kernel, target, shared, l3, l3 // threads),
        "dram": Limit(kernel, target, shared, dram, dram // threads),
    }


class Sweepable(Protocol):
    """A limit that is being measured."""

    @property
    def plausible(self) -> bool:
        """Whether what was found so far can be the limit."""

    def sweep(self) -> None:
        """Some rounds; the best of all count."""


def settle(
    limits: Sequence[Sweepable],
    pause: Callable[[float], None] = time.sleep,
    sweeps: int = _SWEEPS,
    most: int = _MOST_SWEEPS,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Some sweeps over all limits, then more over those that are not plausible, with longer and longer pauses: none
    begins after some seconds, which one may last where other programs have the cores."""
    end = clock() + _SETTLE_SECONDS
    for number in range(most):
        if number and clock() >= end:
            break
        todo = [limit for limit in limits if number < sweeps or not limit.plausible]
        if todo and number >= sweeps:
            pause(_PAUSE_SECONDS * (number - sweeps + 1))
        for limit in todo:
            limit.sweep()


@final
class Limit:
    """The rate of a kernel with a buffer of `one_size` bytes on one core, of `each_size` per thread on all.

    Args:
        scales: how many times the rate of one core all threads should reach at least.
    """

    def __init__(
        self, kernel: Kernel, target: Target, scales: float, one_size: int = 1024, each_size: int = 1024
    ) -> None:
        self._groups = [[Probe(kernel, target, _whole(one_size))]]
        if target.num_threads > 1:
            self._groups.append([Probe(kernel, target, _whole(each_size)) for _ in range(target.num_threads)])
        self._best = [0.0] * len(self._groups)
        self._scales = scales

    @property
    def rate(self) -> Rate:
        return Rate(self._best[0], self._best[-1])

    @property
    def plausible(self) -> bool:
        return len(self._groups) == 1 or self.rate.all_cores >= self._scales * self.rate.one_core

    def sweep(self) -> None:
        self._best = [max(best, _best(group)) for best, group in zip(self._best, self._groups, strict=True)]


def _whole(size: int) -> int:
    return max(1024, size // 1024 * 1024)


def _best(probes: list[Probe]) -> float:
    """Units of 1e9 per second of the best round; a round lasts from the first start to the last end."""
    repeats = probes[0].repeats_for(_SECONDS)
    spans = [_span(probes, repeats) for _ in range(_ROUNDS)]
    return sum(probe.work(repeats) for probe in probes) / min(spans) * 1e-9


def _span(probes: list[Probe], repeats: int) -> float:
    """Seconds in which all probes ran, each in a thread of its own: the call into compiled code frees Python's lock."""
    if len(probes) == 1:
        return probes[0].seconds(repeats)
    starts = [0] * len(probes)
    ends = [0] * len(probes)
    gate = threading.Barrier(len(probes))

    def work(number: int) -> None:
        gate.wait()
        starts[number] = time.perf_counter_ns()
        probes[number].seconds(repeats)
        ends[number] = time.perf_counter_ns()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(probes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (max(ends) - min(starts)) * 1e-9
