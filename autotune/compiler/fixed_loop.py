"""Loops whose body is one program and whose carried values keep their shape: native code takes the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.compiler.loop_guard import LoopGuard
from autotune.compiler.specialisation import Specialisation
from autotune.compiler.value_forms import is_tensor
from autotune.graph.host import HostValue
from autotune.runtime.address import address
from autotune.runtime.executor import Array, Context
from autotune.runtime.loop import Copy, Place, StepLoop
from autotune.runtime.program import INPUT, OUTPUT
from autotune.tensor.dtype import DType

FIRST_CHUNK = 64  # steps before Python looks at the clock and at signals
SHORT_CHUNK = 0.02  # seconds: after a chunk that took less, the next one is longer
ROOM = 64  # steps that outputs have room for at first where nobody knows how many there will be
_ON = np.ones(2, np.bool_)


@dataclass(frozen=True, slots=True)
class BodyForm:
    """What a body takes and gives, by name.

    Attributes:
        number, condition: its inputs for the number of the step, and for the condition; None where it has none.
        carried: inputs, and what they are in the next step.
        sliced: inputs that are another part of a value in each step, and whether the last part comes first.
        collected: results that become part of an output in each step, and whether the first becomes the last part.
        goes_on: the result that says whether there is a next step; None where none does.
    """

    number: str | None
    condition: str | None
    carried: tuple[tuple[str, str], ...]
    sliced: tuple[tuple[str, bool], ...]
    collected: tuple[tuple[str, bool], ...]
    goes_on: str | None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a loop came to.

    Attributes:
        goes: nothing has ended it, but for the number of steps.
    """

    carried: list[Array]
    collected: list[Array]
    steps: int
    goes: bool


@dataclass(frozen=True, slots=True)
class FixedLoop:
    """A loop that native code can take.

    Attributes:
        special: the body.
        known: values by name that the body has without running.
        values: of the body's inputs in the first step; of sliced ones all parts.
    """

    form: BodyForm
    special: Specialisation
    known: Mapping[str, Array]
    values: Mapping[str, Array]

    @staticmethod
    def of(
        form: BodyForm, special: Specialisation, initializers: Mapping[str, Array], values: Mapping[str, HostValue]
    ) -> FixedLoop | None:
        """None where the body is more than a program, or carries what is no tensor, or changes its form."""
        stage = special.stage
        if special.program is None or special.rest is not None or special.calls or stage.lists:
            return None
        if not all(is_tensor(value) for value in values.values()):
            return None
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        found = FixedLoop(form, special, {**initializers, **stage.constants}, arrays)
        same = all(found.type_of(result) == _type(arrays[name]) for name, result in form.carried)
        return found if same and not (form.goes_on and found.type_of(form.goes_on)[0] != np.bool_) else None

    def type_of(self, result: str) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
        """dtype and shape of what a step gives."""
        name = self.special.stage.aliases.get(result, result)
        if name in self.special.writes and self.special.program is not None:
            spec, _ = self.special.program.program.outputs[self.special.writes.index(name)]
            return DType(spec.dtype).numpy, spec.shape
        if name in (self.form.number, self.form.condition):
            return np.dtype(np.int64 if name == self.form.number else np.bool_), ()
        array = self.values[name] if name in self.values else self.known[name]
        sliced = any(name == found for found, _ in self.form.sliced)
        return array.dtype, array.shape[1:] if sliced else array.shape

    def run(self, steps: int, exact: bool, guard: LoopGuard) -> Taken:
        """
        Args:
            steps: how many at most.
            exact: so many there will be, if nothing ends the loop.
            guard: sees to the memory, and tells of the time.

        Raises:
            InputError: a step had impossible values.
            MemoryLimitError: the guard refuses to take more.
        """
        assert self.special.program is not None
        executor = self.special.program.executor
        context = executor.context()
        try:
            return _Steps(self, context, steps, exact, guard).taken()
        finally:
            executor.release(context)


