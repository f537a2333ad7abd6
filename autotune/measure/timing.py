"""One clock, one statistic per purpose. Whoever turns samples into a number does it here.

- A kernel's time is the *minimum* of its batches: on a shared machine it repeats within about 1 %, where
  mean and median follow the neighbours.
- A model's latency is the *median* of interleaved rounds: what a user sees.
- A speed-up is peer time / our time, both from the same interleaved rounds; where a decision hangs on it, the median
  of the rounds' ratios with its interval (`Ratio`).
- Spread says how much to trust a number: how far the median lies above the minimum, relative to the minimum.

Clocks drift, so a probe (a fixed FMA loop, GFLOP/s) runs between the batches. A trial whose probe is clearly
slower than the best probe seen, or whose spread is high, is suspect and timed again, after a pause for whoever it was
to be gone; what still looks disturbed then is marked, so that it never counts more than what was measured in quiet.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

# Runs a kernel `number` times and returns the seconds of all of them; the loop is compiled code.
TimedLoop = Callable[[int], float]
# One short burst of a fixed FMA loop: GFLOP/s at this moment.
Probe = Callable[[], float]

HIGH_SPREAD = 0.5
"""Of batches, beyond which their minimum is luck; records know it by the same number."""
_DRIFT = 0.05  # a probe this much below the best one: neighbours or a lower clock
_WAITED = 0.1  # of the time that a trial's threads need, spent waiting for a core: others were there
_MARKED_DRIFT = 0.15  # and this much, in the end: the time is marked
_PAUSE_SECONDS = 0.05  # before a trial is timed again, and twice as long before the next time


def kernel_seconds(batches: Sequence[float]) -> float:
    """The time of a kernel from the per-call seconds of its batches."""
    return min(batches)


def latency(rounds: Sequence[float]) -> float:
    """The latency of a model from the seconds of its interleaved rounds."""
    return statistics.median(rounds)


def speedup(ours: float, peer: float) -> float:
    """How many times faster than the peer we are (above 1: we win)."""
    return peer / ours


def spread(samples: Sequence[float]) -> float:
    """(median - minimum) / minimum."""
    fastest = min(samples)
    return (statistics.median(samples) - fastest) / fastest


def drifted(probe: float, best_probe: float) -> bool:
    """Whether a time taken at `probe` GFLOP/s is suspect, given the best probe seen on this machine."""
    return probe < best_probe * (1 - _DRIFT)


def disturbed(probe: float, best_probe: float, spread: float, waited: float = 0.0) -> bool:
    """Whether a time is to be marked: all probes beside it were slow, its batches disagree, or its threads waited for
    a core for such a share of the time."""
    return probe < best_probe * (1 - _MARKED_DRIFT) or spread > HIGH_SPREAD or waited > _WAITED


def interleave(
    contenders: Sequence[Callable[[], float]],
    rounds: int,
    seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Call each contender once per round, in turn; its samples. Every other round goes backwards, so that no
    contender always runs after the same neighbour.

    Args:
        seconds: as many rounds as begin in that time, one at least, instead of `rounds`.
    """
    samples: list[list[float]] = [[] for _ in contenders]
    number, start = 0, clock()
    while number < rounds if seconds is None else not number or clock() - start < seconds:
        order = range(len(contenders)) if number % 2 == 0 else range(len(contenders) - 1, -1, -1)
        for position in order:
            samples[position].append(contenders[position]())
        number += 1
    return samples


@dataclass(frozen=True, slots=True)
class TimingPolicy:
    """How long to measure one kernel.

    Attributes:
        batches: how many batches the minimum is taken over.
        min_batch_seconds: a batch repeats the kernel until it lasts about this long, so that the clock's
            resolution and the loop's start do not matter.
        max_seconds: stop early, after at least one batch, when all batches together take longer.
        abort_ratio: a kernel this many times slower than the incumbent gets one batch.
        loser_ratio: one this many times slower gets `loser_batches`: noise that only adds time does not hide a winner
            behind that many of them.
        retries: how often a trial that is suspect, and may be the best, is timed again.
    """

    batches: int = 8
    min_batch_seconds: float = 0.002
    max_seconds: float = 1.0
    abort_ratio: float = 3.0
    loser_ratio: float = 1.3
    loser_batches: int = 3
    retries: int = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """`seconds` per call (minimum of `batches` batches of `number` calls), their spread, and the probe's best.

    `disturbed`: by others, as far as `disturbed` can tell.
    """

    seconds: float
    spread: float
    batches: int
    number: int
    probe_gflops: float
    disturbed: bool = False


def calls_per_batch(one_call: float, policy: TimingPolicy) -> int:
    """How many calls fill a batch, to the nearest."""
    return max(1, round(policy.min_batch_seconds / max(one_call, 1e-9)))


def time_kernel(loop: TimedLoop, probe: Probe, policy: TimingPolicy, incumbent: float | None = None) -> Timing:
    """Time a kernel that has run before (code and data are as warm as they will be).

    A kernel clearly slower than the incumbent gets fewer batches: its time is then rough, and enough.
    """
    estimate = min(loop(1), loop(1))
    number = calls_per_batch(estimate, policy)
    samples: list[float] = [estimate] if number == 1 else []
    probes = [probe()]
    spent = 0.0
    while not samples or (
        len(samples) < _batches(min([estimate, *samples]), policy, incumbent) and spent < policy.max_seconds
    ):
        batch = loop(number)
        spent += batch
        samples.append(batch / number)
        probes.append(probe())
    return Timing(kernel_seconds(samples), spread(samples), len(samples), number, max(probes))


def _batches(seconds: float, policy: TimingPolicy, incumbent: float | None) -> int:
    """How many batches a kernel deserves that took so long until now."""
    if incumbent is None or seconds <= policy.loser_ratio * incumbent:
        return policy.batches
    return min(policy.batches, 1 if seconds > policy.abort_ratio * incumbent else policy.loser_batches)


def time_steadily(
    loop: TimedLoop,
    probe: Probe,
    policy: TimingPolicy,
    best_probe: Callable[[], float],
    incumbent: float | None = None,
    pause: Callable[[float], None] = time.sleep,
    waited: Callable[[], float] = lambda: 0.0,
) -> Timing:
    """`time_kernel`, again while it is suspect and near the incumbent; the best undisturbed try counts.

    `waited`: since it was last asked, the share of the threads' time in which they waited for a core.
    """
    tries: list[Timing] = []
    for again in range(1 + policy.retries):
        if again:
            pause(_PAUSE_SECONDS * 2 ** (again - 1))
        waited()
        found = time_kernel(loop, probe, policy, incumbent)
        mark = disturbed(found.probe_gflops, best_probe(), found.spread, waited())
        tries.append(replace(found, disturbed=mark))
        loser = incumbent is not None and found.seconds > policy.loser_ratio * incumbent
        if loser or not (mark or drifted(found.probe_gflops, best_probe())):
            break
    return min(tries, key=lambda timing: (timing.disturbed, timing.seconds))
