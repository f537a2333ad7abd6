"""Loops for recurrences of any kind: in every step stage after stage, sums in registers of the stage reading them."""

from __future__ import annotations

from autotune.errors import ScheduleError
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER, StageState
from autotune.search_spaces.library.access import widest
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.library.fusion import points, reads_of
from autotune.search_spaces.library.placed import MAX_LANES, MAX_UNROLLED
from autotune.search_spaces.space.interface import Interface
from autotune.target import Target


def turns_schedule(workload: Workload, target: Target, interface: Interface | None) -> Schedule:
    """Every stage with one vector along its last axis, the loops outside shared among threads."""
    s = with_layouts(Schedule(compute_def(workload)), interface, {})
    for stage in s.state.stages:
        alone = _reader(s, stage) is None
        if stage.stage.reducer is not None and alone and len(stage.stage.outputs) == 1 and stage.stage.axes:
            s = s.cache_write(stage.name)
    shared = _shared(s, target)
    for name in [x.name for x in reversed(s.state.stages)]:
        stage = s.state.stage(name)
        reader = _reader(s, stage)
        if stage.stage.extern is not None or (stage.stage.scan_axis is not None and stage.stage.recurrence is None):
            continue
        if reader is not None:
            s = _in_registers(s, name, reader)
        elif stage.stage.reducer is None:
            s = _vectors(s, name, target, stage.stage.recurrence is None or stage.stage.recurrence in shared)
    return s


def _reader(s: Schedule, stage: StageState) -> str | None:
    """The one elementwise stage that reads a sum, each time where it is itself."""
    readers = s.state.consumers(stage)
    if stage.stage.reducer is None or stage.name in s.state.outputs or len(readers) != 1:
        return None
    (reader,) = readers
    fits = reader.stage.reducer is None and reader.stage.extern is None and len(stage.stage.outputs) == 1
    fits = fits and reader.stage.recurrence == stage.stage.recurrence and bool(reader.stage.axes)
    here = [a.var for a in reader.stage.axes]
    return reader.name if fits and all(list(r.indices) == here for r in reads_of(reader, stage.name)) else None


def _shared(s: Schedule, target: Target) -> set[str]:
    """The recurrences whose steps are worth sharing: threads save more cycles than they wait for each other.

    A vector of points takes a cycle at least, and after each stage the threads meet.
    """
    saved: dict[str, float] = {}
    for x in s.state.stages:
        if x.stage.recurrence is not None and x.turn is not None:
            each = points(x) / max(x.loop(x.turn).extent, 1) / min(target.lanes(widest([x])), MAX_LANES)
            saved[x.stage.recurrence] = saved.get(x.stage.recurrence, 0.0) - target.core.barrier_cycles
            saved[x.stage.recurrence] += each * (1 - 1 / target.num_threads)
    return {name for name, cycles in saved.items() if cycles > 0}


def _vectors(s: Schedule, name: str, target: Target, shared: bool) -> Schedule:
    """The last axis in vectors, all others (but the steps) as one loop."""
    stage = s.state.stage(name)
    loops = [x.name for x in stage.loops if x.name != stage.turn]
    if not loops or any(x.extent == 0 for x in stage.loops):
        return s
    last = loops[-1]
    lanes = min(target.lanes(widest([stage])), MAX_LANES, stage.loop(last).extent)
    s = s.split(name, last, lanes)
    outer = loops[0] if len(loops) > 1 else f"{last}.0"
    for loop in loops[1:-1]:
        s, outer = s.fuse(name, outer, loop), f"{outer}*{loop}"
    s = s.parallel(name, outer) if shared else s
    return s.vectorize(name, f"{last}.1") if lanes > 1 else s


def _in_registers(s: Schedule, name: str, reader: str) -> Schedule:
    """A sum in the innermost loop outside the vector of its reader, in vectors of the same elements."""
    host = s.state.stage(reader)
    marks = [x.mark for x in host.loops]
    at = marks.index("vectorize") - 1 if "vectorize" in marks else len(host.loops) - 1
    try:
        s = s.compute_at(name, reader, host.loops[at].name, REGISTER)
    except ScheduleError:  # another stage stands between them
        return s
    stage = s.state.stage(name)
    folds = [x.name for x in stage.loops if x.reduce]
    tile = [x for x in stage.loops if not x.reduce]
    wide = [x.name for x in tile if x.extent > 1]
    s = s.reorder(name, *[x.name for x in tile if x.extent == 1], *folds, *wide)
    if folds and s.state.stage(name).loop(folds[-1]).extent <= MAX_UNROLLED // 4:
        s = s.unroll(name, folds[-1])
    for loop in wide[:-1]:
        s = s.unroll(name, loop)
    return s.vectorize(name, wide[-1]) if wide else s
