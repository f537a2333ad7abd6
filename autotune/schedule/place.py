"""Primitives that decide where a stage is computed and how its tensors lie in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.errors import ScheduleError, WorkloadError
from autotune.schedule.consistent import consistent, is_inside
from autotune.schedule.region import Regions
from autotune.schedule.registry import check, primitive
from autotune.schedule.state import LOCAL, PARALLEL, REGISTER, SERIAL, TILE, UNROLL, Loop, StageState, State
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.expr import Binary, Cast, Const, Expr, Read, rewrite, select, substitute
from autotune.tensor.layout import Layout
from autotune.tensor.recurrences import steps_behind
from autotune.tensor.stage import Stage, Tensor

MAX_REGISTER_ELEMENTS = 4096


@primitive
def inline(state: State, stage: str) -> State:
    """Recompute an elementwise stage wherever it is read.

    rewrite:
        T[i] = f(i)
        S = g(T[e])
        -->
        S = g(f(e))
    """
    s = state.stage(stage)
    check(s.stage.reducer is None, f"inline {stage}: it reduces; a reduction is computed at a loop instead")
    carried = any(r.tensor.name == t.name for r in s.reads() for t in s.stage.outputs)
    scan = s.stage.scan_axis is not None and (s.stage.recurrence is None or carried)
    check(not scan, f"inline {stage}: it is a scan; compute it at a loop instead")
    check(s.stage.extern is None, f"inline {stage}: it is an extern function")
    check(not any(t.name in state.outputs for t in s.stage.outputs), f"inline {stage}: it is an output of the kernel")
    check(s.untouched, f"inline {stage}: it has already been scheduled")
    check(len(s.stage.outputs) == 1, f"inline {stage}: it has several outputs")
    rows = [c.name for c in state.consumers(s) if c.stage.extern is not None]
    check(not rows, f"inline {stage}: {', '.join(rows)} is an extern function, which reads whole tensors")
    others = tuple(_inlined(c, s.stage) for c in state.stages if c.name != s.name)
    return consistent(replace(state, stages=others), f"inline {stage}")


def _inlined(consumer: StageState, producer: Stage) -> StageState:
    name = producer.name

    def expand(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.tensor.name != name:
            return None
        body = substitute(producer.body[0], {a.name: i for a, i in zip(producer.axes, e.indices)})
        if e.when is None or e.otherwise is None:
            return body
        return _guarded(body, e.when, e.otherwise)

    bodies = tuple(rewrite(b, expand) for b in consumer.stage.body)
    if bodies == consumer.stage.body:
        return consumer
    return replace(consumer, stage=replace(consumer.stage, body=bodies))


def _guarded(body: Expr, when: Expr, otherwise: Expr) -> Expr:
    """`body` where `when` holds, with every read inside protected by it."""

    def protect(e: Expr) -> Expr | None:
        if not isinstance(e, Read):
            return None
        if e.when is None:
            return Read(e.tensor, e.indices, when, Const(0 if e.dtype.is_int else 0.0, e.dtype))
        return Read(e.tensor, e.indices, Binary("and", when, e.when, when.dtype), e.otherwise)

    if isinstance(body, Read) and (body.when is None or body.otherwise == otherwise):
        indices = tuple(rewrite(i, protect) for i in body.indices)  # an index may be read from memory itself
        both = when if body.when is None else Binary("and", when, body.when, when.dtype)
        return Read(body.tensor, indices, both, otherwise)
    if isinstance(body, Cast) and isinstance(body.a, Read) and isinstance(otherwise, Const) and otherwise.value == 0:
        zero = Const(0.0 if body.a.dtype.is_float else 0, body.a.dtype)  # which any conversion keeps
        if body.a.when is None or body.a.otherwise == zero:
            return Cast(_guarded(body.a, when, zero), body.dtype)
    return select(when, rewrite(body, protect), otherwise)


@primitive
def compute_at(state: State, stage: str, consumer: str, loop: str, scope: str = LOCAL) -> State:
    """Compute, in every iteration of a consumer's loop, just the part of a stage which that iteration reads.

    The stage's loops become those of the region. `scope` "register" keeps it in registers (all indices must become
    constants by unrolling), "tile" in matrix registers (all that touches it must be tensorized), "local" in scratch
    memory of the thread.

    rewrite:
        for j: T[j] = f(j)
        for i: for k: S(T[4*i + k])
        -->
        for i:
          for j in 0..4: T[j] = f(4*i + j)
          for k: S(T[k])
    """
    s, c = state.stage(stage), state.stage(consumer)
    check(s.name != c.name, f"compute_at {stage}: a stage cannot be computed inside itself")
    check(s.stage.extern is None, f"compute_at {stage}: an extern function stays at the top level")
    check(c.stage.extern is None, f"compute_at {stage}: {consumer} is an extern function, which reads whole rows")
    check(
        scope in (LOCAL, REGISTER, TILE),
        f"compute_at {stage}: scope {scope!r} is not {LOCAL!r}, {REGISTER!r} or {TILE!r}",
    )
    check(
        not any(t.name in state.outputs for t in s.stage.outputs),
        f"compute_at {stage}: it is an output; cache_write it",
    )
    check(s.untouched, f"compute_at {stage}: schedule its loops after compute_at, their extents depend on the place")
    apart = s.stage.recurrence is not None and s.stage.recurrence != c.stage.recurrence
    check(not apart, f"compute_at {stage}: {consumer} is not one of the stages that take turns with it")
    position = c.position(loop)
    for outer in c.loops[: position + 1]:
        free = outer.mark in (SERIAL, UNROLL, PARALLEL)
        check(free, f"compute_at {stage}: loop {outer.name} of {consumer} is marked {outer.mark}")
    check(bool(state.consumers(s)), f"compute_at {stage}: nothing reads it")
    mine = {t.name for t in s.stage.outputs}
    fetching = [x.name for x in state.stages if any(f.tensor in mine for f in x.prefetch)]
    check(not fetching, f"compute_at {stage}: {', '.join(fetching)} prefetches it; what is computed nearby is near")
    for reader in state.consumers(s):
        inside = is_inside(state, reader, c, position)
        check(inside, f"compute_at {stage}: {reader.name} also reads it, outside {consumer}.{loop}")
    if s.stage.recurrence is not None:
        behind = [r for x in state.stages for r in x.reads() if r.tensor.name in mine and _behind(x, r, s) != 0]
        check(not behind, f"compute_at {stage}: a later step reads it too, in `{behind and behind[0]}`")
    placed = state.put(replace(s, at=(c.name, loop), scope=scope))
    extents = Regions(placed).of(placed.stage(stage)).extent
    loops = tuple(Loop(a.name, e, n >= len(s.stage.axes)) for n, (a, e) in enumerate(zip(s.stage.all_axes, extents)))
    if scope != LOCAL:
        elements = 1
        for loop_ in loops[: len(s.stage.axes)]:
            elements *= loop_.extent
        check(
            elements <= MAX_REGISTER_ELEMENTS,
            f"compute_at {stage}: {elements} elements do not fit registers; use scope local",
        )
    placed = placed.put(replace(placed.stage(stage), loops=loops, extents=extents))
    return consistent(placed, f"compute_at {stage}")


def _behind(reader: StageState, r: Read, producer: StageState) -> int | None:
    if reader.stage.recurrence is None:
        return None
    return steps_behind(reader.stage, r, producer.stage)


@primitive
def replicate(state: State, stage: str) -> State:
    """Let every thread compute a stage for itself: none waits for another, nor reads what another has just written.

    For what is little work beside the rest. It may read inputs of the kernel, and other stages of which each thread has
    its own.

    rewrite:
        one thread: T[i] = f(i)
        all threads meet
        parallel for j: S(j, T)
        -->
        T[i] = f(i)        in scratch memory of the thread
        parallel for j: S(j, T)
    """
    s = state.stage(stage)
    check(s.at is None, f"replicate {stage}: it is computed inside {s.at and s.at[0]}, by the thread that reads it")
    check(not any(loop.mark == PARALLEL for loop in s.loops), f"replicate {stage}: threads share its loop")
    check(s.stage.extern is None and s.stage.recurrence is None, f"replicate {stage}: it is no nest of its own")
    check(
        not any(t.name in state.outputs for t in s.stage.outputs), f"replicate {stage}: it is an output of the kernel"
    )
    return consistent(state.put(replace(s, replicated=True)), f"replicate {stage}")


@primitive
def layout(state: State, tensor: str, form: Any) -> State:
    """Choose how a tensor lies in memory: blocks, order of dimensions, halo (`Layout` or its JSON form).

    For a stage computed at a loop, the layout is that of the region it keeps.

    rewrite:
        T[n, c, h, w]
        -->
        T[n, c // 16, h + 1, w + 1, c % 16]
    """
    t = state.tensor(tensor)
    try:
        chosen = form if isinstance(form, Layout) else Layout.from_json(form)
        chosen = chosen.with_halo(chosen.halo, chosen.fill)
    except (WorkloadError, KeyError, TypeError, ValueError) as error:
        raise ScheduleError(f"layout {tensor}: {error}") from error
    check(chosen.rank == len(t.shape), f"layout {tensor}: halo {chosen.halo} needs one pair per dimension of {t.shape}")
    check(all(block >= 0 for _, block in chosen.order), f"layout {tensor}: {chosen} has a negative block")
    outer = sorted(d for d, block in chosen.order if not block)
    check(
        outer == list(range(len(t.shape))),
        f"layout {tensor}: {chosen} does not name each of {len(t.shape)} dimensions once",
    )
    blocks = [d for d, block in chosen.order if block]
    check(
        all(0 <= d < len(t.shape) for d in blocks), f"layout {tensor}: {chosen} blocks a dimension that {t.shape} lacks"
    )
    constant = any(t.name == x.name and x.constant for x in state.inputs)
    check(
        len(set(blocks)) == len(blocks) or constant,
        f"layout {tensor}: a dimension is blocked twice in {chosen}, as only those of weights may be",
    )
    uneven = [block for n, (_, block) in enumerate(chosen.order) if block % chosen.step(n)]
    check(not uneven, f"layout {tensor}: blocks of {uneven} are cut unevenly in {chosen}")
    halo = any(h != (0, 0) for h in chosen.halo)
    inner = not any(t.name == x.name for x in state.inputs) and t.name not in state.outputs
    check(not (halo and inner), f"layout {tensor}: only inputs and outputs of the kernel have a halo")
    kept = tuple((n, form_) for n, form_ in state.layouts if n != tensor)
    return replace(state, layouts=(*kept, (tensor, chosen)))


@primitive
def precompute(state: State, stage: str) -> State:
    """Move a stage that depends on weights only out of the kernel: its result becomes a constant operand.

    It is evaluated once at compile time and saved with the model.

    rewrite:
        U[i] = f(W)        in the kernel
        -->
        U                  an operand, prepared from W
    """
    s = state.stage(stage)
    check(s.untouched, f"precompute {stage}: it has already been scheduled")
    check(len(s.stage.outputs) == 1, f"precompute {stage}: it has several outputs")
    check(s.stage.recurrence is None, f"precompute {stage}: it takes turns with other stages")
    check(s.name not in state.outputs, f"precompute {stage}: it is an output of the kernel")
    check(not s.where, f"precompute {stage}: it is half of a factored reduction; precompute before rfactor")
    known = {t.name: t for t in state.inputs}
    already = dict(state.prepared)
    for r in s.reads():
        fixed = r.tensor.name in known and known[r.tensor.name].constant
        check(fixed, f"precompute {stage}: it reads {r.tensor.name}, which is not a constant input")
        check(
            r.tensor.name not in already, f"precompute {stage}: it reads {r.tensor.name}, precomputed itself; inline it"
        )
    (result,) = s.stage.outputs
    sources = tuple(known[name] for name in dict.fromkeys(r.tensor.name for r in s.reads()))
    definition = ComputeDef(sources, (s.stage,), (result.name,))
    stages = tuple(x for x in state.stages if x.name != s.name)
    still_read = {r.tensor.name for x in stages for r in x.reads()}
    inputs = tuple(t for t in state.inputs if t.name in still_read or t not in sources)
    operand = Tensor(result.name, result.shape, result.dtype, None, True)
    return replace(
        state, inputs=(*inputs, operand), stages=stages, prepared=(*state.prepared, (result.name, definition))
    )
