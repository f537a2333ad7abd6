"""The steps of a loop by native code: where its values lie, and what its programs read and write."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from autotune.compiler.body_ways import BodyWays, Found, Stretch
from autotune.compiler.buckets import power_or_half
from autotune.compiler.loop_guard import LoopGuard
from autotune.compiler.specialisation import ProgramStep, Watch
from autotune.errors import InputError, ModelError
from autotune.runtime.address import address
from autotune.runtime.executor import Array
from autotune.runtime.loop import MAX_LEGS, Copy, Halt, Leg, Place, StepLoop
from autotune.runtime.program import INPUT, OUTPUT

if TYPE_CHECKING:
    from autotune.compiler.fixed_loop import FixedLoop, Growing

FIRST_CHUNK = 64  # steps before Python looks at the clock and at signals
SHORT_CHUNK = 0.02  # seconds: after a chunk that took less, the next one is longer
ROOM = 64  # steps that outputs have room for at first where nobody knows how many there will be
LEAST_ROOM = 64  # elements of what grows: below that, room costs less than another program does
FINER_ROOM = 128  # from here on there are programs between powers of two: what is padded takes longer than they do
MOST_ASKED = 512  # bytes of the values that decide what follows a program
_ON = np.ones(2, np.bool_)
_NOWHERE: Mapping[int, Place] = {}


@dataclass(frozen=True, slots=True)
class Taken:
    """What a loop came to.

    Attributes:
        goes: nothing has ended it, but for the number of steps.
        left: native code cannot go on: others have to take the steps that are left.
        grown: the values that grow, with what was appended.
    """

    carried: list[Array]
    collected: list[Array]
    steps: int
    goes: bool
    left: bool
    grown: list[Array]


class NativeSteps:
    """One run of a loop.

    Attributes:
        ways: through the body, for this run alone.

    Args:
        steps, exact, guard, watch: as for `FixedLoop.run`.
    """

    def __init__(self, loop: FixedLoop, steps: int, exact: bool, guard: LoopGuard, watch: Watch | None) -> None:
        self._loop, self._limit, self._guard, self._watch = loop, steps, guard, watch
        self.ways = BodyWays.taken(loop.special)
        form = loop.form
        self._condition = _ON.copy()
        self._number = np.zeros(1, np.int64)
        self._keep: list[Array] = []
        self._turns: list[tuple[Array, Array]] = []
        self._inputs: dict[str, Place] = {}  # of the body, those that differ from step to step
        self._outer: dict[str, Place] = {}  # and those that do not
        self._parts: dict[str, tuple[Array, bool]] = {}
        self._ends = form.goes_on is not None and self._may_end(form.goes_on)
        self._room = steps if (exact and not self._ends) or not form.collected else min(steps, ROOM)
        self._collected: list[Array] | None = None  # until a step has come to its end, which tells what it gives
        self._each = 0  # bytes of what a step gives to be collected
        self._must_fit(0, 0)
        if form.number is not None:
            self._inputs[form.number] = Place(address(self._number))
        if form.condition is not None:
            self._inputs[form.condition] = Place(address(self._condition), 1, 1)
        for name, _ in form.carried:
            first = loop.values[name].copy(order="C")
            self._turns.append((first, np.empty_like(first)))
            self._inputs[name] = _turns(*self._turns[-1])
        for name, backwards in form.sliced:
            array = np.ascontiguousarray(loop.values[name])
            self._parts[name] = array, backwards
            self._inputs[name] = self._part(array, backwards)
        self._lengthened()
        self._left = not self._begin(0)

    def taken(self) -> Taken:
        """Take the steps."""
        goes, chunk = True, FIRST_CHUNK
        while goes and not self._left and self._native.steps < self._limit:
            start = time.perf_counter()
            end = min(self._native.steps + chunk, self._room, self._full, self._limit)
            halt = self._native.run(end)
            while halt is Halt.ASKED and not self._left:
                self._left = not self._follow(self._legs[self._native.leg])
                halt = halt if self._left else self._native.run(end)
            if halt is Halt.FAILED:
                self._failed(self._legs[self._native.leg])
            goes = halt is not Halt.ENDED
            self._guard.look(self._native.steps)
            if time.perf_counter() - start < SHORT_CHUNK:
                chunk *= 4
            if goes and self._native.steps == self._room < self._limit:
                self._grow(self._native.steps)
            if goes and not self._left and self._native.steps == self._full < self._limit:
                self._left = not self._lengthen(self._native.steps)
        steps = self._native.steps
        carried = [turns[steps & 1] for turns in self._turns]
        collected = []
        for (_, turned), parts in zip(self._loop.form.collected, self._collected or ()):
            few = parts[len(parts) - steps :] if turned else parts[:steps]
            collected.append(parts if len(parts) == steps else few.copy())
        grown = [
            np.take(self._loop.values[one.name], range(one.length + steps), one.axis) for one in self._loop.form.grown
        ]
        return Taken(carried, collected, steps, goes, self._left, grown)

    def _may_end(self, result: str) -> bool:
        """Whether the condition may end the loop; one that is known to say so ends it after a step."""
        found = self.ways.first.found(result)
        if isinstance(found, tuple):
            return True
        if isinstance(found, str):
            if found == self._loop.form.condition:
                return False
            if found not in self._loop.values and found not in self._loop.stages.initializers:
                return True  # what follows the first program tells
            found = self._loop.outer(found)
        if not found.all():
            self._limit = min(self._limit, 1)
        return False

    def _failed(self, stretch: Stretch) -> None:
        """Values of a step were impossible; where there is padding, that may be in there, and is looked at exactly."""
        assert stretch.context is not None
        form, values = self._loop.form, dict(self._loop.values)
        if form.window is not None and len(values[form.window[0]]) < form.window[1]:
            values[form.window[0]] = np.zeros(2 * len(values[form.window[0]]), np.int64)
            self._left = not self._go_on(values, self._native.steps)
            return
        self._left = bool(form.grown or form.window)
        if not self._left:
            stretch.context.check()

    # Programs and what they are bound to ---------------------------------------------------------------

    def _begin(self, step: int) -> bool:
        """Have a loop that begins with this step, and knows the first program only; whether native code can."""
        self._legs: list[Stretch] = []
        condition = (address(self._condition), 1) if self._ends else None
        self._native = StepLoop(address(self._number), condition)
        self._native.steps = step
        return self._add(self.ways.first) is not None

    def _follow(self, stretch: Stretch) -> bool:
        """Go on with what the values of this step decide; whether native code can."""
        rest = stretch.rest
        assert rest is not None
        values = {name: self._value(stretch.found(name)) for name in rest.part.inputs}
        following = stretch.follows.get(self.ways.key(stretch, values))
        if following is None:
            special = self._loop.stages.following(rest, values)
            if stretch.decisive != rest.decisive:  # more was found to decide: what was asked so far tells too little
                return self._begin(self._native.steps)
            following = self.ways.follow(stretch, values, special)
            if following is None:
                return False
            self._must_fit(self._native.steps, self._room)
        number = self._add(following)
        if number is None:
            return False
        self._native.answer(number)
        return True

    def _add(self, stretch: Stretch) -> int | None:
        """Bind a program to the buffers; None where that is not possible."""
        if len(self._legs) == MAX_LEGS:
            return None
        self._tell(stretch)
        leg = self._last(stretch) if stretch.rest is None else self._before(stretch)
        if leg is None:
            return None
        self._legs.append(stretch)
        return self._native.add(leg)

    def _tell(self, stretch: Stretch) -> None:
        program = stretch.special.program
        if self._watch is not None and program is not None:
            feeds = {name: self._value(stretch.given(name)).copy() for name in stretch.special.reads}
            self._watch(ProgramStep(program, feeds))

    def _before(self, stretch: Stretch) -> Leg | None:
        """A program whose results decide what follows: it writes into memory of its own."""
        stretch.look_again()
        outputs = {} if stretch.context is None else {n: self._own(stretch, n) for n in stretch.context.direct}
        asks = []
        for name in stretch.decisive:
            found = stretch.found(name)
            if isinstance(found, tuple) or (isinstance(found, str) and found in self._inputs):
                dtype, shape = self._loop.type_of(stretch, name)
                asks.append((self._place(found), math.prod(shape) * dtype.itemsize))
        if sum(nbytes for _, nbytes in asks) > MOST_ASKED:
            return None
        return Leg(stretch.context, self._reads(stretch), outputs, (), asks)

    def _last(self, stretch: Stretch) -> Leg | None:
        """A program with which a step ends: what its kernels cannot write where it belongs is copied there."""
        context, outputs = stretch.context, dict[int, Place]()
        if not self._loop.fits(stretch) or not self._has_room(stretch):
            return None
        direct: list[int] = []  # of what is wanted: what kernels write where it belongs
        wanted = self._wanted()
        for n, (result, place) in enumerate(wanted):
            found = stretch.found(result)
            if isinstance(found, tuple) and found[0] is stretch and context is not None:
                if found[1] in context.direct and found[1] not in outputs:
                    outputs[found[1]] = place
                    direct.append(n)
        copies = []
        for n, (result, place) in enumerate(wanted):
            dtype, shape = self._loop.type_of(stretch, result)
            nbytes = math.prod(shape) * dtype.itemsize
            if n not in direct and nbytes:
                copies.append(Copy(self._place(stretch.found(result), stretch, outputs), place, nbytes))
        for one in self._loop.form.grown:
            copies += self._appends(one, self._place(stretch.found(one.item), stretch, outputs))
        own = {n: self._own(stretch, n) for n in (() if context is None else context.direct)}
        return Leg(context, self._reads(stretch), {**own, **outputs}, copies, None)

    def _wanted(self) -> list[tuple[str, Place]]:
        """What a step gives, and where it belongs."""
        form = self._loop.form
        wanted = [(result, _turns(b, a)) for (_, result), (a, b) in zip(form.carried, self._turns)]
        wanted += [(n, self._part(a, turned)) for (n, turned), a in zip(form.collected, self._collected or ())]
        if self._ends:
            wanted.append((form.goes_on or "", Place(address(self._condition) + 1, -1, 1)))
        return wanted

    def _appends(self, one: Growing, source: Place) -> list[Copy]:
        """Put what a step appends behind what there is, in all parts of the memory."""
        memory = self._loop.values[one.name]
        nbytes = math.prod(memory.shape[one.axis + 1 :]) * memory.itemsize
        copies = []
        for n in range(math.prod(memory.shape[: one.axis])):
            end = address(memory) + (n * memory.shape[one.axis] + one.length) * nbytes
            copies.append(Copy(replace(source, address=source.address + n * nbytes), Place(end, nbytes, -1), nbytes))
        return copies

    def _reads(self, stretch: Stretch) -> dict[int, Place]:
        context, names = stretch.context, stretch.special.reads
        if context is None:
            return {}
        return {n: self._place(stretch.given(name)) for n, name in enumerate(names) if context.is_read(n)}

    # Where values lie ----------------------------------------------------------------------------------

    def _place(self, found: Found, last: Stretch | None = None, outputs: Mapping[int, Place] = _NOWHERE) -> Place:
        """Where a value lies; `outputs` are those of the last program that it writes elsewhere than usual."""
        if isinstance(found, np.ndarray):
            self._keep.append(np.ascontiguousarray(found))
            return Place(address(self._keep[-1]))
        if isinstance(found, str):
            if found not in self._inputs and found not in self._outer:
                self._outer[found] = self._place(self._loop.outer(found))
            return self._inputs[found] if found in self._inputs else self._outer[found]
        stretch, number = found
        ref = stretch.outputs[number][1]
        if ref.space == INPUT:
            return self._place(stretch.given(stretch.special.reads[ref.offset]))
        written = ref.offset if ref.space == OUTPUT else number
        return outputs[written] if stretch is last and written in outputs else self._own(stretch, written)

    def _own(self, stretch: Stretch, number: int) -> Place:
        """Where a program leaves a result unless it is told another place."""
        return Place(address(stretch.result(number)))

    def _value(self, found: Found) -> Array:
        """What a value is in this step."""
        if isinstance(found, np.ndarray):
            return found
        if isinstance(found, str):
            return self._input(found)
        stretch, number = found
        spec, ref = stretch.outputs[number]
        if ref.space == INPUT:
            return self._value(stretch.given(stretch.special.reads[ref.offset])).reshape(spec.shape)
        return stretch.result(ref.offset if ref.space == OUTPUT else number).reshape(spec.shape)

    def _input(self, name: str) -> Array:
        form, step = self._loop.form, self._native.steps
        for (carried, _), turns in zip(form.carried, self._turns):
            if carried == name:
                return turns[step & 1]
        if name in self._parts:
            array, backwards = self._parts[name]
            return array[-1 - step if backwards else step, ...]
        if name == form.condition:
            return self._condition[step & 1, ...]
        if name == form.length:
            return self._lengths[step, ...]
        return np.asarray(step, np.int64) if name == form.number else self._loop.outer(name)

    def _part(self, array: Array, backwards: bool) -> Place:
        """A part of an array in each step."""
        self._keep.append(array)
        size = array[:1].nbytes
        if backwards:
            return Place(address(array) + size * (len(array) - 1), -size, -1)
        return Place(address(array), size, -1)

    # Memory --------------------------------------------------------------------------------------------

    def _has_room(self, last: Stretch) -> bool:
        """Make room for what steps give, which the first end of one tells; whether this one gives the like."""
        loop = self._loop
        types = [loop.type_of(last, name) for name, _ in loop.form.collected]
        if self._collected is not None:
            return types == [(a.dtype, a.shape[1:]) for a in self._collected]
        self._each = sum(math.prod(shape) * dtype.itemsize for dtype, shape in types)
        self._must_fit(self._native.steps, self._room)
        self._collected = [np.empty((self._room, *shape), dtype) for dtype, shape in types]
        return True

    def _grow(self, steps: int) -> None:
        """Make more room for what is collected."""
        self._room = min(self._limit, self._room * 2)
        self._must_fit(steps, self._room + steps)  # all is moved to the larger room
        moved = []
        for old in self._collected or ():
            moved.append(np.empty((self._room, *old.shape[1:]), old.dtype))
            moved[-1][: len(old)] = old
        self._collected = moved
        self._left = not self._begin(steps)

    def _lengthened(self) -> None:
        """Know how many steps there is room for behind what grows, and tell them how long it is."""
        self._full, form = self._limit, self._loop.form
        for one in form.grown:
            room, memory = self._loop.values[one.name].shape[one.axis], self._loop.values[one.name]
            self._full = room - one.length
            self._inputs[one.name] = Place(address(memory))
            self._lengths = np.arange(one.length, room + 1, dtype=np.int64)
        if form.length:
            self._inputs[form.length] = Place(address(self._lengths), 8, -1)

    def _lengthen(self, steps: int) -> bool:
        """Make more room behind what grows, and go on with a program for that; whether native code can."""
        loop, values = self._loop, dict(self._loop.values)
        rooms = {one.name: room_for(values[one.name].shape[one.axis] + 1) for one in loop.form.grown}
        rows = {one.name: values[one.name].nbytes // values[one.name].shape[one.axis] for one in loop.form.grown}
        self._must_fit(steps, self._room, sum(rows[name] * room for name, room in rooms.items()))
        for one in loop.form.grown:
            values[one.name] = with_room(values[one.name], one.axis, rooms[one.name])
        return self._go_on(values, steps)

    def _go_on(self, values: Mapping[str, Array], steps: int) -> bool:
        """Go on with a program for larger values; whether native code can."""
        loop = self._loop
        try:
            special = loop.stages.whole(values)
        except (InputError, ModelError):
            return False  # so long, it is impossible; what is as long as this step may not be
        if not BodyWays.takes_part(special):
            return False
        self.ways.give_back()
        self._loop, self.ways = replace(loop, special=special, values=values), BodyWays.taken(special)
        self._must_fit(steps, self._room)
        self._outer.clear()
        self._lengthened()
        return self._begin(steps)

    def _must_fit(self, steps: int, parts: int, more: int = 0) -> None:
        """After so many steps, before there is room for so many parts of what is collected, and more bytes."""
        carried = 2 * sum(self._loop.values[name].nbytes for name, _ in self._loop.form.carried)
        grown = sum(self._loop.values[one.name].nbytes for one in self._loop.form.grown)
        self._guard.hold(steps, parts * self._each + carried + grown + more + self.ways.takes)


def room_for(extent: int) -> int:
    """Places for what grows: for as many, and for some more."""
    return power_or_half(max(extent, LEAST_ROOM), FINER_ROOM)


def with_room(array: Array, axis: int, room: int) -> Array:
    """The array with zeros behind it along an axis, so many elements together."""
    found = np.zeros((*array.shape[:axis], room, *array.shape[axis + 1 :]), array.dtype)
    found[(slice(None),) * axis + (slice(array.shape[axis]),)] = array
    return found


def _turns(first: Array, second: Array) -> Place:
    """One array in even steps, the other one in odd ones."""
    start = address(first)
    return Place(start, address(second) - start, 1)
