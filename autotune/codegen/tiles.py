"""Tile registers (AMX): matrices of accumulators that products of tiles add to, and their configuration.

Registers are numbered here, not by LLVM: accumulators live from the statement that clears them to the one that copies
them out, factors as long as no other needs their register. What a register's shape is says a configuration, which
a kernel loads once, or for every set of accumulators where their shapes differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from autotune.codegen.index import Offset
from autotune.codegen.memory import Memory
from autotune.codegen.value import stored_type
from autotune.codegen.writer import Scope
from autotune.errors import CodegenError
from autotune.lower.ir import Buffer, Condition, For, If, Load, LoopProgram, Stmt, Store, body_of, expressions
from autotune.schedule.dot_products import DOT_PRODUCTS, TILE_LANES, TILE_STORE, TILES, DotProduct, on_tiles
from autotune.schedule.state import TILE
from autotune.target import Target
from autotune.tensor.expr import Binary, Cast, Const, Expr
from autotune.tensor.linear import Linear

_ROW_BYTES = 64
_CONFIG_BYTES, _PALETTE, _FIRST_ROW_BYTES, _FIRST_ROWS = 64, 1, 16, 48  # of what `ldtilecfg` reads, and where


def check_tiles(program: LoopProgram, target: Target) -> None:
    """
    Raises:
        CodegenError: the target has no such instructions, or others touch what is kept in tiles.
    """

    def visit(body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if isinstance(stmt, For) and on_tiles(stmt.mark):
                dot = DOT_PRODUCTS.get(stmt.mark)
                needed = ("amx-tile",) if dot is None else dot.forms[0].features
                if not target.has(*needed):
                    raise CodegenError(
                        f"{stmt.var} is tensorized with {stmt.mark}, but {target} lacks {' and '.join(needed)}; "
                        "leave out that step"
                    )
                continue
            if isinstance(stmt, Store):
                touched = [b for b, _ in stmt.targets] + [e.buffer for e in expressions(stmt) if isinstance(e, Load)]
                kept = next((b.name for b in touched if b.scope == TILE), None)
                if kept is not None:
                    raise CodegenError(f"{kept} is kept in tiles, but what touches it is not tensorized; tensorize it")
            visit(body_of(stmt))

    visit(program.body)


class _Shape(NamedTuple):
    rows: int
    bytes: int  # of a row


class _Nest(NamedTuple):
    """The loops of one instruction; those of one turn are None, as they are gone."""

    rows: For
    lanes: For
    groups: For | None
    neighbours: For | None
    when: tuple[Condition, ...]
    store: Store


class _Factor(NamedTuple):
    load: Load
    place: Offset
    step: int | None  # elements from row to row; None where there is one
    shape: _Shape


@dataclass(slots=True)
class _Set:
    """Accumulators that live together, and the registers beside them."""

    shapes: dict[int, _Shape] = field(default_factory=dict)
    sums: dict[tuple[str, Offset], int] = field(default_factory=dict)
    # Of factors: where each register's content is known from, the least recently used first.
    factors: dict[int, tuple[Scope, str, object]] = field(default_factory=dict)
    clearing: bool = True

    def fits(self, other: _Set) -> bool:
        return all(other.shapes.get(n, shape) == shape for n, shape in self.shapes.items())


@dataclass(frozen=True, slots=True)
class Configured:
    """The text of a kernel that uses tiles, and of what stands around the call of it."""

    body: list[str]
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    constants: Sequence[str] = ()


class TileRegisters:
    """Emits instructions on tiles, each for a whole nest of loops."""

    def __init__(self, memory: Memory) -> None:
        self.m, self.w, self.x = memory, memory.w, memory.x
        self._sets: list[_Set] = []

    def emit(self, loop: For) -> None:
        """The instruction that a loop is marked with, on all that is inside it."""
        nest = _nest_of(loop)
        loops = [x for x in nest[:4] if isinstance(x, For)]
        for inner in loops[1:]:
            self.x.bind(inner.var, inner.begin)
        rows = self._rows(nest)
        self.x.bind(loop.var, rows.start)
        if len(rows):
            if loop.mark == TILE_STORE:
                self._copy(nest, rows)
            elif nest.store.fold is None:
                self._clear(nest, rows)
            else:
                self._multiply(nest, rows)
        for inner in loops:
            self.x.release(inner.var)

    def configure(self, body: list[str]) -> Configured:
        """A kernel's text with its registers configured: once, or where sets differ in shapes, for every set."""
        if not self._sets:
            return Configured(body)
        self.w.declare("void @llvm.x86.ldtilecfg(ptr)")
        self.w.declare("void @llvm.x86.tilerelease()")
        after, before = ["  call void @llvm.x86.tilerelease()"], list[str]()
        shapes = [one.shapes for one in self._sets]
        if all(one.fits(other) for one in self._sets for other in self._sets):
            shapes = [{n: shape for each in shapes for n, shape in each.items()}]
            markers = {f"  {_marker(n)}" for n in range(len(self._sets))}
            before, body = [f"  {_marker(0)}"], [line for line in body if line not in markers]
        constants = [
            f'@tiles.{n} = private unnamed_addr constant [{_CONFIG_BYTES} x i8] c"{configuration(each)}", align 64'
            for n, each in enumerate(shapes)
        ]
        return Configured(body, before, after, constants)

    # -- the three instructions

    def _clear(self, nest: _Nest, rows: range) -> None:
        if not self._sets or not self._sets[-1].clearing:
            self.w.emit(_marker(len(self._sets)))
            self._sets.append(_Set())
        if not all(isinstance(v, Const) and v.value == 0 for v in nest.store.values):
            raise CodegenError(f"{nest.rows.var}: a tile starts from zeros, not from `{nest.store.values[0]}`")
        current, key = self._sets[-1], self._sum(nest)
        if key not in current.sums:
            number = current.sums[key] = len(current.sums)
            if number >= TILES - 2:
                raise CodegenError(
                    f"{key[0]} needs more than {TILES - 2} tiles for accumulators, and there are {TILES}; "
                    "make the tile smaller"
                )
            current.shapes[number] = _Shape(len(rows), _ROW_BYTES)
        self.w.declare("void @llvm.x86.tilezero(i8)")
        self.w.emit(f"call void @llvm.x86.tilezero(i8 {current.sums[key]})")

    def _multiply(self, nest: _Nest, rows: range) -> None:
        dot, product = DOT_PRODUCTS[nest.rows.mark], nest.store.values[0]
        assert isinstance(product, Binary)
        current, total = self._open(nest), self._accumulator(nest, rows)
        current.clearing = False
        left, right = self._factors(nest, rows, dot, product)
        groups = right.shape.rows
        a = self._loaded(current, left, groups, ())
        b = self._loaded(current, right, groups, (a,))
        symbol = f"@{dot.symbol(TILE_LANES) if left.load.dtype is dot.left else dot.swapped}"
        self.w.declare(f"void {symbol}(i8, i8, i8)")
        self.w.emit(f"call void {symbol}(i8 {total}, i8 {a}, i8 {b})")

    def _copy(self, nest: _Nest, rows: range) -> None:
        ((target, indices),) = nest.store.targets
        source = nest.store.values[0]
        assert isinstance(source, Load)
        place, steps = self._steps(target, indices, (nest.rows, nest.lanes))
        if steps[1] != 1:
            raise CodegenError(
                f"{target.name} has no neighbours along {nest.lanes.var}, and {TILE_STORE} writes rows of them"
            )
        current = self._open(nest)
        current.clearing = False
        number = self._accumulator(nest, rows, (source.buffer, source.indices))
        self._transfer("tilestored64", number, target, place, steps[0])
        self.w.forget(target.name)

    # -- what they work on

    def _open(self, nest: _Nest) -> _Set:
        if not self._sets:
            raise CodegenError(f"{nest.rows.var}: tiles are used before they are cleared")
        return self._sets[-1]

    def _sum(self, nest: _Nest, place: tuple[Buffer, tuple[Linear, ...]] | None = None) -> tuple[str, Offset]:
        """What names an accumulator: the place of its first element, which is the same in every turn of the loops."""
        buffer, indices = place or nest.store.targets[0]
        offset = self.x.offset(self.x.flat(buffer, indices))
        if offset.terms or buffer.scope != TILE:
            raise CodegenError(
                f"{buffer.name}: which tile {nest.rows.var} is about is unknown; unroll the loops around"
            )
        return buffer.name, offset

    def _accumulator(self, nest: _Nest, rows: range, place: tuple[Buffer, tuple[Linear, ...]] | None = None) -> int:
        current, key = self._open(nest), self._sum(nest, place)
        number = current.sums.get(key)
        if number is None or current.shapes[number].rows != len(rows):
            raise CodegenError(f"{nest.rows.var}: the tile of {key[0]} was not cleared in the same rows")
        return number

    def _rows(self, nest: _Nest) -> range:
        """The turns of the outermost loop in which the guards inside it hold."""
        held = []
        for n in range(nest.rows.begin, nest.rows.begin + nest.rows.extent):
            self.x.bind(nest.rows.var, n)
            value = self.m.all_of(nest.when, None)
            if value is not None and value.const is None:
                raise CodegenError(f"{nest.rows.var}: guards are left inside an instruction on tiles; pad or partition")
            held += [n] if value is None or value.const else []
        found = range(held[0], held[-1] + 1) if held else range(0)
        if len(found) != len(held):
            raise CodegenError(f"{nest.rows.var}: guards leave out rows in the middle of a tile")
        return found

    def _factors(self, nest: _Nest, rows: range, dot: DotProduct, product: Binary) -> tuple[_Factor, _Factor]:
        """(rows times groups, groups times lanes)."""
        loops = (nest.rows, nest.lanes, nest.groups, nest.neighbours)
        groups = nest.groups.extent if nest.groups else 1
        found: dict[bool, _Factor] = {}
        for load in (_source(product.a), _source(product.b)):
            guard = self.m.all_of(load.when, None)
            if guard is not None:
                raise CodegenError(f"part of `{load}` lies outside; give {load.buffer.name} a halo")
            place, steps = self._steps(load.buffer, load.indices, loops)
            row, lane, group, neighbour = steps
            across = lane == dot.extent and not row
            along = lane == 0 and group in (None, dot.extent)
            if neighbour != 1 or not (across or along):
                raise CodegenError(
                    f"{dot.name} needs rows of {dot.extent * groups} neighbours of {load.buffer.name}, or lanes of "
                    f"{dot.extent}; pack it"
                )
            if across:
                found[True] = _Factor(load, place, group, _Shape(groups, _ROW_BYTES))
            else:
                found[False] = _Factor(load, place, row, _Shape(len(rows), groups * 4))
        if len(found) != 2:
            raise CodegenError(f"{dot.name} needs one factor along {nest.rows.var} and one along {nest.lanes.var}")
        return found[False], found[True]

    def _steps(
        self, buffer: Buffer, indices: tuple[Linear, ...], loops: tuple[For | None, ...]
    ) -> tuple[Offset, list[int | None]]:
        """The place in the first turn of all loops, and elements from turn to turn; None for loops of one turn.

        Raises:
            CodegenError: they differ between turns.
        """
        flat = self.x.flat(buffer, indices)
        first = self.x.offset(flat)
        hidden = {v for term in flat.terms if not isinstance(term, str) for v in Linear(0, {term: 1}).variables()}
        steps: list[int | None] = []
        for loop in loops:
            if loop is None or loop.extent == 1:
                steps.append(None)
            elif loop.var not in hidden:
                steps.append(flat.terms.get(loop.var, 0))
            else:
                steps.append(self._even(buffer, flat, first, loop))
        if hidden & {x.var for x in loops if x is not None}:
            self._check_corner(buffer, flat, first, loops, steps)
        return first, steps

    def _even(self, buffer: Buffer, flat: Linear, first: Offset, loop: For) -> int:
        at, step = self.x.bound(loop.var), 0
        assert isinstance(at, int)
        for n in range(1, loop.begin + loop.extent - at):
            self.x.bind(loop.var, at + n)
            place = self.x.offset(flat)
            step = place.const - first.const if n == 1 else step
            if place != Offset(first.const + n * step, first.terms, 0):
                raise CodegenError(f"the places of {buffer.name} along {loop.var} are not evenly apart; pack it")
        self.x.bind(loop.var, at)
        return step

    def _check_corner(
        self, buffer: Buffer, flat: Linear, first: Offset, loops: tuple[For | None, ...], steps: list[int | None]
    ) -> None:
        """The last turn of all loops together is where the steps lead to."""
        expected, starts = first.const, dict[str, int]()
        for loop, step in zip(loops, steps):
            if loop is not None and step is not None:
                start = self.x.bound(loop.var)
                assert isinstance(start, int)
                starts[loop.var] = start
                last = loop.begin + loop.extent - 1
                expected += (last - start) * step
                self.x.bind(loop.var, last)
        if self.x.offset(flat) != Offset(expected, first.terms, 0):
            raise CodegenError(f"the places of {buffer.name} in a tile are not evenly apart; pack it")
        for var, start in starts.items():
            self.x.bind(var, start)

    # -- registers of factors

    def _loaded(self, current: _Set, factor: _Factor, groups: int, busy: tuple[int, ...]) -> int:
        """The register that holds a factor, loaded unless one does."""
        scope, name = self.w.scopes[-1], factor.load.buffer.name
        key = ("tile", factor.place, factor.step, factor.shape)
        known = scope.loads.setdefault(name, {})
        for number, (where, buffer, kept) in current.factors.items():
            if where is scope and (buffer, kept) == (name, key) and key in known:
                current.factors[number] = current.factors.pop(number)
                return number
        number = self._free(current, factor.shape, groups, busy)
        current.factors.pop(number, None)
        current.factors[number] = (scope, name, key)
        known[key] = number
        self._transfer("tileloadd64", number, factor.load.buffer, factor.place, factor.step)
        return number

    def _free(self, current: _Set, shape: _Shape, groups: int, busy: tuple[int, ...]) -> int:
        """A register for a factor: a new one as long as every shape still to come finds one, else the oldest."""
        used = len(current.sums)
        same = [n for n in current.factors if current.shapes[n] == shape and n not in busy]
        fresh = next((n for n in range(used, TILES) if n not in current.shapes), None)
        known = {current.shapes[n] for n in range(used, TILES) if n in current.shapes}
        wanted = {_Shape(groups, _ROW_BYTES), *(_Shape(current.shapes[n].rows, groups * 4) for n in range(used))}
        to_come = len(wanted - known - {shape})
        if fresh is not None and (not same or TILES - len(current.shapes) > to_come):
            current.shapes[fresh] = shape
            return fresh
        if not same:
            raise CodegenError(
                f"factors of more shapes than the {TILES - used} tiles left for them; make tiles smaller"
            )
        return same[0]

    def _transfer(self, name: str, number: int, buffer: Buffer, place: Offset, step: int | None) -> None:
        step = TILE_LANES if step is None else step
        pointer = self.x.pointer(buffer, place, stored_type(buffer.dtype))
        self.w.declare(f"void @llvm.x86.{name}(i8, ptr, i64)")
        self.w.emit(f"call void @llvm.x86.{name}(i8 {number}, ptr {pointer}, i64 {step * buffer.dtype.bytes})")


