"""The statistics, on a clock that the tests own."""

from __future__ import annotations

import itertools

import pytest

from autotune.measure.timing import (
    TimingPolicy,
    calls_per_batch,
    disturbed,
    drifted,
    interleave,
    kernel_seconds,
    latency,
    speedup,
    spread,
    time_kernel,
    time_steadily,
)

POLICY = TimingPolicy(batches=4, min_batch_seconds=0.01, max_seconds=1.0)


class FakeKernel:
    """A kernel of known speed; every batch may be disturbed."""

    def __init__(self, seconds: float, noise: tuple[float, ...] = (1.0,)) -> None:
        self.seconds, self.noise, self.calls = seconds, noise, []

    calls: list[int]

    def __call__(self, number: int) -> float:
        self.calls.append(number)
        return number * self.seconds * self.noise[len(self.calls) % len(self.noise)]


def test_each_purpose_has_its_statistic() -> None:
    samples = [3.0, 1.0, 2.0]
    assert kernel_seconds(samples) == 1.0
    assert latency(samples) == 2.0
    assert spread(samples) == 1.0
    assert speedup(ours=0.5, peer=1.5) == 3.0


def test_batches_are_long_enough_for_the_clock() -> None:
    assert calls_per_batch(0.0003, POLICY) == 33
    assert calls_per_batch(5.0, POLICY) == 1
    assert calls_per_batch(0.0, POLICY) == 10**7


def test_noise_above_the_minimum_does_not_count() -> None:
    kernel = FakeKernel(0.001, (1.0, 1.7, 1.2))
    timing = time_kernel(kernel, lambda: 100.0, POLICY)
    assert timing.seconds == pytest.approx(0.001)
    assert (timing.batches, timing.number, timing.probe_gflops) == (4, 8, 100.0)
    assert timing.spread > 0.05
    assert kernel.calls == [1, 1, 8, 8, 8, 8]


def test_a_hopeless_kernel_is_measured_once() -> None:
    slow = FakeKernel(0.031)
    timing = time_kernel(slow, lambda: 100.0, POLICY, incumbent=0.010)
    assert timing.batches == 1
    assert timing.seconds == pytest.approx(0.031)
    assert slow.calls == [1, 1]


def test_losers_get_few_batches_and_those_near_the_incumbent_all() -> None:
    def batches(seconds: float, noise: tuple[float, ...] = (1.0,)) -> int:
        return time_kernel(FakeKernel(seconds, noise), lambda: 100.0, POLICY, incumbent=0.010).batches

    assert batches(0.029) == POLICY.loser_batches == 3
    assert batches(0.012) == batches(0.008) == POLICY.batches == 4
    assert time_kernel(FakeKernel(0.029), lambda: 100.0, POLICY).batches == 4  # nothing to lose against
    # A good kernel that was disturbed at first is timed on as soon as it shows.
    assert batches(0.011, (1.5, 1.5, 1.4, 1.0)) == 4


def test_time_limit_stops_the_batches() -> None:
    kernel = FakeKernel(0.6)
    assert time_kernel(kernel, lambda: 100.0, POLICY).batches == 3  # the estimate counts: it is a batch of one


def test_drift_is_timed_again_and_the_faster_try_counts() -> None:
    assert drifted(94.0, 100.0)
    assert not drifted(96.0, 100.0)
    probes = iter([80.0] * 5 + [100.0] * 5)
    kernel = FakeKernel(0.001, (1.3,) * 7 + (1.0,) * 6)
    pauses: list[float] = []
    timing = time_steadily(kernel, lambda: next(probes), POLICY, lambda: 100.0, pause=pauses.append)
    assert timing.probe_gflops == 100.0
    assert timing.seconds == pytest.approx(0.001)
    assert len(kernel.calls) == 12
    assert len(pauses) == 1 and not timing.disturbed
    calm = FakeKernel(0.001)
    time_steadily(calm, lambda: 99.0, POLICY, lambda: 100.0, pause=pauses.append)
    assert len(calm.calls) == 6 and len(pauses) == 1


def test_a_high_spread_is_timed_again_and_what_was_undisturbed_counts() -> None:
    """As when one reduce_mean was recorded as 22.2, 9.2 and 0.1 µs, with a spread of 2418 %."""
    kernel = FakeKernel(0.001, (*[1.0] * 4, 0.01, *[1.0] * 15))
    pauses: list[float] = []
    timing = time_steadily(kernel, lambda: 100.0, POLICY, lambda: 100.0, pause=pauses.append)
    assert timing.seconds == pytest.approx(0.001) and not timing.disturbed
    assert len(pauses) == 1


def test_what_stays_disturbed_is_marked_and_has_an_end() -> None:
    pauses: list[float] = []
    timing = time_steadily(FakeKernel(0.001), lambda: 80.0, POLICY, lambda: 100.0, pause=pauses.append)
    assert timing.disturbed
    assert len(pauses) == POLICY.retries and pauses == sorted(pauses)
    noisy = FakeKernel(0.001, (1.0, 3.0, 3.0))
    assert time_steadily(noisy, lambda: 100.0, POLICY, lambda: 100.0, pause=pauses.append).disturbed


def test_threads_that_waited_for_a_core_mark_what_probe_and_spread_do_not_show() -> None:
    """As with two threads, when another program holds one of two cores: every batch waits at the barrier alike."""
    pauses: list[float] = []
    shares = iter([0.0, 0.4, 0.2, 0.0])
    timing = time_steadily(
        FakeKernel(0.001), lambda: 100.0, POLICY, lambda: 100.0, None, pauses.append, lambda: next(shares)
    )
    assert not timing.disturbed and len(pauses) == 1
    assert disturbed(100.0, 100.0, 0.0, waited=0.4)


def test_a_loser_is_not_waited_for() -> None:
    pauses: list[float] = []
    timing = time_steadily(FakeKernel(0.01), lambda: 80.0, POLICY, lambda: 100.0, 0.001, pauses.append)
    assert timing.disturbed and not pauses


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
