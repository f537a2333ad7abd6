"""Strassen's product (`autotune.ops.strassen`): sums of quarters, seven products as one contraction, and their sums."""

from __future__ import annotations

import functools
import math

from autotune.cost_model.expected import behind_caches
from autotune.errors import ScheduleError
from autotune.ops import strassen
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.anchored import anchored
from autotune.search_spaces.sketch.contraction import SHORT, Contraction, analysed, contraction, with_one_output
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.search_spaces.sketch.template import AMONG_ALGORITHMS, FIRST, SketchedContraction
from autotune.search_spaces.sketch.tiling import Tiles
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout
from autotune.tensor.stage import Tensor

SHARE_OF_L3 = 0.25
"""Of the third cache, that is sure to hold what one pass leaves for the next beside what else a model has in it.
Measured, see docs/adr/0018."""


def _seven(algorithm: str, workload: Workload, target: Target) -> Contraction | None:
    """The contraction of the seven products; None where the weight is no constant, an instruction multiplies what is
    narrow, an end is for data to decide, or halves have no whole vectors or few terms."""
    anchor, plain = workload.anchor, contraction(workload, target)
    if anchor is None or anchor.op not in strassen.OPERATORS or plain is None or plain.ended:
        return None
    if not workload.is_constant(anchor.inputs[1]) or any(not f.dot.widened for f in plain.foldings):
        return None
    if with_one_output(workload, algorithm) is None:
        return None
    try:
        schedule = anchored(workload, algorithm).schedule.precompute(strassen.RIGHT).cache_write(strassen.PRODUCTS)
    except ScheduleError:
        return None
    state, lanes = schedule.state, target.lanes(DType.f32.bytes)
    left, right, products = (state.tensor(name) for name in (strassen.LEFT, strassen.RIGHT, strassen.PRODUCTS))
    terms, columns = right.shape[1:]
    if terms < SHORT or terms % target.lanes(left.dtype.bytes) or columns % lanes:
        return None
    if anchor.op != "matmul":  # as the result lies, so that vectors of either follow one another
        last = len(products.shape) - 1
        order = (*range(last - 1), last, last - 1)
        schedule = schedule.layout(strassen.PRODUCTS, Layout.blocked(last + 1, [(last, lanes)], order=order))
    return analysed(schedule, usual_layouts(workload, target), f"{strassen.PRODUCTS}.c", strassen.PRODUCTS, target)


class _Strassen(SketchedContraction):
    """Rules of one of the algorithms: the tiles of its products, and what is before and behind them."""

    pixels: bool

    def instead(self, workload: Workload, target: Target) -> tuple[float, float, float]:
        """Seven products for eight, two passes (the data and its sums, the products and the result), and seven quarters
        of weights in place of four, which memory brings. What several threads fill for each other is in other caches.
        """
        c, plain = self.look(workload, target), contraction(workload, target)
        assert c is not None and plain is not None
        state = c.schedule.state
        sums, weights, products = (_bytes(state.tensor(n)) for n in (strassen.LEFT, strassen.RIGHT, strassen.PRODUCTS))
        given = max(_bytes(read.tensor) for read in state.stage(strassen.LEFT).reads())
        results = _bytes(state.tensor(c.schedule.compute.outputs[0]))
        (_, from_l2), (l2, from_l3), (l3, from_memory) = behind_caches(target)
        moved = (given + sums + products + results) / target.num_threads
        near = from_l3 if moved > l2 or target.num_threads > 1 else from_l2
        passes = moved / (near if moved <= SHARE_OF_L3 * l3 else from_memory)
        passes += 2 * target.core.barrier_cycles if target.num_threads > 1 else 0.0
        return c.points / plain.points, passes, weights / target.core.from_dram(target.num_threads)

    def finished(self, schedule: Schedule, nest: Tiles, workload: Workload, target: Target) -> Schedule:
        edit = Editor(schedule)
        _quarters(edit, target)
        _added_up(edit, target, self.pixels)
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


def _added_up(edit: Editor, target: Target, pixels: bool) -> None:
    """The quarters of the result, a vector of each at a time, of products that are loaded once; those of an image
    whose halves are no whole rows one by one."""
    (out,) = edit.schedule.compute.outputs
    n = edit.schedule.state.tensor(strassen.PRODUCTS).shape[-1]
    axes = edit.stage(out).stage.axes
    lead, high, low = (axes[:1], axes[2], axes[3:]) if pixels else (axes[:-2], axes[-2], ())
    beside, column = edit.split(out, (axes[1] if pixels else axes[-1]).name, n)
    over, lane = edit.split(out, column, target.lanes(DType.f32.bytes))
    below, rows = list[str](), high.name
    if not pixels or high.extent % 2 == 0:
        upper, rows = edit.split(out, high.name, -(-high.extent // 2))
        below.append(upper)
    around = [*(a.name for a in lead), *([over, rows] if pixels else [rows, over]), *(a.name for a in low)]
    edit.order(out, [*around, *below, beside, lane])
    edit.unroll(out, [*below, beside])
    edit.vectorize(out, lane)
    edit.parallel(out, edit.fuse(out, around[: len(lead) + (2 if pixels else 1)]))
    innermost = edit.loops(out)[-4] if below else beside  # before those of the four, and the lanes
    _in_registers(edit, strassen.QUARTERS, out, innermost, lane)


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * tensor.dtype.bytes


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


def _rules(op: str, name: str) -> None:
    @functools.lru_cache(maxsize=512)
    def seven(workload: Workload, target: Target) -> Contraction | None:
        return _seven(name, workload, target)

    class Rules(_Strassen):
        algorithm = name
        pixels = op != "matmul"
        look = staticmethod(seven)

    rank = FIRST if op == "matmul" else AMONG_ALGORITHMS
    exact = strassen.NAMES[name][0].is_int
    template(f"{op}.{name}", op=op, priority=rank, strict=exact, lone=True)(Rules)


for _op in strassen.OPERATORS:
    for _name in strassen.NAMES:
        _rules(_op, _name)
