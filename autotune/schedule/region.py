"""Region inference: which part of a stage its consumers need inside one iteration of a loop.

Interval arithmetic over quasi-affine indices (Halide's bounds inference): an index is the sum of a part that is fixed
inside the loop, the region's base, and a part that varies, whose range is the region's extent.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from autotune.schedule.state import StageState, State
from autotune.tensor.expr import Read
from autotune.tensor.linear import Linear, Ranges, Term, to_linear


@dataclass(frozen=True, slots=True)
class Region:
    """A box: per axis of the stage, `extent` elements from `base` (a function of the loops around)."""

    base: tuple[Linear, ...]
    extent: tuple[int, ...]


def whole(s: StageState) -> Region:
    """All of a stage."""
    axes = s.stage.all_axes
    return Region(tuple(Linear() for _ in axes), tuple(a.extent for a in axes))


class Regions:
    """Regions of all stages of one state, computed on demand.

    What a stage computes follows from the stages behind it, which read it and which it stands in (of recurrences from
    all others), so that it is remembered while those are the same: schedules are made step by step, most of which
    change one stage, and each step asks for the regions of all.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._number = {s.name: n for n, s in enumerate(state.stages)}
        self._turns = any(s.stage.recurrence is not None for s in state.stages)
        self._known: dict[str, Region] = {}
        self._values: dict[str, dict[str, Linear]] = {}

    @functools.cached_property
    def ranges(self) -> Ranges:
        return self.state.ranges()

    @functools.cached_property
    def reads(self) -> dict[str, list[tuple[StageState, Read]]]:
        """(stage, read) of every read of a tensor."""
        found: dict[str, list[tuple[StageState, Read]]] = {}
        for s in self.state.stages:
            for r in s.reads():
                found.setdefault(r.tensor.name, []).append((s, r))
        return found

    def of(self, s: StageState) -> Region:
        """The region that `s` computes where it stands."""
        if s.name not in self._known:
            self._known[s.name] = s.remembered("region", self._deciding(s), lambda: self._infer(s))
        return self._known[s.name]

    def values(self, s: StageState) -> dict[str, Linear]:
        """Each axis of `s` as a function of loop variables: region base + position inside it."""
        if s.name not in self._values:
            self._values[s.name] = s.remembered("values", self._deciding(s), lambda: self._placed(s))
        return self._values[s.name]

    def _placed(self, s: StageState) -> dict[str, Linear]:
        relative = s.relative()
        return {a.name: b + relative[a.name] for a, b in zip(s.stage.all_axes, self.of(s).base)}

    def _deciding(self, s: StageState) -> tuple[StageState, ...]:
        """The other stages that its region may depend on."""
        n, stages = self._number[s.name], self.state.stages
        return (*stages[:n], *stages[n + 1 :]) if self._turns else stages[n + 1 :]

    def readers(self, s: StageState) -> list[tuple[StageState, Read]]:
        """(stage, read) of every read of `s` by others."""
        return [x for t in s.stage.outputs for x in self.reads.get(t.name, ()) if x[0].name != s.name]

    def _infer(self, s: StageState) -> Region:
        if s.at is None:
            return whole(s)
        fixed = set(self.state.enclosing(s))
        reads = self.readers(s)
        boxes: list[tuple[Linear, int] | None] = []
        for dimension, axis in enumerate(s.stage.axes):
            box: tuple[Linear, int] | None = None
            for consumer, read in reads:
                index = to_linear(read.indices[dimension], self.ranges, self.values(consumer))
                box = self._union(box, self._box(index, fixed), axis.extent)
            boxes.append(box)
        base, extent = [], []
        for axis, box in zip(s.stage.axes, boxes):
            if box is None or box[1] >= axis.extent:
                base.append(Linear())
                extent.append(axis.extent)
            else:
                base.append(box[0])
                extent.append(box[1])
        if s.stage.scan_axis is not None and s.stage.recurrence is None:
            n = [a.name for a in s.stage.axes].index(s.stage.scan_axis)
            base[n], extent[n] = Linear(), s.stage.axes[n].extent
        for axis in s.stage.reduce_axes:
            base.append(Linear())
            extent.append(axis.extent)
        return Region(tuple(base), tuple(extent))

    def _box(self, index: Linear, fixed: set[str]) -> tuple[Linear, int]:
        outer: dict[Term, int] = {}
        inner: dict[Term, int] = {}
        for term, c in index.terms.items():
            if type(term) is str:  # nearly all are
                is_fixed = term in fixed
            else:
                part = Linear(0, {term: c})
                is_fixed = all(v in fixed for v in part.variables()) and not part.is_opaque
            (outer if is_fixed else inner)[term] = c
        lo, hi = Linear(0, inner).range(self.ranges)
        return Linear(index.const + lo, outer), hi - lo + 1

    def _union(self, a: tuple[Linear, int] | None, b: tuple[Linear, int], full: int) -> tuple[Linear, int]:
        if a is None:
            return b
        gap = b[0] - a[0]
        if not gap.is_const:
            return Linear(), full
        start = min(0, gap.const)
        return a[0] + start, max(a[1], gap.const + b[1]) - start
