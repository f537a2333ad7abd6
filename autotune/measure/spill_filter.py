"""SpillFilter: which kernels need not be run, because their registers spill as those of no good kernel do.

Spills are counted in the whole code, so a kernel may spill in a part that hardly runs: of 1500 Winograd kernels for a
3×3 convolution the fastest had one spill for two multiply-adds. Beyond one for one, no kernel of the four recorded
spaces that have any reached two thirds of the best speed (`python -m benchmarks.record_space`). So the limit is
there, and a task whose best kernel spills nearly as much has no limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.measure.failure import Failure
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult

HOPELESS = 1.0
"""Spills for each multiply-add."""
CLEARLY = 4.0
"""How many times fewer the best kernel so far has."""
COUNTED = 8
"""Multiply-adds that a kernel has at least; with fewer the ratio says nothing."""


@dataclass(slots=True)
class SpillFilter:
    """Remembers the best kernel of each task. What is measured first, a task's default, is never left out."""

    _best: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def judge(self, candidate: MeasureInput, build: BuildResult) -> Failure | None:
        """Why the kernel is not worth running; None when it is."""
        kernel, best = build.kernel, self._best.get(_task(candidate))
        if best is None or kernel.fmas < COUNTED:
            return None
        ratio = _ratio(build)
        if ratio <= HOPELESS or ratio < CLEARLY * best[1]:
            return None
        return Failure(
            "spills",
            f"not run: {kernel.spills} spills for {kernel.fmas} multiply-adds, {ratio:.2f} for each; "
            f"the best kernel so far has {best[1]:.2f}",
        )

    def observe(self, candidate: MeasureInput, build: BuildResult, result: MeasureResult) -> None:
        """A kernel that was run, and is right."""
        key = _task(candidate)
        if key not in self._best or result.seconds < self._best[key][0]:
            self._best[key] = (result.seconds, _ratio(build))


def _ratio(build: BuildResult) -> float:
    return build.kernel.spills / max(1, build.kernel.fmas)


def _task(candidate: MeasureInput) -> tuple[str, str]:
    return candidate.workload.key, candidate.interface.to_json() if candidate.interface else ""
