"""Calls of a stop, one behind the other, that native code takes together, for any extents that data decides.

Runs show which extents differ, and which are always equal. That is a guess about what may come, not about what is
right: a run that does not fit it, that no program is there for yet, or that native code refuses is taken call by call.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from autotune.compiler.bound_open import BoundOpen, OpenFit
from autotune.compiler.native_rows import MAKERS, Dims, NotNative, RowMoves, Rows, Take
from autotune.compiler.open_form import Form, OpenForm, fits
from autotune.compiler.room import MOST_FORMS
from autotune.compiler.specialisation import Life
from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host.eager_steps import Operand
from autotune.runtime.address import place_of
from autotune.runtime.executor import Array, Executor
from autotune.runtime.form import ALIGN, spec_bytes
from autotune.runtime.moves import Cell, Fit, Fits
from autotune.runtime.threads import ThreadPool
from autotune.tensor.aligned import aligned_empty

SHOWN = 4
"""Runs from which is learned what differs: extents that are equal by chance seldom are so often."""

LEAST_CALLS = 8
"""Operators from which one call of native code takes less time than they do by NumPy; a program is worth as many."""

LEAST_ROOM = 16
"""Rows that there is room for, at least."""

MOST_VIEWS = 256
"""Of a result, that are kept: making one takes longer than looking it up."""

Values = dict[str, Any]
Threads = Callable[[Executor], ThreadPool]
"""Those that run a program."""


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A call that native code may take.

    Attributes:
        node: an operator on these operands; None where programs run.
        open: what runs those.
    """

    node: NodeAttributes | None
    operands: Sequence[Operand]
    open: BoundOpen | None
    writes: Sequence[str]

    @property
    def reads(self) -> list[str]:
        """Names of what is not the same in every run."""
        return list(self.open.reads) if self.open else [one.name for one in self.operands if not one.constant]


def is_native(node: NodeAttributes) -> bool:
    """Whether there may be native code for a node."""
    return node.op in MAKERS and len(node.proto.output) == 1


def is_worth(calls: Sequence[NativeCall]) -> bool:
    """Whether native code that takes these calls together saves time."""
    return len(calls) >= LEAST_CALLS or (len(calls) > 1 and any(call.open for call in calls))


class NativeCalls:
    """A `Step` in the place of several.

    Args:
        calls: one behind the other. `alone`: takes them one by one.
        wanted: names of what somebody else reads.
        take: told of memory before it is taken.
    """

    def __init__(
        self,
        calls: Sequence[NativeCall],
        alone: Callable[[Values], None],
        wanted: Collection[str],
        threads: Threads,
        take: Take,
    ) -> None:
        self._calls, self._alone, self._wanted, self._threads, self._take = calls, alone, wanted, threads, take
        made: set[str] = set()
        self._reads: list[str] = []
        for call in calls:
            self._reads += [name for name in call.reads if name not in made]
            made.update(call.writes)
        self._forms: list[Form] | None = []  # None once native code is given up
        self._runs = 0
        self._plan: _Plan | None = None

    def __call__(self, values: Values) -> None:
        if self._plan is None or not self._plan.run(values):
            self._alone(values)
            if self._forms is not None:
                self._learn(values, self._forms)

    def _learn(self, values: Values, forms: list[Form]) -> None:
        """Take a run that was taken call by call."""
        try:
            if self._plan is None or not self._plan.holds(values):
                if len(forms) > MOST_FORMS:
                    return
                form = Form.of({name: values[name] for name in self._reads}, ())
                self._runs += 1
                if form not in forms:
                    forms.append(form)
                if self._runs < SHOWN:
                    return
                self._plan = None  # its memory is free before there is more
                self._plan = _Plan(self._calls, *_dims(forms), values, self._wanted, self._threads, self._take)
            self._plan.make(values)
        except (NotNative, ModelError):
            self._forms = self._plan = None


def _dims(forms: Sequence[Form]) -> tuple[Mapping[str, Dims], Mapping[str, int]]:
    """The extents of what is read, symbols where they differ, and what symbols were at most."""
    if len(forms) == 1:
        return forms[0].shapes, {}
    form = OpenForm.of(forms)
    if form is None:
        raise NotNative
    most: dict[str, int] = {}
    for shown in forms:
        for symbol, extent in form.extents_of(shown).items():
            most[symbol] = max(extent, most.get(symbol, 0))
    return {**forms[0].shapes, **form.dims}, most


