"""Who is set aside, for how long, and who gets work when nobody is left."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.fleet.health import ENOUGH, FIRST_SECONDS, WINDOW, Health


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_runner_beside_others_programs_is_set_aside_for_longer_each_time() -> None:
    clock = Clock()
    health = Health(clock)
    for seconds in (FIRST_SECONDS, 2 * FIRST_SECONDS):
        for number in range(WINDOW):
            assert not health.aside("a")
            health.observe("a", "t", 90.0, disturbed=number % 2 == 0)
        assert health.aside("a") == f"{WINDOW // 2} of its last {WINDOW} trials were disturbed"
        assert not health.slow("a")
        assert health.good(["a", "b"]) == ["b"]
        assert health.good(["a"]) == ["a"], "who else?"
        clock.now += seconds - 0.1
        assert health.aside("a")
        clock.now += 0.2


def test_a_slow_runner_is_known_by_the_others_for_its_target() -> None:
    health = Health(Clock())
    for _ in range(ENOUGH):
        assert not health.observe("fast", "t", 100.0, disturbed=False)
        health.observe("slow", "t", 80.0, disturbed=False)
        assert not health.observe("other", "another target", 50.0, disturbed=False)
    assert "80 GFLOP/s on one core where another reaches 100" in health.aside("slow")
    assert health.slow("slow") and not health.slow("fast") and not health.slow("other") and not health.slow("unknown")
    health.observe("slow", "t", 99.0, disturbed=False)
    assert not health.slow("slow"), "a clock that was low, and is not any more"


def test_who_broke_is_set_aside_at_once() -> None:
    health = Health(Clock())
    health.blame("a", "no room on its disk")
    assert (health.aside("a"), health.aside("b")) == ("no room on its disk", "")
