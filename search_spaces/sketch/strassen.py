"""Strassen's product (`autotune.ops.strassen`): sums of quarters, seven products as one contraction, and their sums."""

from __future__ import annotations

import functools

from autotune.errors import ScheduleError
from autotune.ops import strassen
from autotune.ops.registry import constant
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.anchored import anchored
from autotune.search_spaces.sketch.contraction import Contraction, analysed, contraction, with_one_output
from autotune.search_spaces.sketch.template import FIRST, SketchedContraction
from autotune.search_spaces.sketch.tiling import Tiles
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout


def _seven(algorithm: str, workload: Workload, target: Target) -> Contraction | None:
    """The contraction of the seven products; None where the weight is no constant, an instruction multiplies what is
    narrow, or what moves in between takes longer than an eighth of the products."""
    anchor, plain = workload.anchor, contraction(workload, target)
    if anchor is None or anchor.op != "matmul" or plain is None or plain.ended:
        return None
    if not constant(workload, anchor.inputs[1]) or any(not f.dot.widened for f in plain.foldings):
        return None
    if with_one_output(workload, algorithm) is None:
        return None
    a = anchored(workload, algorithm)
    try:
        schedule = a.schedule.precompute(strassen.RIGHT).cache_write(strassen.PRODUCTS)
    except ScheduleError:
        return None
    factor = schedule.state.tensor(strassen.LEFT).dtype
    terms, columns = (schedule.state.tensor(strassen.RIGHT).shape[d] for d in (1, 2))
    if terms % target.lanes(factor.bytes) or columns % target.lanes(DType.f32.bytes):
        return None
    return analysed(schedule, {}, f"{strassen.PRODUCTS}.c", strassen.PRODUCTS, target)


class _Strassen(SketchedContraction):
    """Rules of one of the algorithms: the tiles of its products, and what is before and behind them."""

    def finished(self, schedule: Schedule, nest: Tiles, target: Target) -> Schedule:
        edit = Editor(schedule)
        _quarters(edit, target)
        _added_up(edit, target)
        return edit.schedule


def _quarters(edit: Editor, target: Target) -> None:
    """Sums of quarters of the first operand, all seven of a vector at a time, rows shared among threads."""
    name = strassen.LEFT
    edit.schedule = edit.schedule.cache_write(name)
    s = edit.stage(name).stage
    p, *rows, k = (a.name for a in s.axes)
    over, lane = edit.split(name, k, target.lanes(s.outputs[0].dtype.bytes))
    edit.order(name, [*rows, over, p, lane])
    edit.unroll(name, [p])
    edit.vectorize(name, lane)
    edit.parallel(name, edit.fuse(name, rows))
    _in_registers(edit, f"{name}.c", name, over, lane)


def _added_up(edit: Editor, target: Target) -> None:
    """The four quarters of the result, a vector of each at a time, of products that are loaded once."""
    (out,) = edit.schedule.compute.outputs
    *_, m, n = edit.schedule.state.tensor(strassen.PRODUCTS).shape
    *lead, i, j = (a.name for a in edit.stage(out).stage.axes)
    below, row = edit.split(out, i, m)
    beside, column = edit.split(out, j, n)
    over, lane = edit.split(out, column, target.lanes(DType.f32.bytes))
    edit.order(out, [*lead, row, over, below, beside, lane])
    edit.unroll(out, [below, beside])
    edit.vectorize(out, lane)
    edit.parallel(out, edit.fuse(out, [*lead, row]))
    _in_registers(edit, strassen.QUARTERS, out, over, lane)


def _in_registers(edit: Editor, total: str, reader: str, loop: str, lane: str) -> None:
    """A vector of each of a few sums of a few, inside of a loop of who reads them."""
    edit.compute_at(total, reader, loop, REGISTER)
    s = edit.stage(total).stage
    which, *others, along = (a.name for a in s.axes)
    (few,) = (a.name for a in s.reduce_axes)
    edit.layout(total, Layout.blocked(len(s.axes), [(len(s.axes) - 1, edit.extent(reader, lane))]))
    edit.order(total, [*others, few, which, along])
    edit.unroll(total, [few, which])
    edit.vectorize(total, along)


def _rules(name: str) -> None:
    @functools.lru_cache(maxsize=512)
    def seven(workload: Workload, target: Target) -> Contraction | None:
        return _seven(name, workload, target)

    class Rules(_Strassen):
        algorithm = name
        look = staticmethod(seven)

    template(f"sketch.{name}", op="matmul", weight=0.5, priority=FIRST, strict=strassen.NAMES[name][0].is_int)(Rules)


for _name in strassen.NAMES:
    _rules(_name)