class _Plan:
    """What native code does for all runs of such extents.

    Args:
        dims: of what is read. `shown`: what symbols were at most.
        values: of a run; results included.
        take: told of memory before it is taken.
    """

    def __init__(
        self,
        calls: Sequence[NativeCall],
        dims: Mapping[str, Dims],
        shown: Mapping[str, int],
        values: Values,
        wanted: Collection[str],
        threads: Threads,
        take: Take,
    ) -> None:
        most = {symbol: 1 << max(extent, LEAST_ROOM).bit_length() for symbol, extent in shown.items()}
        reads = Counter(name for call in calls for name in call.reads)
        reads.update(wanted)
        self._rows = RowMoves(most, reads, take)
        self._symbols = [(symbol, cell, most[symbol]) for symbol, cell in self._rows.symbols.items()]
        self._programs: list[_Programs] = []
        known: dict[str, Rows] = {}
        for call in calls:
            for name in call.reads:
                if name not in known:
                    if name not in dims:
                        raise NotNative
                    known[name] = self._rows.given(name, dims[name], values[name].dtype)
            if call.node is None:
                programs = _Programs(call, self._rows, most, known, values, threads)
                self._programs.append(programs)
                known.update(zip(call.writes, programs.results))
            else:
                operands = [self._rows.constant(o.array) if o.constant else known[o.name] for o in call.operands]
                known[call.writes[0]] = self._rows.add(call.node, operands)
        self._given = [
            (name, rows.dtype, dims[name], rows.cell, rows.dtype.itemsize)
            for name, rows in known.items()
            if rows.name == name
        ]
        written = {name for call in calls for name in call.writes}
        self._results = [(name, _Views(known[name])) for name in written.intersection(wanted)]

    def holds(self, values: Values) -> bool:
        """Whether it is made for such extents."""
        extents: dict[str, int] = {}
        return all(
            isinstance(values[name], np.ndarray) and fits(dims, values[name].shape, extents)
            for name, _, dims, _, _ in self._given
        ) and all(extents[symbol] <= most for symbol, _, most in self._symbols)

    def make(self, values: Values) -> None:
        """Have the programs for such extents where they are there. Raises NotNative where none ever serve."""
        for programs in self._programs:
            programs.make(values)

    def run(self, values: Values) -> bool:
        """Whether native code has taken a run; nothing is added to the values of one that it has not."""
        extents: dict[str, int] = {}
        for name, dtype, dims, cell, size in self._given:
            value = values[name]
            if type(value) is not np.ndarray or value.dtype is not dtype:
                return False
            if value.shape != dims and not fits(dims, value.shape, extents):
                return False
            place = place_of(value)
            if place is None or place % size:
                return False
            cell.value = place
        for symbol, cell, most in self._symbols:
            extent = extents[symbol]
            if extent > most:
                return False
            cell.value = extent
        if not self._rows.moves.run():
            return False
        for name, views in self._results:
            values[name] = views.of(values, extents)
        for programs in self._programs:
            programs.ran(extents)
        self._rows.runs += 1
        return True


class _Made(NamedTuple):
    """A program for a number of rows: what it leaves, and whether a better one is to come."""

    life: Life
    results: Sequence[Array]
    late: bool


