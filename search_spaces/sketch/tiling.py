"""Tiling: the decisions that make a loop nest of a contraction, and the nest itself.

The structure is that of BLIS (Van Zee and van de Geijn 2015) over any axes: a register tile of accumulators, one vector
along one axis, fed by loads along it and broadcasts along the others; blocks of tiles around it for the caches;
operands that lie badly copied into panels in the order in which the tile reads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.schedule import Schedule
from autotune.schedule.dot_products import TILE_STORE
from autotune.schedule.editor import Editor
from autotune.schedule.state import REGISTER, TILE, Split
from autotune.search_spaces.library.access import innermost
from autotune.search_spaces.sketch.contraction import Contraction, Term
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.folding import Folding
from autotune.search_spaces.sketch.panels import in_order_of_panels, of_single_vectors, share_copy
from autotune.search_spaces.sketch.rules import ALL, block_size, folded
from autotune.tensor.layout import Layout

NO, ONCE, BLOCK = "no", "once", "block"
"""Where an operand is copied: nowhere, before all else, or for each block of tiles that reads another part of it."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """
    Attributes:
        vector: number of the spatial axis along which vectors lie.
        lanes: elements of a vector.
        tile: per spatial axis, the register tile: elements, of the vector axis vectors, of `upright` rows of tiles.
        block: per spatial axis, tiles in a block.
        outer, inner: spatial axes in the order of the loops over blocks, and over tiles in a block.
        terms: numbers of the loops of the sum, in their order.
        depth: elements of the longest reduce axis in a partial sum; 0 sums in one go.
        unroll: turns of the innermost of them written out; 0 for all turns of all of them.
        packs: per factor, where it is copied. Constants lie as they are wanted.
        shared: how many of the outer loops are shared among threads as one.
        dot: the instruction that folds neighbours, by its name, or `NO`.
        skip: leave out terms that lie in the padding for a whole tile.
        slide: in what is written out, one sum of the tile after another, so that what windows share is loaded once;
            else one term of all sums after another.
        ahead: turns of the innermost loop by which panels of constants are asked for; 0 leaves that to the CPU.
        stream: ask for the next panels of constants, into the second cache, while tiles read these again and again.
        apart: panels of constants have one vector, and those that a tile reads lie far apart.
        upright: the spatial axis along which the rows of tile registers lie, -1 without such; `height`: how many.
    """

    vector: int
    lanes: int
    tile: tuple[int, ...]
    block: tuple[int, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    terms: tuple[int, ...]
    depth: int
    unroll: int
    packs: tuple[str, ...]
    shared: int
    dot: str
    skip: bool
    slide: bool = False
    ahead: int = 0
    upright: int = -1
    height: int = 1
    stream: bool = False
    apart: bool = False

    def unit(self, axis: int) -> int:
        """Elements along a spatial axis that one of the registers has: lanes, rows, or one."""
        return self.lanes if axis == self.vector else self.height if axis == self.upright else 1

    def elements(self, axis: int) -> int:
        """Elements of the register tile along a spatial axis."""
        return self.tile[axis] * self.unit(axis)

    def blocks(self, axis: int, extent: int) -> int:
        """Blocks of tiles along a spatial axis of so many elements."""
        return -(-extent // (self.elements(axis) * self.block[axis]))


class Tiles:
    """Writes the nest of one tiling; `schedule()` is the result.

    Args:
        c: what is computed.
        t: how.
        schedule: `c.schedule`, with the layouts of its operands.
    """

    def __init__(self, c: Contraction, t: Tiling, schedule: Schedule) -> None:
        self.c, self.t, self.folding = c, t, c.folding(t.dot)
        self.edit = Editor(schedule)
        self.axes = [a.name for a in schedule.state.stage(c.output).stage.axes]
        self.sums = [a.name for a in c.spatial]
        self.total = c.total if t.depth == 0 else self.edit.rfactor(c.total, c.reduce[c.deep].name, t.depth)
        """The stage that multiplies: all of the sum, or its parts."""

    def schedule(self) -> Schedule:
        copies = self._packed()
        outer, inner = self._output()
        if self.total and not self.t.depth:
            self._keep(self.c.output, inner[-1])
        self._shared = self._share(outer)
        if self.t.depth:
            self._added_up([x for x in self.edit.loops(self.c.output) if x in self._shared.values()][-1])
        for factor, copy in copies:
            self._copy(factor, copy)
        if self.total:
            self._sum()
        if self._has_room():
            self.edit.pad(self.c.output, self.axes[self.t.vector])
        for f in self.c.factors if self.t.skip else ():
            for d in f.guarded:
                moving = dict(f.steps[d])
                if self.folding and self.c.reduce[self.folding.axis].name in moving:
                    continue  # of what is folded, nothing can be left out
                together = any(self.t.elements(n) > 1 for n, a in enumerate(self.c.spatial) if a.name in moving)
                self.edit.schedule = self.edit.schedule.skip_padding(self.total, f.tensor, d, together)
        return self.edit.schedule

    # -- the output: blocks, tiles, and writing a tile back

    def _output(self) -> tuple[list[str], list[str]]:
        """(loops over blocks, loops over tiles), outermost first."""
        t, out, edit = self.t, self.c.output, self.edit
        blocks, tiles, rows = {}, {}, {}
        self.ragged: set[str] = set()
        for n, axis in enumerate(self.axes):
            extent, size = self.c.spatial[n].extent, t.elements(n)
            over, rows[n] = edit.split(out, axis, size)
            blocks[n], tiles[n] = edit.split(out, over, t.block[n])
            whole = n == t.vector and self._whole_vectors() and self._has_room()
            if -(-extent // size) % t.block[n] or (extent % size and not whole):
                self.ragged |= {blocks[n], tiles[n]}
            if n in self.c.edges and size > 1:
                self.ragged |= {blocks[n], tiles[n]}
        # Loops of one turn go inside: there is nothing in them to share.
        outer = sorted((blocks[n] for n in t.outer), key=lambda loop: edit.extent(out, loop) == 1)
        inner = [tiles[n] for n in t.inner]
        self._tile(out, [*outer, *inner], rows)
        self.outer_axis = {blocks[n]: n for n in t.outer}
        self._turns = {blocks[n]: edit.extent(out, blocks[n]) for n in t.outer}
        self.turning = {n for n in t.outer if self._turns[blocks[n]] > 1}
        return outer, inner

    def _tile(self, stage: str, outside: list[str], rows: dict[int, str]) -> None:
        """The loops of a stage: those outside a tile, and of the tile those along each axis written out as vectors."""
        t, edit = self.t, self.edit
        vectors, lane = edit.split(stage, rows[t.vector], t.lanes)
        around = [rows[n] for n in range(len(rows)) if n not in (t.vector, t.upright)]
        upright = [rows[t.upright]] if t.upright >= 0 else []
        edit.order(stage, [*outside, *around, *upright, vectors, lane])
        edit.unroll(stage, [*around, vectors])
        edit.vectorize(stage, lane)

    def _keep(self, reader: str, loop: str) -> None:
        """Keep the sum in registers; tile registers are copied to scratch memory for what comes after it.

        Args:
            reader: the stage that reads it; `loop`: of that, the innermost around a tile.
        """
        t, edit = self.t, self.edit
        if t.upright < 0:
            edit.compute_at(self.total, reader, loop, REGISTER)
            return
        copy = edit.cache_read(self.total, reader)
        edit.compute_at(copy, reader, loop)
        edit.compute_at(self.total, reader, loop, TILE)
        names = [a.name for a in edit.stage(self.total).stage.axes]
        upright, along = (names.index(self.sums[n]) for n in (t.upright, t.vector))
        others = [n for n in range(len(names)) if n not in (upright, along)]
        form = Layout.blocked(len(names), [(upright, t.height), (along, t.lanes)], order=(*others, upright, along))
        copied = [a.name for a in edit.stage(copy).stage.axes]
        for stage, axes in ((copy, copied), (self.total, names)):
            edit.layout(stage, form)
            edit.pad(stage, axes[along])
        rows, lane = self._registers(copy, copied[upright], copied[along])
        edit.order(copy, [*(x for x in edit.loops(copy) if x not in (rows, lane)), rows, lane])
        edit.unroll(copy, edit.loops(copy)[:-2])
        edit.vectorize(copy, lane)
        edit.tensorize(copy, rows, TILE_STORE)

    def _registers(self, stage: str, upright: str, along: str) -> tuple[str, str]:
        """Split a stage's axes into registers, and what is in one: the loops over its rows and its lanes."""
        _, lane = self.edit.split(stage, along, self.t.lanes)
        _, rows = self.edit.split(stage, upright, self.t.height)
        return rows, lane

    def _added_up(self, block: str) -> None:
        """Partial sums of a block of tiles are added up in memory that stays in a cache, part after part.

        Args:
            block: the loop of the output around a block.
        """
        c, t, edit = self.c, self.t, self.edit
        edit.compute_at(c.total, c.output, block)
        axes = sorted(range(len(self.sums)), key=lambda n: n == t.vector)  # a vector is read and written whole
        edit.layout(c.total, Layout.blocked(len(self.sums), [(n, t.elements(n)) for n in axes if t.elements(n) > 1]))
        tiles, rows = {}, {}
        ragged = []
        for n, axis in enumerate(self.sums):
            size = edit.extent(c.total, axis)
            uneven = size % t.elements(n) or c.spatial[n].extent % size  # in the last block, where it is smaller
            tiles[n], rows[n] = edit.split(c.total, axis, t.elements(n))
            ragged += [tiles[n]] if uneven and not (n == t.vector and self._whole_vectors()) else []
        (part,) = (x.name for x in edit.stage(c.total).stage.reduce_axes)
        inner = [tiles[n] for n in t.inner]
        self._tile(c.total, [part, *inner], rows)
        self._keep(c.total, inner[-1])
        edit.partition(c.total, ragged)
        if self._whole_vectors():
            edit.pad(c.total, self.sums[t.vector])

    def _whole_vectors(self) -> bool:
        """Whether sums beyond the end of the vector axis may be computed: all that they read exists."""
        moving = [f for f in self.c.factors if self.c.spatial[self.t.vector].name in f.axes()]
        return self.c.product and all(self._in_panels(f) or self._goes_on(f) for f in moving)

    def _goes_on(self, factor: Factor) -> bool:
        """Whether the memory of what vectors are read from goes on behind the vector axis, as far as the last tile."""
        state, axis = self.edit.schedule.state, self.c.spatial[self.t.vector]
        d = factor.dimension(axis.name)
        if d is None or factor.steps[d] != ((axis.name, 1),) or factor.starts[d]:
            return False
        tensor = state.tensor(factor.tensor)
        return state.layout(tensor).allocated(tensor.shape)[d][1] >= self._end()

    def _end(self) -> int:
        """Where the last tile ends along the vector axis."""
        size = self.t.elements(self.t.vector)
        return -(-self.c.spatial[self.t.vector].extent // size) * size

    def _has_room(self) -> bool:
        """Whether the memory of the output, and of all that is read beside the sum, goes on behind the vector axis.

        What comes there must be zero, so weights must have zeros there.
        """
        state, n = self.edit.schedule.state, self.t.vector
        moving = [f for f in self.c.factors if self.c.spatial[n].name in f.axes()]
        if not self.c.product or not all(f.constant or self._goes_on(f) for f in moving):
            return False
        end = self._end()
        o = state.stage(self.c.output)
        if end == self.c.spatial[n].extent:
            return False  # nothing lies behind
        places = [(o.stage.outputs[0], n)]
        for r in o.reads():
            moved = [d for d, i in enumerate(r.indices) if str(i) == self.axes[n]]
            if r.tensor.name != self.c.total:
                places += [(r.tensor, d) for d in moved]
        return all(state.layout(t).allocated(t.shape)[d][1] >= end for t, d in places)

    def packs(self, factor: Factor) -> bool:
        """Whether a factor is copied into panels."""
        return self.t.packs[self.c.factors.index(factor)] != NO

    def _in_panels(self, factor: Factor) -> bool:
        return factor.plain and (factor.constant or self.packs(factor))

    def _share(self, outer: list[str]) -> dict[str, str]:
        """Give threads their part; for each outer loop, the loop that it has become part of."""
        out, edit = self.c.output, self.edit
        wanted = [loop for loop, n in self.outer_axis.items() if n in self.t.outer[: self.t.shared]]
        fused = [outer[0]]
        for loop in [x for x in outer[1:] if x in wanted and edit.extent(out, x) > 1]:
            if loop in self.ragged or fused[0] in self.ragged:
                break
            fused.append(loop)
        loop = edit.fuse(out, fused)
        if not self.c.inside:
            edit.parallel(out, loop)
        edit.partition(out, [x for x in edit.loops(out) if x in self.ragged])
        return {x: loop if x in fused else x for x in outer}

    # -- operands

    def _packed(self) -> list[tuple[Factor, str]]:
        """Panels: constants lie in them, others are copied. (factor, copy) of those."""
        copies = []
        for factor, where in zip(self.c.factors, self.t.packs, strict=True):
            if factor.constant and factor.plain:
                self.edit.layout(factor.tensor, self._panels(factor))
            elif where != NO:
                copies.append((factor, self.edit.cache_read(factor.tensor, self.total)))
        return copies

    def _panels(self, factor: Factor) -> Layout:
        """Tile after tile, in each the terms in the order of the sum, and of each term what the tile reads together."""
        c, t = self.c, self.t
        place = {d: n for n, a in enumerate(c.spatial) if (d := factor.dimension(a.name)) is not None}
        loops = [c.terms()[n] for n in t.terms]
        of_terms = [(x, d) for x in loops if (d := factor.dimension(c.reduce[x.axis].name)) is not None]
        walk = [*(n for n in t.outer if t.blocks(n, c.spatial[n].extent) > 1), *t.inner]
        order = sorted(place.keys() - {d for _, d in of_terms}, key=lambda d: walk.index(place[d]))
        terms = list(dict.fromkeys(d for x, d in of_terms if x.part != "inner"))
        blocks = [(d, x.extent) for x, d in of_terms if x.part == "inner" and self._blocked(factor, x, of_terms)]
        along = next((d for d in order if place[d] == t.vector), None)
        if along is None:  # of what is broadcast, the rows of a tile side by side
            along = max(order, key=lambda d: t.tile[place[d]], default=None)
        if along is not None and t.elements(place[along]) > 1:
            blocks.append((along, t.elements(place[along])))
        if self.folding:
            d = factor.dimension(c.reduce[self.folding.axis].name)
            # Of tiles, a row of the factor that stays in place along vectors is all that an instruction folds.
            rows = t.upright >= 0 and c.spatial[t.vector].name not in factor.axes()
            blocks += [(d, self._deep(self.folding) if rows else self.folding.dot.extent)] if d is not None else []
        still = [d for d in range(len(factor.shape)) if d not in order and d not in terms]
        form = Layout.blocked(len(factor.shape), blocks, order=(*still, *order, *terms))
        vectors = t.apart and factor.constant and along is not None and place[along] == t.vector
        return of_single_vectors(form, along, t.lanes) if vectors and along is not None else form

    def _blocked(self, factor: Factor, inner: Term, of_terms: list[tuple[Term, int]]) -> bool:
        """Whether panels have the blocks of an axis of the sum.

        What is folded is a smaller block, which needs the larger around it only where other loops stand between that
        over blocks and that over what is in one.
        """
        if not self.folding:
            return True
        loops = [x for x, _ in of_terms]
        between = loops[[x.axis for x in loops].index(inner.axis) + 1 : loops.index(inner)]
        return factor.constant and any(x.extent > 1 for x in between)

    def around(self, factor: Factor, across: str = "") -> str | None:
        """The innermost of the loops over blocks of which another reads another part of a factor; None where there is
        but one block. Once there is a nest.

        Args:
            across: an axis along which no parts are told apart.
        """
        moving = self._moving(factor, across)
        wanted = {self._shared[x] for x in moving}
        return [x for x in self.edit.loops(self.c.output) if x in wanted][-1] if moving else None

    def again(self, factor: Factor, across: str = "") -> int:
        """How often `around` comes to each part of a factor."""
        place, loops = self.around(factor, across), self.edit.loops(self.c.output)
        if place is None:
            return 1
        outside = loops[: loops.index(place) + 1]
        moving = self._moving(factor, across)
        still = (x for x in self.outer_axis if x not in moving and self._shared[x] in outside)
        return math.prod(self._turns[x] for x in still)

    def _moving(self, factor: Factor, across: str = "") -> list[str]:
        names, moving = [a.name for a in self.c.spatial], factor.axes() - {across}
        return [x for x, n in self.outer_axis.items() if names[n] in moving and n in self.turning]

    def _copy(self, factor: Factor, copy: str) -> None:
        """The loops that copy a factor into panels."""
        c, t, edit = self.c, self.t, self.edit
        form = self._panels(factor)
        if t.packs[c.factors.index(factor)] == BLOCK:
            place = self.around(factor)
            if place is not None:  # else there is but one block, which is copied before all else
                edit.compute_at(copy, c.output, place)
        edit.layout(copy, form)
        s = edit.stage(copy)
        names = [a.name for a in s.stage.axes]
        d = innermost(form, s.stage.outputs[0].shape)
        if d is None:
            return
        order = list(names)
        if s.loop(names[d]).extent >= 4:
            order = in_order_of_panels(edit, t.lanes, self.folding, factor, copy, form, d)
        if s.at is None:
            share_copy(edit, copy, order)

    # -- the sum of one tile

    def _deep(self, folding: Folding) -> int:
        """Elements along the innermost loop of the sum that one instruction folds."""
        return folded(self.c, folding, self.c.terms()[self.t.terms[-1]], self.t.depth)

    def _sum(self) -> None:
        c, t, edit = self.c, self.t, self.edit
        if self.folding and t.upright >= 0:
            self._sum_in_tiles(self.folding)
            return
        total, names = self.total, [a.name for a in edit.stage(self.total).stage.axes]
        others = [n for n in range(len(c.spatial)) if n != t.vector]
        along = names.index(self.sums[t.vector])
        order = [d for d in range(len(names)) if d != along]
        edit.layout(total, Layout.blocked(len(names), [(along, t.lanes)], order=(*order, along)))
        vectors, lane = edit.split(total, self.sums[t.vector], t.lanes)
        loops, uneven = self._terms()
        last, neighbours = loops.pop(), list[str]()
        if self.folding:
            last, neighbour = edit.split(total, last, self.folding.dot.extent)
            neighbours = [neighbour]
            self._fill_up(self.folding)
        each = min(t.unroll or edit.extent(total, last), edit.extent(total, last))
        if self._copied_together():
            each = block_size(edit.extent(total, last), each, whole=True)
        if edit.extent(total, last) % each:
            uneven = True
        steps, turns = edit.split(total, last, each)
        around = [self.sums[n] for n in others]
        # What is shared stays in a register while it is used: few vectors are kept for many rows, or the reverse.
        few = t.tile[t.vector] <= max(1, math.prod(t.tile) // t.tile[t.vector])
        tile = [*around, vectors] if few else [vectors, *around]
        body = [*tile, turns] if t.slide else [turns, *tile]
        edit.order(total, [*loops, steps, *body, lane, *neighbours])
        edit.unroll(total, [*(loops if t.unroll == ALL else ()), *body])
        for factor in c.streamed if t.ahead else ():
            edit.prefetch(total, factor.tensor, turns, t.ahead)
        for factor in c.streamed if t.stream else ():
            edit.stream(total, factor.tensor, steps, c.near)
        if uneven:  # nothing may be guarded inside of an instruction
            edit.partition(total, [x for x in (*loops, steps) if self._cut(x) or (self.folding and x == steps)])
        edit.vectorize(total, lane)
        for loop in neighbours:
            edit.tensorize(total, loop, t.dot)
        if self._whole_vectors():
            edit.pad(total, self.sums[t.vector])

    def _copied_together(self) -> bool:
        """Whether a copy's place along a dimension is told by the innermost loop of the sum and another axis together:
        turns beyond the end would seem to read more of it."""
        inmost = self.c.reduce[self.c.terms()[self.t.terms[-1]].axis].name
        copied = [f for f in self.c.factors if self.packs(f) and not f.constant]
        return any(len(parts) > 1 and inmost in dict(parts) for f in copied for parts in f.steps)

    def _fill_up(self, folding: Folding) -> None:
        """Fold zeros behind the end of an axis that is no multiple of what is folded."""
        axis = self.c.reduce[folding.axis]
        if axis.extent % folding.dot.extent:
            self.edit.pad(self.total, axis.name)

    def _sum_in_tiles(self, folding: Folding) -> None:
        """One instruction for all that a pair of registers holds; the registers of a tile are written out."""
        t, edit, total = self.t, self.edit, self.total
        loops, uneven = self._terms()
        rows, lane = self._registers(total, self.sums[t.upright], self.sums[t.vector])
        last, deep = edit.split(total, loops.pop(), self._deep(folding))
        groups, neighbours = edit.split(total, deep, folding.dot.extent)
        self._fill_up(folding)
        each = min(t.unroll, edit.extent(total, last))
        uneven |= bool(edit.extent(total, last) % each)
        steps, turns = edit.split(total, last, each)
        made = {*loops, steps, turns, rows, lane, groups, neighbours}
        tile = [x for x in edit.loops(total) if x not in made]
        edit.order(total, [*loops, steps, turns, *tile, rows, lane, groups, neighbours])
        edit.unroll(total, [turns, *tile])
        if uneven:
            edit.partition(total, [x for x in (*loops, steps) if self._cut(x)])
        edit.vectorize(total, lane)
        edit.tensorize(total, rows, t.dot)
        for factor in self.c.streamed if t.ahead else ():
            edit.prefetch(total, factor.tensor, turns, t.ahead)
        for factor in self.c.streamed if t.stream else ():
            edit.stream(total, factor.tensor, steps, self.c.near)

    def _terms(self) -> tuple[list[str], bool]:
        """The loops of the sum in their order, blocked axes split; whether a block is not full."""
        edit, total = self.edit, self.total
        names = [a.name for a in edit.stage(total).stage.reduce_axes]
        made: dict[Term, str] = {}
        uneven, terms = False, self.c.terms()
        for n, a in enumerate(self.c.reduce):
            mine = [x for x in terms if x.axis == n]
            name = a.name if a.name in names else names[-1]  # the axis of which there are parts
            if len(mine) == 2:
                made[mine[0]], made[mine[1]] = edit.split(total, name, a.block)
                uneven |= bool(a.extent % a.block)
            else:
                made[mine[0]] = name
        return [made[terms[n]] for n in self.t.terms], uneven

    def _cut(self, loop: str) -> bool:
        """The last turn of a loop is smaller than the others, as it comes from a split that does not divide."""
        relations = self.edit.stage(self.total).relations
        return any(isinstance(r, Split) and loop == r.outer and r.extent % r.factor for r in relations)
