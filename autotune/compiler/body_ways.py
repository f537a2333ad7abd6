"""The ways through the body of a loop: its programs, each behind the one whose results decide that it follows.

A body that is one program has one way. An If that a step decides ends a program: what follows is the program of its
branch and of all behind it, which is made when a step first comes there, so that the other branch is never looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from autotune.compiler.room import Room
from autotune.compiler.specialisation import Specialisation
from autotune.compiler.value_forms import digest
from autotune.graph.host import HostValue
from autotune.runtime.executor import MAX_CONTEXTS, Array, Context
from autotune.runtime.form import ALIGN
from autotune.runtime.loop import MAX_LEGS
from autotune.runtime.process import process_number
from autotune.runtime.program import Ref, TensorSpec
from autotune.runtime.threads import ThreadPool
from autotune.tensor.aligned import aligned_empty

Found = Union["tuple[Stretch, int]", Array, str]


@dataclass(eq=False, slots=True)
class Stretch:
    """A part of a way.

    Attributes:
        before: the one that this follows; None where a step begins.
        context: of its program, for these ways alone; None where there is nothing to compute.
        decisive: names of the values that decide what follows.
        follows: what does, by those values.
    """

    special: Specialisation
    before: Stretch | None
    context: Context | None
    decisive: tuple[str, ...] = ()
    follows: dict[Hashable, Stretch] = field(default_factory=dict)

    @property
    def rest(self) -> Room | None:
        """What is left of the step behind it."""
        return self.special.rest

    def found(self, name: str) -> Found:
        """What a value is behind this: an output, by number, of a program on the way, a constant, or an input of the
        body, by name."""
        at: Stretch | None = self
        while at is not None:
            special = at.special
            name = special.stage.aliases.get(name, name)
            if name in special.writes:
                return at, special.writes.index(name)
            if name in special.stage.constants:
                return special.stage.constants[name]
            at = at.before
        return name

    def given(self, name: str) -> Found:
        """The same of an input of its program."""
        return name if self.before is None else self.before.found(name)

    @property
    def outputs(self) -> tuple[tuple[TensorSpec, Ref], ...]:
        """Those of its program, each with its place."""
        return () if self.special.program is None else self.special.program.program.outputs

    def result(self, number: int) -> Array:
        """The memory where its program leaves an output that is none of its inputs, unless it is told another."""
        assert self.context is not None
        found = self.context.own(number) if number in self.context.direct else self.context.outputs[number]
        assert found is not None
        return found

    def look_again(self) -> None:
        """More was found to decide what follows: what was made for less is looked up anew."""
        if self.rest is not None and self.decisive != self.rest.decisive:
            self.decisive = self.rest.decisive
            self.follows.clear()


class BodyWays:
    """Those that steps have gone so far; one run of the loop at a time.

    Attributes:
        first: where each step begins.
        takes: bytes of the memory of all programs.
    """

    def __init__(self, special: Specialisation) -> None:
        self._process = process_number()
        self._pool: ThreadPool | None = None
        self._arenas: list[Array] = []  # one for each stretch of a way; ways share them, since a step takes one
        self._count = self.takes = 0
        self.first = self._stretch(special, None)

    @staticmethod
    def taken(special: Specialisation) -> BodyWays:
        """Ways that begin so and that nobody is on; give them back."""
        while special.ways:
            try:
                found = special.ways.pop()
            except IndexError:  # somebody was faster
                break
            if found._process == process_number() and found._count < MAX_LEGS:
                return found
        return BodyWays(special)

    def give_back(self) -> None:
        """For the next run of the loop."""
        kept = self.first.special.ways
        kept.append(self)
        del kept[:-MAX_CONTEXTS]

    @staticmethod
    def takes_part(special: Specialisation) -> bool:
        """Whether a step may go through it without Python."""
        return not (special.calls or special.stage.lists or special.opened or special.look)

    def follow(self, stretch: Stretch, values: Mapping[str, HostValue], special: Specialisation) -> Stretch | None:
        """What follows for such values, which has this specialisation; None where native code cannot go there."""
        key = self.key(stretch, values)
        if not self.takes_part(special) or self._count == MAX_LEGS:
            return None
        stretch.follows[key] = self._stretch(special, stretch)
        return stretch.follows[key]

    @staticmethod
    def key(stretch: Stretch, values: Mapping[str, HostValue]) -> Hashable:
        return tuple(digest(values[name]) for name in stretch.decisive)

    def _stretch(self, special: Specialisation, before: Stretch | None) -> Stretch:
        context = None
        depth, at = 0, before
        while at is not None:
            depth, at = depth + 1, at.before
        if special.program is not None:
            executor = special.program.executor
            self._pool = self._pool or executor.pool()
            context = executor.bound(self._pool, self._arena(depth, executor.program.arena_bytes))
        self._count += 1
        self.takes += special.takes
        return Stretch(special, before, context, () if special.rest is None else special.rest.decisive)

    def _arena(self, depth: int, nbytes: int) -> Array:
        """Memory for the intermediate values of a stretch. Stretches that have a smaller one keep that."""
        while len(self._arenas) <= depth:
            self._arenas.append(np.empty(0, np.uint8))
        if self._arenas[depth].nbytes < nbytes + ALIGN:
            self._arenas[depth] = aligned_empty(nbytes + ALIGN)
        return self._arenas[depth]
