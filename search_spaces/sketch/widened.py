"""Sums of products of narrow numbers for CPUs whose instructions do not multiply them: they are widened first.

To widen numbers in registers takes as many instructions as to multiply them, again for each tile. So the image is
widened once, before all else, with its border: bytes to pairs of 16-bit integers, as weights are kept then, too, and
floats of 16 bits to those of 32. Weights stay in 16 bits, which is half the memory: tiles read vectors of them, and one
instruction widens such, where a number for all lanes takes three.
"""

from __future__ import annotations

import functools

from autotune.core import LINE
from autotune.errors import ScheduleError
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS, PAIRS
from autotune.schedule.editor import Editor
from autotune.search_spaces.library.access import innermost
from autotune.search_spaces.sketch.contraction import Contraction, Factor, analysed, contraction
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout


@functools.lru_cache(maxsize=512)
def widened(workload: Workload, target: Target) -> Contraction | None:
    """The contraction that reads widened copies; None where there is an instruction for what is narrow, or nothing is
    that tiles would widen."""
    c = contraction(workload, target)
    narrow = [] if c is None else _narrow(c)
    if c is None or not narrow:
        return None
    edit, layouts = Editor(c.schedule), dict(c.layouts)
    wide = DOT_PRODUCTS[PAIRS].left if c.foldings else DType.f32
    try:
        for f in narrow:
            copy = edit.cache_read(f.tensor, c.total, padded=not f.constant, stored=wide.value)
            if f.constant:
                edit.schedule = edit.schedule.precompute(copy)
                layouts.pop(f.tensor, None)
            elif f.tensor in layouts:
                edit.layout(copy, _lines(layouts[f.tensor], f.shape, wide.bytes))
    except ScheduleError:
        return None
    found = analysed(edit.schedule, layouts, c.total, c.output, target)
    return found if found is not None and bool(found.foldings) == bool(c.foldings) else None


def _narrow(c: Contraction) -> list[Factor]:
    """What is widened before all else."""
    if c.foldings:
        return list(c.factors) if all(f.dot.widened for f in c.foldings) else []
    if c.lanewise:  # nothing is read for all lanes
        return []
    state = c.schedule.state
    return [f for f in c.factors if not f.constant and state.tensor(f.tensor).dtype in (DType.f16, DType.bf16)]


def _lines(form: Layout, shape: tuple[int, ...], size: int) -> Layout:
    """The layout without a border, of channels in blocks of a cache line where they fill such: the sum has long inner
    loops then, and reads lines from end to end."""
    whole = [(d, LINE // size if shape[d] % (LINE // size) == 0 else block) for d, block in form.order if block]
    return Layout.blocked(len(shape), whole, order=[d for d, block in form.order if not block])


def copies_first(schedule: Schedule, c: Contraction, target: Target) -> Schedule:
    """The copies, in vectors along what lies side by side, rows shared among threads."""
    edit = Editor(schedule)
    for s in c.schedule.state.stages:
        (copy,) = s.stage.outputs
        form = edit.schedule.state.layout(copy)
        along = innermost(form, copy.shape)
        if s.name not in (c.total, c.output) and along is not None:
            _in_memory_order(edit, s.name, form, along, target)
    return edit.schedule


def _in_memory_order(edit: Editor, name: str, form: Layout, along: int, target: Target) -> None:
    """Vectors are as long as what lies side by side in what is copied, too."""
    stage = edit.stage(name)
    axes, (read,) = [a.name for a in stage.stage.axes], stage.reads()
    width = form.block(along) if form.block(along) > 1 else target.lanes(DType.f32.bytes)
    run = edit.schedule.state.layout(read.tensor).block(along)
    ragged = edit.extent(name, axes[along]) % width
    over, lane = edit.split(name, axes[along], width)
    pieces = list[str]()
    if 1 < run < width and width % run == 0:
        piece, lane = edit.split(name, lane, run)
        pieces.append(piece)
    around = [axes[d] for d, block in form.order if not block and d != along]
    order = [over if d == along else axes[d] for d, block in form.order if not block]
    edit.order(name, [*(around if ragged else order), *([over] if ragged else []), *pieces, lane])
    edit.unroll(name, pieces)
    edit.vectorize(name, lane)
    shared = around if ragged else order[:-1] or order
    if shared:
        edit.parallel(name, edit.fuse(name, shared))
    if ragged:
        edit.partition(name, [over])
