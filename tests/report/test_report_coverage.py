"""Coverage: shares, reasons, and the line."""

from __future__ import annotations

import pytest

from autotune.compiler.compile import KernelReport
from autotune.ops.parse import parse_workload
from autotune.records import Tier
from autotune.report.coverage import Coverage


def kernel(tier: Tier, flops: int, reason: str = "", seconds: float | None = None) -> KernelReport:
    workload = parse_workload(f"relu data={flops}" if flops else "transpose data=2,3 perm=1,0")
    assert workload.flops == flops
    return KernelReport(workload, "{}", tier, reason, seconds, 0)


def test_shares_and_reasons() -> None:
    found = Coverage.of(
        [
            kernel(Tier.EXACT, 60, seconds=1e-3),
            kernel(Tier.EXACT, 20, seconds=2e-3),
            kernel(Tier.MISS, 5, "never tuned"),
            kernel(Tier.COMPATIBLE, 15, "other threads"),
        ]
    )
    assert [(part.tier, part.kernels, part.share) for part in found.parts] == [
        ("exact", 2, 0.8), ("compatible", 1, 0.15), ("default", 1, 0.05),
    ]  # fmt: skip
    assert found.parts[0].seconds == pytest.approx(3e-3)
    assert found.reasons == (("other threads", 1), ("never tuned", 1))
    assert found.exact == 0.8
    assert not found.complete
    assert "exact 80.0 % in 2 kernels, compatible 15.0 % in 1 kernel" in found.line()


def test_all_exact_is_complete() -> None:
    assert Coverage.of([kernel(Tier.EXACT, 1, seconds=1e-6)]).complete


def test_a_model_without_work_has_no_shares() -> None:
    assert [part.share for part in Coverage.of([kernel(Tier.MISS, 0, "never tuned")]).parts] == [0.0]
    assert Coverage.of([]).parts == ()
