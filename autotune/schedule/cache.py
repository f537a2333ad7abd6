"""Primitives that add a stage: staging copies and factored reductions."""

from __future__ import annotations

from dataclasses import replace

from autotune.schedule.consistent import consistent
from autotune.schedule.registry import check, primitive
from autotune.schedule.state import StageState, State
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Read, rewrite, substitute
from autotune.tensor.linear import conjunction, nonnegatives, to_linear
from autotune.tensor.stage import Axis, Stage, Tensor


@primitive
def cache_write(state: State, tensor: str) -> State:
    """Compute a tensor into a copy of its own first, so that accumulation and writing back are scheduled apart.

    rewrite:
        T[i] = f(i)
        -->
        T.c[i] = f(i)
        T[i] = T.c[i]
    """
    s = state.stage(tensor)
    check(s.untouched, f"cache_write {tensor}: it has already been scheduled")
    scan = s.stage.scan_axis is not None and s.stage.recurrence is None
    check(not scan, f"cache_write {tensor}: it is a scan")
    check(len(s.stage.outputs) == 1, f"cache_write {tensor}: it has several outputs")
    check(s.stage.extern is None, f"cache_write {tensor}: an extern function writes it row by row")
    written = s.stage.outputs[0]
    cached = Tensor(_free(state, f"{tensor}.c"), written.shape, written.dtype)
    inner = replace(s.stage, outputs=(cached,))
    copy = _in_turn(s, Stage((written,), s.stage.axes, (), (Read(cached, tuple(a.var for a in s.stage.axes)),)))
    return _with_before(
        state, s, replace(StageState.fresh(inner), where=s.where), StageState.fresh(copy), f"cache_write {tensor}"
    )


@primitive
def cache_read(
    state: State, tensor: str, consumer: str, padded: bool = False, only: int = -1, stored: str = ""
) -> State:
    """Copy the part of a tensor that a consumer reads into a nearer place (packing when it gets a layout).

    With `padded`, the copy holds the padding too, so that the consumer tests nothing. `only` is the number of the one
    read of the tensor, from the left, that goes to the copy, where a stage reads several parts; -1 for all. With
    `stored`, a wider type, the copy holds elements of that, of what the consumer widens anyway.

    rewrite:
        S = g(T[e])                                 S = g(T[e] if 0 <= e < n else 0)
        -->                                         -->  (padded, e from -lo to n + hi)
        T.r[i] = T[i]                               T.r[i] = T[i - lo] if 0 <= i - lo < n else 0
        S = g(T.r[e])                               S = g(T.r[e + lo])
    """
    t, c = state.tensor(tensor), state.stage(consumer)
    check(any(r.tensor.name == tensor for r in c.reads()), f"cache_read {tensor}: {consumer} does not read it")
    check(
        c.stage.scan_axis is None or all(o.name != tensor for o in c.stage.outputs),
        f"cache_read {tensor}: it is the scan's own state",
    )
    turns = {o.name: x.stage.recurrence for x in state.stages for o in x.stage.outputs}
    check(
        c.stage.recurrence is None or turns.get(tensor) != c.stage.recurrence,
        f"cache_read {tensor}: it takes turns with {consumer}",
    )
    check(not padded or c.stage.extern is None, f"cache_read {tensor}: {consumer} is an extern function")
    reads = [r for r in c.reads() if r.tensor.name == tensor]
    check(-1 <= only < len(reads), f"cache_read {tensor}: {consumer} has {len(reads)} reads of it, none number {only}")
    check(only < 0 or not padded, f"cache_read {tensor}: padded copies serve all reads; leave out only")
    spans = [(0, n) for n in t.shape] if not padded else _spans(c, t)
    held = _wider(t, stored) if stored else t.dtype
    copy = Tensor(_free(state, f"{tensor}.r"), tuple(n for _, n in spans), held)
    axes = tuple(Axis(f"i{d}", n) for d, (_, n) in enumerate(spans))
    source = Tensor(t.name, t.shape, t.dtype)
    value = Read(source, tuple(_shifted(a.var, first) for a, (first, _) in zip(axes, spans)))
    if padded:
        value = replace(value, when=_inside(value, spans), otherwise=_otherwise(c, t))
    stage = Stage((copy,), axes, (), (Cast(value, held) if stored else value,))

    def redirect(e: Expr) -> Expr | None:
        if stored and isinstance(e, Cast) and isinstance(e.a, Cast) and _reads(e.a.a, copy):  # there and back
            if e.dtype is held:
                return e.a.a
            if e.dtype.bits > held.bits:
                return Cast(e.a.a, e.dtype)
        if not isinstance(e, Read) or e.tensor.name != tensor or (only >= 0 and e != reads[only]):
            return None
        if padded:
            found = Read(copy, tuple(_shifted(i, -first) for i, (first, _) in zip(e.indices, spans)))
        else:
            found = Read(copy, e.indices, e.when, _in(held, e.otherwise))
        return Cast(found, t.dtype) if stored else found

    changed = replace(c, stage=replace(c.stage, body=tuple(rewrite(b, redirect) for b in c.stage.body)))
    return _with_before(state, c, StageState.fresh(stage), changed, f"cache_read {tensor}")


