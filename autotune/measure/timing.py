"""One clock, one statistic per purpose. Whoever turns samples into a number does it here.

- A round of a kernel takes the *minimum* of its batches, at the usual clock: what others do only adds time, and the
  clock, which nobody here governs, moves all kernels alike. A kernel's time is the *lower quartile* of its rounds: a
  minimum would follow the one round whose clock was misread (ADR 0017).
- A model's latency is the *median* of interleaved rounds: what a user sees.
- A speed-up is peer time / our time, both from the same interleaved rounds; where a decision hangs on it, the median
  of the rounds' ratios with its interval (`Ratio`). Kernels that are timed in turn are compared likewise: by the
  *median* of their rounds, of each what it took by what the turn it was in did to all of them (`levels`). A trial of a
  task of which others were made is timed in turn with one of them, and its time is the ratio of both quartiles, times
  what the other takes in calm times (`yardstick`). Without an incumbent it is the middle of three such (`settled`).
- Spread says how much to trust a number: how far the median lies above the minimum, relative to the minimum.

Batches are short and follow each other in compiled code, so that some of them fall between two disturbances. A few
make a round, and between rounds a gauge looks at the machine. Only quiet rounds count while there are any: those with
good looks on both sides, in which nobody waited for a core. A trial goes on until it has enough of them, up to a limit;
one that has not is timed again, after a pause for whoever it was to be gone. What still looks disturbed then is marked,
so that it never counts more than what was measured in quiet.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from autotune.measure.levels import slowness
from autotune.measure.rounds import GaugeLike, Round, Taken, is_calm

Sample = TypeVar("Sample")

# Runs so many batches of so many calls each, one after the other in compiled code: seconds per call of each batch.
TimedLoop = Callable[[int, int], Sequence[float]]

HIGH_SPREAD = 0.5
"""Of batches, beyond which their minimum is luck; records know it by the same number."""
_CLOSE = 0.01  # uncertainty of a kernel's time among others in turn; with more, further rounds are tried
_ROUGH = 0.02  # of a trial: between one trial and the next, others move a kernel's time by as much
_MARKED_UNCERTAIN = 0.03  # with more, in the end, the time is marked; of one of many, beside a yardstick, it is enough
_PAUSE_SECONDS = 0.05  # before a trial is timed again, and twice as long before the next time
_SETTLED = 3  # times, of which the middle one is a result that is not one of many
_BETWEEN_LOOKS = 0.002  # seconds: neighbours stay for longer
_NEVER_QUIET = 2  # times the rounds wanted, of which none was quiet: there will be none in this try
_IN_VAIN = 4  # trials in a row that were timed again for nothing; then
_SELDOM = 8  # only every so many are, to see whether it has become quiet


def kernel_seconds(rounds: Sequence[float]) -> float:
    """The time of a kernel from the seconds of its rounds; of four or fewer, the best."""
    return sorted(rounds)[(len(rounds) - 1) // 4]


def interval(rounds: Sequence[float]) -> tuple[float, float]:
    """Within which `kernel_seconds` lies whatever the times are like: from the octile to the median of the rounds, at
    least four times in five with eight of them, and oftener with more."""
    ordered, last = sorted(rounds), len(rounds) - 1
    return ordered[last // 8], ordered[last // 2]


def uncertainty(rounds: Sequence[float]) -> float:
    """How wide the `interval` of some rounds is, relative to its lower end."""
    low, high = interval(rounds)
    return high / low - 1


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


def interleave(
    contenders: Sequence[Callable[[], Sample]],
    rounds: int,
    seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[Sample]]:
    """Call each contender once per round, in turn; its samples. Every other round goes backwards, so that no
    contender always runs after the same neighbour.

    Args:
        seconds: as many rounds as begin in that time, one at least, instead of `rounds`.
    """
    samples: list[list[Sample]] = [[] for _ in contenders]
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
        rounds: how many quiet rounds a trial's time is taken from.
        most_rounds: how many rounds it may take to find them, and for them to agree.
        paired_rounds: how many turns with a yardstick in which both were quiet it is taken from instead.
        most_paired: how many turns it may take to find them, and for them to agree.
        single_rounds: how many turns with a yardstick where there is no incumbent: the time is the result, not one of
            many from which the best is chosen and timed again. It may take twice as many.
        single_seconds: about how long a round lasts then.
        compared_rounds: how many quiet ones of each kernel that is timed in turn with others.
        round_seconds: about how long a round lasts: its batches, one at least.
        batch_seconds: a batch repeats the kernel until it lasts about this long, so that the clock's resolution and
            the loop's start do not matter.
        max_seconds: stop early, after at least one round, when all of them together take longer.
        abort_ratio: a kernel this many times slower than the incumbent gets one round.
        loser_ratio: one this many times slower gets `loser_rounds`, and so does one that is slower for sure: noise
            that only adds time does not hide a winner behind that many of them.
        retries: how often a comparison, or a first trial, that is disturbed is timed again.
    """

    rounds: int = 5
    most_rounds: int = 16
    paired_rounds: int = 4
    most_paired: int = 8
    single_rounds: int = 16
    single_seconds: float = 0.005
    compared_rounds: int = 8
    round_seconds: float = 0.002
    batch_seconds: float = 0.00025
    max_seconds: float = 1.0
    abort_ratio: float = 3.0
    loser_ratio: float = 1.3
    loser_rounds: int = 3
    retries: int = 2

    def batches(self, one_call: float) -> tuple[int, int]:
        """How many batches a round of a kernel has that takes so many seconds, and of how many calls each."""
        number = max(1, round(self.batch_seconds / max(one_call, 1e-9)))
        return max(1, round(self.round_seconds / max(number * one_call, self.batch_seconds))), number

    def without_incumbent(self) -> TimingPolicy:
        """For a kernel that is timed in turn with a yardstick, but not to be compared with others."""
        return replace(
            self,
            paired_rounds=self.single_rounds,
            most_paired=2 * self.single_rounds,
            round_seconds=self.single_seconds,
        )

    def deserved(self, seconds: float, incumbent: float | None, rounds: int) -> int:
        """How many quiet rounds a kernel gets that took so long until now, of those that others get."""
        if incumbent is None or seconds <= self.loser_ratio * incumbent:
            return rounds
        return min(rounds, 1 if seconds > self.abort_ratio * incumbent else self.loser_rounds)


