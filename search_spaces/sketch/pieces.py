"""Products of f32 by those of bf16 pieces (`autotune.ops.pieces`): the pieces of the data, and one sum on tiles."""

from __future__ import annotations

import functools
from dataclasses import replace

from autotune.errors import ScheduleError, WorkloadError
from autotune.ops import pieces
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.search_spaces.library.anchored import anchored
from autotune.search_spaces.library.fusion import same_point
from autotune.search_spaces.sketch.contraction import Contraction, analysed, contraction, with_one_output
from autotune.search_spaces.sketch.folding import has_tiles
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.search_spaces.sketch.template import AMONG_ALGORITHMS, FIRST, SketchedContraction
from autotune.search_spaces.sketch.tiling import Tiles
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout


@functools.lru_cache(maxsize=512)
def in_pieces(workload: Workload, target: Target) -> Contraction | None:
    """The contraction of pieces; None where there are no tiles for it, an instruction multiplies the operands as they
    are, the weight is no constant, or the end is for data to decide."""
    anchor = workload.anchor
    if anchor is None or anchor.op not in pieces.OPERATORS or not has_tiles(target, DType.bf16, DType.bf16):
        return None
    plain = contraction(workload, target)
    if plain is None or plain.foldings or plain.ended:
        return None
    if not workload.is_constant(anchor.inputs[1]) or with_one_output(workload, pieces.NAME) is None:
        return None
    try:
        a = anchored(workload, pieces.NAME, pieces.LEFT, pieces.RIGHT)
        schedule = a.schedule.precompute(pieces.RIGHT)
    except (ScheduleError, WorkloadError):
        return None
    state = schedule.state
    if {s.name for s in state.stages} != {pieces.LEFT, a.anchor, a.output} or not same_point(state, a.output, a.anchor):
        return None
    v = state.tensor(pieces.LEFT)
    last = len(v.shape) - 1
    # The pieces of a group of terms follow one another, row after row.
    order = (*range(1, last - 1), last, 0, last - 1)
    schedule = schedule.layout(pieces.LEFT, Layout.blocked(last + 1, [(last, pieces.GROUP)], order=order))
    weight = f"in{workload.source(anchor.inputs[1])}"
    layouts = {name: form for name, form in usual_layouts(workload, target).items() if name != weight}
    found = analysed(schedule, layouts, a.anchor, a.output, target)
    if found is None:
        return None
    tiles = tuple(x for x in found.foldings if x.dot.tiled)
    return replace(found, foldings=tiles, folded=True) if tiles else None


class _Pieces(SketchedContraction):
    """The tiles of the sum, and the pass before it."""

    algorithm = pieces.NAME
    look = staticmethod(in_pieces)

    def finished(self, schedule: Schedule, nest: Tiles, workload: Workload, target: Target) -> Schedule:
        return _cut(schedule, target)


def _cut(schedule: Schedule, target: Target) -> Schedule:
    """The pieces of the data, all three of a vector at a time: rows of it, of an image rows of a group of channels."""
    edit, name = Editor(schedule), pieces.LEFT
    piece, *rows, k = (a.name for a in edit.stage(name).stage.axes)
    over, part = edit.split(name, k, pieces.GROUP)
    part, lane = edit.split(name, part, target.lanes(DType.f32.bytes))
    around = [*rows[:-1], over, rows[-1]]
    edit.order(name, [*around, part, piece, lane])
    edit.unroll(name, [part, piece])
    edit.vectorize(name, lane)
    edit.parallel(name, edit.fuse(name, around[:-1]))
    return edit.schedule


for _op in pieces.OPERATORS:
    _rank = FIRST if _op == "matmul" else AMONG_ALGORITHMS
    template(f"{_op}.{pieces.NAME}", op=_op, priority=_rank, strict=False, lone=True)(_Pieces)
