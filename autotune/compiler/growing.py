"""A model whose caches grow by Concat, run step by step: new rows go into memory with room to spare, for many lengths.

The program of a step takes caches of a length that is a power of two, of which it reads what is used
(`graph.frontend.caches`, padded as in `graph.frontend.buckets`). What it gives out as `present` is a view of that
memory, so the next step, which hands it in as `past`, copies nothing and compiles nothing.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.compiler.background import Background
from autotune.compiler.compile import CompiledModel
from autotune.compiler.prompts import NewRows, Prompts
from autotune.compiler.shapes import extents_in
from autotune.compiler.specialisation import ProgramStep, Specialisation, Watch
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.errors import InputError, MemoryLimitError, ModelError
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad, Padding, padded_model, padding_of, valid_name
from autotune.graph.frontend.caches import Caches, with_room
from autotune.graph.host import HostValue
from autotune.runtime.cache_memory import CacheMemories, CacheMemory
from autotune.runtime.executor import Array
from autotune.runtime.open_axes import OpenAxes, cropped, padded
from autotune.runtime.shape_use import ShapeUse
from autotune.runtime.trace import RunTrace
from autotune.tensor.declared import bind_symbols
from autotune.tensor.dtype import DType

_log = logging.getLogger(__name__)

LEAST_ROOM = 64
"""Rows: below that, room costs less than another program does."""

SOON = 0.75
"""How full a cache is when the program for a larger one is made in the background."""

BEFORE, AFTER = "before", "after"
"""In forms of inputs: rows of the caches as they come in, and as they go out."""

MAX_KINDS = 32
"""Kinds of steps that have programs: those that came last; of sources as long as one that is translated, say. And kinds
that are known to have none."""


@dataclass(eq=False)
class Steps:
    """Steps that differ in nothing but the length of what came before.

    Attributes:
        extents: of the other open dimensions, but for those that are as long as old and new rows together.
        rows: that a step appends.
        lengths: symbols of old and new rows together.
        padding: what a program with room does to its outputs, and whether it must be told the length.
        model: with the length open.
        cache: name of an input that is a cache, and the axis along which it grows.
        feeds: names and dtypes of the inputs, and which of the forms they have.
        forms: dimensions, `BEFORE` for the rows of caches that come in and `AFTER` for those that go out.
        programs: by length.
    """

    extents: Mapping[str, int]
    rows: int
    lengths: frozenset[str]
    padding: Padding
    model: StagedModel
    cache: tuple[str, int]
    feeds: Sequence[tuple[str, np.dtype[np.generic], int]]
    forms: Sequence[tuple[int | str, ...]]
    programs: dict[int, Specialisation] = field(default_factory=dict)

    @property
    def symbol(self) -> str:
        return self.padding.symbol

    def prepare(self, room: int) -> None:
        """Have a program for that length, if there can be one: the step that needs it meets the error itself."""
        try:
            self.program(room)
        except (InputError, ModelError, CannotPad) as error:
            _log.info("there is no program for caches of %d rows: %s", room, error)

    def before(self, feeds: Mapping[str, object]) -> int | None:
        """The rows of the caches, where feeds are arrays of just such a step; None where somebody must look closer."""
        name, axis = self.cache
        past = feeds.get(name)
        if type(past) is not np.ndarray or past.ndim <= axis or len(feeds) != len(self.feeds):
            return None
        rows: int = past.shape[axis]
        extents: dict[int | str, int] = {BEFORE: rows, AFTER: rows + self.rows}
        shapes = [tuple(extents.get(extent, extent) for extent in form) for form in self.forms]
        for name, dtype, form in self.feeds:  # on the path of every step
            value = feeds.get(name)
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shapes[form]:
                return None
        return rows or None

    def fits(self, extents: Mapping[str, int], past: str) -> bool:
        """Whether a run of these extents, `past` being the symbol of what came before, is such a step."""
        length = extents[past] + self.rows
        return all(extents[symbol] == n for symbol, n in self.extents.items()) and all(
            extents[symbol] == length for symbol in self.lengths
        )

    def program(self, room: int) -> Specialisation:
        """The one that runs all of a step. Raises CannotPad where a step is more than a program."""
        if room not in self.programs:
            found = self.model.beginning({self.symbol: room})
            whole = found.program is not None and not found.calls and found.rest is None
            if not whole or not set(self.padding.outputs) <= set(found.writes):
                raise CannotPad("a step is no single program")
            self.programs[room] = found
        return self.programs[room]


class GrowingModel(StagedModel):
    """A staged model with caches.

    Args:
        caches: which they are; the others are those of `StagedModel`.
        usual: runs what appends to no cache; None for a `StagedModel`.
        prompted: makes what runs prompts, of a model with empty caches; None for what runs all that is no step.
    """

    def __init__(
        self,
        model: OnnxModel,
        making: Making,
        caches: Caches,
        usual: StagedModel | None = None,
        prompted: Callable[[OnnxModel], StagedModel] | None = None,
    ) -> None:
        super().__init__(model, making)
        self._making = making
        self._caches = caches
        self._by_past = {cache.past: cache for cache in caches.each}
        self._usual = usual
        self._prompts = None if prompted is None else Prompts(model, caches, prompted)
        self._memories = CacheMemories()
        self._kinds: list[Steps] = []
        self._refused: list[Mapping[str, int]] = []
        self._lock = threading.Lock()
        self._background = Background()

    def shapes(self) -> list[ShapeUse]:
        """The programs that are kept, those of steps first."""
        return [*(use for model in self._inner() for use in model.shapes()), *super().shapes()]

    @property
    def weights(self) -> dict[int, int]:
        """Bytes of packed weights of the programs that are kept, by where they are."""
        inner = {place: size for model in self._inner() for place, size in model.weights.items()}
        return {**inner, **super().weights}

    def _inner(self) -> list[StagedModel]:
        """The models that run what it does not run itself."""
        usual = [] if self._usual is None else [self._usual]
        return [*(steps.model for steps in self._kinds), *(self._prompts or ()), *usual]

    def wait(self) -> None:
        """Until no program is being made in the background."""
        super().wait()
        self._background.wait()
        for model in self._inner():
            model.wait()

    def prepare(self, extents: Mapping[str, int]) -> CompiledModel | None:
        """Make the program for a step or a prompt of these extents. Raises as `StagedModel.prepare`."""
        known = all(symbol in extents for symbol in OpenAxes(self.inputs, ()).symbols)
        prompt = self._prompts.of(extents) if known and self._prompts is not None else None
        if prompt is not None:
            return prompt.prepare(extents)
        steps = self._steps(extents) if known else None
        if steps is not None:
            try:
                return steps.program(_room(extents[self._caches.symbol] + steps.rows, None)).program
            except (InputError, ModelError, CannotPad):
                pass  # the usual program tells
        return super().prepare(extents) if self._usual is None else self._usual.prepare(extents)

    def run(
        self, feeds: Mapping[str, object], watch: Watch | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """Outputs in the model's order; see `StagedModel.run`. Caches are read-only views of memory with room.

        Raises:
            MemoryLimitError: the caches outgrow `max_memory`.
        """
        steps, before = self._next(feeds)
        values: Mapping[str, HostValue] = feeds if steps is not None else self.checked(feeds)  # type: ignore[assignment]
        if steps is None:
            extents = extents_in(self.inputs, values)
            steps, before = self._steps(extents), extents[self._caches.symbol]
        length = before + (1 if steps is None else steps.rows)  # at least
        most = self._most_rows(values)
        if most is not None and length > most:
            raise self._too_large(values, length)
        if steps is None:
            prompt = None if self._prompts is None else self._prompts.of(extents)
            return self._as_usual(values, watch, trace) if prompt is None else prompt.run(values, watch, trace)
        try:
            return self._step(steps, values, length, most, watch, trace)
        except (InputError, ModelError, CannotPad) as error:
            found = self._as_usual(values, watch, trace)  # says itself what is wrong with this run
            extents = extents_in(self.inputs, values)
            _log.info("%s runs as it is: %s", extents, error)
            self._refuse(steps, extents)
            return found

    def _next(self, feeds: Mapping[str, object]) -> tuple[Steps | None, int]:
        """The kind of steps that feeds are one more of, and the rows that came before; they need no further look."""
        for steps in self._kinds:
            before = steps.before(feeds)
            if before is not None:
                self._used(steps)
                return steps, before
        return None, 0

    def _used(self, steps: Steps) -> None:
        """It is the last one used: the first to be asked, and the last to go."""
        if self._kinds and self._kinds[0] is not steps:
            with self._lock:
                self._kinds = [steps, *(kind for kind in self._kinds if kind is not steps)][:MAX_KINDS]

    def _as_usual(self, values: Mapping[str, HostValue], watch: Watch | None, trace: RunTrace | None) -> list[Array]:
        return super().run(values, watch, trace) if self._usual is None else self._usual.run(values, watch, trace)

    def _steps(self, extents: Mapping[str, int]) -> Steps | None:
        """The kind of step that a run is; None where it is none."""
        if not extents.get(self._caches.symbol):
            return None
        for steps in self._kinds:
            if steps.fits(extents, self._caches.symbol):
                self._used(steps)
                return steps
        with self._lock:
            if len(self._refused) >= MAX_KINDS or self._steady(extents) in self._refused:
                return None
            try:
                steps = self._proved(extents)
            except (CannotPad, ModelError) as error:
                _log.info("its caches are copied in each step: %s", error)
                self._refused.append(self._steady(extents))
                return None
            self._kinds = [steps, *self._kinds][:MAX_KINDS]
            return steps

    def _refuse(self, steps: Steps, extents: Mapping[str, int]) -> None:
        with self._lock:
            self._kinds = [kind for kind in self._kinds if kind is not steps]
            self._refused.append(self._steady(extents))

    def _steady(self, extents: Mapping[str, int]) -> dict[str, int]:
        """What does not grow from step to step."""
        return {symbol: extent for symbol, extent in extents.items() if extent < extents[self._caches.symbol]}

    def _proved(self, extents: Mapping[str, int]) -> Steps:
        """Steps like a run of these extents. Raises CannotPad where padding the caches may change a result."""
        model, caches = self._model, self._caches
        rows = NewRows.of(model, caches, extents)
        others = {s: n for s, n in extents.items() if s != caches.symbol and s not in rows.lengths}
        length = f"{caches.symbol} + {rows.count}"
        inputs = bind_symbols(rows.renamed(model.inputs, length), others)
        roomy = with_room(replace(model, inputs=inputs), caches, rows.count, length)
        padding = padding_of(roomy, length, rows.count)
        staged = StagedModel(padded_model(roomy, padding), self._making)
        known: dict[str, int | str] = {**others, caches.symbol: BEFORE, **dict.fromkeys(rows.lengths, AFTER)}
        forms = {i.name: tuple(known[d] if isinstance(d, str) else d or 0 for d in i.dims or ()) for i in model.inputs}
        kinds = list(dict.fromkeys(forms.values()))
        feeds = [(i.name, DType(i.dtype).numpy, kinds.index(forms[i.name])) for i in model.inputs]
        cache = caches.each[0].past, caches.each[0].axis
        return Steps(others, rows.count, rows.lengths, padding, staged, cache, feeds, kinds)

    def _most_rows(self, values: Mapping[str, HostValue]) -> int | None:
        """Rows that the caches may have within `max_memory`; None for as many as there is memory for."""
        if self._making.max_memory is None:
            return None
        return self._making.max_memory // max(self._bytes_of_rows(values, 1), 1)

    def _bytes_of_rows(self, values: Mapping[str, HostValue], rows: int) -> int:
        """Bytes of so many rows in all caches."""
        found = 0
        for cache in self._caches.each:
            value = values[cache.past]
            assert isinstance(value, np.ndarray)
            others = value.shape[: cache.axis] + value.shape[cache.axis + 1 :]
            found += rows * math.prod(others) * value.itemsize
        return found

    def _too_large(self, values: Mapping[str, HostValue], rows: int) -> MemoryLimitError:
        first = self._caches.each[0]
        return MemoryLimitError(
            f"{self._model.attributes(first.joint).label}: with {rows} rows, '{first.past}' and what is new in"
            f" '{first.present}', the {len(self._caches.each)} cache(s) take {self._bytes_of_rows(values, rows)} bytes,"
            f" more than the {self._making.max_memory} that max_memory allows"
        )

    def _step(
        self,
        steps: Steps,
        values: Mapping[str, HostValue],
        length: int,
        most: int | None,
        watch: Watch | None,
        trace: RunTrace | None,
    ) -> list[Array]:
        room = _room(length, most)
        larger = 2 * room if most is None else min(2 * room, most)
        special = steps.program(room)
        if length > SOON * room and larger not in steps.programs:
            self._background.offer(lambda: steps.prepare(larger))
        given: dict[str, Array] = {valid_name(steps.symbol): np.asarray(length, np.int64)}
        memories: dict[str, CacheMemory] = {}
        for declared in self.inputs:
            value = values[declared.name]
            assert isinstance(value, np.ndarray)
            cache = self._by_past.get(declared.name)
            if cache is not None:
                memory = self._memories.with_rows(value, cache.axis, steps.rows, room)
                given[cache.past], memories[cache.present] = memory.array, memory
            else:
                shape = tuple(room if dim in steps.lengths else n for dim, n in zip(declared.dims or (), value.shape))
                given[declared.name] = padded(value, shape)
        assert special.program is not None
        feeds = {name: given[name] for name in special.reads}
        if watch is not None:
            watch(ProgramStep(special.program, feeds))
        places = {name: n for n, name in enumerate(special.writes)}
        into = {places[name]: memory.array for name, memory in memories.items()}
        results = special.program.executor.run_checked(list(feeds.values()), into, trace)
        special.life.runs += 1
        return [
            memories[name].rows(length) if name in memories
            else cropped(results[places[name]], dict.fromkeys(axes, length))
            for name, axes in steps.padding.outputs.items()
        ]  # fmt: skip


def _room(length: int, most: int | None) -> int:
    """Rows of the caches of a step with so many."""
    room = max(LEAST_ROOM, 1 << (length - 1).bit_length())
    return room if most is None else min(room, most)