@dataclass(frozen=True, slots=True)
class Timing:
    """`seconds` per call (from `batches` batches of `number` calls), their spread, and the best look's GFLOP/s.

    `disturbed`: by others, as far as the rounds can tell. `loads_a_cycle`: what a core gave beside it. `pace`: how many
    times as long as in calm times the yardstick took beside it, by which `seconds` is corrected.
    """

    seconds: float
    spread: float
    batches: int
    number: int
    probe_gflops: float
    disturbed: bool = False
    loads_a_cycle: float = math.inf
    pace: float = 1.0

    @staticmethod
    def of(
        rounds: Sequence[Round],
        number: int,
        gauge: GaugeLike,
        wanted: int,
        statistic: Callable[[Sequence[float]], float] = kernel_seconds,
    ) -> Timing:
        """What the quiet ones of some rounds say, or, marked as disturbed, all of them.

        Args:
            statistic: of the rounds, that is the time.
            wanted: how many should be quiet. With less than half of them, or when they, or the batches, disagree, it is
                disturbed.
        """
        good = [found for found in rounds if found.quiet(gauge)]
        counted = [found.at(gauge.ghz) for found in good or rounds]
        best = [min(batches) for batches in counted]
        batches = [seconds for batches in counted for seconds in batches]
        probe = max(moment.gflops for found in rounds for moment in (found.before, found.after))
        disagree = spread(batches)
        few = 2 * len(good) < min(wanted, len(rounds))
        mark = few or uncertainty(best) > _MARKED_UNCERTAIN or disagree > HIGH_SPREAD
        loads = statistics.median(found.loads_a_cycle for found in good or rounds)
        return Timing(float(statistic(best)), disagree, len(batches), number, probe, mark, loads)


