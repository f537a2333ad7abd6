"""From a schedule's state to loops: one nest per stage, each placed where the schedule says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from autotune.errors import LoweringError
from autotune.lower.bounds import least
from autotune.lower.coming import onward
from autotune.lower.extern import Place, Row, nest_of
from autotune.lower.folding import kept_steps
from autotune.lower.ir import (
    LOCAL,
    OPERAND,
    REGISTER,
    SHARED,
    TILE,
    Barrier,
    Buffer,
    Condition,
    For,
    If,
    Index,
    Load,
    Once,
    Operand,
    Prefetch,
    Stmt,
    Store,
    map_expr,
)
from autotune.lower.protect import exists, guarded, protected
from autotune.lower.sequence import joined
from autotune.lower.skips import ends, skippable
from autotune.lower.surroundings import surroundings
from autotune.lower.zeros import vanishes
from autotune.schedule.dot_products import DOT_PRODUCTS
from autotune.schedule.region import Regions
from autotune.schedule.state import PARALLEL, SERIAL, UNROLL, VECTORIZE, Split, StageState, State
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Const, Expr, Read, Select, Table, Var, rewrite, walk
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Linear, Ranges, clamp, conjunction, nonnegatives, to_linear, undivided
from autotune.tensor.reducer import is_builtin
from autotune.tensor.stage import Tensor


class NestBuilder:
    """Builds the statements of one kernel from a `State`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.regions = Regions(state)
        self.ranges = state.ranges()
        self.operands = self._operands()
        self.folded = kept_steps(state)
        self.buffers = self._buffers()
        self.layouts = {t.name: state.layout(t) for t in state.tensors()}
        self.producer = {t.name: s for s in state.stages for t in s.stage.outputs}

    def _operands(self) -> tuple[Operand, ...]:
        prepared = dict(self.state.prepared)
        inputs = [
            Operand(t.name, t.dtype, t.shape, self.state.layout(t), "input", t.constant, prepared.get(t.name))
            for t in self.state.inputs
        ]
        outputs = []
        for name in self.state.outputs:
            t = self.state.tensor(name)
            outputs.append(Operand(t.name, t.dtype, t.shape, self.state.layout(t), "output"))
        return (*inputs, *outputs)

    def _buffers(self) -> dict[str, Buffer]:
        out = {}
        for o in self.operands:
            out[o.name] = Buffer(o.name, o.dtype, o.layout.physical_shape(o.shape), OPERAND)
        for s in self.state.stages:
            for t in s.stage.outputs:
                if t.name not in out:
                    kept = t.shape if s.stage.extern else self.regions.of(s).extent[: len(t.shape)]
                    if t.name in self.folded:
                        d, steps = self.folded[t.name]
                        kept = (*kept[:d], steps, *kept[d + 1 :])
                    scope = s.scope if s.at is not None else LOCAL if s.replicated else SHARED
                    if scope in (
                        REGISTER,
                        TILE,
                    ):  # whole vectors: lanes beyond the region may be written, and are not read
                        reach = (s.relative()[a.name].range(self.ranges)[1] + 1 for a in s.stage.axes)
                        kept = tuple(map(max, kept, reach))
                    out[t.name] = Buffer(t.name, t.dtype, self.state.layout(t).physical_shape(kept), scope)
        return out

    def kernel(self) -> tuple[Stmt, ...]:
        """All top-level nests in order, with a barrier between them; first those that each thread has for itself."""
        body: list[Stmt] = []
        for o in self.operands:
            if o.role == "output":
                body += surroundings(o, self.buffers[o.name], self._covered(o))
        own: list[Stmt] = []
        done: set[str | None] = {None}
        for s in self.state.stages:
            if s.at is None and s.stage.recurrence not in done:
                body = joined(body, [self._in_turns(s.stage.recurrence)])
                done.add(s.stage.recurrence)
            elif s.at is None and s.replicated:
                own += self._nest(s)
            elif s.at is None and s.stage.recurrence is None:
                body = joined(body, _shared(s, self._nest(s)))
        return (*own, *body)

    def _in_turns(self, recurrence: str | None) -> Stmt:
        """One loop over the steps of a recurrence: the nest of each of its stages, all threads meeting after each.

        One thread runs it alone when no stage has anything for others.
        """
        turn: list[Stmt] = []
        loops: list[For] = []
        members = [s for s in self.state.stages if s.stage.recurrence == recurrence and s.at is None]
        alone = all(loop.mark != PARALLEL for s in members for loop in s.loops)
        for s in members:
            loops += [stmt for stmt in self._nest(s) if isinstance(stmt, For)]  # one: schedules keep it outermost
            inside = list(loops[-1].body)
            turn += inside if alone else [*_shared(s, inside), Barrier()]
        steps = replace(loops[0], body=tuple(turn))
        return Once((steps,)) if alone else steps

    def _nest(self, s: StageState) -> list[Stmt]:
        first_reduce = next((n for n, loop in enumerate(s.loops) if loop.reduce), len(s.loops))
        return self._needed(s, -1, self._level(s, 0, first_reduce if s.stage.reducer is not None else -1))

    def _level(self, s: StageState, n: int, first_reduce: int) -> list[Stmt]:
        body: list[Stmt] = []
        if n == first_reduce:
            body += self._initialise(s, n)
        if n == len(s.loops):
            return [*body, *self._update(s)]
        loop = s.loops[n]
        inside: list[Stmt] = []
        for other in self.state.stages:
            if other.at == (s.name, loop.name):
                inside += self._nest(other)
        inside += self._prefetches(s, loop.name)
        inside += self._level(s, n + 1, first_reduce)
        inside = self._needed(s, n, inside)
        turn = s.variable(str(s.turn)) if loop.name in s.alternating else ""
        return [*body, For(s.variable(loop.name), 0, loop.extent, loop.mark, tuple(inside), turn)]

    def _needed(self, s: StageState, n: int, body: list[Stmt]) -> list[Stmt]:
        """The body of loop n (-1: of none), where what it computes is looked at; tested as far outside as is known."""
        values = self.regions.values(s)
        found = [c for depth, c in ends(s, values, self.ranges, lambda e: self.value(s, e)) if depth == n]
        return [If(tuple(found), tuple(body))] if found else body

    def _initialise(self, s: StageState, n: int) -> list[Stmt]:
        reducer = s.stage.reducer
        assert reducer is not None
        body: tuple[Stmt, ...] = (Store(self._targets(s), tuple(reducer.identity)),)
        guards = self._guards(s, reduced=False)
        if guards and not self._in_registers(s):
            body = (If(guards, body),)
        for loop in reversed(s.loops[n:]):
            if not loop.reduce:
                body = (For(s.variable(loop.name), 0, loop.extent, loop.mark, body),)
        return list(body)

    def _extern(self, s: StageState) -> list[Stmt]:
        """The nest of an extern function at one row."""
        assert s.stage.extern is not None

        def locate(t: Tensor, logical: Sequence[Linear]) -> Place:
            return self.buffers[t.name], self._physical(t, list(logical))

        values = self.regions.values(s)
        reads = s.reads()
        inputs = tuple(r.tensor for r in reads)
        shared = frozenset(n for n, r in enumerate(reads) if not any(isinstance(i, Var) for i in r.indices))
        rows = tuple(values[a.name] for a in s.stage.axes)
        row = Row(s.name, inputs, s.stage.outputs, dict(s.stage.extern.attrs), rows, locate, shared)
        body = nest_of(s.stage.extern.name)(row)
        self.buffers |= {b.name: b for b in row.scratch}
        guards = self._guards(s, reduced=True)
        return [If(guards, body)] if guards else list(body)

    def _update(self, s: StageState) -> list[Stmt]:
        if s.stage.extern is not None:
            return self._extern(s)
        targets = self._targets(s)
        values = tuple(self._inside(s, b) for b in s.stage.body)
        reducer = s.stage.reducer
        if reducer is None:
            store = Store(targets, values)
        elif is_builtin(reducer):
            store = Store(targets, values, reducer.name)
        else:
            bound: dict[str, Expr] = {f"rhs{n}": v for n, v in enumerate(values)}
            bound |= {f"lhs{n}": Load(b, i) for n, (b, i) in enumerate(targets)}

            def argument(e: Expr) -> Expr | None:
                return bound.get(e.name) if isinstance(e, Var) else None

            store = Store(targets, tuple(rewrite(c, argument) for c in reducer.combine))
        guards = self._guards(s, reduced=True)
        if reducer is not None and is_builtin(reducer):
            lanes = {s.variable(x.name) for x in s.loops if x.mark not in ("", UNROLL, PARALLEL)}
            unrolled = {s.variable(x.name) for x in s.loops if x.mark == UNROLL}
            guards += tuple(c for c in skippable(values[0], reducer, lanes, unrolled) if c not in guards)
        if guards and self._in_registers(s):
            # Lanes are guarded at loads instead of stores: a masked store would keep the whole tile out of registers.
            lanes = {s.variable(x.name) for x in s.loops if x.mark == VECTORIZE}
            overhang = tuple(
                g for g in self._guards(s, reduced=False) if isinstance(g, Expr) or lanes & {*g.variables()}
            )
            store = replace(store, values=tuple(protected(v, overhang, self.ranges) for v in store.values))
            guards = tuple(g for g in guards if g not in overhang)
        return guarded(store, guards)

    def _inside(self, s: StageState, body: Expr) -> Expr:
        """The body's value, but what readers rely on where a padded stage computes beyond an output's extent."""
        value = self.value(s, body)
        outputs = [t for t in s.stage.outputs if t.name in self.state.outputs]
        if not outputs:
            return value
        form = self.layouts[outputs[0].name]
        for d, axis in enumerate(s.stage.axes):
            around = form.fill if form.block(d) == 1 else 0
            room = (self.regions.values(s)[axis.name] * -1) + (axis.extent - 1)
            beyond = axis.name in s.padded and room.range(self.ranges)[0] < 0
            if beyond and (around or not self._vanishes(body, s, axis.name)):
                other = Const(float(around) if value.dtype.is_float else around, value.dtype)
                value = Select(Binary("ge", Index(room), Const(0, DType.i64), DType.bool), value, other, value.dtype)
        return value

    def _vanishes(self, e: Expr, s: StageState, axis: str) -> bool:
        """Whether a part of a stage's body is surely zero beyond the extent of a padded axis."""
        filled = {name for name, form in self.layouts.items() if form.fill}
        return vanishes(e, s, axis, self.producer, self._top, filled)

    def _covered(self, o: Operand) -> frozenset[int]:
        """Dimensions of an output of which its stage writes all that exists."""
        s = self.producer[o.name]
        allocated = o.layout.allocated(o.shape)
        padded = [(d, a.name) for d, a in enumerate(s.stage.axes) if a.name in s.padded]
        return frozenset(d for d, axis in padded if self._top(s, axis) + 1 == allocated[d][1])

    def _top(self, s: StageState, axis: str) -> int:
        """The last position of an axis that the loops of its stage reach."""
        return self.regions.values(s)[axis].range(self.ranges)[1]

    def _in_registers(self, s: StageState) -> bool:
        """The stage writes registers that exist beyond its extent too: what it writes there is never read."""
        if s.at is None or s.scope != REGISTER or any(isinstance(e, Table) for b in s.stage.body for e in walk(b)):
            return False
        return all(exists(b, indices, self.ranges) for b, indices in self._targets(s))

    def _targets(self, s: StageState) -> tuple[tuple[Buffer, tuple[Linear, ...]], ...]:
        values = self.regions.values(s)
        logical = [values[a.name] for a in s.stage.axes]
        return tuple((self.buffers[t.name], self._physical(t, logical)) for t in s.stage.outputs)

    def _guards(self, s: StageState, reduced: bool) -> tuple[Condition, ...]:
        """Conditions under which a point of the loops (with or without reduce loops) is one of the stage's."""
        relative, values = s.relative(), self.regions.values(s)
        guards: list[Condition] = []
        # At the top level the guards of splits are enough: every axis that they keep in range is one of the loops'.
        for axis in s.stage.all_axes if reduced else s.stage.axes:
            if s.at is None and axis.name not in s.padded:
                continue
            for inside in (values[axis.name], (values[axis.name] * -1) + (axis.extent - 1)):
                if inside.range(self.ranges)[0] < 0 and not self._may_pad(s, axis.name):
                    guards.append(inside)
        for condition in s.where if reduced else ():
            forms = nonnegatives(condition, self.ranges, values)
            if forms is None:
                raise LoweringError(f"{s.name}: nothing can be left out where {condition}, which is not affine")
            guards += [form for form in forms if form.range(self.ranges)[0] < 0]
        guards += self._worth_folding(s, values) if reduced else []
        folded = {s.variable(x.name) for x in s.loops if x.reduce}
        for split in s.relations:
            # A factor that does not divide: the last round must not run into the next round of the loop outside.
            if not isinstance(split, Split):
                continue
            inside = (relative[split.parent] * -1) + (split.extent - 1)
            bound = reduced or not folded & set(inside.variables())
            if bound and inside.range(self.ranges)[0] < 0 and inside not in guards:
                if not self._may_pad(s, split.parent):
                    guards.append(inside)
        return tuple(guards)

    def _worth_folding(self, s: StageState, values: dict[str, Linear]) -> list[Linear]:
        """Conditions that fail where no point of the loops that are written out needs to be folded."""
        tile = {s.variable(x.name) for x in s.loops if x.mark not in (SERIAL, PARALLEL)}
        found = []
        for condition in s.skipped:
            for form in nonnegatives(condition, self.ranges, values) or ():
                fixed = Linear(form.const, {t: c for t, c in form.terms.items() if t not in tile})
                most = Linear(0, {t: c for t, c in form.terms.items() if t in tile}).range(self.ranges)[1]
                outer = fixed + most
                if not tile & set(outer.variables()) and outer.range(self.ranges)[0] < 0:
                    found.append(outer)
        return found

    def _may_pad(self, s: StageState, axis: str) -> bool:
        """The schedule asks to compute beyond the axis' extent: refuse unless all memory touched exists."""
        if axis not in s.padded:
            return False
        values = self.regions.values(s)
        # Of floats every factor must be zero there: nothing times infinity is no number.
        parts = [r for r in s.reads() if _mentions(r, axis)] if s.stage.body[0].dtype.is_float else s.stage.body
        reduced = all(a.name != axis for a in s.stage.axes)
        if reduced and not all(self._vanishes(e, s, axis) for e in parts):
            raise LoweringError(
                f"pad {s.name}.{axis}: what is summed up beyond its extent is not surely zero; give a factor whose "
                f"dimension {axis} is a layout with blocks, or do not pad"
            )
        for t in s.stage.outputs:
            self._check_exists(s, t, [values[a.name] if a.name == axis else None for a in s.stage.axes], axis)
        for r in s.reads():
            logical = [to_linear(i, self.ranges, values) if _mentions(i, axis) else None for i in r.indices]
            if not any(i is not None and i.is_opaque for i in logical):
                self._check_exists(s, r.tensor, logical, axis, self._facts(s, r, values))
        return True

    def _facts(self, s: StageState, r: Read, values: dict[str, Linear]) -> tuple[Linear, ...]:
        """Forms that are >= 0 wherever a predicated read touches memory: its own conditions, and the stage's guards."""
        parts = () if r.when is None else conjunction(r.when)
        kept = [a for a in s.stage.all_axes if a.name not in s.padded]
        inside = tuple((values[a.name] * -1) + (a.extent - 1) for a in kept)
        return (*(form for part in parts for form in nonnegatives(part, self.ranges, values) or ()), *inside)

    def _check_exists(
        self, s: StageState, t: Tensor, touched: list[Linear | None], axis: str, facts: tuple[Linear, ...] = ()
    ) -> None:
        """Refuse positions outside memory, in the dimensions that the axis touches: others have their own guards."""
        producer = self.producer.get(t.name)
        extents, base = t.shape, tuple(Linear() for _ in t.shape)
        if producer is not None and producer.at is not None:
            region = self.regions.of(producer)
            extents, base = region.extent[: len(t.shape)], region.base[: len(t.shape)]  # without the folded axes
        for index, first, (lo, hi) in zip(touched, base, self.layouts[t.name].allocated(extents)):
            if index is None:
                continue
            place = index - first
            a, b = least(place, self.ranges, facts), -least(place * -1, self.ranges, facts)
            if a < lo or b >= hi:
                raise LoweringError(
                    f"pad {s.name}.{axis}: {t.name} would be accessed at {place} in {a}..{b}, outside its "
                    f"memory {lo}..{hi - 1}; give {t.name} a blocked layout or a halo, or do not pad"
                )

    def _physical(self, t: Tensor, logical: list[Linear], ranges: Ranges | None = None) -> tuple[Linear, ...]:
        """Indices in memory of a logical position."""
        producer = self.producer.get(t.name)
        if producer is not None and producer.at is not None:
            logical = [i - b for i, b in zip(logical, self.regions.of(producer).base)]
        if t.name in self.folded:
            d, steps = self.folded[t.name]
            logical = [i.floormod(steps, ranges or self.ranges) if n == d else i for n, i in enumerate(logical)]
        form = self.layouts[t.name]
        return tuple(
            _dimension(form, place, logical[d], ranges or self.ranges) for place, (d, _) in enumerate(form.order)
        )

    def value(self, s: StageState, e: Expr) -> Expr:
        """A stage's expression in loop IR."""
        values = self.regions.values(s)

        def convert(n: Expr) -> Expr:
            if isinstance(n, Read):
                return self._load(s, n, convert_tree)
            if isinstance(n, Var):
                return Index(values[n.name])
            if isinstance(n, Table):
                return Table(
                    n.name,
                    n.values,
                    n.shape,
                    tuple(Index(to_linear(i, self.ranges, values)) for i in n.indices),
                    n.dtype,
                )
            return n

        def convert_tree(tree: Expr) -> Expr:
            return map_expr(tree, convert, (Read, Var, Table))

        return convert_tree(e)

    def _load(self, s: StageState, r: Read, convert: Callable[[Expr], Expr]) -> Load:
        values = self.regions.values(s)
        logical = [self._index(i, extent, values).map_opaque(convert) for i, extent in zip(r.indices, r.tensor.shape)]
        conditions: list[Condition] = []
        if r.when is not None:
            for part in conjunction(r.when):
                forms = nonnegatives(part, self.ranges, values)
                if forms is None:
                    conditions.append(convert(part))
                else:
                    conditions += [f for f in forms if f.range(self.ranges)[0] < 0]
        if conditions:
            served = self._served_by_halo(s, r, logical)
            conditions = [c for c in conditions if c not in served]
        buffer = self.buffers[r.tensor.name]
        unique = tuple(dict.fromkeys(conditions))
        otherwise = r.otherwise if unique and isinstance(r.otherwise, Const) else None
        return Load(buffer, self._physical(r.tensor, logical), unique, otherwise)

    def _index(self, e: Expr, extent: int, values: dict[str, Linear]) -> Linear:
        """An index; one that is read from memory is clamped to the tensor, whatever it turns out to be."""
        index = to_linear(e, self.ranges, values)
        if index.is_opaque:
            lo, hi = index.range(self.ranges)
            if lo < 0 or hi >= extent:
                return Linear(0, {clamp(e, max(extent - 1, 0)): 1})
        return index

    def _served_by_halo(self, s: StageState, r: Read, logical: list[Linear]) -> set[Condition]:
        """The conditions that the position is inside, where halo or block padding holds what is read outside.

        Positions are those of the stage's domain: its guards keep the loops' overhang away from memory.
        """
        if not isinstance(r.otherwise, Const):
            return set()
        producer = self.producer.get(r.tensor.name)
        if producer is not None and (producer is s or _take_turns(producer, s)):
            return set()  # a scan's own halo: other threads may not have zeroed it yet
        if all(o.name != r.tensor.name for o in self.operands):
            return set()  # scratch: nobody zeroes what lies around its data
        loops = self.regions.values(s)
        domain = {a.name: loops[a.name].range(self.ranges) if a.name in s.padded else (0, a.extent - 1)
                  for a in s.stage.all_axes}  # fmt: skip
        reached = [to_linear(i, domain).range(domain) for i in r.indices]
        form = self.layouts[r.tensor.name]
        allocated = form.allocated(r.tensor.shape)
        bounds: set[Condition] = set()
        for d, (index, (a, b), extent, (lo, hi)) in enumerate(zip(logical, reached, r.tensor.shape, allocated)):
            if a < lo or b >= hi:
                return set()
            if r.otherwise.value == (form.fill if form.block(d) == 1 else 0):
                bounds |= {undivided(index), undivided((index * -1) + (extent - 1))}
        return bounds

    def _prefetches(self, s: StageState, loop: str) -> list[Stmt]:
        out: list[Stmt] = []
        values = self.regions.values(s)
        variable = s.variable(loop)
        inside = s.loops[s.position(loop) + 1 :]
        around = [(s.variable(x.name), x.extent) for x in reversed(s.loops[: s.position(loop) + 1])]
        for name, _, distance, level, near in (f for f in s.prefetch if f.loop == loop):
            ranges = {**self.ranges, variable: (0, self.ranges[variable][1] + distance)}
            for r in (r for r in s.reads() if r.tensor.name == name):
                moving = {v for i in r.indices for v in to_linear(i, self.ranges, values).variables()}
                written = {x.name for x in inside if x.mark == UNROLL} | _on_lines(s, moving)
                spread = written if distance else set[str]()  # what comes is asked for from its first element on
                written_out = {s.variable(x.name): x.extent for x in inside if x.name in spread}
                still = {s.variable(x.name): Linear() for x in inside if x.name not in spread}
                logical = [to_linear(i, self.ranges, values).substitute(still, self.ranges) for i in r.indices]
                if any(i.is_opaque for i in logical):  # reading an index early could leave its tensor
                    continue
                place = self._physical(r.tensor, logical, self.ranges)
                now = Prefetch(self.buffers[name], place, level, coming=near)
                farther = [i.substitute({variable: Linear.var(variable) + distance}, ranges) for i in logical]
                then = replace(now, indices=self._physical(r.tensor, farther, ranges))
                stmt: Stmt = onward(now, then, around, distance)
                # One request for each round of the unrolled loops that matters to the address.
                for v in sorted({v for i in logical for v in i.variables()} & set(written_out)):
                    stmt = For(v, 0, written_out[v], UNROLL, (stmt,))
                out.append(stmt)
        return out


