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
from autotune.schedule.dot_products import DOT_PRODUCTS, LANES, DotProduct
from autotune.schedule.skip import looked_at
from autotune.schedule.state import StageState, State
from autotune.search_spaces.library.access import innermost, stride, widest
from autotune.search_spaces.library.anchored import anchored, elementwise, with_layouts
from autotune.search_spaces.library.fusion import same_point
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.target import Target
from autotune.tensor.expr import Binary, Cast, Const, Expr, Read, Var, walk
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Div, Linear, Ranges, to_linear
from autotune.tensor.stage import Axis as StageAxis

SHORT = 64
"""Terms of a sum that may all be written out."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One read of the product.

    Attributes:
        tensor: what is read; `constant`: a weight, packed once and for all.
        bytes: of an element.
        shape: of the tensor.
        steps: per dimension, how far one turn of each axis moves in it (1 for a plain index).
        strides: per axis that it moves along, elements between neighbours in memory; None where it jumps.
        plain: every index is one axis, or parts of a reduce axis and what is in them, each axis once, or the only one:
            the tensor can be packed along any of them.
        guarded: dimensions of which part of what is asked for lies outside and counts as zero.
        starts: per dimension, where the first term of the first element lies; negative in padding.
        rooms: per axis, how many turns of it find memory, whatever the other axes do; of those that jump none.
        runs: per axis, its turns in groups of which none is torn apart by a blocked layout; 0 where no group is.
        even: the axes along which all neighbours lie as far apart as the first two, and in memory.
    """

    tensor: str
    constant: bool
    bytes: int
    shape: tuple[int, ...]
    steps: tuple[tuple[tuple[str, int], ...], ...]
    strides: tuple[tuple[str, int | None], ...]
    plain: bool
    guarded: tuple[int, ...]
    starts: tuple[int, ...]
    rooms: tuple[tuple[str, int], ...]
    runs: tuple[tuple[str, int], ...]
    even: frozenset[str]

    def axes(self) -> frozenset[str]:
        """The axes along which it moves."""
        return frozenset(name for name, _ in self.strides)

    def dimension(self, axis: str) -> int | None:
        """The dimension that an axis moves along, None when there is none or several."""
        found = [d for d, parts in enumerate(self.steps) if any(name == axis for name, _ in parts)]
        return found[0] if len(found) == 1 else None

    def alone(self, axis: str) -> bool:
        """No other axis moves in the dimension that it moves along."""
        return all(len(parts) == 1 for parts in self.steps if axis in dict(parts))

    def stride(self, axis: str) -> int | None:
        """Elements between neighbours along an axis; 0 when it stays in place, None where it jumps."""
        return dict(self.strides).get(axis, 0)

    def room(self, axis: str) -> int:
        """How many turns of an axis that it moves along find memory."""
        return dict(self.rooms)[axis]


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


