"""Loops of stages that are computed inside another's loops: sums in registers, rows of elements, partial results."""

from __future__ import annotations

from autotune.schedule import Schedule
from autotune.search_spaces.library.access import contiguous, indirect, irregular
from autotune.tensor.layout import Layout

FOLDS = frozenset({"sum", "prod", "max", "min", "largest"})
MAX_LANES = 32
MAX_UNROLLED = 64  # copies of a body along all unrolled loops around it


def sum_in_registers(schedule: Schedule, name: str, vector: str | None, lanes: int) -> Schedule:
    """Reduce loops outside, the tile of results unrolled inside them, one vector along `vector` innermost."""
    if vector is not None:
        schedule = axis_last(schedule, name, vector)
        if schedule.state.stage(name).loop(vector).extent > lanes:
            schedule = schedule.split(name, vector, lanes)
            vector += ".1"
    s = schedule.state.stage(name)
    folds = [x.name for x in s.loops if x.reduce]
    tile = [x.name for x in s.loops if not x.reduce and x.name != vector]
    schedule = schedule.reorder(name, *folds, *tile, *([vector] if vector else []))
    # Elements at run-time places are gathered one by one: long code already.
    limit = MAX_UNROLLED // lanes if vector and indirect(s) else MAX_UNROLLED
    copies = 1
    for loop in tile:
        extent = s.loop(loop).extent
        if extent > 1:
            schedule, copies = schedule.unroll(name, loop), copies * extent
    for loop in reversed(folds):
        extent = s.loop(loop).extent
        if copies * extent > limit:
            break
        if extent > 1:
            schedule, copies = schedule.unroll(name, loop), copies * extent
    return schedule.vectorize(name, vector) if vector and s.loop(vector).extent > 1 else schedule


def axis_last(schedule: Schedule, name: str, axis: str) -> Schedule:
    """Store what the stage computes with one axis innermost."""
    s = schedule.state.stage(name)
    names = [a.name for a in s.stage.axes]
    d = names.index(axis)
    if all(s.loop(x).extent == 1 for x in names[d + 1 :] if any(loop.name == x for loop in s.loops)):
        return schedule
    order = [n for n in range(len(names)) if n != d] + [d]
    for t in s.stage.outputs:
        schedule = schedule.layout(t.name, Layout.blocked(len(names), [], order))
    return schedule


def elements(schedule: Schedule, name: str, vector: str | None, lanes: int, turns: int = 1) -> tuple[Schedule, str]:
    """Rows of an elementwise stage: (schedule, inner loop).

    Vectors are along `vector`, or where memory is contiguous, and `turns` of them are written out when that many fit.
    """
    s = schedule.state.stage(name)
    loops = [x.name for x in s.loops if x.extent > 1]
    if vector is None:
        vector = best_axis(schedule, name, loops)
    if vector is None:
        return schedule, s.loops[-1].name if s.loops else ""
    schedule = axis_last(schedule, name, vector)
    order = [x.name for x in s.loops if x.name != vector]
    if s.loop(vector).extent > lanes:
        last = len(s.stage.axes) - 1
        if vector == s.stage.axes[last].name and s.loop(vector).extent % lanes:
            for t in s.stage.outputs:  # each row from a vector's place on: none lies across two cache lines
                schedule = schedule.layout(t.name, Layout.blocked(last + 1, [(last, lanes)]))
        schedule = schedule.split(name, vector, lanes)
        order += [f"{vector}.0", f"{vector}.1"]
        schedule = schedule.reorder(name, *order)
        outer = f"{vector}.0"
        if schedule.state.stage(name).loop(outer).extent >= 2 * turns > 2:
            schedule = schedule.split(name, outer, turns).unroll(name, f"{outer}.1")
            outer = f"{outer}.0"
        return schedule.partition(name, outer).vectorize(name, f"{vector}.1"), outer
    schedule = schedule.reorder(name, *order, vector)
    if s.loop(vector).extent > 1:
        schedule = schedule.vectorize(name, vector)
    return schedule, order[-1] if order else ""


def best_axis(schedule: Schedule, name: str, axes: list[str]) -> str | None:
    """The axis to vectorize: all reads contiguous if possible, the fewest gathered otherwise, the last among equals."""
    s = schedule.state.stage(name)
    if not axes:
        return None
    return min(reversed(axes), key=lambda a: (not contiguous(schedule.state, s, a), irregular(schedule.state, s, a)))


def scanned(schedule: Schedule, name: str, vector: str | None, lanes: int) -> Schedule:
    """A sequential stage: its steps outside one vector of independent ones."""
    s = schedule.state.stage(name)
    if vector is None or vector == s.stage.scan_axis:
        return schedule
    schedule = axis_last(schedule, name, vector).reorder(name, *(x.name for x in s.loops if x.name != vector), vector)
    return schedule.vectorize(name, vector) if 1 < s.loop(vector).extent <= lanes else schedule


def partial_results(schedule: Schedule, name: str, lanes: int) -> Schedule:
    """The loops of an `.rf` stage: long sums outside, one lane (of several vectors) per partial result inside."""
    s = schedule.state.stage(name)
    kept = s.stage.axes[0].name
    folds = [x.name for x in s.loops if x.reduce]
    tile = [x.name for x in s.loops if not x.reduce and x.name != kept]
    inner = [kept]
    if s.loop(kept).extent > lanes:
        schedule = schedule.split(name, kept, lanes)
        inner = [f"{kept}.0", f"{kept}.1"]
    schedule = schedule.reorder(name, *tile, *folds, *inner)
    schedule = schedule.partition(name, folds[-1])
    if len(inner) > 1:
        schedule = schedule.unroll(name, inner[0])
    return schedule.vectorize(name, inner[-1]) if schedule.state.stage(name).loop(inner[-1]).extent > 1 else schedule


def folded_vectors(schedule: Schedule, name: str) -> Schedule:
    """The loops of the second `.rf` stage: vectors of partial results added up."""
    s = schedule.state.stage(name)
    kept = s.stage.axes[0].name
    (fold,) = (x.name for x in s.loops if x.reduce)
    tile = [x.name for x in s.loops if not x.reduce and x.name != kept]
    return schedule.reorder(name, *tile, fold, kept).unroll(name, fold).vectorize(name, kept)


def folded_lanes(schedule: Schedule, name: str) -> Schedule:
    """The loops of the last fold, across the lanes of one vector."""
    s = schedule.state.stage(name)
    (fold,) = (x.name for x in s.loops if x.reduce)
    tile = [x.name for x in s.loops if not x.reduce]
    schedule = schedule.reorder(name, *tile, fold)
    simple = s.stage.reducer is not None and s.stage.reducer.name in FOLDS and len(s.stage.outputs) == 1
    return schedule.vectorize(name, fold) if simple and s.loop(fold).extent > 1 else schedule
