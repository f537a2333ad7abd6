"""Maps: one nest over the elements of a result, each made of a few others: copies in any order, sums, windows.

To the rules of sketches a map is a contraction without a product: what is read moves along axes in the same way. The
result, which is much of the traffic here, counts as one more factor.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from autotune.errors import ScheduleError, WorkloadError
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import StageState
from autotune.search_spaces.library.access import indirect, innermost, values, widest
from autotune.search_spaces.library.afar import near
from autotune.search_spaces.library.anchored import unordered
from autotune.search_spaces.library.fusion import inline_cheap, same_point
from autotune.search_spaces.sketch.contraction import Axis, Contraction, contraction
from autotune.search_spaces.sketch.factor import factor_of
from autotune.search_spaces.sketch.tiling import Tiling
from autotune.target import Target
from autotune.tensor.expr import Expr, Read, Select, Var, walk

NODES = 4
"""Of an expression, for each multiply-add's worth of work."""


@functools.lru_cache(maxsize=512)
def mapping(workload: Workload, target: Target) -> Contraction | None:
    """How the workload is a map; None when it is something else: a contraction, or nothing that can be analysed."""
    known = contraction(workload, target)
    if known is not None and known.vector_axes():
        return None
    try:
        schedule = inline_cheap(Schedule(compute_def(workload)))
        return _analysed(schedule, target)
    except (ScheduleError, WorkloadError):
        return None


def _analysed(schedule: Schedule, target: Target) -> Contraction | None:
    if len(schedule.compute.outputs) != 1:
        return None
    (output,) = schedule.compute.outputs
    if len(schedule.state.stages) == 1 and schedule.state.stages[0].stage.reducer is not None:
        schedule = schedule.cache_write(output)
    state = schedule.state
    others = [s.name for s in state.stages if s.name != output]
    if not all(_simple(s) for s in state.stages) or len(others) > 1:
        return None
    o = state.stage(output)
    total = others[0] if others else ""
    s = state.stage(total) if total else o
    if o.stage.reducer is not None or (total and (s.stage.reducer is None or not same_point(state, output, total))):
        return None
    if not s.stage.axes or min(a.extent for a in s.stage.all_axes) < 1:
        return None
    out = o.stage.outputs[0]
    periods = dict.fromkeys((a.name for a in s.stage.all_axes), 0)
    result = Read(out, tuple(a.var for a in s.stage.axes))
    found = [factor_of(state, s, r, periods) for r in (*dict.fromkeys(s.reads()), result)]
    factors = tuple(replace(f, plain=False, guarded=()) for f in found if f is not None)
    last = innermost(state.layout(out), out.shape)
    if len(factors) < len(found) or last is None:
        return None
    return Contraction(
        schedule,
        (),
        total,
        output,
        tuple(Axis(a.name, a.extent) for a in s.stage.axes),
        tuple(Axis(a.name, a.extent) for a in s.stage.reduce_axes) or (Axis("", 1),),
        factors,
        target.lanes(widest([s, o])),
        near(target),
        (),
        out.dtype.bytes,
        sum(r.tensor.dtype.bytes for r in o.reads() if total and r.tensor.name != total and len(r.tensor.shape) > 1),
        last,
        product=False,
        body=max(1, sum(1 for _ in values(s.stage.body[0])) // NODES),
        edges=tuple(n for n, a in enumerate(s.stage.axes) if a.name in _tested(s)),
    )


def far_apart(c: Contraction, target: Target) -> bool:
    """A transpose of what no near cache holds: neighbours of the result lie apart, and others side by side."""
    axis, others = c.spatial[c.last].name, [a.name for n, a in enumerate(c.spatial) if n != c.last and a.extent > 1]
    size = sum(math.prod(f.shape) * f.bytes for f in c.factors)
    crossed = any(f.stride(axis) not in (0, 1) and any(f.stride(x) == 1 for x in others) for f in c.reads)
    return crossed and not c.total and size > target.l2_bytes


def slides(c: Contraction) -> bool:
    """Whether sums are of windows that lie one step apart: neighbours of the result share most of what they read."""
    axis, terms = c.spatial[c.last].name, {a.name for a in c.reduce}
    steps = [dict(parts) for f in c.reads for parts in f.steps]
    return bool(c.total) and any(x.get(axis) == 1 and terms & set(x) for x in steps)


def turned(t: Tiling, c: Contraction, schedule: Schedule) -> Tiling:
    """The tiling in the layouts of `schedule`: what is innermost there takes the place of the axis of vectors."""
    out = schedule.state.stage(c.output).stage.outputs[0]
    form = schedule.state.layout(out)
    last = innermost(form, out.shape)
    if last is None:
        return t
    lanes = math.gcd(t.lanes, form.block(last)) if form.block(last) > 1 else t.lanes
    if (last, lanes) == (t.vector, t.lanes):
        return t
    other = {last: t.vector, t.vector: last}
    tile, block = list(t.tile), list(t.block)
    for n, a in enumerate(c.spatial):
        most = -(-a.extent // (lanes if n == last else 1))
        tile[n] = min(t.tile[other.get(n, n)], most)
        block[n] = min(t.block[other.get(n, n)], -(-most // tile[n]))
    outer, inner = (tuple(other.get(n, n) for n in order) for order in (t.outer, t.inner))
    return replace(t, vector=last, lanes=lanes, tile=tuple(tile), block=tuple(block), outer=outer, inner=inner)


def _simple(s: StageState) -> bool:
    """One result, from places that are known beforehand, in any order."""
    return unordered(s) and not indirect(s)


def _tested(s: StageState) -> set[str]:
    """Axes on which the conditions of reads and choices depend."""
    conditions: list[Expr] = []
    for body in s.stage.body:
        for e in walk(body):
            conditions += [e.when] if isinstance(e, Read) and e.when is not None else []
            conditions += [e.condition] if isinstance(e, Select) else []
    return {v.name for e in conditions for v in walk(e) if isinstance(v, Var)}
