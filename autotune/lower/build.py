"""From a schedule's state to loops: one nest per stage, each placed where the schedule says."""

from __future__ import annotations

from collections.abc import Callable

from autotune.errors import LoweringError
from autotune.lower.ir import (
    LOCAL,
    OPERAND,
    REGISTER,
    SHARED,
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
from autotune.schedule.region import Regions
from autotune.schedule.state import PARALLEL, Split, StageState, State
from autotune.tensor.expr import Const, Expr, Read, Table, Var, rewrite
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Linear, Ranges, conjunction, nonnegatives, to_linear
from autotune.tensor.stage import Tensor

FOLDS = frozenset({"sum", "prod", "max", "min"})


class NestBuilder:
    """Builds the statements of one kernel from a `State`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.regions = Regions(state)
        self.ranges = state.ranges()
        self.operands = self._operands()
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
                    kept = self.regions.of(s).extent[: len(t.shape)]
                    scope = SHARED if s.at is None else REGISTER if s.scope == REGISTER else LOCAL
                    out[t.name] = Buffer(t.name, t.dtype, self.state.layout(t).physical_shape(kept), scope)
        return out

    def kernel(self) -> tuple[Stmt, ...]:
        """All top-level nests in order, with a barrier between them."""
        body: list[Stmt] = []
        for o in self.operands:
            if o.role == "output":
                body += self._zero_halo(o)
        for s in self.state.stages:
            if s.at is None:
                if any(not isinstance(x, For) or not x.var.startswith("halo.") for x in body):
                    body.append(Barrier())
                nest = self._nest(s)
                shared = any(loop.mark == PARALLEL for loop in s.loops)
                body += nest if shared else [Once(tuple(nest))]
        return tuple(body)

    def _nest(self, s: StageState) -> list[Stmt]:
        first_reduce = next((n for n, loop in enumerate(s.loops) if loop.reduce), len(s.loops))
        return self._level(s, 0, first_reduce if s.stage.reducer is not None else -1)

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
        return [*body, For(s.variable(loop.name), 0, loop.extent, loop.mark, tuple(inside))]

    def _initialise(self, s: StageState, n: int) -> list[Stmt]:
        reducer = s.stage.reducer
        assert reducer is not None
        body: tuple[Stmt, ...] = (Store(self._targets(s), tuple(reducer.identity)),)
        guards = self._guards(s, reduced=False)
        if guards:
            body = (If(guards, body),)
        for loop in reversed(s.loops[n:]):
            if not loop.reduce:
                body = (For(s.variable(loop.name), 0, loop.extent, loop.mark, body),)
        return list(body)

    def _update(self, s: StageState) -> list[Stmt]:
        targets = self._targets(s)
        values = tuple(self.value(s, b) for b in s.stage.body)
        reducer = s.stage.reducer
        if reducer is None:
            store = Store(targets, values)
        elif reducer.name in FOLDS and len(values) == 1:
            store = Store(targets, values, reducer.name)
        else:
            bound: dict[str, Expr] = {f"rhs{n}": v for n, v in enumerate(values)}
            bound |= {f"lhs{n}": Load(b, i) for n, (b, i) in enumerate(targets)}

            def argument(e: Expr) -> Expr | None:
                return bound.get(e.name) if isinstance(e, Var) else None

            store = Store(targets, tuple(rewrite(c, argument) for c in reducer.combine))
        guards = self._guards(s, reduced=True)
        return [If(guards, (store,))] if guards else [store]

    def _targets(self, s: StageState) -> tuple[tuple[Buffer, tuple[Linear, ...]], ...]:
        values = self.regions.values(s)
        logical = [values[a.name] for a in s.stage.axes]
        return tuple((self.buffers[t.name], self._physical(t, logical)) for t in s.stage.outputs)

    def _guards(self, s: StageState, reduced: bool) -> tuple[Condition, ...]:
        """Conditions under which a point of the loops (with or without reduce loops) is one of the stage's."""
        relative, values = s.relative(), self.regions.values(s)
        guards: list[Condition] = []
        for axis in s.stage.all_axes if reduced else s.stage.axes:
            for inside in (values[axis.name], (values[axis.name] * -1) + (axis.extent - 1)):
                if inside.range(self.ranges)[0] < 0 and not self._may_pad(s, axis.name):
                    guards.append(inside)
        folded = {s.variable(x.name) for x in s.loops if x.reduce}
        for split in s.relations:
            # A factor that does not divide: the last round must not run into the next round of the loop outside.
            if not isinstance(split, Split) or split.parent in s.padded:
                continue
            inside = (relative[split.parent] * -1) + (split.extent - 1)
            bound = reduced or not folded & set(inside.variables())
            if bound and inside.range(self.ranges)[0] < 0 and inside not in guards:
                guards.append(inside)
        return tuple(guards)

    def _may_pad(self, s: StageState, axis: str) -> bool:
        """The schedule asks to compute beyond the axis' extent: refuse unless all memory touched exists."""
        if axis not in s.padded:
            return False
        values = self.regions.values(s)
        for t in s.stage.outputs:
            self._check_exists(s, t, [values[a.name] for a in s.stage.axes], axis)
        for r in s.reads():
            if r.when is None:
                self._check_exists(s, r.tensor, [to_linear(i, self.ranges, values) for i in r.indices], axis)
        return True

    def _check_exists(self, s: StageState, t: Tensor, logical: list[Linear], axis: str) -> None:
        producer = self.producer.get(t.name)
        if producer is not None and producer.at is not None:
            extents = self.regions.of(producer).extent[: len(t.shape)]  # without the folded axes
            logical = [i - b for i, b in zip(logical, self.regions.of(producer).base)]
        else:
            extents = t.shape
        mine = set(self.regions.values(s)[axis].variables())
        for index, (lo, hi) in zip(logical, self.layouts[t.name].allocated(extents)):
            a, b = index.range(self.ranges)
            # Other axes have guards of their own.
            if (a < lo or b >= hi) and mine & set(index.variables()):
                raise LoweringError(
                    f"pad {s.name}.{axis}: {t.name} would be accessed at {index} in {a}..{b}, outside its memory "
                    f"{lo}..{hi - 1}; give {t.name} a blocked layout or a halo, or do not pad"
                )

    def _physical(self, t: Tensor, logical: list[Linear]) -> tuple[Linear, ...]:
        """Indices in memory of a logical position."""
        producer = self.producer.get(t.name)
        if producer is not None and producer.at is not None:
            logical = [i - b for i, b in zip(logical, self.regions.of(producer).base)]
        form = self.layouts[t.name]
        return tuple(_dimension(form, d, block, logical[d], self.ranges) for d, block in form.order)

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
        logical = [_resolved(to_linear(i, self.ranges, values), convert) for i in r.indices]
        conditions: list[Condition] = []
        affine = True
        if r.when is not None:
            for part in conjunction(r.when):
                forms = nonnegatives(part, self.ranges, values)
                if forms is None:
                    affine = False
                    conditions.append(convert(part))
                else:
                    conditions += [f for f in forms if f.range(self.ranges)[0] < 0]
        if affine and conditions and self._halo_serves(s, r, logical, conditions):
            conditions = []
        buffer = self.buffers[r.tensor.name]
        unique = tuple(dict.fromkeys(conditions))
        otherwise = r.otherwise if unique and isinstance(r.otherwise, Const) else None
        return Load(buffer, self._physical(r.tensor, logical), unique, otherwise)

    def _halo_serves(self, s: StageState, r: Read, logical: list[Linear], conditions: list[Condition]) -> bool:
        """The conditions only ask whether the position is inside, and outside lies a zero halo.

        Positions are those of the stage's domain: its guards keep the loops' overhang away from memory.
        """
        if not isinstance(r.otherwise, Const) or r.otherwise.value != 0:
            return False
        loops = self.regions.values(s)
        domain = {a.name: loops[a.name].range(self.ranges) if a.name in s.padded else (0, a.extent - 1)
                  for a in s.stage.all_axes}  # fmt: skip
        reached = [to_linear(i, domain).range(domain) for i in r.indices]
        allocated = self.layouts[r.tensor.name].allocated(r.tensor.shape)
        bounds: set[Condition] = set()
        halos = self.layouts[r.tensor.name].halo
        for index, (a, b), extent, (lo, hi), halo in zip(logical, reached, r.tensor.shape, allocated, halos):
            if (a < 0 or b >= extent) and halo == (0, 0):
                return False
            if a < lo or b >= hi:
                return False
            bounds |= {index, (index * -1) + (extent - 1)}
        return all(c in bounds for c in conditions)

    def _prefetches(self, s: StageState, loop: str) -> list[Stmt]:
        out: list[Stmt] = []
        values = self.regions.values(s)
        variable = s.variable(loop)
        for name, at, distance in s.prefetch:
            if at != loop:
                continue
            inside = {s.variable(x.name) for x in s.loops[s.position(loop) + 1 :]}
            later = {v: Linear() for v in inside} | {variable: Linear.var(variable) + distance}
            ranges = {**self.ranges, variable: (0, self.ranges[variable][1] + distance)}
            for r in s.reads():
                if r.tensor.name == name:
                    logical = [to_linear(i, self.ranges, values).substitute(later, ranges) for i in r.indices]
                    out.append(Prefetch(self.buffers[name], self._physical(r.tensor, logical)))
        return out

    def _zero_halo(self, o: Operand) -> list[Stmt]:
        """Zero everything around the data of an output: consumers read it instead of testing for edges."""
        buffer = self.buffers[o.name]
        out: list[Stmt] = []
        for place, (d, block) in enumerate(o.layout.order):
            before, after = (0, 0) if block else o.layout.halo[d]
            for width, start in ((before, 0), (after, before + o.shape[d])):
                if width:
                    out.append(self._zero_slab(o, buffer, place, start, width, len(out)))
        return out

    def _zero_slab(self, o: Operand, buffer: Buffer, place: int, start: int, width: int, number: int) -> Stmt:
        """Zero `width` planes of physical dimension `place`; dimensions before it need only their interior."""
        indices: list[Linear] = []
        loops: list[tuple[str, int]] = []
        for n, ((d, block), extent) in enumerate(zip(o.layout.order, buffer.shape)):
            var = f"halo.{o.name}.{number}.{n}"
            before, after = (0, 0) if block else o.layout.halo[d]
            if n == place:
                indices.append(Linear(start, {var: 1}))
                loops.append((var, width))
            else:
                first = before if n < place else 0
                indices.append(Linear(first, {var: 1}))
                loops.append((var, extent - before - after if n < place else extent))
        zero: tuple[Stmt, ...] = (
            Store(((buffer, tuple(indices)),), (Const(0.0 if o.dtype.is_float else 0, o.dtype),)),
        )
        for n, (var, extent) in reversed(list(enumerate(loops))):
            innermost = n == len(loops) - 1 and extent <= 32
            mark = "vectorize" if innermost and extent > 1 else ""
            zero = (For(var, 0, extent, mark, zero),)
        widest = max(range(place) if place else [0], key=lambda n: loops[n][1])
        return _parallel_first(zero[0], loops[widest][0])


def _parallel_first(stmt: Stmt, var: str) -> Stmt:
    """Move the loop over `var` outermost and share it among threads (a store of zeros is order-free)."""
    chain: list[For] = []
    inner: tuple[Stmt, ...] = (stmt,)
    while isinstance(inner[0], For):
        chain.append(inner[0])
        inner = inner[0].body
    first = next(loop for loop in chain if loop.var == var)
    body = inner
    for loop in reversed([x for x in chain if x is not first]):
        body = (For(loop.var, loop.begin, loop.extent, loop.mark, body),)
    return For(first.var, first.begin, first.extent, PARALLEL, body)


def _dimension(form: Layout, d: int, block: int, index: Linear, ranges: Ranges) -> Linear:
    if block:
        return index.floormod(block, ranges)
    inner = form.block(d)
    outer = index.floordiv(inner, ranges) if inner > 1 else index
    return outer + form.halo[d][0]


def _resolved(index: Linear, convert: Callable[[Expr], Expr]) -> Linear:
    """Indirect parts of an index (reads) in loop IR."""
    if not any(isinstance(t, Expr) for t in index.terms):
        return index
    out = Linear(index.const, {t: c for t, c in index.terms.items() if not isinstance(t, Expr)})
    for term, c in index.terms.items():
        if isinstance(term, Expr):
            out = out + Linear(0, {convert(term): c})
    return out