def _nest_of(loop: For) -> _Nest:
    loops: list[For] = []
    when: list[Condition] = []
    stmt: Stmt = loop
    while not isinstance(stmt, Store):
        if isinstance(stmt, For):
            loops.append(stmt)
        elif isinstance(stmt, If):
            when += stmt.when
        if not isinstance(stmt, (For, If)) or len(stmt.body) != 1:
            raise CodegenError(f"{loop.var} is tensorized, but other statements are left inside it")
        stmt = stmt.body[0]
    at = next((n for n, x in enumerate(loops) if x.mark == "vectorize"), None)
    if at != 1 or loops[1].extent != TILE_LANES:
        raise CodegenError(f"{loop.var} is tensorized, but its lanes are not {TILE_LANES}; pad or split")
    inside = loops[2:]
    dot = DOT_PRODUCTS.get(loop.mark)
    neighbours = inside.pop() if inside else None
    if neighbours is not None and dot is not None and (neighbours.extent, neighbours.begin) != (dot.extent, 0):
        raise CodegenError(f"{loop.var} is tensorized, but guards are left inside it; pad or split")
    return _Nest(loops[0], loops[1], inside[0] if inside else None, neighbours, tuple(when), stmt)


def _source(e: Expr) -> Load:
    if not isinstance(e, Cast) or not isinstance(e.a, Load):
        raise CodegenError(f"`{e}` is no plain widened element; a product of tiles needs one")
    return e.a


def _marker(number: int) -> str:
    """The instruction that configures a set, as it stands in the text of the kernel."""
    return f"call void @llvm.x86.ldtilecfg(ptr @tiles.{number})"


def configuration(shapes: Mapping[int, tuple[int, int]]) -> str:
    """What `ldtilecfg` reads, as a string of LLVM: the palette, then bytes of a row and rows per register.

    Args:
        shapes: rows and bytes of a row of each register that is used.
    """
    data = bytearray(_CONFIG_BYTES)
    data[0] = _PALETTE
    for number, (rows, row_bytes) in shapes.items():
        data[_FIRST_ROW_BYTES + 2 * number] = row_bytes
        data[_FIRST_ROWS + number] = rows
    return "".join(f"\\{byte:02X}" for byte in data)