@dataclass(frozen=True, slots=True)
class Folding:
    """The use of an instruction.

    Attributes:
        dot: folds neighbours.
        axis: number of the reduce axis along which they are.
        lanes: that it may have.
        extent: of that axis with what is added to it, zeros, to be a multiple of what is folded.
        panels: per factor, whether it must lie in panels: its memory ends where the axis does. `zeros`: or goes on so.
        upright: of an instruction of tiles, per spatial axis along which vectors lie, the axis along which rows do;
            -1 where there is none.
    """

    dot: DotProduct
    axis: int
    lanes: tuple[int, ...]
    extent: int
    panels: tuple[bool, ...]
    zeros: tuple[bool, ...]
    upright: tuple[int, ...] = ()

    def height(self, extent: int) -> int:
        """Rows of a tile along an axis: all tiles have about as many."""
        return -(-extent // -(-extent // self.dot.rows))


@dataclass(frozen=True, slots=True)
class Contraction:
    """A schedule in which only the sum, what it reads and the output are left, and what is to be known about them.

    Attributes:
        schedule: nothing decided yet but what is inlined; `layouts`: what operands get where nobody asks for others.
        total: the stage of the sum; `output` reads it, each element where it is itself.
        spatial, reduce: axes of the sum.
        lanes: elements of the widest vector.
        foldings: the instructions that fold neighbours, of those that the CPU has and that fit.
        stored: bytes of an element of the output; `extra`: of what is read beside the sum, per element.
        last: number of the spatial axis along which the output is contiguous.
        product: it is a sum of products; else a map (`sketch.mapping`), of which the last factor is the result.
        body: of a map, an element's work in multiply-adds.
        edges: numbers of the spatial axes on which conditions depend: of a map all, of a sum those of reads whose zeros
            do not lie in memory. Tiles at their ends are code of their own.
    """

    schedule: Schedule
    layouts: tuple[tuple[str, Layout], ...]
    total: str
    output: str
    spatial: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    factors: tuple[Factor, ...]
    lanes: int
    foldings: tuple[Folding, ...]
    stored: int
    extra: int
    last: int
    product: bool = True
    body: int = 1
    edges: tuple[int, ...] = ()

    @property
    def reads(self) -> tuple[Factor, ...]:
        """The factors that are loaded."""
        return self.factors if self.product else self.factors[:-1]

    @property
    def points(self) -> int:
        """Products that are summed up."""
        return math.prod(a.extent for a in (*self.spatial, *self.reduce))

    @property
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
    schedule: Schedule, layouts: dict[str, Layout], total: str, output: str, target: Target
) -> Contraction | None:
    """What is to be known about the sum `total`, which `output` reads; None when it is no sum of products."""
    state = with_layouts(schedule, None, layouts).state
    s, o = state.stage(total), state.stage(output)
    if not s.stage.axes or not s.stage.reduce_axes or min(a.extent for a in s.stage.all_axes) < 1:
        return None
    reads = _product(s.stage.body[0])
    if not reads or len(reads) < 2 or len({r.tensor.name for r in reads}) < len(reads):
        return None
    periods = dict.fromkeys((a.name for a in s.stage.all_axes), 0)
    factors = [factor_of(state, s, read, periods) for read in reads]
    known = [f for f in factors if f is not None]
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
        tuple(x for d in DOT_PRODUCTS.values() if (x := _folding(s, d, known, target)) is not None),
        out.dtype.bytes,
        extra,
        last or 0,
        edges=tuple(n for n, a in enumerate(s.stage.axes) if a.name in _untold(state, s)),
    )


def _untold(state: State, s: StageState) -> set[str]:
    """Axes on which it depends whether what is read exists, where memory has no zeros around it."""
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in s.stage.all_axes}
    bare = [r for r in s.reads() if r.when is not None and not _lies_in_memory(r, ranges, state.layout(r.tensor))]
    return {v.name for r in bare if r.when is not None for v in walk(r.when) if isinstance(v, Var)}


def _product(e: Expr) -> list[Read] | None:
    """The reads that are multiplied, widened or not; None when there is anything else."""
    if isinstance(e, Binary) and e.op == "mul":
        a, b = _product(e.a), _product(e.b)
        return None if a is None or b is None else a + b
    if isinstance(e, Cast):
        return _product(e.a) if isinstance(e.a, Read) else None
    return [e] if isinstance(e, Read) else None