class _Steps:
    """One run of a loop: its buffers, and where they lie in which step."""

    def __init__(self, loop: FixedLoop, context: Context, steps: int, exact: bool, guard: LoopGuard) -> None:
        self._loop, self._context, self._limit, self._guard = loop, context, steps, guard
        form = loop.form
        early = form.goes_on is not None and form.goes_on in loop.special.writes
        self._room = steps if (exact and not early) or not form.collected else min(steps, ROOM)
        self._must_fit(0, self._room)
        self._condition = _ON.copy()
        self._number = np.zeros(1, np.int64)
        self._keep: list[Array] = []
        self._turns: list[tuple[Array, Array]] = []
        self._inputs: dict[str, Place] = {}
        if form.number is not None:
            self._inputs[form.number] = Place(address(self._number))
        if form.condition is not None:
            self._inputs[form.condition] = Place(address(self._condition), 1, 1)
        for name, _ in form.carried:
            first = loop.values[name].copy(order="C")
            self._turns.append((first, np.empty_like(first)))
            self._inputs[name] = _turns(*self._turns[-1])
        for name, backwards in form.sliced:
            self._inputs[name] = self._parts(np.ascontiguousarray(loop.values[name]), backwards)
        for name in (*loop.special.reads, *loop.special.stage.aliases.values()):
            if name not in self._inputs:
                self._keep.append(np.ascontiguousarray(loop.values[name]))
                self._inputs[name] = Place(address(self._keep[-1]))
        self._collected = [np.empty((self._room, *t[1]), t[0]) for t in map(loop.type_of, _names(form.collected))]
        self._step_loop = self._bound()

    def _bound(self) -> StepLoop:
        """The loop on these buffers: what kernels cannot write where it belongs is copied after each step."""
        form, special, context = self._loop.form, self._loop.special, self._context
        wanted = [(result, _turns(b, a)) for (_, result), (a, b) in zip(form.carried, self._turns)]
        wanted += [(n, self._parts(a, turned)) for (n, turned), a in zip(form.collected, self._collected)]
        ends = form.goes_on is not None and self._ends(form.goes_on)
        if ends:
            wanted.append((form.goes_on or "", Place(address(self._condition) + 1, -1, 1)))
        outputs: dict[int, Place] = {}
        direct: list[int] = []  # of `wanted`: what kernels write
        for n, (result, place) in enumerate(wanted):
            number = special.writes.index(result) if result in special.writes else -1
            if number in context.direct and number not in outputs:
                outputs[number] = place
                direct.append(n)
        for number in context.direct:
            if number not in outputs:
                dtype, shape = self._loop.type_of(special.writes[number])
                self._keep.append(np.empty(shape, dtype))
                outputs[number] = Place(address(self._keep[-1]))
        copies = []
        for n, (result, place) in enumerate(wanted):
            dtype, shape = self._loop.type_of(result)
            nbytes = math.prod(shape) * dtype.itemsize
            if n not in direct and nbytes:
                copies.append(Copy(self._source(result, outputs), place, nbytes))
        inputs = [self._inputs[name] for name in special.reads]
        condition = (address(self._condition), 1) if ends else None
        return StepLoop(context, inputs, outputs, copies, address(self._number), condition)

    def _ends(self, result: str) -> bool:
        """Whether the condition may end the loop; one that is known to say so ends it after a step."""
        name = self._loop.special.stage.aliases.get(result, result)
        if name in self._loop.special.writes:
            return True
        if name == self._loop.form.condition:
            return False
        if not (self._loop.values.get(name, _ON) if name in self._loop.values else self._loop.known[name]).all():
            self._limit = min(self._limit, 1)
        return False

    def _source(self, result: str, outputs: Mapping[int, Place]) -> Place:
        """Where a step leaves a result."""
        special = self._loop.special
        name = special.stage.aliases.get(result, result)
        if name in special.writes and special.program is not None:
            number = special.writes.index(name)
            if number in outputs:
                return outputs[number]
            ref = special.program.program.outputs[number][1]
            if ref.space == OUTPUT:
                return outputs[ref.offset]
            if ref.space == INPUT:
                return self._inputs[special.reads[ref.offset]]
            found = self._context.outputs[number]
            assert found is not None
            return Place(address(found))
        if name in self._inputs:
            return self._inputs[name]
        array = self._loop.values[name] if name in self._loop.values else self._loop.known[name]
        self._keep.append(np.ascontiguousarray(array))
        return Place(address(self._keep[-1]))

    def _parts(self, array: Array, backwards: bool) -> Place:
        """A part of an array in each step."""
        self._keep.append(array)
        size = array[:1].nbytes
        if backwards:
            return Place(address(array) + size * (len(array) - 1), -size, -1)
        return Place(address(array), size, -1)

    def taken(self) -> Taken:
        steps, goes, chunk = 0, True, FIRST_CHUNK
        while goes and steps < self._limit:
            start = time.perf_counter()
            goes = self._step_loop.run(min(steps + chunk, self._room, self._limit))
            steps = self._step_loop.steps
            self._guard.look(steps)
            if time.perf_counter() - start < SHORT_CHUNK:
                chunk *= 4
            if goes and steps == self._room < self._limit:
                self._grow(steps)
        carried = [turns[steps & 1] for turns in self._turns]
        collected = [a if len(a) == steps else a[:steps].copy() for a in self._collected]
        return Taken(carried, collected, steps, goes)

    def _grow(self, steps: int) -> None:
        self._room = min(self._limit, self._room * 2)
        self._must_fit(steps, self._room + steps)  # all is moved to the larger room
        for n, old in enumerate(self._collected):
            self._collected[n] = np.empty((self._room, *old.shape[1:]), old.dtype)
            self._collected[n][: len(old)] = old
        self._step_loop = self._bound()
        self._step_loop.steps = steps

    def _must_fit(self, steps: int, parts: int) -> None:
        """After so many steps, before there is room for so many parts of what is collected."""
        loop = self._loop
        types = [loop.type_of(name) for name, _ in loop.form.collected]
        part = sum(math.prod(shape) * dtype.itemsize for dtype, shape in types)
        carried = 2 * sum(loop.values[name].nbytes for name, _ in loop.form.carried)
        self._guard.hold(steps, parts * part + carried + loop.special.takes)


def _turns(first: Array, second: Array) -> Place:
    """One array in even steps, the other one in odd ones."""
    start = address(first)
    return Place(start, address(second) - start, 1)


def _names(pairs: Sequence[tuple[str, bool]]) -> list[str]:
    return [name for name, _ in pairs]


def _type(array: Array) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    return array.dtype, array.shape