def _wider(t: Tensor, stored: str) -> DType:
    """The type of that name; it must hold all that the tensor may hold."""
    known = stored in {d.value for d in DType}
    check(known, f"cache_read {t.name}: {stored!r} is no type of elements")
    wider = DType(stored)
    alike = t.dtype.is_int and wider.is_int and wider.is_signed
    alike |= t.dtype.is_float and wider.is_float and not t.dtype.is_storage
    fits = alike and wider.bits > t.dtype.bits
    check(fits, f"cache_read {t.name}: {stored} does not hold every {t.dtype}; name a wider float or signed integer")
    return wider


def _reads(e: Expr, t: Tensor) -> bool:
    return isinstance(e, Read) and e.tensor.name == t.name


def _in(held: DType, otherwise: Expr | None) -> Expr | None:
    """What is read outside, in the type of the copy."""
    if otherwise is None or otherwise.dtype is held:
        return otherwise
    return Const(otherwise.value, held) if isinstance(otherwise, Const) else Cast(otherwise, held)


def _spans(c: StageState, t: Tensor) -> list[tuple[int, int]]:
    """(first, count) per dimension of the positions that `c` asks for, inside and outside of the tensor.

    Raises:
        ScheduleError: when what is read outside is not decided by the position alone.
    """
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in c.stage.all_axes}
    lows, highs = list(t.shape), [-1 for _ in t.shape]
    for r in c.reads():
        if r.tensor.name != t.name:
            continue
        forms = [to_linear(i, ranges) for i in r.indices]
        check(not any(f.is_opaque for f in forms), f"cache_read {t.name}: {c.name} reads it at run-time indices")
        bounds = {bound for f, n in zip(forms, t.shape) for bound in (f, f * -1 + (n - 1))}
        for part in () if r.when is None else conjunction(r.when):
            asked = nonnegatives(part, ranges)
            only_inside = asked is not None and all(g in bounds or g.range(ranges)[0] >= 0 for g in asked)
            check(only_inside, f"cache_read {t.name}: `{part}` is no test for the inside of {t.name}; leave out padded")
        for d, f in enumerate(forms):
            low, high = f.range(ranges)
            lows[d], highs[d] = min(lows[d], low), max(highs[d], high)
    return [(low, max(high - low + 1, 0)) for low, high in zip(lows, highs)]


def _otherwise(c: StageState, t: Tensor) -> Expr:
    """What lies outside."""
    found = {r.otherwise for r in c.reads() if r.tensor.name == t.name and r.otherwise is not None}
    check(len(found) <= 1, f"cache_read {t.name}: {c.name} pads it with different values; leave out padded")
    return next(iter(found), Const(0 if t.dtype.is_int else 0.0, t.dtype))


def _inside(read: Read, spans: list[tuple[int, int]]) -> Expr | None:
    """The test for positions inside of the tensor, in the dimensions where there are others."""
    when: Expr | None = None
    for index, n, (first, count) in zip(read.indices, read.tensor.shape, spans):
        tests = [Binary("ge", index, Const(0, DType.i64), DType.bool)] if first < 0 else []
        if first + count > n:
            tests.append(Binary("lt", index, Const(n, DType.i64), DType.bool))
        for test in tests:
            when = test if when is None else Binary("and", when, test, DType.bool)
    return when


