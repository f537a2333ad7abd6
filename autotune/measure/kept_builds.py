"""`KeptBuilds`: what was built last, for kernels that are timed a second time."""

from __future__ import annotations

from collections import OrderedDict

from autotune.measure.types import BuildResult, MeasureInput

KEPT_BYTES = 1 << 28
"""Of object code: some thousand kernels, and far less than runners keep of inputs and references."""


class KeptBuilds:
    """Builds by candidate; those that were longest not asked for make room."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._room = most_bytes
        self._kept: OrderedDict[MeasureInput, BuildResult] = OrderedDict()

    def get(self, candidate: MeasureInput) -> BuildResult | None:
        if candidate in self._kept:
            self._kept.move_to_end(candidate)
        return self._kept.get(candidate)

    def add(self, candidate: MeasureInput, build: BuildResult) -> None:
        before = self._kept.pop(candidate, None)
        self._room += len(before.kernel.object_code) if before is not None else 0
        self._kept[candidate] = build
        self._room -= len(build.kernel.object_code)
        while self._room < 0:
            _, oldest = self._kept.popitem(last=False)
            self._room += len(oldest.kernel.object_code)
