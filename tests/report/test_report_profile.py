"""What a profile says about its own limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.compiler.compile import KernelReport
from autotune.ops.parse import parse_workload
from autotune.records import Tier
from autotune.report.profile import HostProfile, KernelProfile, Profile

WORKLOAD = parse_workload("relu data=100")


def kernel(template: str, seconds: float, least: float, recorded: float | None = None) -> KernelProfile:
    report = KernelReport(WORKLOAD, f'{{"template":"{template}"}}', Tier.MISS, "", recorded, 64)
    return KernelProfile(report, 0.0, seconds, least)


def profile(*kernels: KernelProfile) -> Profile:
    return Profile(kernels, (), 1, 1.0, 100.0, ())


def test_a_kernel_beyond_a_limit_tells_that_the_limit_is_wrong() -> None:
    assert not profile(kernel("conv2d.direct", 1e-3, 0.99e-3)).disturbed
    assert profile(kernel("conv2d.direct", 1e-3, 2e-3)).disturbed
    assert not profile(kernel("generic", 1e-6, 2e-6)).disturbed, "its operands may be in a nearer cache"
    assert replace(profile(), doubts=("this CPU should reach 400 GFLOP/s",)).disturbed


def test_times_are_held_against_records() -> None:
    found = profile(kernel("a", 2.0, 1.0, 1.6), kernel("b", 3.0, 1.0))
    assert found.recorded == (1, 2.0, 1.6)
    assert found.kernels[0].against_record == pytest.approx(1.25) and found.kernels[1].against_record is None
    assert found.seconds == 5.0
    with_host = replace(found, hosts=(HostProfile("NonZero", 5.0, 5.0),))
    assert with_host.seconds == 10.0 and with_host.share(with_host.hosts[0]) == 0.5
    trace = with_host.trace()["traceEvents"]
    assert isinstance(trace, list)
    assert [event["cat"] for event in trace if event["ph"] == "X"] == ["a", "b", "host"]


def test_a_trace_has_a_track_for_each_thread() -> None:
    found = profile(replace(kernel("a", 2.0, 1.0), busy=(2.0, 1.0)), replace(kernel("b", 4.0, 1.0), busy=(1.0, 4.0)))
    events = found.trace()["traceEvents"]
    assert isinstance(events, list)
    named = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert named == {0: "caller", 1: "helper 1"}
    spans = [(event["tid"], event["cat"], event["dur"] * 1e-6) for event in events if event["ph"] == "X"]
    assert spans == [(0, "a", 2.0), (1, "a", 1.0), (0, "b", 1.0), (1, "b", 4.0)]
    assert found.waiting == pytest.approx((1 + 3) / 12)
    assert profile(kernel("a", 2.0, 1.0)).waiting is None
