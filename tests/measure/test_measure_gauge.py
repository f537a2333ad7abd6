"""The gauge on this machine's own cores: what it says is compared with itself, not with a clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import TargetError
from autotune.measure.gauge import Gauge
from autotune.measure.peaks import least_loads
from autotune.measure.timing import Moment
from autotune.runtime.threads import ThreadPool
from autotune.target import Target

HOST = Target.parse("native")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_look_is_near_what_is_usual_or_says_that_it_is_not(threads: int) -> None:
    with ThreadPool(threads) as pool:
        gauge = Gauge(HOST.with_threads(threads), pool)
        looks = [gauge.look() for _ in range(5)]
        most = [max(figures) for figures in zip(*((look.ghz, look.gflops, look.loads) for look in looks), strict=True)]
        best = Moment(*most)
        assert all(look.ghz > 0 for look in looks) and gauge.ghz > 0
        assert all(look.gflops > 0 and look.loads > 0 and look.waited >= 0 for look in looks)
        for slow in (
            replace(best, ghz=best.ghz / 2),
            replace(best, gflops=best.gflops / 2),
            replace(best, loads=best.loads / 2),
            replace(best, waited=0.5),
        ):
            assert not gauge.quiet(slow)
        assert gauge.quiet(Moment(1e9, 1e9, 1e9))


def test_a_guess_about_a_core_disturbs_nobody() -> None:
    core = HOST.core
    assert least_loads(replace(HOST, core=replace(core, source="shipped"))) > 0
    assert least_loads(replace(HOST, core=replace(core, source="features"))) == 0


def test_a_gauge_for_another_cpu_is_refused() -> None:
    foreign = replace(HOST, features=(*HOST.features, "made-up"))
    with ThreadPool(1) as pool, pytest.raises(TargetError, match="needs made-up"):
        Gauge(foreign, pool)
