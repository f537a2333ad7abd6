"""Short rows that stay in registers: loaded once, folded, transformed and stored with no memory in between."""

from __future__ import annotations

from collections.abc import Collection

from autotune.schedule import Schedule
from autotune.schedule.state import SERIAL, StageState, State
from autotune.search_spaces.library.access import indirect
from autotune.search_spaces.library.fusion import Cone, reads_of
from autotune.search_spaces.library.placed import FOLDS
from autotune.target import Target
from autotune.tensor.expr import Var
from autotune.tensor.stage import Axis

SPARE = 12  # registers for the constants of an exponential and what it is working on


def vectors_held(state: State, cone: Cone, reader: dict[str, str], vector: str, lanes: int, target: Target) -> int:
    """Vectors that a row takes, if all that a cone computes of a row fits into the registers; else 0.

    Args:
        state: before any loop of the cone is changed.
        cone: the root and what is computed in its loops.
        reader: sums computed inside the loops of the one stage that reads them, and that stage.
        vector: the root's axis that is folded below, along which its memory is contiguous.
        lanes: elements of a vector.
    """
    stages = [state.stage(name) for name in (cone.root, *cone.below)]
    if any(s.stage.scan_axis is not None or s.stage.extern is not None or indirect(s) for s in stages):
        return 0
    if cone.root in reader.values() or stages[0].stage.reducer is not None:
        return 0
    extent = stages[0].stage.axis(vector).extent
    copies = 0  # of the row: what is loaded can be loaded again
    for s in stages[1:]:
        own = [a for a in s.stage.axes if a.extent > 1 and cone.maps[s.name].get(a.name) not in cone.rows]
        folds = [a.extent for a in s.stage.reduce_axes if a.extent > 1]
        if s.stage.reducer is not None:
            simple = s.stage.reducer.name in FOLDS and len(s.stage.outputs) == 1
            if own or folds != [extent] or not simple:
                return 0
        elif own:
            if [a.extent for a in own] != [extent] or not _read_in_order(state, s, own[0]):
                return 0
            copies += 1
    if any(x.extent > 1 and x.name != vector and x.name not in cone.rows for x in stages[0].stage.axes):
        return 0
    held = -(-extent // lanes) * max(copies, 1)
    return held if extent >= lanes and held <= registers_for_rows(target) else 0


def rows_held(vectors: int, target: Target) -> int:
    """How many rows of so many vectors each registers hold at once."""
    return registers_for_rows(target) // vectors


def registers_for_rows(target: Target) -> int:
    """Registers that can hold elements while others are computed."""
    return target.num_vector_registers - SPARE


def vectors_at_once(unroll: int, sums: int, target: Target) -> int:
    """How many vectors of a root to write out: as the knob says, twice as many of so many sums if registers hold them.

    A pass over what is summed up reads so much of each of its rows, and leaves the rest to other passes.
    """
    fit = 2 * unroll * sums <= target.num_vector_registers // 2
    return 2 * unroll if sums and fit else unroll


def _read_in_order(state: State, s: StageState, axis: Axis) -> bool:
    """Every reader goes along `axis` of a stage as it goes along an axis of its own."""
    d = [a.name for a in s.stage.axes].index(axis.name)
    reads = [r for c in state.consumers(s) for t in s.stage.outputs for r in reads_of(c, t.name)]
    return all(isinstance(r.indices[d], Var) for r in reads)


def held_elements(schedule: Schedule, name: str, lanes: int, rows: Collection[str]) -> Schedule:
    """The loops of an elementwise stage whose results are registers: vectors along the axis that is none of `rows`."""
    s = schedule.state.stage(name)
    along = [x.name for x in s.loops if x.extent > 1 and x.name not in rows]
    if not along:
        return schedule
    (vector,) = along
    schedule = schedule.split(name, vector, lanes)
    order = [x.name for x in s.loops if x.name != vector]
    return schedule.reorder(name, *order, f"{vector}.0", f"{vector}.1").vectorize(name, f"{vector}.1")


def written_out(schedule: Schedule, name: str) -> Schedule:
    """Every loop of a stage unrolled that is not marked otherwise."""
    for loop in schedule.state.stage(name).loops:
        if loop.extent > 1 and loop.mark == SERIAL:
            schedule = schedule.unroll(name, loop.name)
    return schedule
