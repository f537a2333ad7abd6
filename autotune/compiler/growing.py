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
from dataclasses import replace

import numpy as np

from autotune.compiler.background import Background
from autotune.compiler.compile import CompiledModel
from autotune.compiler.prompts import Appending, Prompts
from autotune.compiler.shapes import extents_in
from autotune.compiler.specialisation import ProgramStep, Specialisation, Watch
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.compiler.steps import Sizes, Steps, proved_steps
from autotune.errors import InputError, MemoryLimitError, ModelError
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad
from autotune.graph.frontend.caches import Caches
from autotune.graph.host import HostValue
from autotune.runtime.cache_memory import CacheMemories, CacheMemory
from autotune.runtime.executor import Array
from autotune.runtime.open_axes import OpenAxes, cropped, padded
from autotune.runtime.shape_use import ShapeUse
from autotune.runtime.trace import RunTrace

_log = logging.getLogger(__name__)

SOON = 0.75
"""How full a cache is when the program for a larger one is made in the background."""

MAX_KINDS = 32
"""Kinds of steps that have programs: those that came last; of sources as long as one that is translated, say. And kinds
that are known to have none."""


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
        self._appending = Appending(model, caches)
        self._prompts = None if prompted is None else Prompts(self._appending, prompted)
        self._memories = CacheMemories()
        self._kinds: list[Steps] = []
        self._refused: list[Mapping[str, int]] = []
        self._any_number = True  # of rows may be appended by the same programs, as far as is known
        self._lock = threading.Lock()
        self._background = Background()

    def shapes(self, held: set[int] | None = None) -> list[ShapeUse]:
        """The programs that are kept, those of steps first."""
        held = set() if held is None else held
        return [*(use for model in self._inner() for use in model.shapes(held)), *super().shapes(held)]

    @property
    def weights(self) -> dict[int, int]:
        """Bytes of packed weights of the programs that are kept, by where they are."""
        inner = {place: size for model in self._inner() for place, size in model.weights.items()}
        return {**inner, **super().weights}

    def foresee(self, exact: Sequence[Mapping[str, int]], ranged: Sequence[Mapping[str, int]] = ()) -> None:
        """See `StagedModel.foresee`: of prompts; what steps find is decided by their room alone."""
        if self._prompts is not None:
            self._prompts.foresee(exact, ranged)
        if self._usual is not None:
            self._usual.foresee(exact, ranged)

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
                return steps.program(steps.sizes(extents, None)).program
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
        steps, extents = self._next(feeds)
        values: Mapping[str, HostValue] = feeds if steps is not None else self.checked(feeds)  # type: ignore[assignment]
        if steps is None:
            extents = extents_in(self.inputs, values)
            steps = self._steps(extents)
        length = extents[self._caches.symbol] + 1 if steps is None else steps.length(extents)  # at least
        most = self._most_rows(values)
        if most is not None and length > most:
            raise self._too_large(values, length)
        if steps is None:
            prompt = None if self._prompts is None else self._prompts.of(extents)
            return self._as_usual(values, watch, trace) if prompt is None else prompt.run(values, watch, trace)
        try:
            return self._step(steps, values, extents, most, watch, trace)
        except (InputError, ModelError, CannotPad) as error:
            found = self._as_usual(values, watch, trace)  # says itself what is wrong with this run
            extents = extents_in(self.inputs, values)
            _log.info("%s runs as it is: %s", extents, error)
            self._refuse(steps, extents)
            return found

    def _next(self, feeds: Mapping[str, object]) -> tuple[Steps | None, Mapping[str, int]]:
        """The kind of steps that feeds are one more of, and what differs from step to step; they need no further
        look."""
        for steps in self._kinds:
            extents = steps.known(feeds)
            if extents is not None:
                self._used(steps)
                return steps, extents
        return None, {}

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
            if steps.fits(extents):
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

    def _proved(self, extents: Mapping[str, int]) -> Steps:
        """Steps like a run of these extents; any number of rows is appended by the same programs, if it may. Raises
        CannotPad."""
        model, making, caches = self._model, self._making, self._caches
        rows = self._appending.new_rows(extents)
        for kind in self._kinds:  # more dimensions may be as long by chance
            if kind.lengths <= rows.lengths:
                rows = replace(rows, lengths=kind.lengths)
        if rows.count > 1 and rows.symbol is not None and self._any_number:
            try:
                return proved_steps(model, making, caches, extents, rows, rows.symbol)
            except CannotPad as error:
                self._any_number = False
                _log.info("each number of rows is appended by programs of its own: %s", error)
        return proved_steps(model, making, caches, extents, rows, rows.count)

    def _refuse(self, steps: Steps, extents: Mapping[str, int]) -> None:
        with self._lock:
            self._kinds = [kind for kind in self._kinds if kind is not steps]
            self._refused.append(self._steady(extents))

    def _steady(self, extents: Mapping[str, int]) -> dict[str, int]:
        """What does not grow from step to step."""
        return {symbol: extent for symbol, extent in extents.items() if extent < extents[self._caches.symbol]}

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
        extents: Mapping[str, int],
        most: int | None,
        watch: Watch | None,
        trace: RunTrace | None,
    ) -> list[Array]:
        length = steps.length(extents)
        special, sizes = self._program(steps, values, extents, most)
        there = [length, *(extents[symbol] for symbol in steps.padded)]
        given: dict[str, Array] = {name: np.asarray(count, np.int64) for name, count in zip(steps.ends, there)}
        memories: dict[str, CacheMemory] = {}
        for declared in self.inputs:
            value = values[declared.name]
            assert isinstance(value, np.ndarray)
            cache = self._by_past.get(declared.name)
            if cache is not None:
                memory = self._memories.with_rows(value, cache.axis, length - extents[steps.past], sizes[0])
                given[cache.past], memories[cache.present] = memory.array, memory
            else:
                wide = list(value.shape)
                for axis, number in steps.dims.get(declared.name, ()):
                    wide[axis] = sizes[number]
                given[declared.name] = padded(value, tuple(wide))
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
            else cropped(results[places[name]], {axis: there[number] for axis, number in axes.items()})
            for name, axes in steps.outputs.items()
        ]  # fmt: skip

    def _program(
        self, steps: Steps, values: Mapping[str, HostValue], extents: Mapping[str, int], most: int | None
    ) -> tuple[Specialisation, Sizes]:
        """The program of a step, for the memory that its caches are in or else for less; one for more does while its
        own is made."""
        own = sizes = steps.sizes(extents, most)
        if own != steps.last:
            first = self._caches.each[0]
            held = self._memories.room(values[first.past], first.axis)  # type: ignore[arg-type]  # they are arrays
            sizes = steps.sizes(extents, most, held)
        if sizes not in steps.programs:
            ready = own if own in steps.programs else steps.there(extents)
            if ready not in (None, own):
                self._background.offer(lambda: steps.prepare(own))
            sizes = ready or sizes
        steps.last = sizes
        found, room = steps.program(sizes), sizes[0]
        if steps.length(extents) > SOON * room:
            larger = 2 * room if most is None else min(2 * room, most), *steps.most(room)
            if larger not in steps.programs:
                self._background.offer(lambda: steps.prepare(larger))
        return found, sizes