def needed(
    quiet: Sequence[float], incumbent: float | None, policy: TimingPolicy, wanted: int, allowed: float
) -> tuple[int, float]:
    """How many quiet rounds a kernel has to have, and how uncertain they may leave it: less is needed where those there
    are show that it is slower than the incumbent for sure.

    Args:
        wanted: how many where it may be the fastest, and `allowed`, how uncertain then.
    """
    if has_lost(quiet, incumbent):
        return min(wanted, policy.loser_rounds), _MARKED_UNCERTAIN
    return wanted, allowed


def has_lost(quiet: Sequence[float], incumbent: float | None) -> bool:
    """Whether a kernel's quiet rounds show that it is slower than the incumbent, whatever its time is."""
    return bool(quiet) and incumbent is not None and interval(quiet)[0] > incumbent


def time_kernel(loop: TimedLoop, gauge: GaugeLike, policy: TimingPolicy, incumbent: float | None = None) -> Timing:
    """Time a kernel that has run before (code and data are as warm as they will be).

    A kernel clearly slower than the incumbent gets fewer rounds: its time is then rough, and enough. One that is slower
    for sure, if only by a little, need not be known as well as one that may be the best.
    """
    moment = gauge.look()

    def timed(number: int, batches: int) -> Round:
        nonlocal moment
        before, samples = moment, tuple(loop(number, batches))
        moment = gauge.look()
        return Round(samples, before, moment)

    first = timed(1, 2)
    best, spent = min(first.batches), 0.0
    batches, number = policy.batches(best)
    rounds = [first] if number == 1 else []
    while True:
        quiet = [min(found.at(gauge.ghz)) for found in rounds if found.quiet(gauge)]
        wanted = policy.deserved(best, incumbent, policy.rounds)
        most = policy.most_rounds if wanted == policy.rounds else wanted
        least, allowed = needed(quiet, incumbent, policy, wanted, _ROUGH)
        enough = len(quiet) >= least and uncertainty(quiet) <= allowed
        vain = not quiet and len(rounds) >= _NEVER_QUIET * wanted
        if rounds and (enough or vain or len(rounds) >= most or spent >= policy.max_seconds):
            return Timing.of(rounds, number, gauge, least)
        rounds.append(timed(number, batches))
        spent += number * sum(rounds[-1].batches)
        best = min(best, *rounds[-1].batches)


def time_beside(
    loop: TimedLoop,
    yardstick: TimedLoop,
    calm: float,
    gauge: GaugeLike,
    policy: TimingPolicy,
    incumbent: float | None = None,
) -> tuple[Timing, list[Taken]]:
    """Time a kernel in turn with another of its task, both of which have run before.

    What the host does to both for a while says nothing about the kernel: its time is what it takes of the other's, so
    that few turns are enough. Calm turns count alone where there are as many as a loser gets: a neighbour who comes and
    goes would make one slow and not the other.

    Args:
        calm: seconds that the yardstick takes in calm times.

    Returns:
        the time as it is in calm times; what the yardstick took in turns in which both were quiet.
    """
    loops, shapes = (loop, yardstick), (policy.batches(min(loop(1, 2))), policy.batches(calm))
    moment, turns, spent = gauge.look(), list[tuple[Round, Round]](), 0.0
    # More turns bring one of many no nearer to what comparisons say: what is left differs from run to run (ADR 0017).
    allowed = _ROUGH if incumbent is None else _MARKED_UNCERTAIN

    def timed(place: int) -> Round:
        nonlocal moment, spent
        batches, number = shapes[place]
        before, samples = moment, tuple(loops[place](number, batches))
        moment, spent = gauge.look(), spent + number * sum(samples)
        return Round(samples, before, moment)

    while True:
        places = (0, 1) if len(turns) % 2 == 0 else (1, 0)
        pair = dict(zip(places, map(timed, places)))
        turns.append((pair[0], pair[1]))
        quiet = [turn for turn in turns if all(one.quiet(gauge) for one in turn)]
        alone = [turn for turn in quiet if all(is_calm(one.loads_a_cycle, gauge) for one in turn)]
        ours, others = zip(*(alone if len(alone) >= policy.loser_rounds else quiet or turns))
        taken = [min(one.at(gauge.ghz)) for one in others]
        pace = kernel_seconds(taken) / calm
        found = [min(one.at(gauge.ghz)) / pace for one in ours]
        seconds = kernel_seconds(found)
        wanted = policy.deserved(seconds, incumbent, policy.paired_rounds)
        most = policy.most_paired if wanted == policy.paired_rounds else 2 * wanted
        lost = has_lost(found if quiet else (), incumbent)  # which is known, however rough its time is
        least = min(wanted, policy.loser_rounds) if lost else wanted
        uncertain = 0.0 if lost else max(uncertainty(found), uncertainty(taken))
        enough = len(quiet) >= least and uncertain <= allowed
        vain = not quiet and len(turns) >= _NEVER_QUIET * wanted
        if enough or vain or len(turns) >= most or spent >= policy.max_seconds:
            break
    batches = [batch for one in ours for batch in one.at_pace(pace).at(gauge.ghz)]
    probe = max(moment.gflops for turn in turns for one in turn for moment in (one.before, one.after))
    mark = 2 * len(quiet) < least or uncertain > _MARKED_UNCERTAIN or spread(batches) > HIGH_SPREAD
    loads = statistics.median(one.loads_a_cycle for one in ours)
    timing = Timing(seconds, spread(batches), len(batches), shapes[0][1], probe, mark, loads, pace)
    return timing, [Taken(min(other.at(gauge.ghz)), other.loads_a_cycle) for _, other in quiet]


