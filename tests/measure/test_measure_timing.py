"""The statistics, on a clock that the tests own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from autotune.measure.rounds import Moment
from autotune.measure.timing import (
    Patience,
    TimedLoop,
    Timing,
    TimingPolicy,
    doubted,
    interleave,
    kernel_seconds,
    latency,
    look_for_calm,
    settled,
    speedup,
    spread,
    time_beside,
    time_in_turn,
    time_kernel,
    time_steadily,
    uncertainty,
)

POLICY = TimingPolicy(rounds=4, most_rounds=8, compared_rounds=4, round_seconds=0.01, batch_seconds=0.01)


class FakeKernel:
    """A kernel of known speed; every batch may be disturbed."""

    def __init__(self, seconds: float, noise: tuple[float, ...] = (1.0,)) -> None:
        self.seconds, self.noise, self.calls = seconds, itertools.cycle(noise), []

    calls: list[tuple[int, int]]

    def __call__(self, number: int, batches: int) -> list[float]:
        self.calls.append((number, batches))
        return [self.seconds * next(self.noise) for _ in range(batches)]


class FakeGauge:
    """Looks as given, the last one for ever; the best that is known is 100 GFLOP/s, 4 GHz, and a load a cycle."""

    ghz = 4.0
    loads_a_cycle = 1.0

    def __init__(
        self,
        *looks: float,
        waited: tuple[float, ...] = (0.0,),
        clocks: tuple[float, ...] = (4.0,),
        loads: tuple[float, ...] = (1.0,),
    ) -> None:
        self._loads = itertools.chain(loads, itertools.repeat(loads[-1]))
        self._clocks = itertools.cycle(clocks)
        self._looks = itertools.chain(looks, itertools.repeat(looks[-1] if looks else 100.0))
        self._waited = itertools.chain(waited, itertools.repeat(waited[-1]))

    def look(self) -> Moment:
        ghz = next(self._clocks)
        return Moment(ghz, next(self._looks), ghz * next(self._loads), next(self._waited))

    def quiet(self, moment: Moment) -> bool:
        return moment.gflops >= 90 and moment.waited <= 0.1


def test_each_purpose_has_its_statistic() -> None:
    samples = [3.0, 1.0, 2.0]
    assert kernel_seconds(samples) == 1.0
    assert kernel_seconds([*map(float, range(8, 0, -1))]) == 2.0
    assert latency(samples) == 2.0
    assert spread(samples) == 1.0
    assert speedup(ours=0.5, peer=1.5) == 3.0


def test_batches_are_long_enough_for_the_clock_and_rounds_for_a_quiet_moment() -> None:
    policy = TimingPolicy()
    assert policy.batches(5e-6) == (8, 50)
    assert policy.batches(0.0007) == (3, 1)
    assert policy.batches(5.0) == (1, 1)
    assert policy.batches(0.0)[0] == 8


def test_noise_above_the_minimum_does_not_count() -> None:
    kernel = FakeKernel(0.001, (1.7, 1.0, 1.2, 1.0, 1.0, 1.0))
    timing = time_kernel(kernel, FakeGauge(), POLICY)
    assert timing.seconds == pytest.approx(0.001)
    assert (timing.batches, timing.number, timing.probe_gflops) == (4, 10, 100.0)
    assert not timing.disturbed
    assert kernel.calls == [(1, 2), *[(10, 1)] * 4]


def test_a_kernel_is_timed_at_the_best_clock_whatever_the_clock_is() -> None:
    for clock in (4.0, 3.8):
        kernel = FakeKernel(0.001 * 4.0 / clock)
        assert time_kernel(kernel, FakeGauge(clocks=(clock,)), POLICY).seconds == pytest.approx(0.001)


def test_one_misread_clock_does_not_count() -> None:
    policy = TimingPolicy(rounds=8, most_rounds=16, round_seconds=0.01, batch_seconds=0.01)
    clocks = (*[4.0] * 4, 3.6, *[4.0] * 12)
    timing = time_kernel(FakeKernel(0.001), FakeGauge(clocks=clocks), policy)
    assert timing.seconds == pytest.approx(0.001)


@pytest.mark.parametrize("clocks", [(0.01,), (0.01, 1.3), (4.0, 0.01), (1.3,)])
def test_looks_that_were_kept_from_their_cores_make_no_kernel_faster(clocks: tuple[float, ...]) -> None:
    timing = time_kernel(FakeKernel(0.001), FakeGauge(10.0, clocks=clocks), POLICY)
    assert timing.disturbed
    assert timing.seconds == pytest.approx(0.001)


def test_the_interval_of_a_time_grows_with_what_the_rounds_disagree_about() -> None:
    assert uncertainty([1.0]) == 0 and uncertainty([1.0] * 8) == 0
    assert uncertainty([1.0, 1.01, 1.02, 1.04, *[9.0] * 4]) == pytest.approx(0.04)
    assert uncertainty([0.5, *[1.0] * 15]) == 0, "one that is too fast is no news"


def test_a_kernel_that_has_lost_for_sure_need_not_be_known_well() -> None:
    policy = TimingPolicy(rounds=8, most_rounds=32, round_seconds=0.01, batch_seconds=0.01)

    def rounds(incumbent: float | None) -> int:
        kernel = FakeKernel(0.001, (1.0, 1.02, 1.02, 1.0, 1.02))
        time_kernel(kernel, FakeGauge(), policy, incumbent)
        return len(kernel.calls) - 1

    assert rounds(incumbent=0.00099) == policy.loser_rounds == 3
    assert rounds(incumbent=0.00101) == rounds(incumbent=None) > 8


def test_a_trial_is_rough_and_a_comparison_close() -> None:
    noise = (1.0, 1.015, 1.015)
    trial, compared = FakeKernel(0.001, noise), FakeKernel(0.001, noise)
    policy = TimingPolicy(round_seconds=0.01, batch_seconds=0.01)
    assert not time_kernel(trial, FakeGauge(), policy).disturbed
    assert not time_in_turn([compared], FakeGauge(), policy, 20)[0].disturbed
    assert len(trial.calls) - 1 == policy.rounds
    assert len(compared.calls) - 1 > policy.compared_rounds


def test_a_hopeless_kernel_is_measured_once() -> None:
    slow = FakeKernel(0.031)
    timing = time_kernel(slow, FakeGauge(), POLICY, incumbent=0.010)
    assert timing.seconds == pytest.approx(0.031) and not timing.disturbed
    assert slow.calls == [(1, 2)]


def test_losers_get_few_rounds_and_those_near_the_incumbent_all() -> None:
    def rounds(seconds: float, noise: tuple[float, ...] = (1.0,), incumbent: float | None = 0.010) -> int:
        kernel = FakeKernel(seconds, noise)
        time_kernel(kernel, FakeGauge(), POLICY, incumbent)
        return len(kernel.calls)

    assert rounds(0.029) == POLICY.loser_rounds == 3
    assert rounds(0.012) == POLICY.loser_rounds, "every one of them was slower"
    assert rounds(0.008) == rounds(0.010) == POLICY.rounds == 4
    assert rounds(0.029, incumbent=None) == 4  # nothing to lose against
    # A good kernel that was disturbed at first is timed on as soon as it shows.
    assert rounds(0.011, (1.5, 1.5, 1.4, 1.0)) > POLICY.loser_rounds


def test_time_limit_stops_the_rounds() -> None:
    kernel = FakeKernel(0.6)
    timing = time_kernel(kernel, FakeGauge(), POLICY)
    assert timing.batches == 4  # the estimate counts: it is a round of two batches
    assert not timing.disturbed


def test_only_quiet_rounds_count_and_more_of_them_are_looked_for() -> None:
    """The others seem faster here, as no real kernel does, to show that they are left out."""
    kernel = FakeKernel(0.001, (1.0, 1.0, 0.5, 0.5, *[1.0] * 8))
    timing = time_kernel(kernel, FakeGauge(100.0, 100.0, 80.0, 100.0), POLICY)
    assert len(kernel.calls) == 1 + 2 + POLICY.rounds
    assert timing.batches == POLICY.rounds and timing.seconds == pytest.approx(0.001)
    assert not timing.disturbed


def test_rounds_go_on_until_they_agree() -> None:
    """A single fast moment is luck."""
    kernel = FakeKernel(0.001, (*[1.2] * 4, 1.0, 1.2, *[1.0] * 9))
    assert time_kernel(kernel, FakeGauge(), POLICY).seconds == pytest.approx(0.001)
    assert len(kernel.calls) == 1 + 6


def test_what_is_disturbed_is_timed_again_after_a_pause() -> None:
    pauses: list[float] = []
    kernel = FakeKernel(0.001, (*[1.3] * 10, *[1.0] * 20))
    timing = time_steadily(kernel, FakeGauge(*[80.0] * 10, 100.0), POLICY, pause=pauses.append)
    assert timing.seconds == pytest.approx(0.001)
    assert len(pauses) == 1 and not timing.disturbed
    calm = FakeKernel(0.001)
    time_steadily(calm, FakeGauge(97.0), POLICY, pause=pauses.append)
    assert len(calm.calls) == 5 and len(pauses) == 1


def test_a_high_spread_is_timed_again_and_what_was_undisturbed_counts() -> None:
    """As when one reduce_mean was recorded as 22.2, 9.2 and 0.1 µs, with a spread of 2418 %."""
    kernel = FakeKernel(0.001, (*[1.0] * 4, 0.01, *[1.0] * 95))
    pauses: list[float] = []
    timing = time_steadily(kernel, FakeGauge(), POLICY, pause=pauses.append)
    assert timing.seconds == pytest.approx(0.001) and not timing.disturbed
    assert len(pauses) == 1


def test_what_stays_disturbed_is_marked_and_has_an_end() -> None:
    pauses: list[float] = []
    kernel = FakeKernel(0.001)
    timing = time_steadily(kernel, FakeGauge(80.0), POLICY, pause=pauses.append)
    assert timing.disturbed and timing.seconds == pytest.approx(0.001)
    assert len(pauses) == POLICY.retries and pauses == sorted(pauses)
    assert len(kernel.calls) == (1 + POLICY.retries) * (1 + POLICY.most_rounds)
    noisy = FakeKernel(0.001, (1.0, 3.0, 3.0))
    assert time_steadily(noisy, FakeGauge(), POLICY, pause=pauses.append).disturbed


def test_threads_that_waited_for_a_core_mark_what_loops_and_spread_do_not_show() -> None:
    """As with two threads, when another program holds one of two cores: every batch waits at the barrier alike."""
    pauses: list[float] = []
    timing = time_steadily(FakeKernel(0.001), FakeGauge(waited=(0.4, 0.0)), POLICY, pause=pauses.append)
    assert not timing.disturbed and not pauses, "that was before the first round"
    assert time_steadily(FakeKernel(0.001), FakeGauge(waited=(0.4,)), POLICY, pause=pauses.append).disturbed


def test_no_quiet_moment_is_waited_for_where_finalists_will_be_compared() -> None:
    pauses: list[float] = []
    for seconds in (0.01, 0.00099):
        timing = time_steadily(FakeKernel(seconds), FakeGauge(80.0), POLICY, 0.001, pauses.append)
        assert timing.disturbed and not pauses


def test_kernels_in_turn_go_on_until_each_is_known() -> None:
    def rounds(*noises: tuple[float, ...], looks: float = 100.0, most: int = 20) -> tuple[list[int], list[bool]]:
        kernels = [FakeKernel(0.001, noise) for noise in noises]
        found = time_in_turn(kernels, FakeGauge(looks), POLICY, most)
        return [len(kernel.calls) - 1 for kernel in kernels], [timing.disturbed for timing in found]

    assert rounds((1.0,), (1.0,)) == ([POLICY.rounds] * 2, [False] * 2)
    assert rounds((2.0,), (1.0,)) == ([POLICY.loser_rounds, POLICY.rounds], [False] * 2), "a trial's rule"
    noisy = (1.02, 1.01, 0.98, 1.0)
    assert rounds((1.0,), (1.0,), noisy) == ([POLICY.rounds, POLICY.rounds, 20], [False] * 3), "it may be the fastest"
    assert rounds((1.0,), looks=80.0) == ([20], [True])
    assert rounds((1.0,), most=2) == ([2], [False])
    assert time_in_turn([], FakeGauge(), POLICY, 20) == []


def test_what_makes_all_kernels_slower_for_a_while_does_not_count_between_them() -> None:
    """A host that is slow half of the time, for some turns each time, and spikes of single kernels."""
    rng = np.random.default_rng(0)
    slow, calls = np.repeat(np.where(rng.random(12) < 0.5, 1.7, 1.0), 2), [0] * 6

    def kernel(place: int) -> TimedLoop:
        def run(number: int, batches: int) -> list[float]:
            calls[place] += 1
            spike = 2.0 if rng.random() < 0.15 else 1.0
            return [
                0.001 * (1 + place / 50) * slow[min(calls[place] - 2, 23)] * spike * rng.uniform(1, 1.005)
            ] * batches

        return run

    policy = replace(POLICY, compared_rounds=16)
    found = [timing.seconds for timing in time_in_turn([kernel(n) for n in range(6)], FakeGauge(), policy, 24)]
    assert found == pytest.approx([0.001 * (1 + place / 50) for place in range(6)], rel=0.01)


@pytest.mark.parametrize("pace", [1.0, 1.7])
def test_a_trial_beside_a_yardstick_is_not_slow_where_both_are(pace: float) -> None:
    trial, yardstick = FakeKernel(0.002 * pace), FakeKernel(0.001 * pace)
    timing, taken = time_beside(trial, yardstick, 0.001, FakeGauge(), POLICY)
    assert timing.seconds == pytest.approx(0.002) and not timing.disturbed
    assert [one.seconds for one in taken] == pytest.approx([0.001 * pace] * POLICY.paired_rounds)
    assert len(trial.calls) - 1 == len(yardstick.calls) == POLICY.paired_rounds


def test_a_trial_that_has_lost_gets_fewer_turns_beside_the_yardstick() -> None:
    def turns(incumbent: float | None) -> int:
        yardstick = FakeKernel(0.001)
        time_beside(FakeKernel(0.002), yardstick, 0.001, FakeGauge(), replace(POLICY, paired_rounds=5), incumbent)
        return len(yardstick.calls)

    losers = POLICY.loser_rounds
    assert [turns(None), turns(0.0021), turns(0.0019), turns(0.001), turns(0.0005)] == [5, 5, losers, losers, 1]


def test_a_time_that_is_not_to_be_compared_takes_more_and_longer_turns() -> None:
    policy, yardstick = POLICY.without_incumbent(), FakeKernel(0.001)
    time_beside(FakeKernel(0.002), yardstick, 0.001, FakeGauge(), policy)
    assert len(yardstick.calls) == POLICY.single_rounds > POLICY.paired_rounds
    assert policy.round_seconds == POLICY.single_seconds


@pytest.mark.parametrize(("noisy", "slow"), [("trial", 5), ("yardstick", 3)])
def test_turns_beside_a_yardstick_go_on_until_they_agree(noisy: str, slow: int) -> None:
    def timed(noise: tuple[float, ...]) -> tuple[Timing, int]:
        trial = FakeKernel(0.002, noise if noisy == "trial" else (1.0,))
        other = FakeKernel(0.001, noise if noisy == "yardstick" else (1.0,))
        timing, _ = time_beside(trial, other, 0.001, FakeGauge(), POLICY)
        return timing, len(other.calls)

    settled, turns = timed((1.2,) * slow + (1.0,) * 1000)
    assert not settled.disturbed and POLICY.paired_rounds < turns < POLICY.most_paired
    never, turns = timed(tuple(1.0 + 0.1 * (number % 7) for number in range(1000)))
    assert never.disturbed and turns == POLICY.most_paired


def test_turns_beside_a_yardstick_count_where_both_were_quiet() -> None:
    never, taken = time_beside(FakeKernel(0.002), FakeKernel(0.001), 0.001, FakeGauge(80.0), POLICY)
    assert never.disturbed and never.seconds == pytest.approx(0.002) and taken == []
    # The first look is before the first round, and a turn has two more.
    late = FakeGauge(100.0, 100.0, 80.0, 80.0, 100.0, 100.0)
    trial = FakeKernel(0.002, noise=(1.0, 1.0, 3.0, 3.0, 1.0))
    found, taken = time_beside(trial, FakeKernel(0.001), 0.001, late, POLICY)
    assert found.seconds == pytest.approx(0.002) and not found.disturbed
    assert len(taken) == POLICY.paired_rounds and len(trial.calls) - 1 == POLICY.paired_rounds + 2


def test_turns_beside_a_yardstick_count_where_both_were_calm() -> None:
    # A neighbour comes after two turns and slows the yardstick, then the trial, never both in one turn.
    loads = (1.0,) * 7 + (0.92,) * 100
    slow = (
        FakeKernel(0.002, noise=(1.0,) * 5 + (1.1,) * 100),
        FakeKernel(0.001, noise=(1.0,) * 3 + (1.1,) * 2 + (1.0,) * 100),
    )
    found, taken = time_beside(*slow, 0.001, FakeGauge(loads=loads), POLICY)
    assert found.seconds == pytest.approx(0.002) and not found.disturbed
    assert {one.loads_a_cycle for one in taken} == {1.0, 0.92}
    # Where no turn is calm, the quiet ones count.
    found, _ = time_beside(FakeKernel(0.0022), FakeKernel(0.0011), 0.001, FakeGauge(loads=(0.92,)), POLICY)
    assert found.seconds == pytest.approx(0.002) and not found.disturbed


def test_kernels_in_turn_alternate_direction() -> None:
    order: list[str] = []

    def loop(name: str) -> TimedLoop:
        def run(number: int, batches: int) -> list[float]:
            order.append(name)
            return [0.01] * batches

        return run

    time_in_turn([loop("a"), loop("b")], FakeGauge(), POLICY, 3)
    assert "".join(order) == "ab" + "abbaab"


def test_interleaving_alternates_direction() -> None:
    order: list[str] = []

    def contender(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    samples = interleave([lambda: contender("a", 1.0), lambda: contender("b", 2.0)], rounds=3)
    assert samples == [[1.0] * 3, [2.0] * 3]
    assert "".join(order) == "abbaab"


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 1), (2.5, 3)])
def test_interleaving_for_a_time_finishes_the_rounds_that_it_began(seconds: float, rounds: int) -> None:
    ticks = itertools.count()
    assert interleave([lambda: 1.0], 99, seconds, lambda: float(next(ticks))) == [[1.0] * rounds]


def test_where_it_is_never_quiet_a_try_ends_early() -> None:
    kernel = FakeKernel(0.001)
    timing = time_kernel(kernel, FakeGauge(80.0), TimingPolicy(rounds=8, most_rounds=32))
    assert timing.disturbed and len(kernel.calls) == 16


def test_patience_ends_where_nothing_helps_and_comes_back() -> None:
    patience = Patience()

    def tries(gauge: FakeGauge) -> int:
        pauses: list[float] = []
        time_steadily(FakeKernel(0.001), gauge, POLICY, pause=pauses.append, patience=patience)
        return 1 + len(pauses)

    assert [tries(FakeGauge(80.0)) for _ in range(4)] == [1 + POLICY.retries] * 4
    assert [tries(FakeGauge(80.0)) for _ in range(8)] == [1] * 7 + [1 + POLICY.retries]
    assert [tries(FakeGauge()) for _ in range(2)] == [1, 1]
    assert [tries(FakeGauge(*[80.0] * 9, 100.0)) for _ in range(8)] == [1] * 7 + [2]
    assert tries(FakeGauge(*[80.0] * 9, 100.0)) == 2, "it helped"


@pytest.mark.parametrize(
    ("times", "incumbent", "wanted"),
    [
        ((2.0,), 1.5, 2.0),  # no winner
        ((1.0, 1.6), 1.5, 1.6),  # it was luck
        ((1.0, 1.4, 1.3), 1.5, 1.4),
        ((1.0, 1.4, 1.9), 1.5, 1.9),
    ],
)
def test_a_trial_that_would_be_the_best_is_timed_again(
    times: tuple[float, ...], incumbent: float, wanted: float
) -> None:
    left = [Timing(seconds, 0.0, 4, 1, 100.0) for seconds in times[::-1]]
    assert doubted(left.pop, incumbent, FakeGauge()).seconds == wanted and not left


@pytest.mark.parametrize(
    ("times", "disturbed", "wanted", "marked"),
    [
        ((1.02, 1.0, 1.01), (), 1.01, False),
        ((1.0, 1.01, 1.2), (), 1.01, True),  # they disagree, however sure each is
        ((1.0, 1.3, 1.01), (1,), 1.0, False),  # of two the better
        ((1.3, 1.0, 1.2), (0, 2), 1.0, False),  # one that was quiet is enough
        ((1.1, 1.0, 1.05), (0, 1, 2), 1.05, True),
    ],
)
def test_a_result_is_the_middle_of_three_times(
    times: tuple[float, ...], disturbed: tuple[int, ...], wanted: float, marked: bool
) -> None:
    left = [Timing(one, 0.0, 4, 1, 100.0, disturbed=place in disturbed) for place, one in enumerate(times)][::-1]
    pauses: list[float] = []
    found = settled(left.pop, 1.0, pauses.append)
    assert (found.seconds, found.disturbed) == (wanted, marked)
    assert len(pauses) == 2 and not left


def test_a_result_that_takes_long_is_taken_once() -> None:
    clock = iter((0.0, 2.0)).__next__
    once = iter((Timing(0.4, 0.0, 4, 1, 100.0),)).__next__
    assert settled(once, 1.0, lambda seconds: None, clock).seconds == 0.4


def test_a_disturbed_trial_wins_nothing_and_a_disturbed_second_one_says_nothing() -> None:
    disturbed = Timing(1.0, 0.0, 4, 1, 100.0, disturbed=True)
    assert doubted(lambda: disturbed, 1.5, FakeGauge()) == disturbed
    left = [Timing(1.2, 0.0, 4, 1, 100.0), replace(disturbed, seconds=3.0), Timing(1.1, 0.0, 4, 1, 100.0)]
    assert doubted(left.pop, 1.5, FakeGauge()).seconds == 1.2


def test_what_would_be_the_best_is_timed_again_in_calm_moments_and_those_count() -> None:
    def timed(seconds: float, loads: float) -> Timing:
        return Timing(seconds, 0.0, 4, 1, 100.0, loads_a_cycle=loads)

    waits: list[None] = []
    left = [timed(1.2, 1.0), timed(1.1, 1.0), timed(1.3, 0.92)][::-1]
    assert doubted(lambda: left.pop(0), 1.5, FakeGauge(), lambda: waits.append(None)).seconds == 1.2
    assert len(waits) == 2
    left = [timed(seconds, 0.92) for seconds in (1.2, 1.1, 1.3)]
    assert doubted(left.pop, 1.5, FakeGauge()).seconds == 1.3


@pytest.mark.parametrize(
    ("seconds", "pace", "marked"),
    [
        (1.2, 1.02, False),
        (1.2, 1.2, False),  # it was faster than the best though all was slow
        (1.2, 1.3, True),
        (1.4, 1.1, True),
    ],
)
def test_what_is_the_best_by_its_correction_alone_is_marked(seconds: float, pace: float, marked: bool) -> None:
    timing = Timing(seconds, 0.0, 4, 1, 100.0, pace=pace)
    found = doubted(lambda: timing, 1.5, FakeGauge())
    assert (found.seconds, found.disturbed) == (seconds, marked)


def test_a_calm_moment_is_waited_for_no_longer_than_was_said() -> None:
    pauses: list[float] = []
    assert look_for_calm(FakeGauge(loads=(0.9, 0.9, 1.0)), 5, pauses.append) and len(pauses) == 2
    assert not look_for_calm(FakeGauge(loads=(0.9,)), 5, pauses.append) and len(pauses) == 7
