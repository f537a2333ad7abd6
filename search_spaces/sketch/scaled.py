"""Sums of scaled parts: products whose weights are codes, decoded in registers and scaled block by block.

One stage adds up parts, each times a scale of its own; another sums up a part. Both have their accumulators in
registers: those of a part are scaled once for each block. Weights are streamed as they are kept, panel after panel.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from autotune.core import LINE
from autotune.errors import ScheduleError
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.schedule.skip import looked_at
from autotune.schedule.state import LOCAL, REGISTER, StageState
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.library.register_tile import HIDDEN, Steps
from autotune.search_spaces.library.unread import skip_what_nobody_reads
from autotune.search_spaces.sketch.contraction import with_one_output
from autotune.search_spaces.sketch.panels import of_single_vectors
from autotune.search_spaces.sketch.rules import MOST_BODY
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Const, Read, Var, walk
from autotune.tensor.layout import Layout
from autotune.tensor.reducer import is_builtin
from autotune.tensor.stage import Tensor

ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14)
VECTORS = (1, 2, 3, 4, 6, 8)
UNROLL = (1, 2, 4, 8, 16)
AHEAD = (0, 32, 64, 128, 256)
"""Lines that are asked for, into the second cache, before they are read: of all panels of a tile of each constant.

Untuned `FETCHED`, but none where a core foresees what is read by itself (`ScaledTiles.foresees`)."""
FETCHED = 128
DECODE = 2
"""Instructions that decode a vector of weights: a shift and a permutation, or a widening and a conversion."""
FOLDING = 4
"""Registers of a mask, of what is multiplied with codes, of a product, and of ones."""
NEAR = 1.05
"""Times the least that is foreseen: closer than this the cycles of a tile are not known."""


@dataclass(frozen=True, slots=True)
class ScaledSum:
    """What there is to schedule.

    Attributes:
        schedule: in which elementwise work is inlined.
        output, total, part: stages; `total` adds up what `part` sums. Stages beside them are computed before all else.
        batch: products, each with weights of its own; `batched`: whether there is an axis for them.
        rows, columns: extents of the result. Weights lie along its columns.
        ended: data says where the rows of each product end.
        sums: of an element, that a part has: one for each digit of what weights are multiplied by.
        steps: turns of the loop over the codes of a block; `codes`: decoded in a turn.
        folded: codes that one instruction multiplies.
        panels: constants with a row for each code or block, or a matrix of rows for each block, and a column for each
            of the result.
    """

    schedule: Schedule
    output: str
    total: str
    part: str
    rows: int
    columns: int
    sums: int
    steps: int
    codes: int
    panels: tuple[str, ...]
    folded: int = 1
    batch: int = 1
    batched: bool = False
    ended: bool = False

    @property
    def usual_rows(self) -> int:
        """Those of a run, which ends in the middle where it ends anywhere."""
        return (self.rows + 1) // 2 if self.ended else self.rows

    def panel(self, t: Tensor, lanes: int, vectors: int) -> Layout:
        """So many vectors of columns, in panels of one each that tiles read together and that lie far apart."""
        last, first = len(t.shape) - 1, int(self.batched)
        order = (*range(first), last, *range(first, last))
        return of_single_vectors(Layout.blocked(last + 1, [(last, lanes * vectors)], order=order), last, lanes)

    @property
    def turns(self) -> int:
        """Multiplications of a step and a sum."""
        return self.codes // self.folded


def is_sum(s: StageState) -> bool:
    return s.stage.reducer is not None and s.stage.reducer.name == "sum" and is_builtin(s.stage.reducer)


@functools.lru_cache(maxsize=256)
def scaled_sum(
    workload: Workload, algorithm: str = "direct", prepared: frozenset[str] = frozenset(), constant: str = ""
) -> ScaledSum | None:
    """How the workload is a sum of scaled parts; None when it is something else.

    Args:
        prepared: elementwise stages that are computed before all else, too.
        constant: a stage of constants, which is computed when the model is compiled; there may be none.
    """
    schedule = with_one_output(workload, algorithm)
    if schedule is None:
        return None
    (output,) = schedule.compute.outputs
    heavy = [s for s in schedule.state.stages if s.stage.reducer is not None]
    if any(s.stage.scan_axis or s.stage.extern or s.stage.recurrence for s in schedule.state.stages):
        return None
    if len(heavy) < 2 or not is_sum(heavy[-1]):
        return None
    total, name = heavy[-1], heavy[-1].name
    parts, batched = [s for s in heavy[:-1] if _is_part(s, total)], len(total.stage.axes) == 3
    if len(parts) != 1 or any(len(s.stage.axes) > 2 + batched for s in heavy[:-1] if s is not parts[0]):
        return None
    try:
        for s in schedule.state.stages:
            if s.name == constant:
                schedule = schedule.precompute(s.name)
            elif s.stage.reducer is None and s.name != output and s.name not in prepared:
                schedule = schedule.inline(s.name)
        if name == output:
            schedule = schedule.cache_write(output)
            name = f"{output}.c"
    except ScheduleError:
        return None
    part = schedule.state.stage(parts[0].name)
    column = part.stage.axes[-2].name
    panels = dict.fromkeys(
        r.tensor.name
        for s in (part, schedule.state.stage(name))
        for r in s.reads()
        if schedule.state.tensor(r.tensor.name).constant and len(r.tensor.shape) - batched in (2, 3)
        and isinstance(r.indices[-1], Var) and r.indices[-1].name in (column, total.stage.axes[-1].name)
    )  # fmt: skip
    lanes_apart = [r for r in part.reads() if r.tensor.name not in panels and column in _variables(r)]
    if not panels or lanes_apart:
        return None
    steps, *codes = (a.extent for a in part.stage.reduce_axes)
    *batch, rows, columns = (a.extent for a in total.stage.axes)
    sums = math.prod(a.extent for a in part.stage.axes[: -3 - batched])
    known = rows, columns, sums, steps, math.prod(codes), tuple(panels)
    ended = bool(looked_at(schedule.state, schedule.state.stage(name)))
    return ScaledSum(schedule, output, name, part.name, *known, batch=math.prod(batch), batched=batched, ended=ended)


def _is_part(s: StageState, total: StageState) -> bool:
    """The total adds up elements of `s`: (which of several, member of the batch, row, column, number of the part)."""
    reads = [r for r in total.reads() if r.tensor.name == s.name]
    axes = [a.name for a in (*total.stage.axes, *total.stage.reduce_axes)]
    n, one = len(axes), len(total.stage.reduce_axes) == 1
    wanted = one and n in (3, 4) and len(s.stage.axes) in (n, n + 1) and is_sum(s)
    first = all(isinstance(i, Const) for r in reads for i in r.indices[:-n])
    product = isinstance(s.stage.body[0], Binary)
    return wanted and product and bool(reads) and first and all([str(i) for i in r.indices[-n:]] == axes for r in reads)


def _variables(r: Read) -> set[str]:
    return {e.name for i in r.indices for e in walk(i) if isinstance(e, Var)}


class ScaledTiles:
    """Vectors lie along the columns; a tile of rows and vectors shares what is decoded."""

    def found(self, workload: Workload, target: Target) -> ScaledSum | None:
        """What there is to schedule; None where there is nothing."""
        raise NotImplementedError

    def busy(self, c: ScaledSum, rows: int, vectors: int, unroll: int, target: Target) -> float:
        """Cycles in which a tile decodes a step's codes and multiplies by them."""
        raise NotImplementedError

    def foresees(self, c: ScaledSum, target: Target) -> bool:
        """Whether a core has asked for what tiles read next: of one constant, not of several."""
        return len(c.panels) == 1

    def prepare(self, edit: Editor, c: ScaledSum, target: Target) -> None:
        """Schedule what is computed before all else."""

    def fold(self, edit: Editor, c: ScaledSum, loop: str, target: Target) -> None:
        """Make an instruction of the innermost loop over codes."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return self.found(workload, target) is not None

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        c = self._known(workload, target)
        most = target.num_vector_registers

        def fits(config: Config) -> bool:
            rows, vectors = config.get_int("rows"), config.get_int("vectors")
            kept = c.sums + config.get_bool("registers")
            return kept * rows * vectors + vectors + 2 <= most

        def code_size(config: Config) -> bool:
            rows, vectors = config.get_int("rows"), config.get_int("vectors")
            ragged = bool(c.rows % rows) + bool(c.columns % (config.get_int("lanes") * vectors))
            return rows * vectors * config.get_int("unroll") * c.sums * c.turns << ragged <= MOST_BODY

        widest = target.lanes(DType.f32.bytes)
        knobs = (
            Choice("lanes", tuple(n for n in (widest, widest // 2) if n >= 4)),
            Choice("rows", tuple(n for n in ROWS if n <= c.rows)),
            Choice("vectors", tuple(n for n in VECTORS if n == 1 or (n - 1) * widest < c.columns)),
            Choice("unroll", tuple(n for n in UNROLL if c.steps % n == 0)),
            Choice("registers", (True, False)),
            Choice("ahead", AHEAD),
        )
        constraints = (
            Constraint("registers", fits, "the tile needs more vector registers than there are"),
            Constraint("code size", code_size, "the unrolled loops would be long to compile"),
        )
        return ConfigSpace(knobs, constraints)

    def default(self, workload: Workload, target: Target) -> Config:
        """Of the tiles that take about the least time by what the core does in a cycle, the smallest."""
        c, space = self._known(workload, target), self.space(workload, target)
        lanes, steps = target.lanes(DType.f32.bytes), Steps.of(target)
        asked = 0 if self.foresees(c, target) else FETCHED

        def cycles(config: Config) -> float:
            """To decode and multiply, or to wait for the step before; loads are mostly hidden."""
            rows, vectors, unroll = (config.get_int(name) for name in ("rows", "vectors", "unroll"))
            units = c.batch * math.ceil(c.columns / (lanes * vectors))
            turns = math.ceil(c.usual_rows / rows) * math.ceil(units / target.num_threads)
            loads = HIDDEN * (c.sums * rows + vectors / c.turns) / steps.loads
            return turns * (self.busy(c, rows, vectors, unroll, target) + loads)

        def size(config: Config) -> tuple[bool, int, bool, bool, bool, int]:
            """Without a last one that is not full, if possible; its accumulators; then what costs least.

            A turn is as short as what is in flight at once hides its own instructions: in a longer one, more lines
            are asked for in a row than the core can wait for.
            """
            rows, vectors, unroll = (config.get_int(name) for name in ("rows", "vectors", "unroll"))
            ragged = bool(c.columns % (lanes * vectors) or c.rows % rows)
            costly = config.get_bool("registers") is crowded(rows, vectors), config.get_int("ahead") != asked
            short = rows * vectors * unroll * c.sums * c.turns < steps.pipe.in_flight
            return ragged, rows * vectors, *costly, short, unroll

        def crowded(rows: int, vectors: int) -> bool:
            """Whether totals, each of which is wanted once a block, would drive out what is folded all the time."""
            codes, totals = 2 * vectors, (c.sums + 1) * rows * vectors
            return c.folded > 1 and totals + codes + FOLDING >= target.num_vector_registers

        known = {x: cycles(x) for x in space.enumerate() if x.get_int("lanes") == lanes}
        least = min(known.values())
        return min((x for x, time in known.items() if time <= NEAR * least), key=size)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        c = self._known(workload, target)
        lanes, rows, vectors = (config.get_int(name) for name in ("lanes", "rows", "vectors"))
        panels_of = {name: c.panel(c.schedule.state.tensor(name), lanes, vectors) for name in c.panels}
        edit = Editor(with_layouts(c.schedule, interface, panels_of))
        for name in c.panels:
            if name not in {t.name for t in c.schedule.compute.inputs}:
                edit.layout(name, panels_of[name])
        self.prepare(edit, c, target)
        *batch, i, j = (a.name for a in edit.stage(c.output).stage.axes)
        tiles, row = edit.split(c.output, i, rows)
        panels, column = edit.split(c.output, j, lanes * vectors)
        over, lane = edit.split(c.output, column, lanes)
        edit.order(c.output, [*batch, panels, tiles, row, over, lane])
        edit.unroll(c.output, [row, over])
        edit.vectorize(c.output, lane)
        edit.compute_at(c.total, c.output, tiles, REGISTER if config.get_bool("registers") else LOCAL)
        inside = self._tile(edit, c.total, lanes)
        edit.compute_at(c.part, c.total, inside, REGISTER)
        turns = self._sum(edit, c, config, target)
        if config.get_int("ahead"):
            lines = config.get_int("ahead") / vectors, lanes
            for stage, loop in ((c.part, turns), (c.total, inside)):
                self._fetch(edit, c, stage, loop, lines, config.get_int("unroll"))
        ragged = {tiles: c.rows % rows, panels: c.columns % (lanes * vectors)}
        whole = [*batch, panels] if not ragged[panels] else batch or [panels]
        edit.parallel(c.output, edit.fuse(c.output, whole))
        edit.partition(c.output, [loop for loop, rest in ragged.items() if rest])
        return skip_what_nobody_reads(edit.schedule, workload)

    def _tile(self, edit: Editor, total: str, lanes: int) -> str:
        """The loops of the total in a tile; the one over its parts is given back."""
        *batch, i, j = (a.name for a in edit.stage(total).stage.axes)
        (part,) = (a.name for a in edit.stage(total).stage.reduce_axes)
        over, lane = edit.split(total, j, lanes)
        rank = len(batch) + 2
        edit.layout(total, Layout.blocked(rank, [(rank - 1, lanes)], order=tuple(range(rank))))
        edit.order(total, [*batch, part, i, over, lane])
        edit.unroll(total, [i, over])
        edit.vectorize(total, lane)
        edit.pad(total, j)
        return part

    def _sum(self, edit: Editor, c: ScaledSum, config: Config, target: Target) -> str:
        """The loops of a part in a tile; the one over its codes is given back."""
        part, lanes = c.part, config.get_int("lanes")
        *first, i, j, b = (a.name for a in edit.stage(part).stage.axes)
        which, batch = (first[:-1], first[-1:]) if c.batched else (first, [])
        step, *codes = (a.name for a in edit.stage(part).stage.reduce_axes)
        rank = len(first) + 3
        edit.layout(part, Layout.blocked(rank, [(rank - 2, lanes)], order=(*range(rank - 2), rank - 1, rank - 2)))
        over, lane = edit.split(part, j, lanes)
        turns, each = edit.split(part, step, config.get_int("unroll"))
        folded = codes[-1:] if c.folded > 1 else []
        written_out = [each, *codes[: len(codes) - len(folded)], *which, i, over]
        edit.order(part, [*batch, b, turns, *written_out, lane, *folded])
        edit.unroll(part, written_out)
        edit.vectorize(part, lane)
        edit.pad(part, j)
        for loop in folded:
            self.fold(edit, c, loop, target)
        return turns

    def _fetch(self, edit: Editor, c: ScaledSum, stage: str, loop: str, lines: tuple[float, int], unroll: int) -> None:
        """Ask early for the panels that a stage reads: (lines ahead, columns); the part has `unroll` rows in a turn."""
        ahead, columns = lines
        reads = edit.stage(stage).reads()
        for t in {r.tensor.name: r.tensor for r in reads if r.tensor.name in c.panels}.values():
            line = columns * t.dtype.bytes / LINE
            if len(t.shape) - c.batched == 2:
                turn = (unroll if stage == c.part else 1) * line
                edit.prefetch(stage, t.name, loop, math.ceil(ahead / turn), 2)
                continue
            block = t.shape[-2]  # as many blocks ahead as each stage reads of them: no row is left out
            blocks = math.ceil(ahead / line / block / unroll) * unroll
            edit.prefetch(stage, t.name, loop, blocks if stage == c.total else blocks * block // unroll, 2)

    def _known(self, workload: Workload, target: Target) -> ScaledSum:
        found = self.found(workload, target)
        assert found is not None
        return found


@template("sketch.scaled", op=None, priority=1.0)
class SketchedScaledSum(ScaledTiles):
    """Codes are decoded to floats, and parts are sums of floats."""

    algorithm = "direct"

    def found(self, workload: Workload, target: Target) -> ScaledSum | None:
        return scaled_sum(workload)

    def busy(self, c: ScaledSum, rows: int, vectors: int, unroll: int, target: Target) -> float:
        pipe = Steps.of(target).pipe
        return max((rows + DECODE) * vectors, pipe.in_flight) / pipe.per_cycle