def doubted(
    once: Callable[[], Timing],
    incumbent: float,
    gauge: GaugeLike,
    await_calm: Callable[[], None] = lambda: None,
) -> Timing:
    """A trial's time, taken again where it would be the best of its task: the fastest of hundreds owes part of its lead
    to luck. A second time that is no better than the incumbent's stands; else the slowest of three does, of those that
    were calm if any was: a neighbour slows some kernels more than others, and so the yardstick perhaps more than this.
    Where only its correction by a slow yardstick makes it the best, it is marked: programs beside have made kernels
    seem a fifth faster than the multiply-adds allow.

    Args:
        await_calm: called before each further time.
    """
    first = once()
    if first.disturbed or first.seconds >= incumbent:
        return first
    await_calm()
    second = once()
    if second.seconds >= incumbent and not second.disturbed:
        return second
    await_calm()
    quiet = [timing for timing in (first, second, once()) if not timing.disturbed]
    calm = [timing for timing in quiet if is_calm(timing.loads_a_cycle, gauge)]
    found = max(calm or quiet, key=lambda timing: timing.seconds)
    proven = found.pace <= 1 + _MARKED_UNCERTAIN or found.seconds * found.pace < incumbent
    return found if proven else replace(found, disturbed=True)


def settled(
    once: Callable[[], Timing],
    max_seconds: float,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Timing:
    """The middle of a few times of a kernel, for one that is the result itself: what moves a kernel's time may stay for
    longer than one takes, and then its rounds agree. Those that are not disturbed count alone where there is one. Where
    these are further apart than one may be uncertain, it is marked.

    Args:
        max_seconds: no further time is taken after so many.
        pause: called with seconds between one and the next.
    """
    start, found = clock(), [once()]
    while len(found) < _SETTLED and clock() - start < max_seconds:
        pause(_PAUSE_SECONDS)
        found.append(once())
    good = [timing for timing in found if not timing.disturbed] or found
    ordered = sorted(good, key=lambda timing: timing.seconds)
    apart = ordered[-1].seconds / ordered[0].seconds - 1
    middle = ordered[(len(ordered) - 1) // 2]
    return replace(middle, disturbed=middle.disturbed or apart > _MARKED_UNCERTAIN)


def look_for_calm(gauge: GaugeLike, looks: int, pause: Callable[[float], None] = time.sleep) -> bool:
    """Looks at the machine until the core has no neighbour, so often at most; whether it came to that."""
    for _ in range(looks):
        if is_calm(gauge.look().loads_a_cycle, gauge):
            return True
        pause(_BETWEEN_LOOKS)
    return False


def time_in_turn(loops: Sequence[TimedLoop], gauge: GaugeLike, policy: TimingPolicy, most: int) -> list[Timing]:
    """Time kernels that have run before, a round of each in turn.

    Each goes on until it is known, with the fastest of the others as the incumbent: better than by a trial of its own,
    since what moves the times of all does not matter here.

    Args:
        most: rounds of each, at most.
    """
    wanted = min(policy.compared_rounds, most)
    shapes = [policy.batches(min(loop(1, 2))) for loop in loops]
    taken: list[dict[int, Round]] = [{} for _ in loops]
    least = [wanted for _ in loops]
    moment, number_of_turn = gauge.look(), 0

    def turn(place: int) -> None:
        nonlocal moment
        batches, number = shapes[place]
        before, samples = moment, tuple(loops[place](number, batches))
        moment = gauge.look()
        taken[place][number_of_turn] = Round(samples, before, moment)

    def goes_on(place: int, quiet: Sequence[Sequence[float]]) -> bool:
        fastest = min((statistics.median(found) for found in quiet if found), default=None)
        least[place], allowed = needed(quiet[place], fastest, policy, wanted, _CLOSE)
        enough = len(quiet[place]) >= least[place] and uncertainty(quiet[place]) <= allowed
        return len(taken[place]) < most and not enough

    while True:
        rounds = _levelled(taken, gauge.ghz)
        quiet = [[min(one.at(gauge.ghz)) for one in found if one.quiet(gauge)] for found in rounds]
        left = [place for place in range(len(loops)) if goes_on(place, quiet)]
        if not left:
            break
        for place in left if number_of_turn % 2 == 0 else left[::-1]:
            turn(place)
        number_of_turn += 1
    return [
        Timing.of(found, number, gauge, enough, statistics.median)
        for found, (_, number), enough in zip(rounds, shapes, least, strict=True)
    ]


def _levelled(taken: Sequence[Mapping[int, Round]], ghz: float) -> list[list[Round]]:
    """The rounds of each kernel, by turn, as they would have been in calm turns."""
    turns = max((turn for rounds in taken for turn in rounds), default=-1) + 1
    seconds = np.full((len(taken), turns), np.nan)
    for place, rounds in enumerate(taken):
        for turn, one in rounds.items():
            seconds[place, turn] = min(one.at(ghz))
    slow = slowness(seconds) if turns else ()
    return [[one.at_pace(float(slow[turn])) for turn, one in rounds.items()] for rounds in taken]


class Patience:
    """Whether to time again what was disturbed: as long as that helps now and then."""

    def __init__(self) -> None:
        self._vain = self._passed = 0

    def again(self) -> bool:
        """Asked once for each trial that was disturbed."""
        if self._vain < _IN_VAIN:
            return True
        self._passed = (self._passed + 1) % _SELDOM
        return self._passed == 0

    def learn(self, helped: bool) -> None:
        """Takes it into account what became of a trial that was timed again."""
        self._vain = 0 if helped else self._vain + 1


def time_steadily(
    loop: TimedLoop,
    gauge: GaugeLike,
    policy: TimingPolicy,
    incumbent: float | None = None,
    pause: Callable[[float], None] = time.sleep,
    patience: Patience | None = None,
) -> Timing:
    """`time_kernel`, again while it is disturbed and there is no incumbent, for which it may have to serve; the best
    undisturbed try counts. Any other that may be the best will be timed in turn with the best, disturbed or not.

    Args:
        patience: of all trials of a runner; None times every one again.
    """

    def over(timing: Timing) -> bool:
        return not timing.disturbed or incumbent is not None

    tries = patiently(lambda: time_kernel(loop, gauge, policy, incumbent), over, policy, pause, patience)
    return min(tries, key=lambda timing: (timing.disturbed, timing.seconds))


def patiently(
    attempt: Callable[[], Sample],
    over: Callable[[Sample], bool],
    policy: TimingPolicy,
    pause: Callable[[float], None] = time.sleep,
    patience: Patience | None = None,
) -> list[Sample]:
    """What attempts found until it was `over`: further ones follow after pauses, in which whoever disturbs may go."""
    tries = [attempt()]
    if not over(tries[-1]) and (patience is None or patience.again()):
        for again in range(policy.retries):
            pause(_PAUSE_SECONDS * 2**again)
            tries.append(attempt())
            if over(tries[-1]):
                break
        if patience is not None:
            patience.learn(over(tries[-1]))
    return tries
