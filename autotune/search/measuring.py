"""Measuring: what the search needs of a `measure.Pipeline`, so that a simulation can stand in for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from autotune.measure.failure import Failure
from autotune.measure.pipeline import Measurement
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult


class Measuring(Protocol):
    """Builds, verifies and times candidates."""

    def measure(self, candidates: Iterable[MeasureInput]) -> Iterator[Measurement]:
        """One measurement per candidate; the iterable is drawn lazily and may look at earlier results."""

    def build(self, candidates: Sequence[MeasureInput]) -> list[BuildResult | Failure]:
        """Only build."""

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int = 20
    ) -> list[MeasureResult | Failure]:
        """Time kernels of the candidate's workload in turn."""

    def incumbent(self, seconds: float, candidate: MeasureInput) -> None:
        """Tell of an earlier time of the candidate's workload."""