def _shifted(index: Expr, by: int) -> Expr:
    return index if by == 0 else Binary("add", index, Const(by, DType.i64), DType.i64)


@primitive
def rfactor(state: State, stage: str, axis: str, factor: int, keep: str = "outer") -> State:
    """Split a reduction in two levels: partial results per block (K blocking), or per lane or thread (split-K).

    With `keep="outer"`, partial results of blocks of `factor` are folded; with "inner", each of `factor` strided lanes.

    rewrite:
        C[i] = sum[k] f(i, k)
        -->
        C.rf[k.0, i] = sum[k.1] f(i, k.0 * factor + k.1)
        C[i] = sum[k.0] C.rf[k.0, i]
    """
    s = state.stage(stage)
    check(s.stage.reducer is not None, f"rfactor {stage}: it does not reduce")
    check(s.untouched, f"rfactor {stage}: factor the reduction before scheduling its loops")
    check(keep in ("outer", "inner"), f"rfactor {stage}: keep {keep!r} is not 'outer' or 'inner'")
    names = [a.name for a in s.stage.reduce_axes]
    check(axis in names, f"rfactor {stage}: no reduce axis {axis!r}; it has {', '.join(names)}")
    old = s.stage.axis(axis)
    check(1 <= factor <= max(old.extent, 1), f"rfactor {stage}.{axis}: factor {factor} is not in 1..{old.extent}")
    outer, inner = Axis(f"{axis}.o", -(-old.extent // factor)), Axis(f"{axis}.i", factor)
    kept, folded = (outer, inner) if keep == "outer" else (inner, outer)
    position = Binary("add", Binary("mul", outer.var, Const(factor, DType.i64), DType.i64), inner.var, DType.i64)
    reducer = s.stage.reducer
    assert reducer is not None
    inside = Binary("lt", position, Const(old.extent, DType.i64), DType.bool)
    moved: dict[str, Expr] = {axis: position}
    where = tuple(substitute(c, moved) for c in s.where) + (() if old.extent % factor == 0 else (inside,))
    bodies = tuple(substitute(body, moved) for body in s.stage.body)
    shape = (kept.extent, *(a.extent for a in s.stage.axes))
    partial = tuple(Tensor(_free(state, f"{t.name}.rf"), shape, t.dtype) for t in s.stage.outputs)
    others = tuple(a for a in s.stage.reduce_axes if a.name != axis)
    inner_stage = _in_turn(s, Stage(partial, (kept, *s.stage.axes), (*others, folded), bodies, reducer))
    spatial = tuple(a.var for a in s.stage.axes)
    sums = tuple(Read(p, (kept.var, *spatial)) for p in partial)
    fold = _in_turn(s, Stage(s.stage.outputs, s.stage.axes, (kept,), sums, reducer))
    return _with_before(
        state, s, replace(StageState.fresh(inner_stage), where=where), StageState.fresh(fold), f"rfactor {stage}"
    )


def _in_turn(s: StageState, stage: Stage) -> Stage:
    """A stage that takes part of the work of `s`, as exact, and in the same recurrence if that is in one."""
    return replace(stage, scan_axis=s.stage.scan_axis, recurrence=s.stage.recurrence, amplified=s.stage.amplified)


def _free(state: State, name: str) -> str:
    taken = {t.name for t in state.tensors()}
    while name in taken:
        name += "_"
    return name


def _with_before(state: State, old: StageState, new: StageState, changed: StageState, step: str) -> State:
    """Replace `old` by `changed`, with stage `new` before it: directly, or before all that take turns with it."""
    turns = old.stage.recurrence
    mates = [s.name for s in state.stages if turns is not None and s.stage.recurrence == turns]
    first = old.name if not mates or new.stage.recurrence == turns else mates[0]
    stages: list[StageState] = []
    for s in state.stages:
        stages += [new] if s.name == first else []
        stages.append(changed if s.name == old.name else s)
    return consistent(replace(state, stages=tuple(stages)), step)