def _on_lines(s: StageState, moving: Collection[str]) -> set[str]:
    """The loop of a product of tiles that goes from line to line of a factor, which moves along some variables.

    It is the one over rows, or of the factor that moves along lanes the one over groups of neighbours.
    """
    for n, x in enumerate(s.loops):
        if x.mark in DOT_PRODUCTS and DOT_PRODUCTS[x.mark].tiled:
            return {s.loops[n + (2 if s.variable(s.loops[n + 1].name) in moving else 0)].name}
    return set()


def _take_turns(a: StageState, b: StageState) -> bool:
    return a.stage.recurrence is not None and a.stage.recurrence == b.stage.recurrence


def _shared(s: StageState, nest: list[Stmt]) -> list[Stmt]:
    """The nest of a top-level stage, run by one thread when it says nothing about others."""
    return nest if any(loop.mark == PARALLEL for loop in s.loops) else [Once(tuple(nest))]


def _mentions(e: Expr, axis: str) -> bool:
    return any(isinstance(x, Var) and x.name == axis for x in walk(e))


def _dimension(form: Layout, place: int, index: Linear, ranges: Ranges) -> Linear:
    """The index of a physical dimension at an index of its logical one."""
    (d, block), step = form.order[place], form.step(place)
    inside = index.floormod(block, ranges) if block else index
    return (inside.floordiv(step, ranges) if step > 1 else inside) + (0 if block else form.halo[d][0])
