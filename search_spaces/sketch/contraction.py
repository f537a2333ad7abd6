"""Contraction: what a sum of products over any axes looks like to the rules that schedule it.

A matrix product, a convolution, attention's scores, a tensor contraction: one stage that sums up a product of reads,
and elementwise work on its result. What matters is which axes each read moves along and how far apart its elements are.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from autotune.errors import ScheduleError, WorkloadError
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS
from autotune.schedule.skip import looked_at
from autotune.schedule.state import StageState, State
from autotune.search_spaces.library.access import innermost, widest
from autotune.search_spaces.library.afar import near
from autotune.search_spaces.library.anchored import anchored, elementwise, with_layouts
from autotune.search_spaces.library.fusion import same_point
from autotune.search_spaces.sketch.factor import Factor, factor_of, lies_in_memory
from autotune.search_spaces.sketch.folding import Folding, folding_of
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.target import Target
from autotune.tensor.expr import Binary, Cast, Expr, Read, Var, walk
from autotune.tensor.layout import Layout

SHORT = 64
"""Terms of a sum that may all be written out."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the sum.

    Attributes:
        period: turns after which what is read jumps (the channels of a group): tiles divide it. 0 where nothing jumps.
        block: of a reduce axis, neighbours that lie together in a blocked operand; 0 where nothing is blocked.
    """

    name: str
    extent: int
    period: int = 0
    block: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """A loop of the sum: a reduce axis, or the blocks of one (`outer`), or what is in a block (`inner`)."""

    axis: int
    extent: int
    part: str = ""


@dataclass(frozen=True)
class Contraction:
    """A schedule in which only the sum, what it reads and the output are left, and what is to be known about them.

    Attributes:
        schedule: nothing decided yet but what is inlined; `layouts`: what operands get where nobody asks for others.
        total: the stage of the sum; `output` reads it, each element where it is itself.
        spatial, reduce: axes of the sum.
        lanes: elements of the widest vector. `near`: bytes of a panel that stay in the second cache until read.
        foldings: the instructions that fold neighbours, of those that the CPU has and that fit.
        stored: bytes of an element of the output; `extra`: of what is read beside the sum, per element.
        last: number of the spatial axis along which the output is contiguous.
        product: it is a sum of products; else a map (`sketch.mapping`), of which the last factor is the result.
        body: of a map, an element's work in multiply-adds.
        edges: numbers of the spatial axes on which conditions depend: of a map all, of a sum those of reads whose zeros
            do not lie in memory. Tiles at their ends are code of their own.
        folded: without one of the instructions it is nothing to try.
        inside: it is computed in a loop of what reads it, one part after the other; threads share that loop.
        divided: numbers of the spatial axes that register tiles divide.
    """

    schedule: Schedule
    layouts: tuple[tuple[str, Layout], ...]
    total: str
    output: str
    spatial: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    factors: tuple[Factor, ...]
    lanes: int
    near: int
    foldings: tuple[Folding, ...]
    stored: int
    extra: int
    last: int
    product: bool = True
    body: int = 1
    edges: tuple[int, ...] = ()
    folded: bool = False
    inside: bool = False
    divided: tuple[int, ...] = ()

    @property
    def reads(self) -> tuple[Factor, ...]:
        """The factors that are loaded."""
        return self.factors if self.product else self.factors[:-1]

    @property
    def points(self) -> int:
        """Products that are summed up."""
        return math.prod(a.extent for a in (*self.spatial, *self.reduce))

    @functools.cached_property
    def lanewise(self) -> bool:
        """Whether each lane has factors of its own and the sum is short: the window of a depthwise convolution."""
        along = [self.spatial[n].name for n in self.vector_axes()]
        own = all(name in f.axes() and (f.plain or f.stride(name) == 1) for f in self.factors for name in along)
        short = math.prod(a.extent for a in self.reduce) <= SHORT
        return self.product and not self.foldings and bool(along) and own and short

    def folding(self, name: str) -> Folding | None:
        """The use of an instruction by its name, None where it does not fit."""
        return next((f for f in self.foldings if f.dot.name == name), None)

    @property
    def ended(self) -> list[int]:
        """Numbers of the spatial axes behind whose ends, which data decides, nobody reads anything; of sums."""
        if not self.total:
            return []
        state = self.schedule.state
        found = looked_at(state, state.stage(self.total))
        known = {str(condition.a) for condition in found if isinstance(condition, Binary)}
        return [n for n, a in enumerate(self.spatial) if a.name in known]

    def midway(self) -> Contraction:
        """What there is to compute where a run ends in the middle of each axis that ends anywhere."""
        ended = {self.spatial[n].name for n in self.ended}
        if not ended:
            return self
        spatial = tuple(replace(a, extent=(a.extent + 1) // 2) if a.name in ended else a for a in self.spatial)
        factors = tuple(
            replace(
                f, shape=tuple((n + 1) // 2 if ended & dict(parts).keys() else n for n, parts in zip(f.shape, f.steps))
            )
            for f in self.factors
        )
        return replace(self, spatial=spatial, factors=factors)

    @property
    def deep(self) -> int:
        """Number of the longest reduce axis, along which the sum may be cut into parts."""
        return max(range(len(self.reduce)), key=lambda n: self.reduce[n].extent)

    @property
    def streamed(self) -> tuple[Factor, ...]:
        """The factors that lie in panels, which are read from end to end."""
        return tuple(f for f in self.reads if f.constant and f.plain)

    def terms(self) -> tuple[Term, ...]:
        """The loops of the sum, in the order of its axes."""
        found: list[Term] = []
        for n, a in enumerate(self.reduce):
            if 1 < a.block < a.extent:
                found += [Term(n, -(-a.extent // a.block), "outer"), Term(n, a.block, "inner")]
            else:
                found.append(Term(n, a.extent))
        return tuple(found)

    def widths(self) -> tuple[int, ...]:
        """Lanes that a vector may have: all, half, and a quarter where an axis is that short, or jumps so often."""
        half, quarter = self.lanes // 2, self.lanes // 4
        short = any((a.period or a.extent) < 2 * quarter or a.period % half for a in self.spatial if a.extent >= 4)
        return tuple(n for n in (self.lanes, half, quarter) if n >= 4 and (n >= half or short))

    def vector_axes(self) -> list[int]:
        """Numbers of the spatial axes that vectors may lie along: with what can be packed, nothing is gathered.

        A map writes whole vectors.
        """
        if not self.product:
            return [self.last] if self.spatial[self.last].extent >= self.widths()[-1] else []
        found = []
        for n, a in enumerate(self.spatial):
            steps = [0 if f.plain and f.alone(a.name) else f.stride(a.name) for f in self.factors]
            whole = a.period == 0 or any(a.period % width == 0 for width in self.widths())
            if a.extent >= 4 and whole and all(step in (0, 1) for step in steps):
                found.append(n)
        return found


def with_one_output(workload: Workload, algorithm: str = "direct") -> Schedule | None:
    """The workload with nothing decided yet; None when the algorithm does not compute it, or it has several outputs."""
    try:
        schedule = Schedule(compute_def(workload, algorithm))
    except WorkloadError:
        return None
    return schedule if len(schedule.compute.outputs) == 1 else None


@functools.lru_cache(maxsize=512)
def contraction(workload: Workload, target: Target) -> Contraction | None:
    """How the workload is a contraction; None when it is something else."""
    schedule = with_one_output(workload)
    if schedule is None:
        return None
    heavy = [s for s in schedule.state.stages if not elementwise(s)]
    if len(heavy) != 1 or heavy[0].stage.reducer is None or heavy[0].stage.reducer.name != "sum":
        return None
    try:
        a = anchored(workload)
    except ScheduleError:
        return None
    state = a.schedule.state
    if {s.name for s in state.stages} != {a.anchor, a.output} or not same_point(state, a.output, a.anchor):
        return None
    return analysed(a.schedule, usual_layouts(workload, target), a.anchor, a.output, target)


def analysed(
    schedule: Schedule, layouts: dict[str, Layout], total: str, output: str, target: Target, *, fixed: str = ""
) -> Contraction | None:
    """What is to be known about the sum `total`, which `output` reads; None when it is no sum of products.

    Args:
        fixed: a tensor that lies as it is to be read, so that nobody packs it.
    """
    state = with_layouts(schedule, None, layouts).state
    s, o = state.stage(total), state.stage(output)
    if not s.stage.axes or not s.stage.reduce_axes or min(a.extent for a in s.stage.all_axes) < 1:
        return None
    reads = _product(s.stage.body[0])
    if not reads or len(reads) < 2 or len({r.tensor.name for r in reads}) < len(reads):
        return None
    periods = dict.fromkeys((a.name for a in s.stage.all_axes), 0)
    factors = [factor_of(state, s, read, periods) for read in reads]
    known = [replace(f, plain=f.plain and f.tensor != fixed) for f in factors if f is not None]
    if len(known) < len(factors):
        return None
    out = o.stage.outputs[0]
    extra = sum(r.tensor.dtype.bytes for r in o.reads() if r.tensor.name != total and len(r.tensor.shape) > 1)
    last = innermost(state.layout(out), out.shape)
    return Contraction(
        schedule,
        tuple(layouts.items()),
        total,
        output,
        tuple(Axis(a.name, a.extent, periods[a.name]) for a in s.stage.axes),
        tuple(Axis(a.name, a.extent, periods[a.name], _block(state, known, a.name)) for a in s.stage.reduce_axes),
        tuple(known),
        target.lanes(widest([s])),
        near(target),
        tuple(x for d in DOT_PRODUCTS.values() if (x := folding_of(s, d, known, target)) is not None),
        out.dtype.bytes,
        extra,
        last or 0,
        edges=tuple(n for n, a in enumerate(s.stage.axes) if a.name in _untold(state, s)),
    )


def _untold(state: State, s: StageState) -> set[str]:
    """Axes on which it depends whether what is read exists, where memory has no zeros around it."""
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in s.stage.all_axes}
    bare = [r for r in s.reads() if r.when is not None and not lies_in_memory(r, ranges, state.layout(r.tensor))]
    return {v.name for r in bare if r.when is not None for v in walk(r.when) if isinstance(v, Var)}


def _product(e: Expr) -> list[Read] | None:
    """The reads that are multiplied, widened or not; None when there is anything else."""
    if isinstance(e, Binary) and e.op == "mul":
        a, b = _product(e.a), _product(e.b)
        return None if a is None or b is None else a + b
    if isinstance(e, Cast):
        return _product(e.a) if isinstance(e.a, Read) else None
    return [e] if isinstance(e, Read) else None


def _block(state: State, factors: list[Factor], axis: str) -> int:
    """Neighbours along a reduce axis that lie together in an operand that stays as it is."""
    found = 0
    for f in factors:
        d = f.dimension(axis)
        if d is not None and not (f.plain and f.constant):
            block = state.layout(state.tensor(f.tensor)).block(d)
            found = block if block > 1 else found
    return found