def factor_of(state: State, s: StageState, read: Read, periods: dict[str, int]) -> Factor | None:
    """What a read moves along; None where that is no matter of steps. Jumps are noted in `periods`."""
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in s.stage.all_axes}
    steps, moving, jumping, guarded, starts, ends = [], set[str](), set[str](), [], [], []
    constant = any(t.name == read.tensor.name and t.constant for t in state.inputs)
    for d, (index, size) in enumerate(zip(read.indices, read.tensor.shape)):
        form = to_linear(index, ranges)
        parts: dict[str, int] = {}
        for term, c in form.terms.items():
            if isinstance(term, str):
                parts[term] = parts.get(term, 0) + c
            elif isinstance(term, Div) and (axis := _one_axis(term.arg)) is not None:
                periods[axis] = math.gcd(periods[axis], term.divisor)
                jumping.add(axis)
            elif constant and isinstance(term, Expr) and (axis := _picking(term, s, ranges)) is not None:
                periods[axis] = 1  # each turn is somewhere else
                parts[axis] = parts.get(axis, 0) + c
            else:
                return None
        steps.append(tuple(parts.items()))
        moving |= set(parts)
        starts.append(form.const)
        low, high = form.range(ranges)
        ends.append(high)
        zero = isinstance(read.otherwise, Const) and read.otherwise.value == 0
        guarded += [d] if read.when is not None and zero and (low < 0 or high >= size) else []
    each = [name for parts in steps for name, _ in parts]
    free = [parts for parts, size in zip(steps, read.tensor.shape) if parts or size > 1]
    dense = all(_dense(s, parts) for parts in free) and len(set(each)) == len(each)
    plain = dense and not jumping and not any(starts) and read.when is None
    # Between its jumps, what jumps stays in place.
    strides = tuple((x, stride(state, s, read, x) if x in moving else 0) for x in sorted(moving | jumping))
    t = read.tensor
    shape = (t.name, constant, t.dtype.bytes, t.shape)
    laid = state.layout(t)
    runs = tuple(
        (x, math.gcd(*(_run(i, ranges, laid.block(d), x) for d, i in enumerate(read.indices)))) for x, _ in strides
    )
    rooms = tuple((x, _room(steps, ends, ranges, state.layout(t).allocated(t.shape), x)) for x, _ in strides)
    blocked = {name for d, parts in enumerate(steps) for name, _ in parts if laid.block(d) > 1}
    even = frozenset(name for name, step in strides if step is not None) - jumping - blocked
    if read.when is not None and not _lies_in_memory(read, ranges, laid):
        even = frozenset()
    return Factor(*shape, tuple(steps), strides, plain, tuple(guarded), tuple(starts), rooms, runs, even)


def _lies_in_memory(read: Read, ranges: Ranges, laid: Layout) -> bool:
    """Whether memory has all that is read, with the zeros around it: nothing needs to be asked for each element."""
    spans = [to_linear(index, ranges).range(ranges) for index in read.indices]
    inside = all(low >= 0 and high < size for (low, high), size in zip(spans, read.tensor.shape))
    zero = isinstance(read.otherwise, Const) and read.otherwise.value == 0
    rooms = laid.allocated(read.tensor.shape)
    return inside or (zero and all(low >= lo and high < hi for (low, high), (lo, hi) in zip(spans, rooms)))


def _run(index: Expr, ranges: Ranges, block: int, axis: str) -> int:
    """Neighbours along an axis that one block of a dimension holds, wherever the other axes are; 0 for any number."""
    form = to_linear(index, ranges)
    if block == 1 or axis not in form.terms:
        return 0
    return math.gcd(block, form.const, *(c for term, c in form.terms.items() if term != axis))


