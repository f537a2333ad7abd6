"""Tiling: the decisions that make a loop nest of a contraction, and the nest itself.

The structure is that of BLIS (Van Zee and van de Geijn 2015) over any axes: a register tile of accumulators, one vector
along one axis, fed by loads along it and broadcasts along the others; blocks of tiles around it for the caches;
operands that lie badly copied into panels in the order in which the tile reads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.schedule.state import REGISTER, Split
from autotune.search_spaces.library.access import innermost
from autotune.search_spaces.sketch.contraction import Contraction, Factor, Term
from autotune.tensor.layout import Layout

NO, ONCE, BLOCK = "no", "once", "block"
"""Where an operand is copied: nowhere, before all else, or for each block of tiles that reads another part of it."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """
    Attributes:
        vector: number of the spatial axis along which vectors lie.
        lanes: elements of a vector.
        tile: per spatial axis, the register tile: elements, of the vector axis vectors.
        block: per spatial axis, tiles in a block.
        outer, inner: spatial axes in the order of the loops over blocks, and over tiles in a block.
        terms: numbers of the loops of the sum, in their order.
        unroll: turns of the innermost of them written out.
        packs: per factor, where it is copied. Constants lie as they are wanted.
        shared: how many of the outer loops are shared among threads as one.
        dot: fold neighbours with the instruction.
        skip: leave out terms that lie in the padding for a whole tile.
    """

    vector: int
    lanes: int
    tile: tuple[int, ...]
    block: tuple[int, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    terms: tuple[int, ...]
    unroll: int
    packs: tuple[str, ...]
    shared: int
    dot: bool
    skip: bool

    def elements(self, axis: int) -> int:
        """Elements of the register tile along a spatial axis."""
        return self.tile[axis] * (self.lanes if axis == self.vector else 1)


class Tiles:
    """Writes the nest of one tiling; `schedule()` is the result.

    Args:
        c: what is computed.
        t: how.
        schedule: `c.schedule`, with the layouts of its operands.
    """

    def __init__(self, c: Contraction, t: Tiling, schedule: Schedule) -> None:
        self.c, self.t = c, t
        self.edit = Editor(schedule)
        self.axes = [a.name for a in schedule.state.stage(c.output).stage.axes]
        self.sums = [a.name for a in c.spatial]

    def schedule(self) -> Schedule:
        copies = self._packed()
        outer, inner = self._output()
        self.edit.compute_at(self.c.total, self.c.output, inner[-1], REGISTER)
        shared = self._share(outer)
        for factor, copy in copies:
            self._copy(factor, copy, shared)
        self._sum()
        if self._has_room():
            self.edit.pad(self.c.output, self.axes[self.t.vector])
        for f in self.c.factors if self.t.skip else ():
            for d in f.guarded:
                moving = dict(f.steps[d])
                together = any(self.t.elements(n) > 1 for n, a in enumerate(self.c.spatial) if a.name in moving)
                self.edit.schedule = self.edit.schedule.skip_padding(self.c.total, f.tensor, d, together)
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
        vectors, lane = edit.split(out, rows[t.vector], t.lanes)
        around = [rows[n] for n in range(len(self.axes)) if n != t.vector]
        # Loops of one turn go inside: there is nothing in them to share.
        outer = sorted((blocks[n] for n in t.outer), key=lambda loop: edit.extent(out, loop) == 1)
        inner = [tiles[n] for n in t.inner]
        edit.order(out, [*outer, *inner, *around, vectors, lane])
        edit.unroll(out, [*around, vectors])
        edit.vectorize(out, lane)
        self.outer_axis = {blocks[n]: n for n in t.outer}
        self.turning = {n for n in t.outer if edit.extent(out, blocks[n]) > 1}
        return outer, inner

    def _whole_vectors(self) -> bool:
        """Whether sums beyond the end of the vector axis may be computed: all that they read exists."""
        moving = [f for f in self.c.factors if self.c.spatial[self.t.vector].name in f.axes()]
        return all(self._in_panels(f) for f in moving)

    def _has_room(self) -> bool:
        """Whether the memory of the output, and of all that is read beside the sum, goes on behind the vector axis.

        What comes there must be zero, so weights must have zeros there.
        """
        state, n = self.edit.schedule.state, self.t.vector
        if not all(f.constant for f in self.c.factors if self.c.spatial[n].name in f.axes()):
            return False
        size = self.t.elements(n)
        end = -(-self.c.spatial[n].extent // size) * size
        o = state.stage(self.c.output)
        if end == self.c.spatial[n].extent:
            return False  # nothing lies behind
        places = [(o.stage.outputs[0], n)]
        for r in o.reads():
            moved = [d for d, i in enumerate(r.indices) if str(i) == self.axes[n]]
            if r.tensor.name != self.c.total:
                places += [(r.tensor, d) for d in moved]
        return all(state.layout(t).allocated(t.shape)[d][1] >= end for t, d in places)

    def _in_panels(self, factor: Factor) -> bool:
        return factor.plain and (factor.constant or self.t.packs[self.c.factors.index(factor)] != NO)

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
                copies.append((factor, self.edit.cache_read(factor.tensor, self.c.total)))
        return copies

    def _panels(self, factor: Factor) -> Layout:
        """Tile after tile, in each the terms in the order of the sum, and of each term what the tile reads together."""
        c, t = self.c, self.t
        place = {d: n for n, a in enumerate(c.spatial) if (d := factor.dimension(a.name)) is not None}
        order = sorted(place, key=lambda d: t.outer.index(place[d]))
        loops = [c.terms()[n] for n in t.terms]
        of_terms = [(x, d) for x in loops if (d := factor.dimension(c.reduce[x.axis].name)) is not None]
        terms = list(dict.fromkeys(d for x, d in of_terms if x.part != "inner"))
        blocks = [] if t.dot else [(d, x.extent) for x, d in of_terms if x.part == "inner"]
        along = next((d for d, n in place.items() if n == t.vector), None)
        if along is None:  # of what is broadcast, the rows of a tile side by side
            along = max(order, key=lambda d: t.tile[place[d]], default=None)
        if along is not None and t.elements(place[along]) > 1:
            blocks.append((along, t.elements(place[along])))
        if t.dot and c.dot is not None:
            d = factor.dimension(c.reduce[c.dot_axis].name)
            blocks += [(d, c.dot.extent)] if d is not None else []
        return Layout.blocked(len(factor.shape), blocks, order=(*order, *terms))

    def _copy(self, factor: Factor, copy: str, shared: dict[str, str]) -> None:
        """The loops that copy a factor into panels."""
        c, t, edit = self.c, self.t, self.edit
        form = self._panels(factor)
        if t.packs[c.factors.index(factor)] == BLOCK:
            moving = [x for x, n in self.outer_axis.items() if c.spatial[n].name in factor.axes() and n in self.turning]
            if moving:  # else there is but one block, which is copied before all else
                place = [x for x in edit.loops(c.output) if x in {shared[m] for m in moving}][-1]
                edit.compute_at(copy, c.output, place)
        edit.layout(copy, form)
        s = edit.stage(copy)
        names = [a.name for a in s.stage.axes]
        d = innermost(form, s.stage.outputs[0].shape)
        if d is None:
            return
        extent = s.loop(names[d]).extent
        order = [names[x] for x, block in form.order if not block and x != d]
        if extent >= 4:
            lanes = min(t.lanes, form.block(d) if form.block(d) > 1 else t.lanes, 1 << (extent.bit_length() - 1))
            over, lane = edit.split(copy, names[d], lanes)
            source = edit.schedule.state.tensor(factor.tensor)
            along = innermost(edit.schedule.state.layout(source), source.shape)
            ragged = [over] if extent % lanes else []
            if along is None or along == d or edit.extent(copy, names[along]) < lanes:
                edit.order(copy, [over, *order, lane])
            else:  # rows of the source are loaded whole and turned in registers
                rows, row = edit.split(copy, names[along], lanes)
                edit.order(copy, [over, *(x for x in order if x != names[along]), rows, row, lane])
                edit.unroll(copy, [row])
                ragged += [rows] if factor.shape[along] % lanes else []
            edit.vectorize(copy, lane)
            edit.partition(copy, ragged)
        if s.at is None:
            widest = max(edit.stage(copy).loops, key=lambda x: x.extent if not x.mark else 0).name
            edit.order(copy, [widest, *(x for x in edit.loops(copy) if x != widest)])
            edit.parallel(copy, widest)

    # -- the sum of one tile

    def _sum(self) -> None:
        c, t, edit = self.c, self.t, self.edit
        total, rank = c.total, len(c.spatial)
        others = [n for n in range(rank) if n != t.vector]
        edit.layout(total, Layout.blocked(rank, [(t.vector, t.lanes)], order=(*others, t.vector)))
        vectors, lane = edit.split(total, self.sums[t.vector], t.lanes)
        loops, uneven = self._terms()
        last, neighbours = loops.pop(), list[str]()
        folded = 1
        if t.dot and c.dot is not None:
            folded = c.dot.extent
            last, neighbour = edit.split(total, last, folded)
            neighbours = [neighbour]
        each = min(t.unroll, edit.extent(total, last))
        if edit.extent(total, last) % each:
            uneven = True
        steps, turns = edit.split(total, last, each)
        around = [self.sums[n] for n in others]
        # What is shared stays in a register while it is used: few vectors are kept for many rows, or the reverse.
        few = t.tile[t.vector] <= max(1, math.prod(t.tile) // t.tile[t.vector])
        tile = [*around, vectors] if few else [vectors, *around]
        edit.order(total, [*loops, steps, turns, *tile, lane, *neighbours])
        edit.unroll(total, [turns, *tile])
        if uneven:
            edit.partition(total, [x for x in (*loops, steps) if self._cut(x)])
        edit.vectorize(total, lane)
        for loop in neighbours:
            edit.tensorize(total, loop, c.dot.name if c.dot else "")
        if self._whole_vectors():
            edit.pad(total, self.sums[t.vector])

    def _terms(self) -> tuple[list[str], bool]:
        """The loops of the sum in their order, blocked axes split; whether a block is not full."""
        edit, total = self.edit, self.c.total
        made: dict[Term, str] = {}
        uneven = False
        terms = self.c.terms()
        for n, a in enumerate(self.c.reduce):
            mine = [x for x in terms if x.axis == n]
            if len(mine) == 2:
                made[mine[0]], made[mine[1]] = edit.split(total, a.name, a.block)
                uneven |= bool(a.extent % a.block)
            else:
                made[mine[0]] = a.name
        return [made[terms[n]] for n in self.t.terms], uneven

    def _cut(self, loop: str) -> bool:
        """The last turn of a loop is smaller than the others, as it comes from a split that does not divide."""
        relations = self.edit.stage(self.c.total).relations
        return any(isinstance(r, Split) and loop == r.outer and r.extent % r.factor for r in relations)