class _Programs:
    """Programs for any number of rows, of which one serves a run.

    Attributes:
        results: values that they give.
    """

    def __init__(
        self,
        call: NativeCall,
        rows: RowMoves,
        most: Mapping[str, int],
        known: Mapping[str, Rows],
        values: Values,
        threads: Threads,
    ) -> None:
        assert call.open is not None
        self._open, self._rows, self._threads, self._writes = call.open, rows, threads, call.writes
        self._given = {name: known[name] for name in call.open.reads}
        model = call.open.model
        axes = model.axes.open.free
        if len(axes) != 1 or len(model.axes.open.symbols) != 1 or any(set(at) - {0} for at in axes[0].outputs):
            raise NotNative
        opened = [one for one in model.inputs if any(isinstance(dim, str) for dim in one.dims or ())]
        self._padded = {one.name for one in opened}
        numbers = {known[one.name].dims[0] for one in opened}
        others = [dim for name in self._given if name not in self._padded for dim in known[name].dims]
        others += [dim for one in opened for dim in known[one.name].dims[1:]]
        if len(numbers) != 1 or any(isinstance(dim, str) for dim in others):
            raise NotNative
        (self._dim,), (self._symbol,) = numbers, model.axes.open.symbols
        self._fits = Fits(rows.extent(self._dim), 1 + (most[self._dim] if isinstance(self._dim, str) else self._dim))
        rows.moves.program(self._fits)
        self._made: dict[int, _Made] = {}
        self._arena: Array = np.empty(0, np.uint8)  # results may lie there, of one program in each run
        self.results = list(self._results(call, [bool(at) for at in axes[0].outputs], values))

    def _results(self, call: NativeCall, opened: Sequence[bool], values: Values) -> Iterator[Rows]:
        for n, (name, is_open) in enumerate(zip(call.writes, opened)):
            if not is_open:
                raise NotNative
            dims: Dims = (self._dim, *values[name].shape[1:])
            yield Rows(self._rows.moves.cell(), dims, values[name].dtype, partial(_found, self._made, self._dim, n))

    def ran(self, extents: Mapping[str, int]) -> None:
        """Count a run."""
        extent = _extent(self._dim, extents)
        if not extent:
            return
        made = self._made[extent]
        made.life.runs += 1
        if made.late and self._open.model.is_better({self._symbol: extent}):
            for late in [one for one, other in self._made.items() if other.late]:
                del self._made[late]
                self._fits.rows[late] = 0

    def make(self, values: Values) -> None:
        """Have the program for such a number of rows where it is there, for all numbers that it serves."""
        extent = next(values[name].shape[0] for name in self._padded)
        if extent in self._made:
            return
        if not extent:  # a run has shown that it is possible, and what comes of it
            self._made[0] = _Made(Life(), [values[name] for name in self._writes], False)
            self._fits.add_nothing()
            return
        fit = self._open.fit(values)
        if fit is None:
            return
        made = self._fit(fit)
        arrays = [array for _, array in made.results]
        serves: list[int] = []
        for extent in range(1, len(self._fits.rows)):
            found = self._open.model.alone({self._symbol: extent})
            program = None if found is None else found[1].program
            if found is not None and program is not None and program.executor is fit.executor:
                serves.append(extent)
                self._made[extent] = _Made(fit.life, arrays, found[2])
        self._fits.add(serves, made)

    def _fit(self, fit: OpenFit) -> Fit:
        executor = fit.executor
        pool, nbytes = self._threads(executor), executor.program.arena_bytes + ALIGN
        if not self._rows.moves.runs_on(pool):
            raise NotNative
        specs = [*executor.inputs, *(spec for spec, _ in executor.program.outputs)]
        own = sum(spec_bytes(spec) + ALIGN for spec in specs)  # of values that lie in memory of the context
        self._rows.take(own + (nbytes if self._arena.nbytes < nbytes else 0))
        if self._arena.nbytes < nbytes:  # a smaller one is kept by the programs that have it
            self._arena = aligned_empty(nbytes)
        context = executor.bound(pool, self._arena)
        padded: list[tuple[int, Cell, int, int]] = []
        given: list[tuple[int, Cell]] = []
        for n, name in (*fit.given, *((n, name) for n, name, _, _ in fit.padded)):
            rows, form = self._given[name], executor.inputs[n].shape
            if name not in self._padded:
                given.append((n, rows.cell))
            elif form[1:] == rows.dims[1:]:
                padded.append((n, rows.cell, rows.dtype.itemsize * math.prod(form[1:]), form[0]))
            else:
                raise NotNative
        results: list[tuple[Cell, Array]] = []
        for (n, window), result in zip(fit.results, self.results):
            array = context.own(n) if n in context.direct else context.outputs[n]
            if array is None or any(part != slice(None) for part in window[1:]):
                raise NotNative
            results.append((result.cell, array))
        return Fit(context, padded, given, [n for n, _ in fit.ends], results)


def _extent(dim: int | str, extents: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else extents[dim]


def _found(made: Mapping[int, _Made], dim: int | str, number: int, extents: Mapping[str, int]) -> Array:
    """A result of the programs. What they have is asked, not they: no cycle keeps the memory of those that are gone."""
    extent = _extent(dim, extents)
    return made[extent].results[number][:extent]


class _Views:
    """A value as an array, in each run."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._symbols = [dim for dim in rows.dims if isinstance(dim, str)]
        self._made: dict[tuple[int, ...], Array] = {}

    def of(self, values: Values, extents: Mapping[str, int]) -> Array:
        """It stays until the next run."""
        rows, key = self._rows, tuple([extents[symbol] for symbol in self._symbols])
        found = self._made.get(key)
        if found is not None:
            return found
        shape = tuple(dim if isinstance(dim, int) else extents[dim] for dim in rows.dims)
        if not isinstance(rows.lies, np.ndarray):  # another array in another run
            there = values[rows.name] if rows.name else rows.known if rows.lies is None else rows.lies(extents)
            return there.reshape(shape)  # type: ignore[union-attr]
        if len(self._made) >= MOST_VIEWS:
            self._made.clear()
        found = self._made[key] = rows.lies[: math.prod(shape) * rows.dtype.itemsize].view(rows.dtype).reshape(shape)
        return found
