"""Sums of products of narrow numbers that no instruction multiplies, or none as fast as wide ones: widened first.

To widen numbers in registers takes as many instructions as to multiply them, again for each tile. So the image is
widened once, with its border: bytes to pairs of 16-bit integers, as weights are kept then, too, and floats of 16 bits
to those of 32. Weights stay in 16 bits, which is half the memory: tiles read vectors of them, and one instruction or
two widen such, where a number for all lanes takes three. Or they are kept in 32 bits: where many rows share a weight,
what is saved is more than it takes to bring the other half of its bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

from autotune.core import LINE
from autotune.errors import ScheduleError
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS, PAIRS
from autotune.schedule.editor import Editor
from autotune.search_spaces.library.access import innermost
from autotune.search_spaces.library.copy_loops import in_memory_order
from autotune.search_spaces.sketch.contraction import Contraction, analysed, contraction
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.instructions import outrun
from autotune.search_spaces.sketch.layouts import FOLDED
from autotune.search_spaces.sketch.tiling import Tiles
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

FLOATS = "fma.f32"
"""What multiplies floats that are widened."""


@functools.lru_cache(maxsize=512)
def widened(workload: Workload, target: Target) -> Contraction | None:
    """The contraction that reads widened copies; None where there is an instruction for what is narrow, or nothing is
    that tiles would widen."""
    c = contraction(workload, target)
    return None if c is None else _with_copies(c, target, {f.tensor for f in _narrow(c)})


@functools.lru_cache(maxsize=512)
def all_wide(workload: Workload, target: Target) -> Contraction | None:
    """The contraction that reads floats of 32 bits only, weights too, which are widened once and for all; None where an
    instruction multiplies those of 16 bits as fast, or `widened` is the same."""
    c = contraction(workload, target)
    if c is None or c.lanewise or (c.foldings and not outrun(c, target, FLOATS)):
        return None
    narrow = _halves(c)
    if not c.foldings and not any(f.constant for f in narrow):
        return None
    return _with_copies(c, target, {f.tensor for f in narrow})


def _with_copies(c: Contraction, target: Target, narrow: Collection[str]) -> Contraction | None:
    """What is left to know where factors are read from copies of wider elements; None where there is nothing narrow."""
    edit, layouts = Editor(c.schedule), dict(c.layouts)
    wide = DOT_PRODUCTS[PAIRS].left if _in_pairs(c) else DType.f32
    if not narrow:
        return None
    try:
        for f in (f for f in c.factors if f.tensor in narrow):
            copy = edit.cache_read(f.tensor, c.total, padded=not f.constant, stored=wide.value)
            if f.constant:
                edit.schedule = edit.schedule.precompute(copy)
                layouts.pop(f.tensor, None)
            elif f.tensor in layouts:
                edit.layout(copy, _lines(layouts[f.tensor], f.shape, wide.bytes))
    except ScheduleError:
        return None
    found = analysed(edit.schedule, layouts, c.total, c.output, target)
    return found if found is not None and bool(found.foldings) == _in_pairs(c) and not _short(found) else None


def _short(c: Contraction) -> bool:
    """Whether sums of given numbers are so short that the copies have no room for zeros behind them."""
    given = not any(f.constant for f in c.factors)
    return given and any(c.reduce[f.axis].extent < FOLDED for f in c.foldings)


def _in_pairs(c: Contraction) -> bool:
    """Whether pairs are multiplied, of what is widened for it."""
    return bool(c.foldings) and all(f.dot.widened for f in c.foldings)


def _narrow(c: Contraction) -> list[Factor]:
    """What is widened before all else."""
    if _in_pairs(c):
        return list(c.factors)
    if c.foldings or c.lanewise:  # nothing is read for all lanes
        return []
    return [f for f in _halves(c) if not f.constant]


def _halves(c: Contraction) -> list[Factor]:
    state = c.schedule.state
    return [f for f in c.factors if state.tensor(f.tensor).dtype in (DType.f16, DType.bf16)]


def _lines(form: Layout, shape: tuple[int, ...], size: int) -> Layout:
    """The layout without a border, of channels in blocks of a cache line where they fill such: the sum has long inner
    loops then, and reads lines from end to end."""
    whole = [(d, LINE // size if shape[d] % (LINE // size) == 0 else block) for d, block in form.order if block]
    return Layout.blocked(len(shape), whole, order=[d for d, block in form.order if not block])


def copied(schedule: Schedule, nest: Tiles, target: Target) -> Schedule:
    """The copies, in vectors along what lies side by side: of a block of tiles, where that copies nothing twice, since
    it stays in a near cache; else before all else, rows shared among threads."""
    c, edit = nest.c, Editor(schedule)
    factors = {f.tensor: f for f in c.factors}
    for s in c.schedule.state.stages:
        (copy,) = s.stage.outputs
        form = edit.schedule.state.layout(copy)
        along = innermost(form, copy.shape)
        if s.name in (c.total, c.output) or along is None:
            continue
        f = factors[s.name]
        place = nest.around(f) if nest.again(f) == 1 and not nest.packs(f) else None
        if place is not None:
            edit.compute_at(s.name, c.output, place)
        in_memory_order(edit, s.name, form, along, target.lanes(DType.f32.bytes), alone=place is None)
    return edit.schedule
