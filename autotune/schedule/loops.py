"""Primitives that reshape or mark the loops of one stage."""

from __future__ import annotations

from dataclasses import replace

from autotune.schedule.consistent import consistent
from autotune.schedule.registry import check, primitive
from autotune.schedule.state import (
    NEAR,
    PARALLEL,
    SERIAL,
    UNROLL,
    VECTORIZE,
    Fetch,
    Fuse,
    Loop,
    Split,
    StageState,
    State,
)
from autotune.schedule.tiles import swallowed
from autotune.tensor.reducer import is_builtin

MAX_LANES = 64
MAX_UNROLL = 256


@primitive
def split(state: State, stage: str, loop: str, factor: int) -> State:
    """Cut a loop in two; the last round of the outer loop is guarded when the factor does not divide.

    rewrite:
        for i in 0..n: S(i)
        -->
        for i.0 in 0..ceil(n / factor):
          for i.1 in 0..factor:
            if i.0 * factor + i.1 < n: S(i.0 * factor + i.1)
    """
    s = state.stage(stage)
    at = s.position(loop)
    old = s.loops[at]
    check(factor >= 1, f"split {stage}.{loop}: factor {factor} must be at least 1")
    check(loop != s.turn, f"split {stage}.{loop}: all stages of the recurrence share this loop")
    _check_free(s, loop, "split")
    check(
        all(x.name not in (f"{loop}.0", f"{loop}.1") for x in s.loops),
        f"split {stage}.{loop}: there already is a loop {loop}.0 or {loop}.1; rename the axis",
    )
    outer = Loop(f"{loop}.0", -(-old.extent // factor), old.reduce)
    inner = Loop(f"{loop}.1", factor, old.reduce)
    loops = (*s.loops[:at], outer, inner, *s.loops[at + 1 :])
    relation = Split(loop, outer.name, inner.name, factor, old.extent)
    return settled(state, replace(s, loops=loops, relations=(*s.relations, relation)), f"split {stage}.{loop}")


@primitive
def reorder(state: State, stage: str, loops: tuple[str, ...]) -> State:
    """Put the named loops in the order given, in the places that they hold together.

    rewrite:
        for i: for j: S
        -->
        for j: for i: S
    """
    s = state.stage(stage)
    check(len(set(loops)) == len(loops), f"reorder {stage}: a loop is named twice in {list(loops)}")
    places = sorted(s.position(name) for name in loops)
    new = list(s.loops)
    for place, name in zip(places, loops):
        new[place] = s.loop(name)
    changed = replace(s, loops=tuple(new))
    first = s.turn is None or new[0].name == s.turn
    check(first, f"reorder {stage}: {s.turn} must stay outermost, all stages of the recurrence share it")
    if s.stage.scan_axis is not None:
        before = [x.name for x in s.loops if _derived(s, x.name, s.stage.scan_axis)]
        after = [x.name for x in new if _derived(s, x.name, s.stage.scan_axis)]
        check(before == after, f"reorder {stage}: the steps of scan axis {s.stage.scan_axis} must stay in order")
    _check_vector_inside(changed)
    for n, loop in enumerate(new):
        place = n == (0 if s.turn is None else 1)
        check(place or loop.mark != PARALLEL, f"reorder {stage}: the parallel loop {loop.name} must stay outermost")
    return settled(state, changed, f"reorder {stage}")


@primitive
def fuse(state: State, stage: str, outer: str, inner: str) -> State:
    """Make one loop of two neighbours.

    rewrite:
        for i in 0..n: for j in 0..m: S(i, j)
        -->
        for i*j in 0..n*m: S(i*j // m, i*j % m)
    """
    s = state.stage(stage)
    at = s.position(outer)
    check(s.position(inner) == at + 1, f"fuse {stage}: {inner} must come directly inside {outer}; reorder first")
    a, b = s.loops[at], s.loops[at + 1]
    check(a.reduce == b.reduce, f"fuse {stage}: {outer} and {inner} are not both spatial or both reduce loops")
    for loop in (outer, inner):
        _check_free(s, loop, "fuse")
    if s.stage.scan_axis is not None:
        scanned = any(_derived(s, n, s.stage.scan_axis) for n in (outer, inner))
        check(not scanned, f"fuse {stage}: scan axis {s.stage.scan_axis} cannot be fused")
    fused = Loop(f"{outer}*{inner}", a.extent * b.extent, a.reduce)
    loops = (*s.loops[:at], fused, *s.loops[at + 2 :])
    relation = Fuse(outer, inner, fused.name, b.extent)
    return settled(state, replace(s, loops=loops, relations=(*s.relations, relation)), f"fuse {stage}")


@primitive
def vectorize(state: State, stage: str, loop: str) -> State:
    """Execute all iterations at once, one per SIMD lane; a reduce loop becomes a tree across lanes.

    rewrite:
        for i in 0..lanes: S(i)
        -->
        S(<0, 1, ..., lanes - 1>)
    """
    s = state.stage(stage)
    old = s.loop(loop)
    check(old.mark == SERIAL, f"vectorize {stage}.{loop}: the loop is already marked {old.mark}")
    check(loop not in s.alternating, f"vectorize {stage}.{loop}: the loop alternates")
    check(loop not in s.partitioned, f"vectorize {stage}.{loop}: the loop is partitioned; its tail becomes a mask")
    check(
        1 <= old.extent <= MAX_LANES, f"vectorize {stage}.{loop}: extent {old.extent} is not in 1..{MAX_LANES}; split"
    )
    check(all(x.mark != VECTORIZE for x in s.loops), f"vectorize {stage}: another loop is already vectorized")
    check(s.stage.extern is None, f"vectorize {stage}.{loop}: an extern function handles one row at a time")
    if old.reduce:
        reducer = s.stage.reducer
        simple = reducer is not None and is_builtin(reducer)
        check(simple, f"vectorize {stage}.{loop}: only sum, prod, max and min fold across lanes")
    if s.stage.scan_axis is not None:
        check(not _derived(s, loop, s.stage.scan_axis), f"vectorize {stage}.{loop}: a scan's steps are sequential")
    changed = _mark(s, loop, VECTORIZE)
    _check_vector_inside(changed)
    for other in state.stages:
        if other.at is not None and other.at[0] == s.name:
            check(
                s.position(other.at[1]) < s.position(loop),
                f"vectorize {stage}.{loop}: {other.name} is computed inside it",
            )
    return state.put(changed)


@primitive
def unroll(state: State, stage: str, loop: str) -> State:
    """Write every iteration out.

    rewrite:
        for i in 0..n: S(i)
        -->
        S(0); S(1); ...; S(n - 1)
    """
    s = state.stage(stage)
    old = s.loop(loop)
    check(old.mark == SERIAL, f"unroll {stage}.{loop}: the loop is already marked {old.mark}")
    check(loop not in s.alternating, f"unroll {stage}.{loop}: the loop alternates")
    check(old.extent <= MAX_UNROLL, f"unroll {stage}.{loop}: extent {old.extent} is above {MAX_UNROLL}; split")
    check(loop != s.turn, f"unroll {stage}.{loop}: all stages of the recurrence share this loop")
    return state.put(_mark(s, loop, UNROLL))


@primitive
def parallel(state: State, stage: str, loop: str) -> State:
    """Share the iterations among the threads: each has a range of its own, of which others take what it leaves.

    Only the outermost loop of a top-level stage.

    In a recurrence that is the outermost loop of each step: all threads run all steps, and meet after each stage.

    rewrite:
        for i in 0..n: S(i)
        -->
        while some are left: for i in what this thread claims: S(i)
    """
    s = state.stage(stage)
    old = s.loop(loop)
    check(
        s.at is None, f"parallel {stage}.{loop}: the stage is computed inside {s.at and s.at[0]}, not at the top level"
    )
    check(not s.replicated, f"parallel {stage}.{loop}: each thread computes the stage for itself")
    check(not old.reduce, f"parallel {stage}.{loop}: a reduce loop would race; use rfactor")
    check(
        s.position(loop) == (0 if s.turn in (None, loop) else 1),
        f"parallel {stage}.{loop}: only the outermost loop can be shared among threads; reorder",
    )
    check(old.mark == SERIAL, f"parallel {stage}.{loop}: the loop is already marked {old.mark}")
    if s.stage.scan_axis is not None:
        check(not _derived(s, loop, s.stage.scan_axis), f"parallel {stage}.{loop}: a scan's steps are sequential")
    return state.put(_mark(s, loop, PARALLEL))


@primitive
def partition(state: State, stage: str, loop: str) -> State:
    """Separate the iterations that need no guard (interior) from those that do (edges and tail).

    rewrite:
        for i in 0..n: if g(i): S(i)
        -->
        for i in 0..a: if g(i): S(i)
        for i in a..b: S(i)
        for i in b..n: if g(i): S(i)
    """
    s = state.stage(stage)
    mark = s.loop(loop).mark
    whole = mark in (SERIAL, PARALLEL)
    check(whole, f"partition {stage}.{loop}: the loop is marked {mark}; only serial and shared loops are partitioned")
    return state.put(replace(s, partitioned=s.partitioned | {loop}))


@primitive
def alternate(state: State, stage: str, loop: str) -> State:
    """Run a loop of a recurrence backwards in every other step: it begins with what the step before left in the cache.

    rewrite:
        for t: for i in 0..n: S(t, i)
        -->
        for t:
          if t is even: for i in 0..n: S(t, i)
          else:         for i in n-1..-1: S(t, i)
    """
    s = state.stage(stage)
    old = s.loop(loop)
    check(
        s.turn is not None and loop != s.turn,
        f"alternate {stage}.{loop}: it is no loop inside the steps of a recurrence",
    )
    check(not old.reduce, f"alternate {stage}.{loop}: a reduce loop keeps its order")
    check(old.mark in (SERIAL, PARALLEL), f"alternate {stage}.{loop}: the loop is marked {old.mark}")
    return state.put(replace(s, alternating=s.alternating | {loop}))


@primitive
def pad(state: State, stage: str, axis: str) -> State:
    """Compute beyond the axis' extent instead of guarding; refused unless all memory touched exists.

    Of a sum's reduce axis, too: what comes beyond must be zero, which only the layouts show when it is lowered.

    rewrite:
        if i < n: S(i)
        -->
        S(i)
    """
    s = state.stage(stage)
    reducer = s.stage.reducer
    adds_up = reducer is not None and reducer.name == "sum" and is_builtin(reducer)
    names = [a.name for a in (s.stage.all_axes if adds_up else s.stage.axes)]
    check(s.stage.extern is None, f"pad {stage}: an extern function needs whole rows")
    check(axis in names, f"pad {stage}: no axis {axis!r} that can be padded; it has {', '.join(names)}")
    return state.put(replace(s, padded=s.padded | {axis}))


@primitive
def prefetch(state: State, stage: str, tensor: str, loop: str, distance: int, level: int = 1) -> State:
    """Ask for the cache lines of `tensor` that `loop` will read `distance` iterations later, into cache `level`.

    One request for each round of the unrolled loops inside `loop`; of serial ones, only for the first round. Where
    memory goes on from the last turn of `loop` to what the loop around it reads next, so do the requests.

    rewrite:
        for i: S(T[i])
        -->
        for i: prefetch(T[i + distance]); S(T[i])
    """
    check(distance >= 1, f"prefetch {stage}: distance {distance} must be at least 1")
    return _fetching(state, stage, Fetch(tensor, loop, distance, level))


@primitive
def stream(state: State, stage: str, tensor: str, loop: str, level: int = 2, near: int = NEAR) -> State:
    """Ask for what `tensor` has behind the part that loops around `loop` read again and again: a little in each turn of
    `loop`, into cache `level`, so that all of it is there when they get to it.

    Nothing is asked for where no loop reads a part at least twice before another goes on to the next. Of several such
    loops it is the outermost whose part has `near` bytes at most, else the innermost.

    rewrite:
        for p: for r: for i: S(T[p, i])
        -->
        for p: for r: for i: prefetch(T[p + 1, (r * I + i) / R]); S(T[p, i])
    """
    check(near >= 1, f"stream {stage}: parts of {near} bytes")
    return _fetching(state, stage, Fetch(tensor, loop, 0, level, near))


def _fetching(state: State, stage: str, fetch: Fetch) -> State:
    s = state.stage(stage)
    s.position(fetch.loop)
    tensor, level = fetch.tensor, fetch.level
    known = sorted({r.tensor.name for r in s.reads()})
    check(tensor in known, f"prefetch {stage}: it does not read {tensor!r}; it reads {', '.join(known) or 'nothing'}")
    near = [p for p in state.stages if p.at is not None and any(t.name == tensor for t in p.stage.outputs)]
    check(not near, f"prefetch {stage}: {tensor} is computed inside another stage; what is computed nearby is near")
    check(level in (1, 2, 3), f"prefetch {stage}: caches are numbered 1 to 3, got {level}")
    return state.put(replace(s, prefetch=(*s.prefetch, fetch)))


def settled(state: State, changed: StageState, step: str) -> State:
    """The new state, refused when it moves the region of a stage that is computed inside another."""
    new = state.put(changed)
    outputs = {t.name for t in changed.stage.outputs}
    read = {r.tensor.name for r in changed.reads()}
    touched = (s.at[0] in outputs or any(t.name in read for t in s.stage.outputs) for s in new.stages if s.at)
    return consistent(new, step) if any(touched) else new


def _mark(s: StageState, loop: str, mark: str) -> StageState:
    return replace(s, loops=tuple(replace(x, mark=mark) if x.name == loop else x for x in s.loops))


def _check_free(s: StageState, loop: str, step: str) -> None:
    """Nothing that was said about the loop would be lost with it."""
    mark = s.loop(loop).mark
    check(mark == SERIAL, f"{step} {s.name}.{loop}: the loop is already marked {mark}")
    check(loop not in s.partitioned, f"{step} {s.name}.{loop}: the loop is already partitioned; {step} first")
    check(loop not in s.alternating, f"{step} {s.name}.{loop}: the loop already alternates; {step} first")
    fetched = any(f.loop == loop for f in s.prefetch)
    check(not fetched, f"{step} {s.name}.{loop}: the loop already prefetches; {step} first")


def _derived(s: StageState, loop: str, axis: str) -> bool:
    """The loop is the axis, or part of it."""
    names = {axis}
    for r in s.relations:
        if isinstance(r, Split) and r.parent in names:
            names |= {r.outer, r.inner}
        elif isinstance(r, Fuse) and names & {r.outer, r.inner}:
            names.add(r.fused)
    return loop in names


def _check_vector_inside(s: StageState) -> None:
    """A vectorized reduce loop must be innermost, or lanes are folded too early; so must be what is tensorized."""
    for n, loop in enumerate(s.loops):
        if loop.mark not in (SERIAL, PARALLEL, VECTORIZE, UNROLL):
            innermost = n == len(s.loops) - swallowed(loop.mark)
            check(innermost, f"reorder {s.name}: {loop.name} is tensorized and must stay innermost")
        if loop.mark == VECTORIZE and loop.reduce:
            later = [x.name for x in s.loops[n + 1 :]]
            check(not later, f"vectorize {s.name}.{loop.name}: loops {', '.join(later)} must not be inside it; reorder")
