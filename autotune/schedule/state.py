"""What a schedule has decided so far: stages with their loops, places and layouts.

A `State` is an immutable value; primitives map one state to the next. Loop variables are named `stage.loop` once the
nest is built, so they are unique in a kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from autotune.errors import ScheduleError
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.expr import Expr, Read
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Linear, Range, Ranges
from autotune.tensor.stage import Stage, Tensor

Found = TypeVar("Found")
SERIAL, PARALLEL, VECTORIZE, UNROLL = "", "parallel", "vectorize", "unroll"
REGISTER, LOCAL, SHARED, TILE = "register", "local", "shared", "tile"


@dataclass(frozen=True, slots=True)
class Loop:
    name: str
    extent: int
    reduce: bool = False
    mark: str = SERIAL

    def __str__(self) -> str:
        return f"{self.mark + ' ' if self.mark else ''}{self.name}<{self.extent}"


@dataclass(frozen=True, slots=True)
class Split:
    """parent = outer * factor + inner, of which only values below `extent` count."""

    parent: str
    outer: str
    inner: str
    factor: int
    extent: int


@dataclass(frozen=True, slots=True)
class Fuse:
    """outer = fused // inner_extent, inner = fused % inner_extent."""

    outer: str
    inner: str
    fused: str
    inner_extent: int


NEAR = 1 << 18
"""Bytes of the parts that `stream` goes by where a schedule does not say: those of records from before it could."""


class Fetch(NamedTuple):
    """Cache lines of a tensor to ask for, `distance` iterations of a loop ahead of their use, into cache `level`; at a
    distance of 0 those of the next part, of `near` bytes if possible, see the primitive `stream`."""

    tensor: str
    loop: str
    distance: int
    level: int
    near: int = 0


@dataclass(frozen=True, slots=True)
class StageState:
    """One stage and what was decided about it.

    Attributes:
        stage: the stage, as rewritten by inline, cache and rfactor steps.
        loops: its loops, outermost first.
        relations: how loops derive from axes, in order of application.
        extents: loop domain per axis of `stage.all_axes` (smaller than the axis once computed at a loop).
        at: (consumer stage, its loop) inside which this stage is computed, or None for the kernel's top level.
        scope: where a computed-at stage keeps its tensors: "register", "tile" (matrix registers), "local" (per thread).
        partitioned: loops to split into the range where no guard is needed, and the rest.
        padded: axes whose guard is dropped because all memory touched beyond their extent exists.
        prefetch: requests for cache lines.
        alternating: loops that run backwards in every other turn of a recurrence.
        where: conditions on the axes under which a point is folded; the others stand for the reducer's identity
            (the rest of the last block of a factored reduction).
        skipped: conditions that hold for all that is worth folding; they are tested once for the loops written out.
        replicated: whether every thread computes it, at the top level and for itself.
        needed: ends of axes, `axis < end`, before which lies all that is read; tested once for the loops written out.
    """

    stage: Stage
    loops: tuple[Loop, ...]
    relations: tuple[Split | Fuse, ...] = ()
    extents: tuple[int, ...] = ()
    at: tuple[str, str] | None = None
    scope: str = LOCAL
    partitioned: frozenset[str] = frozenset()
    padded: frozenset[str] = frozenset()
    prefetch: tuple[Fetch, ...] = ()
    where: tuple[Expr, ...] = ()
    skipped: tuple[Expr, ...] = ()
    alternating: frozenset[str] = frozenset()
    needed: tuple[Expr, ...] = ()
    replicated: bool = False
    _known: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.stage.outputs[0].name

    @staticmethod
    def fresh(stage: Stage) -> StageState:
        axes = sorted(stage.axes, key=lambda a: stage.recurrence is None or a.name != stage.scan_axis)
        spatial = tuple(Loop(a.name, a.extent) for a in axes)
        folded = tuple(Loop(a.name, a.extent, True) for a in stage.reduce_axes)
        return StageState(stage, spatial + folded, extents=tuple(a.extent for a in stage.all_axes))

    @property
    def untouched(self) -> bool:
        """No loop has been changed yet."""
        return not self.relations and all(not loop.mark for loop in self.loops) and self.at is None

    def position(self, loop: str) -> int:
        """Index of a loop.

        Raises:
            ScheduleError: when the stage has no such loop; the message lists those it has.
        """
        for n, candidate in enumerate(self.loops):
            if candidate.name == loop:
                return n
        raise ScheduleError(f"stage {self.name} has no loop {loop!r}; it has {', '.join(x.name for x in self.loops)}")

    def loop(self, name: str) -> Loop:
        return self.loops[self.position(name)]

    @property
    def turn(self) -> str | None:
        """The outermost loop, when it is the one that all stages of a recurrence share."""
        return self.stage.scan_axis if self.stage.recurrence is not None and self.at is None else None

    def variable(self, loop: str) -> str:
        if self.stage.recurrence is not None and loop == self.turn:
            return f"{self.stage.recurrence}.turn"
        return f"{self.stage.outputs[0].name}.{loop}"

    def relative(self) -> dict[str, Linear]:
        """Each axis, and each loop that was split or fused, as a function of the loop variables, from 0.

        Found once, since every schedule step asks.
        """
        found: dict[str, Linear] | None = self._known.get("relative")
        if found is None:
            found = self._known["relative"] = self._as_loops()
        return found

    def _as_loops(self) -> dict[str, Linear]:
        ranges = self.ranges()
        values = {loop.name: Linear.var(self.variable(loop.name)) for loop in self.loops}
        for relation in reversed(self.relations):
            if isinstance(relation, Split):
                values[relation.parent] = values[relation.outer] * relation.factor + values[relation.inner]
            else:
                fused, extent = values[relation.fused], max(relation.inner_extent, 1)  # 0: no turn is ever made
                values[relation.outer] = fused.floordiv(extent, ranges)
                values[relation.inner] = fused.floormod(extent, ranges)
        return values

    def ranges(self) -> Ranges:
        """Inclusive ranges of its loop variables, found once, too."""
        found: Ranges | None = self._known.get("ranges")
        if found is None:
            found = {self.variable(loop.name): (0, max(loop.extent - 1, 0)) for loop in self.loops}
            self._known["ranges"] = found
        return found

    def remembered(self, what: str, others: tuple[object, ...], find: Callable[[], Found]) -> Found:
        """What `find` gives, found again only where it depends on other objects than the last time."""
        known = self._known.get(what)
        if known is not None and len(known[0]) == len(others) and all(map(operator.is_, known[0], others)):
            last: Found = known[1]
            return last
        found = find()
        self._known[what] = (others, found)
        return found

    def reads(self) -> tuple[Read, ...]:
        return self.stage.reads()


