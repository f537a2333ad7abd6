"""Primitives that add a stage: staging copies and factored reductions."""

from __future__ import annotations

from dataclasses import replace

from autotune.schedule.consistent import consistent
from autotune.schedule.registry import check, primitive
from autotune.schedule.state import StageState, State
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Const, Expr, Read, rewrite, substitute
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
    check(s.stage.scan_axis is None, f"cache_write {tensor}: it is a scan")
    check(len(s.stage.outputs) == 1, f"cache_write {tensor}: it has several outputs")
    check(s.stage.extern is None, f"cache_write {tensor}: an extern function writes it row by row")
    written = s.stage.outputs[0]
    cached = Tensor(_free(state, f"{tensor}.c"), written.shape, written.dtype)
    inner = replace(s.stage, outputs=(cached,))
    copy = Stage((written,), s.stage.axes, (), (Read(cached, tuple(a.var for a in s.stage.axes)),))
    return _with_before(
        state, s, replace(StageState.fresh(inner), where=s.where), StageState.fresh(copy), f"cache_write {tensor}"
    )


@primitive
def cache_read(state: State, tensor: str, consumer: str) -> State:
    """Copy the part of a tensor that a consumer reads into a nearer place (packing when it gets a layout).

    rewrite:
        S = g(T[e])
        -->
        T.r[i] = T[i]
        S = g(T.r[e])
    """
    t, c = state.tensor(tensor), state.stage(consumer)
    check(any(r.tensor.name == tensor for r in c.reads()), f"cache_read {tensor}: {consumer} does not read it")
    check(
        c.stage.scan_axis is None or all(o.name != tensor for o in c.stage.outputs),
        f"cache_read {tensor}: it is the scan's own state",
    )
    copy = Tensor(_free(state, f"{tensor}.r"), t.shape, t.dtype)
    axes = tuple(Axis(f"i{n}", e) for n, e in enumerate(t.shape))
    stage = Stage((copy,), axes, (), (Read(Tensor(t.name, t.shape, t.dtype), tuple(a.var for a in axes)),))

    def redirect(e: Expr) -> Expr | None:
        return Read(copy, e.indices, e.when, e.otherwise) if isinstance(e, Read) and e.tensor.name == tensor else None

    changed = replace(c, stage=replace(c.stage, body=tuple(rewrite(b, redirect) for b in c.stage.body)))
    return _with_before(state, c, StageState.fresh(stage), changed, f"cache_read {tensor}")


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
    inner_stage = Stage(partial, (kept, *s.stage.axes), (*others, folded), bodies, reducer)
    spatial = tuple(a.var for a in s.stage.axes)
    fold = Stage(s.stage.outputs, s.stage.axes, (kept,), tuple(Read(p, (kept.var, *spatial)) for p in partial), reducer)
    return _with_before(
        state, s, replace(StageState.fresh(inner_stage), where=where), StageState.fresh(fold), f"rfactor {stage}"
    )


def _free(state: State, name: str) -> str:
    taken = {t.name for t in state.tensors()}
    while name in taken:
        name += "_"
    return name


def _with_before(state: State, old: StageState, new: StageState, changed: StageState, step: str) -> State:
    """Replace `old` by `changed`, with stage `new` directly before it."""
    stages: list[StageState] = []
    for s in state.stages:
        stages += [new, changed] if s.name == old.name else [s]
    return consistent(replace(state, stages=tuple(stages)), step)
