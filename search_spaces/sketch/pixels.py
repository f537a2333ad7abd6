"""Convolutions whose pixels are one axis (`autotune.ops.conv_pixels`), on tile registers: of small images."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from autotune.cost_model.expected import behind_caches
from autotune.errors import ScheduleError, WorkloadError
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.conv_pixels import NAME, PIXELS, SUMS, number_of_sums, spans
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import TILE_LANES, TILE_ROWS
from autotune.schedule.editor import Editor
from autotune.search_spaces.library.anchored import anchored
from autotune.search_spaces.library.copy_loops import in_memory_order
from autotune.search_spaces.operators.conv2d_shape import ROW_BYTES, sizes
from autotune.search_spaces.sketch.contraction import Contraction, analysed, contraction, with_one_output
from autotune.search_spaces.sketch.folding import has_tiles
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.target import Target
from autotune.tensor.layout import Layout


@functools.lru_cache(maxsize=512)
def of_pixels(workload: Workload, target: Target) -> Contraction | None:
    """The contraction of the copy; None where that takes longer than what it saves, channels fill no row of a tile,
    there are no tiles for its types, or the end is for data to decide."""
    anchor = workload.anchor
    if anchor is None or anchor.op not in CONVOLUTIONS or not has_tiles(target):
        return None
    plain = contraction(workload, target)
    if plain is None or plain.ended or with_one_output(workload, NAME) is None:
        return None
    size = sizes(workload)
    along, one = _tiles(size)
    if one >= along:  # nothing to save
        return None
    try:
        a = anchored(workload, NAME, PIXELS)
        schedule = a.schedule.cache_write(SUMS)
    except (ScheduleError, WorkloadError):
        return None
    state = schedule.state
    if {s.name for s in state.stages} != {PIXELS, f"{SUMS}.c", SUMS, a.output}:
        return None
    copy = state.tensor(PIXELS)
    row = ROW_BYTES // copy.dtype.bytes
    if copy.shape[2] % row or state.tensor(SUMS).shape[1] % TILE_LANES:
        return None
    schedule = schedule.layout(PIXELS, Layout.blocked(3, [(2, row)], order=(0, 2, 1)))
    schedule = schedule.layout(SUMS, Layout.blocked(3, [(1, TILE_LANES)]))
    found = analysed(schedule, usual_layouts(workload, target), f"{SUMS}.c", SUMS, target)
    if found is None:
        return None
    found = replace(found, foldings=tuple(f for f in found.foldings if f.dot.tiled), folded=True)
    return found if found.foldings and _saves(found, size, target) else None


def _tiles(size: Conv) -> tuple[int, int]:
    """How many tiles the pixels of an image are, along rows and as one axis."""
    along = math.prod(size.out[:-1]) * -(-size.ow // TILE_ROWS)
    return along, -(-number_of_sums(size) // TILE_ROWS)


def _saves(c: Contraction, size: Conv, target: Target) -> bool:
    """Whether the products of tiles that are saved take longer than the copy and the sums, each written and read."""
    dot = c.foldings[0].dot
    pipe = target.core.pipe(dot.pipe, target.vector_bits)
    if pipe is None:
        return False
    along, one = _tiles(size)
    each = size.n * -(-size.k // TILE_LANES) * size.taps * -(-size.c // dot.depth)
    state = c.schedule.state
    moved = sum(math.prod(t.shape) * t.dtype.bytes for t in (state.tensor(PIXELS), state.tensor(SUMS)))
    (_, rate), *_ = behind_caches(target)
    return (along - one) * each * max(TILE_ROWS / pipe.per_cycle, pipe.latency) > 2 * moved / rate


def passed(schedule: Schedule, workload: Workload) -> Schedule:
    """The two passes: the copy, a row of pixels after the other, and what is done with the sums of each pixel."""
    edit, size = Editor(schedule), sizes(workload)
    _, q, _ = (a.name for a in edit.stage(PIXELS).stage.axes)
    rows = list[str]()
    for extent in reversed(spans(size)[1:]):
        q, row = edit.split(PIXELS, q, extent)
        rows.insert(0, row)
    form = schedule.state.layout(schedule.state.tensor(PIXELS))
    in_memory_order(edit, PIXELS, form, 2, form.block(2), alone=True, loops={1: [q, *rows]})
    (out,) = edit.schedule.compute.outputs
    n, k, *place = (a.name for a in edit.stage(out).stage.axes)
    block = edit.schedule.state.layout(edit.schedule.state.tensor(out)).block(1)
    over, lane = edit.split(out, k, max(block, TILE_LANES))
    piece, lane = edit.split(out, lane, TILE_LANES)
    edit.order(out, [n, over, *place, piece, lane])
    edit.unroll(out, [piece])
    edit.vectorize(out, lane)
    edit.parallel(out, edit.fuse(out, [n, over, place[0]]))
    return edit.schedule