@dataclass(frozen=True, slots=True)
class State:
    """All stages of a kernel, in topological order, and the layouts chosen for tensors (row-major unless set).

    `prepared` says how constant operands that are no inputs of the ComputeDef follow from those that are.
    """

    inputs: tuple[Tensor, ...]
    stages: tuple[StageState, ...]
    outputs: tuple[str, ...]
    layouts: tuple[tuple[str, Layout], ...] = ()
    prepared: tuple[tuple[str, ComputeDef], ...] = ()

    @staticmethod
    def of(definition: ComputeDef) -> State:
        return State(definition.inputs, tuple(StageState.fresh(s) for s in definition.stages), definition.outputs)

    def stage(self, name: str) -> StageState:
        """The stage that writes tensor `name`.

        Raises:
            ScheduleError: when there is none; the message lists the stages.
        """
        for s in self.stages:
            for t in s.stage.outputs:
                if t.name == name:
                    return s
        raise ScheduleError(f"no stage {name!r}; stages: {', '.join(s.name for s in self.stages)}")

    def tensor(self, name: str) -> Tensor:
        for t in self.tensors():
            if t.name == name:
                return t
        raise ScheduleError(f"no tensor {name!r}; tensors: {', '.join(t.name for t in self.tensors())}")

    def tensors(self) -> Iterator[Tensor]:
        yield from self.inputs
        for s in self.stages:
            yield from s.stage.outputs

    def consumers(self, s: StageState) -> list[StageState]:
        """Stages that read a tensor of `s`, not counting its reads of itself."""
        names = {t.name for t in s.stage.outputs}
        return [c for c in self.stages if c.name != s.name and any(r.tensor.name in names for r in c.reads())]

    def layout(self, tensor: Tensor) -> Layout:
        return dict(self.layouts).get(tensor.name) or Layout.row_major(len(tensor.shape))

    def put(self, *changed: StageState) -> State:
        """This state with stages of the same name replaced."""
        new = {s.name: s for s in changed}
        return replace(self, stages=tuple(new.get(s.name, s) for s in self.stages))

    def ranges(self) -> Ranges:
        """Inclusive ranges of all loop variables."""
        out: dict[str, Range] = {}
        for s in self.stages:
            out.update(s.ranges())
        return out

    def enclosing(self, s: StageState) -> list[str]:
        """Variables of the loops around stage `s`, outermost first."""
        if s.at is None:
            return []
        consumer = self.stage(s.at[0])
        inside = [consumer.variable(x.name) for x in consumer.loops[: consumer.position(s.at[1]) + 1]]
        return self.enclosing(consumer) + inside

    def __str__(self) -> str:
        lines = []
        for s in self.stages:
            place = f" at {s.at[0]}.{s.at[1]} in {s.scope}" if s.at else ""
            lines.append(f"{s.name}{place}: {', '.join(map(str, s.loops))}")
        lines += [f"layout {name}: {layout}" for name, layout in self.layouts]
        return "\n".join(lines)
