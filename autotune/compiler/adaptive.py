"""A model that has programs of their own for the shapes that come often, and answers others in buckets."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotune.compiler.again import OFTEN
from autotune.compiler.background import Background
from autotune.compiler.bucketed import BucketedModel
from autotune.compiler.compile import CompiledModel
from autotune.compiler.shapes import extents_in
from autotune.compiler.specialisation import Watch
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.graph.frontend import OnnxModel
from autotune.runtime.executor import Array
from autotune.runtime.open_axes import OpenAxes
from autotune.runtime.shape_use import ShapeUse
from autotune.runtime.trace import RunTrace
from autotune.target import Target
from autotune.tensor.declared import extents_of

_log = logging.getLogger(__name__)

Shape = tuple[tuple[str, int], ...]
"""Open dimensions and their extents."""

MOST_OWN = 64
"""Shapes that get programs of their own, beside those that are asked for."""
MOST_COUNTED = 4096


class AdaptiveModel(StagedModel):
    """A staged model that compiles for the first shape that it meets and for those that come often. Others run in
    larger ones where that is proved to change nothing (`BucketedModel`): nobody waits for a program for each.

    Args:
        target: what it is compiled for; the others are those of `StagedModel`.
        vary: its shapes are known to change: the first one is like any other.
    """

    def __init__(self, model: OnnxModel, making: Making, target: Target, vary: bool = False) -> None:
        super().__init__(model, making)
        self._vary = vary
        self._target = target
        self._named = all(declared.dims is not None and None not in declared.dims for declared in model.inputs)
        self._lock = threading.Lock()
        self._own: set[Shape] = set()
        self._foreseen: list[Mapping[str, int]] = []  # shapes whose programs serve others, too
        self._counts: Counter[Shape] = Counter()
        self._buckets: BucketedModel | None = None
        self._background = Background()
        self._fed_own: object = None  # of the last feeds that had a program of their own

    def shapes(self, held: set[int] | None = None) -> list[ShapeUse]:
        """The programs that are kept."""
        held = set() if held is None else held
        return [*super().shapes(held), *(self._buckets.shapes(held) if self._buckets is not None else ())]

    def wait(self) -> None:
        """Until no program is being made in the background."""
        super().wait()
        self._background.wait()
        if self._buckets is not None:
            self._buckets.wait()

    def prepare(self, extents: Mapping[str, int]) -> CompiledModel | None:
        """Make a program for just these extents. Raises as `StagedModel.prepare`."""
        found = super().prepare(extents)
        self._own.add(self._shape(extents))
        return found

    def foresee(self, exact: Sequence[Mapping[str, int]], ranged: Sequence[Mapping[str, int]] = ()) -> None:
        """See `StagedModel.foresee`."""
        if self._named:
            self._own.update(map(self._shape, exact))
        self._vary = self._vary or bool(ranged)
        self._foreseen += ranged
        if self._buckets is not None:
            self._buckets.foresee((), ranged)

    def _shape(self, extents: Mapping[str, int]) -> Shape:
        return tuple((symbol, extents[symbol]) for symbol in OpenAxes(self.inputs, ()).symbols)

    def run(
        self, feeds: Mapping[str, object], watch: Watch | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """Outputs in the model's order, as new arrays; see `StagedModel.run`."""
        if not self._named or (self._fed_own is not None and self.like_last(feeds) is self._fed_own):
            return super().run(feeds, watch, trace)
        values = self.checked(feeds)
        shape = tuple(extents_in(self.inputs, values).items())
        if not self._own and not self._vary:
            self._own.add(shape)
        if shape in self._own or not self._has_buckets():
            self._fed_own = self.like_last(values)
            return super().run(values, watch, trace)
        assert self._buckets is not None
        self._count(shape)
        return self._buckets.run(values, watch, trace)

    def _has_buckets(self) -> bool:
        """Whether other shapes than those that have programs may run in larger ones; found out when the first comes."""
        if self._buckets is None:
            with self._lock:
                if self._buckets is None:
                    _log.info("other shapes than those that come often run in programs that serve several")
                    self._buckets = self._bucketed()
        return bool(self._buckets.axes.open.free)

    def _bucketed(self) -> BucketedModel:
        """That knows what a program of the first shape has told."""
        found = BucketedModel(self._model, replace(self._workshop.making, looked_at=True), self._target)
        found.want_few()
        found.foresee((), self._foreseen)
        first = next((one for one in self._workshop.cache.values() if one.program is not None), None)
        if first is not None and first.program is not None and first.rest is None and not first.calls:
            given = {spec.name: spec.shape for spec in first.program.program.inputs}
            if set(given) == set(self.input_names):
                kernels = [kernel.workload for kernel in first.program.kernels]
                found.expect(extents_of(self.inputs, given), kernels, first.life.seconds)
        return found

    def _count(self, shape: Shape) -> None:
        """Have a program for a shape that has come often."""
        self._counts[shape] += 1
        if self._counts[shape] < OFTEN or len(self._own) >= MOST_OWN:
            if len(self._counts) > MOST_COUNTED:
                self._counts.clear()
            return

        def work() -> None:
            self.prepare(dict(shape))

        if self._background.offer(work):
            self._counts[shape] = -(2**62)  # once, whatever comes of it
