"""The gauge on this machine's own cores: what it says is compared with itself, not with a clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from autotune.errors import TargetError
from autotune.measure.core_probes import clock_kernel
from autotune.measure.gauge import Gauge
from autotune.measure.peaks import least_clock, least_loads
from autotune.measure.pool_probe import PoolProbe
from autotune.measure.rounds import Moment
from autotune.runtime.threads import Plan, ThreadPool
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
    for least in (least_clock, least_loads):
        assert least(replace(HOST, core=replace(core, source="shipped"))) > 0
        assert least(replace(HOST, core=replace(core, source="features"))) == 0


def test_threads_that_start_late_make_no_probe_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a thread waits for its core, for longer than a probe lasts."""
    timed, repeats = ThreadPool.time_plan, [0]

    def late(pool: ThreadPool, plan: Plan, number: int, tries: int) -> npt.NDArray[np.float64]:
        repeats.append(int(plan.frames[1]))
        return timed(pool, plan, number, tries) + (0.01 if pool.num_threads > 1 else 0.0)

    monkeypatch.setattr(ThreadPool, "time_plan", late)
    with ThreadPool(2) as pool:
        PoolProbe(clock_kernel(HOST.vector_bits), HOST, pool, 2e-5).run()
    assert repeats[-1] > 100


def test_a_gauge_for_another_cpu_is_refused() -> None:
    foreign = replace(HOST, features=(*HOST.features, "made-up"))
    with ThreadPool(1) as pool, pytest.raises(TargetError, match="needs made-up"):
        Gauge(foreign, pool)
