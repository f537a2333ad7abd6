"""Profile: where the time of a compiled model goes, kernel by kernel, and how near each is to the machine's limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.compiler.compile import CompiledModel, KernelReport
from autotune.measure.peaks import Peaks
from autotune.measure.timing import latency
from autotune.runtime.executor import Array
from autotune.search_spaces.config import Config
from autotune.target import Target


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel call inside the model.

    Attributes:
        report: what it computes and where its schedule came from.
        start, seconds: medians over the passes, barrier included; the start counts from that of the pass.
        least: seconds that the machine needs at least: for the multiply-adds at its peak, or to read and write every
            operand once at the bandwidth of the smallest cache that holds them. Winograd may take less.
    """

    report: KernelReport
    start: float
    seconds: float
    least: float

    @property
    def template(self) -> str:
        """The template of its schedule."""
        return Config.from_json(self.report.config).template or ""

    @property
    def of_limit(self) -> float:
        """Share of what the machine can do, 0 to 1 and above for Winograd."""
        return self.least / self.seconds if self.seconds else 0.0

    @property
    def against_record(self) -> float | None:
        """Time in the model over the time that was recorded when it was tuned; None without a record."""
        return self.seconds / self.report.seconds if self.report.seconds else None


@dataclass(frozen=True, slots=True)
class Profile:
    """All kernels in order, seconds of a whole pass, and the limits used (GFLOP/s; GB/s per level, all threads)."""

    kernels: tuple[KernelProfile, ...]
    seconds: float
    fp32: float
    levels: tuple[tuple[str, int, float], ...]

    def share(self, kernel: KernelProfile) -> float:
        return kernel.seconds / self.seconds if self.seconds else 0.0

    def by_template(self) -> list[tuple[str, int, float]]:
        """(template, calls, seconds), the most expensive first."""
        found: dict[str, tuple[int, float]] = {}
        for kernel in self.kernels:
            calls, seconds = found.get(kernel.template, (0, 0.0))
            found[kernel.template] = (calls + 1, seconds + kernel.seconds)
        return sorted(((name, *rest) for name, rest in found.items()), key=lambda row: -row[2])

    def trace(self) -> dict[str, object]:
        """One pass in Chrome's trace format (chrome://tracing, Perfetto); times in microseconds."""
        events: list[dict[str, object]] = [
            {"name": k.report.description, "cat": k.template, "ph": "X", "pid": 0, "tid": 0, "ts": k.start * 1e6,
             "dur": k.seconds * 1e6,
             "args": {"gflops": k.report.flops / k.seconds * 1e-9 if k.seconds else 0.0, "bytes": k.report.nbytes,
                      "of_limit": k.of_limit, "schedule": k.report.config, "tier": k.report.tier.value}}
            for k in self.kernels
        ]  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def profile(model: CompiledModel, feeds: Mapping[str, Array], peaks: Peaks, passes: int = 30) -> Profile:
    """Run the model with a clock reading after each kernel.

    Args:
        feeds: one array per input.
        peaks: of the model's target, from `measure_peaks`.
        passes: how many; medians are reported.

    Raises:
        InputError: a feed does not fit.
    """
    executor = model.executor
    executor.run(feeds)  # checks the feeds, and warms up
    context = executor.context()
    try:
        context.read_from([np.ascontiguousarray(feeds[spec.name]) for spec in model.program.inputs])
        found = np.array([context.pool.profile_plan(context.plan) for _ in range(passes)])
    finally:
        context.own_buffers()
        executor.release(context)
    seconds = [latency(column) for column in found.T]
    starts = np.cumsum([0.0, *seconds])
    target = Target.from_json(model.program.target)
    levels = (
        ("L2", target.l2_bytes * target.num_threads, peaks.l2.all_cores),
        ("L3", target.l3_bytes, peaks.l3.all_cores),
        ("memory", 1 << 62, peaks.dram.all_cores),
    )
    kernels = tuple(
        KernelProfile(report, float(start), one, _least(report, peaks.fp32.all_cores, levels))
        for report, start, one in zip(model.kernels, starts, seconds)
    )
    return Profile(kernels, float(sum(seconds)), peaks.fp32.all_cores, levels)


def _least(report: KernelReport, fp32: float, levels: Sequence[tuple[str, int, float]]) -> float:
    bandwidth = next(rate for _, size, rate in levels if report.nbytes <= size)
    return max(report.flops / fp32, report.nbytes / bandwidth) * 1e-9
