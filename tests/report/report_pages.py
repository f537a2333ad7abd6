"""Report pages that are made up."""

from __future__ import annotations

from autotune.compiler.compile import KernelReport
from autotune.ops import parse_workload
from autotune.records import Tier
from autotune.report.coverage import Coverage
from autotune.report.page import Contender, Page
from autotune.report.profile import HostProfile, KernelProfile, Profile

PRODUCT = parse_workload("matmul a=64,128 b=128,64")
EVIL = "<script>alert('1')</script>"


def kernel(name: str, start: float, seconds: float, record: float | None = None) -> KernelProfile:
    tier = Tier.MISS if record is None else Tier.EXACT
    report = KernelReport(PRODUCT, '{"template":"sketch.contraction"}', tier, "never tuned", record, 90_000, (name,))
    return KernelProfile(report, start, seconds, seconds / 2)


def page(**changes: object) -> Page:
    kernels = (kernel("conv1", 0.0, 2e-3, 1.5e-3), kernel(EVIL, 2e-3, 1e-3))
    profile = Profile(
        kernels,
        (HostProfile("node 'n' (NonZero)", 3e-3, 1e-3),),
        2,
        4.2e-3,
        200.0,
        (("L2", 1, 100.0), ("memory", 2, 10.0)),
    )
    values: dict[str, object] = {
        "title": "model.onnx", "facts": (("CPU", "one"),), "profile": profile,
        "contenders": (
            Contender("autotune", 4.2e-3, None, None, 1e-6), Contender("other", 5e-3, 1.19, (1.1, 1.3), 2e-6),
        ),
        "coverage": Coverage.of([k.report for k in kernels]), "command": "autotune tune model.onnx",
    }  # fmt: skip
    return Page(**{**values, **changes})  # type: ignore[arg-type]
