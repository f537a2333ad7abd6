"""Contraction: what a sum of products over any axes looks like to the rules that schedule it.

A matrix product, a convolution, attention's scores, a tensor contraction: one stage that sums up a product of reads,
and elementwise work on its result. What matters is which axes each read moves along and how far apart its elements are.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from autotune.errors import ScheduleError, WorkloadError
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS, DotProduct
from autotune.schedule.state import StageState, State
from autotune.search_spaces.library.access import innermost, stride, widest
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.library.fusion import same_point
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.target import Target
from autotune.tensor.expr import Binary, Cast, Expr, Read, Var
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Div, Linear, to_linear


@dataclass(frozen=True, slots=True)
class Factor:
    """One read of the product.

    Attributes:
        tensor: what is read; `constant`: a weight, packed once and for all.
        bytes: of an element.
        shape: of the tensor.
        steps: per dimension, how far one turn of each axis moves in it (1 for a plain index).
        strides: per axis that it moves along, elements between neighbours in memory; None where it jumps.
        plain: every index is one axis, each axis once: the tensor can be packed along any of them.
        guarded: dimensions of which part of what is asked for lies outside and counts as zero.
        starts: per dimension, where the first term of the first element lies; negative in padding.
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

    def axes(self) -> frozenset[str]:
        """The axes along which it moves."""
        return frozenset(name for name, _ in self.strides)

    def dimension(self, axis: str) -> int | None:
        """The dimension that an axis moves along, None when there is none or several."""
        found = [d for d, parts in enumerate(self.steps) if any(name == axis for name, _ in parts)]
        return found[0] if len(found) == 1 else None

    def stride(self, axis: str) -> int | None:
        """Elements between neighbours along an axis; 0 when it stays in place, None where it jumps."""
        return dict(self.strides).get(axis, 0)


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
class Contraction:
    """A schedule in which only the sum, what it reads and the output are left, and what is to be known about them.

    Attributes:
        schedule: nothing decided yet but what is inlined; `layouts`: what operands get where nobody asks for others.
        total: the stage of the sum; `output` reads it, each element where it is itself.
        spatial, reduce: axes of the sum.
        lanes: elements of the widest vector.
        dot: the instruction that folds neighbours along a reduce axis, `dot_axis`; None where there is none that fits.
        stored: bytes of an element of the output; `extra`: of what is read beside the sum, per element.
        last: number of the spatial axis along which the output is contiguous.
    """

    schedule: Schedule
    layouts: tuple[tuple[str, Layout], ...]
    total: str
    output: str
    spatial: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    factors: tuple[Factor, ...]
    lanes: int
    dot: DotProduct | None
    dot_axis: int
    stored: int
    extra: int
    last: int

    @property
    def points(self) -> int:
        """Products that are summed up."""
        return math.prod(a.extent for a in (*self.spatial, *self.reduce))

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
        """Lanes that a vector may have: all, half, and a quarter where an axis is that short."""
        short = [a.period or a.extent for a in self.spatial if a.extent >= 4]
        return tuple(n for n in (self.lanes, self.lanes // 2, self.lanes // 4)
                     if n >= 4 and (n >= self.lanes // 2 or min(short, default=n) < 2 * n))  # fmt: skip

    def vector_axes(self) -> list[int]:
        """Numbers of the spatial axes that vectors may lie along: with what can be packed, nothing is gathered."""
        found = []
        for n, a in enumerate(self.spatial):
            steps = [0 if f.plain else f.stride(a.name) for f in self.factors]
            whole = a.period == 0 or any(a.period % width == 0 for width in self.widths())
            if a.extent >= 4 and whole and all(step in (0, 1) for step in steps):
                found.append(n)
        return found


@functools.lru_cache(maxsize=512)
def contraction(workload: Workload, target: Target) -> Contraction | None:
    """How the workload is a contraction; None when it is something else."""
    try:
        schedule = Schedule(compute_def(workload))
    except WorkloadError:
        return None
    if len(schedule.compute.outputs) != 1:
        return None
    (output,) = schedule.compute.outputs
    heavy = [s for s in schedule.state.stages if not _elementwise(s)]
    if len(heavy) != 1 or heavy[0].stage.reducer is None or heavy[0].stage.reducer.name != "sum":
        return None
    total = heavy[0].name
    try:
        for s in schedule.state.stages:
            if _elementwise(s) and s.name != output:
                schedule = schedule.inline(s.name)
        if total == output:
            schedule = schedule.cache_write(output)
            total = next(s.name for s in schedule.state.stages if s.name != output)
    except ScheduleError:
        return None
    state = schedule.state
    if {s.name for s in state.stages} != {total, output} or not same_point(state, output, total):
        return None
    return _analysed(schedule, usual_layouts(workload, target), total, output, target)


def _elementwise(s: StageState) -> bool:
    whole = s.stage.scan_axis is None and s.stage.extern is None and s.stage.recurrence is None
    return s.stage.reducer is None and whole and len(s.stage.outputs) == 1


def _analysed(
    schedule: Schedule, layouts: dict[str, Layout], total: str, output: str, target: Target
) -> Contraction | None:
    state = with_layouts(schedule, None, layouts).state
    s, o = state.stage(total), state.stage(output)
    if not s.stage.axes or not s.stage.reduce_axes or min(a.extent for a in s.stage.all_axes) < 1:
        return None
    reads = _product(s.stage.body[0])
    if not reads or len(reads) < 2 or len({r.tensor.name for r in reads}) < len(reads):
        return None
    periods = dict.fromkeys((a.name for a in s.stage.all_axes), 0)
    factors = [_factor(state, s, read, periods) for read in reads]
    known = [f for f in factors if f is not None]
    if len(known) < len(factors):
        return None
    dot = next((d for d in DOT_PRODUCTS.values() if _dot_fits(s, d, target)), None)
    axes = [a.name for a in s.stage.reduce_axes]
    together = [n for n, a in enumerate(axes) if dot and all(_beside(f, a) for f in known) and not _odd(s, n, dot)]
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
        dot if together else None,
        together[-1] if together else 0,
        out.dtype.bytes,
        extra,
        last or 0,
    )


def _product(e: Expr) -> list[Read] | None:
    """The reads that are multiplied, widened or not; None when there is anything else."""
    if isinstance(e, Binary) and e.op == "mul":
        a, b = _product(e.a), _product(e.b)
        return None if a is None or b is None else a + b
    if isinstance(e, Cast):
        return _product(e.a) if isinstance(e.a, Read) else None
    return [e] if isinstance(e, Read) else None


def _factor(state: State, s: StageState, read: Read, periods: dict[str, int]) -> Factor | None:
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in s.stage.all_axes}
    steps, moving, jumping, guarded, starts = [], set[str](), set[str](), [], []
    for d, (index, size) in enumerate(zip(read.indices, read.tensor.shape)):
        form = to_linear(index, ranges)
        parts: dict[str, int] = {}
        for term, c in form.terms.items():
            if isinstance(term, str):
                parts[term] = parts.get(term, 0) + c
            elif isinstance(term, Div) and (axis := _one_axis(term.arg)) is not None:
                periods[axis] = math.gcd(periods[axis], term.divisor)
                jumping.add(axis)
            else:
                return None
        steps.append(tuple(parts.items()))
        moving |= set(parts)
        starts.append(form.const)
        low, high = form.range(ranges)
        guarded += [d] if read.when is not None and (low < 0 or high >= size) else []
    constant = any(t.name == read.tensor.name and t.constant for t in state.inputs)
    names = [i.name for i in read.indices if isinstance(i, Var)]
    plain = len(names) == len(read.indices) and len(set(names)) == len(names) and read.when is None
    # Between its jumps, what jumps stays in place.
    strides = tuple((x, stride(state, s, read, x) if x in moving else 0) for x in sorted(moving | jumping))
    t = read.tensor
    shape = (t.name, constant, t.dtype.bytes, t.shape)
    return Factor(*shape, tuple(steps), strides, plain, tuple(guarded), tuple(starts))


def _one_axis(form: Linear) -> str | None:
    names = list(form.terms)
    return names[0] if len(names) == 1 and isinstance(names[0], str) and form.const == 0 else None


def _block(state: State, factors: list[Factor], axis: str) -> int:
    """Neighbours along a reduce axis that lie together in an operand that stays as it is."""
    found = 0
    for f in factors:
        d = f.dimension(axis)
        if d is not None and not (f.plain and f.constant):
            block = state.layout(state.tensor(f.tensor)).block(d)
            found = block if block > 1 else found
    return found


def _dot_fits(s: StageState, dot: DotProduct, target: Target) -> bool:
    body = s.stage.body[0]
    if body.dtype is not dot.total or not isinstance(body, Binary) or body.op != "mul":
        return False
    if dot.tiled or not dot.runs(target.features, target.lanes(4)):
        return False
    found = tuple(e.a.dtype if isinstance(e, Cast) and isinstance(e.a, Read) else None for e in (body.a, body.b))
    return found in ((dot.left, dot.right), (dot.right, dot.left))


def _beside(f: Factor, axis: str) -> bool:
    """Neighbours along the axis lie side by side, or can be laid so."""
    return f.stride(axis) == 1 or (f.plain and axis in f.axes())


def _odd(s: StageState, reduce: int, dot: DotProduct) -> bool:
    return bool(s.stage.reduce_axes[reduce].extent % dot.extent)