def _room(
    steps: list[tuple[tuple[str, int], ...]],
    ends: list[int],
    ranges: Ranges,
    allocated: tuple[tuple[int, int], ...],
    axis: str,
) -> int:
    """Turns of an axis that find memory when all other axes are at their ends (`ends`: with its own last turn)."""
    found, last = [], ranges[axis][1]
    for parts, end, (_, room) in zip(steps, ends, allocated):
        own = sum(step for name, step in parts if name == axis)
        found += [last + 1 + (room - 1 - end) // own] if own > 0 else [last + 1] if own else []
    return min(found, default=0)


def _dense(s: StageState, parts: tuple[tuple[str, int], ...]) -> bool:
    """An index is one axis, or position in a part of a reduce axis behind the parts before it."""
    if len(parts) != 2:
        return len(parts) == 1 and parts[0][1] == 1
    (inner, one), (_, step) = sorted(parts, key=lambda part: part[1])
    return one == 1 and any(a.name == inner and a.extent == step for a in s.stage.reduce_axes)


def _one_axis(form: Linear) -> str | None:
    names = list(form.terms)
    return names[0] if len(names) == 1 and isinstance(names[0], str) and form.const == 0 else None


def _picking(index: Expr, s: StageState, ranges: Ranges) -> str | None:
    """The one axis, which is not summed along, with which an index that is itself read moves; None where others do."""
    moving = {e.name for e in walk(index) if isinstance(e, Var) and ranges[e.name][1] > 0}
    return next(iter(moving)) if len(moving) == 1 and moving <= {a.name for a in s.stage.axes} else None


def _block(state: State, factors: list[Factor], axis: str) -> int:
    """Neighbours along a reduce axis that lie together in an operand that stays as it is."""
    found = 0
    for f in factors:
        d = f.dimension(axis)
        if d is not None and not (f.plain and f.constant):
            block = state.layout(state.tensor(f.tensor)).block(d)
            found = block if block > 1 else found
    return found


def _folding(s: StageState, dot: DotProduct, factors: list[Factor], target: Target) -> Folding | None:
    """How an instruction folds the terms of a stage: along the last axis of which it can."""
    body, most = s.stage.body[0], target.lanes(dot.total.bytes)
    lanes = tuple(n for n in LANES if n <= most and dot.runs(target.features, n))
    if not lanes or body.dtype is not dot.total or not isinstance(body, Binary) or body.op != "mul":
        return None
    if not dot.multiplies(*(e.a.dtype if isinstance(e, Cast) else None for e in (body.a, body.b))):
        return None
    upright = tuple(_upright(s, a, factors) for a in s.stage.axes) if dot.tiled else ()
    if dot.tiled and max(upright) < 0:
        return None
    found = []
    for n, a in enumerate(s.stage.reduce_axes):
        extent = -(-a.extent // dot.extent) * dot.extent
        panels = tuple(f.room(a.name) < extent for f in factors if a.name in f.axes())
        # Whatever an integer is, zero times it is zero; a float may be infinite.
        zeros = tuple(dot.total.is_int and f.plain and (f.constant or not ends) for f, ends in zip(factors, panels))
        beside = all(_beside(f, a.name, dot, ends) for f, ends in zip(factors, panels))
        if len(panels) == len(factors) and beside and (extent == a.extent or any(zeros)):
            found.append(Folding(dot, n, lanes, extent, panels, zeros, upright))

    def cost(f: Folding) -> tuple[int, float]:
        axis = s.stage.reduce_axes[f.axis]
        return sum(x.stride(axis.name) or 0 for x in factors if not x.plain), f.extent / axis.extent

    return min(found, key=cost, default=None)


def _upright(s: StageState, vector: StageAxis, factors: list[Factor]) -> int:
    """The axis along which rows of tiles lie where vectors lie along another: the longest that leads evenly through
    the one factor that stays in place along that, and not through the other."""
    still, moving = ([f for f in factors if (vector.name in f.axes()) is along] for along in (False, True))
    if len(still) != 1 or len(moving) != 1 or not moving[0].plain:
        return -1
    (left,), (right,) = still, moving
    fitting = [
        n
        for n, a in enumerate(s.stage.axes)
        if a.extent > 1 and a.name in left.axes() and a.name in left.even and a.name not in right.axes()
    ]
    return max(fitting, key=lambda n: (s.stage.axes[n].extent, n), default=-1)


def _beside(f: Factor, axis: str, dot: DotProduct, panels: bool) -> bool:
    """Groups of neighbours along the axis lie evenly apart, or can be laid side by side, as they must with `panels`.

    Instructions of tiles read memory as it is: there the neighbours must be neighbours.
    """
    if dot.tiled:
        return (f.stride(axis) == 1 and not panels) or f.plain
    return (f.stride(axis) is not None and dict(f.runs)[axis] % dot.extent == 0 and not panels) or f.plain
