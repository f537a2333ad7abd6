"""Convolutions of few channels, as sums along the rows of the image (`autotune.ops.conv_rows`)."""

from __future__ import annotations

import functools
from dataclasses import replace

from autotune.errors import ScheduleError, WorkloadError
from autotune.ops.conv import CONVOLUTIONS
from autotune.ops.conv_rows import NAME, ROWS, WEIGHT
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.search_spaces.library.anchored import anchored
from autotune.search_spaces.library.copy_loops import in_memory_order
from autotune.search_spaces.library.fusion import same_point
from autotune.search_spaces.sketch.contraction import Contraction, analysed, with_one_output
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.search_spaces.sketch.tiling import Tiles
from autotune.target import Target


@functools.lru_cache(maxsize=512)
def in_rows(workload: Workload, target: Target) -> Contraction | None:
    """The contraction that reads the image from rows with its border; None where there is another window, no weight
    that could be laid out before, or no instruction that folds neighbours."""
    anchor = workload.anchor
    if anchor is None or anchor.op not in CONVOLUTIONS or with_one_output(workload, NAME) is None:
        return None
    try:
        a = anchored(workload, NAME, ROWS, WEIGHT)
        schedule = a.schedule.precompute(WEIGHT)
    except (ScheduleError, WorkloadError):
        return None
    state = schedule.state
    if {s.name for s in state.stages} != {ROWS, a.anchor, a.output} or not same_point(state, a.output, a.anchor):
        return None
    # The copy reads the image as it comes.
    image, weight = (f"in{workload.source(value)}" for value in anchor.inputs)
    layouts = {name: form for name, form in usual_layouts(workload, target).items() if name not in (image, weight)}
    found = analysed(schedule, layouts, a.anchor, a.output, target)
    if found is None or not found.foldings:
        return None
    # The rows are a copy already: none is made of them, even where windows that do not overlap could be panels.
    factors = tuple(replace(f, plain=f.plain and f.tensor != ROWS) for f in found.factors)
    return replace(found, factors=factors)


def laid_in_rows(schedule: Schedule, nest: Tiles, target: Target) -> Schedule:
    """The copy: of a block of rows, where all along them is computed inside of it, else before all else. Whole rows in
    either case, of which the compiler knows where the image begins and ends."""
    edit, c = Editor(schedule), nest.c
    (factor,), last = (f for f in c.factors if f.tensor == ROWS), c.spatial[-1].name
    alone = nest.again(factor, last) > 1 or any(
        _shares_most(nest, factor, n) for n in nest.turning if c.spatial[n].name != last
    )
    place = None if alone else nest.around(factor, last)
    if place is not None:
        edit.compute_at(ROWS, c.output, place)
    rows = schedule.state.tensor(ROWS)
    form, along = schedule.state.layout(rows), len(rows.shape) - 1
    in_memory_order(edit, ROWS, form, along, target.lanes(rows.dtype.bytes), alone=place is None)
    return edit.schedule


def _shares_most(nest: Tiles, rows: Factor, axis: int) -> bool:
    """Whether a block reads more rows that the next one along an axis reads, too, than others."""
    c = nest.c
    if (d := rows.dimension(c.spatial[axis].name)) is None:
        return False
    steps = dict(rows.steps[d])
    own = steps.pop(c.spatial[axis].name)
    reach = sum(steps.get(a.name, 0) * (a.extent - 1) for a in c.reduce)
    return reach + 1 - own > own * nest.t.elements(axis) * nest.t.block[axis]
