"""What a doctor says of machines that are made up, and of this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.core import Core
from autotune.measure.checkup import Observation, disturbers, large_pages, limits_found, observe
from autotune.measure.finding import Finding
from autotune.measure.peaks import Peaks, Rate
from autotune.measure.quiet import Disturbance
from autotune.measure.rounds import Moment
from autotune.target import Target

CORE = replace(Target.parse("native").core, source="shipped", ghz=4.0)
USUAL = Moment(4.0, 100.0, 8.0)
CALM = Disturbance(load=0.5)


def findings(disturbance: Disturbance = CALM, *moments: Moment, core: Core = CORE) -> dict[str, Finding]:
    looks = moments or (USUAL,) * 10
    quiet = tuple(look.ghz >= 3.6 and look.gflops >= 90 and look.loads >= 7.2 for look in looks)
    found = list(disturbers(Observation(disturbance, looks, quiet, USUAL), core))
    assert len({finding.about for finding in found}) == len(found) and all(finding.text for finding in found)
    return {finding.about: finding for finding in found}


def test_where_nobody_disturbs_nothing_is_advised() -> None:
    assert not any(finding.advice or finding.harmful for finding in findings().values())


@pytest.mark.parametrize(
    ("disturbance", "about", "text"),
    [
        (Disturbance(crowded=0.4, load=2.0, by=("cc1",)), "other programs", "40 % of the cores' time, mostly cc1"),
        (Disturbance(stolen=0.05), "virtual machine's host", "5.0 %"),
        (Disturbance(limited=0.2), "control group's limit", "stopped us for 20 %"),
        (Disturbance(throttled=True), "clock", "lowered for heat"),
    ],
)  # fmt: skip
def test_who_disturbs_is_named_with_what_to_do(disturbance: Disturbance, about: str, text: str) -> None:
    found = findings(disturbance)
    assert found[about].harmful and text in found[about].text and found[about].advice
    assert not any(finding.harmful for name, finding in found.items() if name != about)


def test_little_is_told_and_no_harm() -> None:
    found = findings(Disturbance(crowded=0.05, stolen=0.01, limited=0.01, by=("sshd",)))
    assert not any(finding.advice for finding in found.values())
    assert "5 %" in found["other programs"].text and "sshd" not in found["other programs"].text


def test_a_clock_below_what_the_cpu_has_is_noted() -> None:
    slow = findings(CALM, *(replace(USUAL, ghz=3.0),) * 4)["clock"]
    assert slow.advice and not slow.harmful and "3.00 GHz" in slow.text and "4.00" in slow.text
    unknown = findings(CALM, *(replace(USUAL, ghz=3.0),) * 4, core=replace(CORE, source="features"))["clock"]
    assert not unknown.advice
    wandering = findings(CALM, *(USUAL,) * 8, *(replace(USUAL, ghz=3.0),) * 2)["clock"]
    assert "a tenth lower in 20 %" in wandering.text and not wandering.harmful


@pytest.mark.parametrize("slow", [replace(USUAL, loads=5.0), replace(USUAL, gflops=60.0)])
def test_neighbours_that_no_counter_shows_are_found(slow: Moment) -> None:
    some = findings(CALM, *(USUAL,) * 8, slow, slow)
    assert "20 %" in some["hidden neighbours"].text and some["hidden neighbours"].advice
    assert not any(finding.harmful for finding in some.values())
    most = findings(CALM, USUAL, slow, slow, slow)
    assert most["hidden neighbours"].harmful and most["quiet moments"].harmful
    clocked = findings(CALM, *(USUAL,) * 8, *(replace(slow, ghz=3.0),) * 2)  # which explains it
    assert clocked["hidden neighbours"].text == "none seen"


def test_limits_in_doubt_and_memory_far_from_what_is_known_are_told() -> None:
    rate = Rate(CORE.l3 * CORE.ghz, CORE.l3 * CORE.ghz)
    good = Peaks(rate, None, None, rate, rate, rate, rate)
    assert [finding.advice for finding in limits_found(CORE, good, native=True)] == [""]
    (doubtful,) = limits_found(CORE, replace(good, doubts=("too low",)), native=True)
    assert doubtful.harmful and "too low" in doubtful.advice
    slow = replace(good, l3=Rate(rate.one_core / 3, rate.all_cores / 3))
    assert [finding.about for finding in limits_found(CORE, slow, native=True)] == ["limits", "memory"]
    assert [finding.about for finding in limits_found(CORE, slow, native=False)] == ["limits"]


def test_this_machine_can_be_looked_at() -> None:
    target = Target.parse("native -num-cores=1")
    seen = observe(target, 0.05)
    assert len(seen.moments) == len(seen.quiet) > 1 and seen.usual.ghz > 0
    assert len(list(disturbers(seen, target.core))) > 3


@pytest.mark.parametrize(("mode", "advised"), [("always", False), ("madvise", False), ("", False), ("never", True)])
def test_large_pages_that_nobody_gets_are_noted(mode: str, advised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.machine.large_pages", lambda: mode)
    assert bool(large_pages().advice) == advised
