"""Loops whose body is programs and whose carried values keep their shape: native code takes the steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autotune.compiler.body_ways import BodyWays, Stretch
from autotune.compiler.loop_guard import LoopGuard
from autotune.compiler.native_steps import NativeSteps, Taken
from autotune.compiler.specialisation import Specialisation, Watch
from autotune.compiler.value_forms import is_tensor
from autotune.graph.host import HostValue
from autotune.runtime.executor import Array
from autotune.tensor.dtype import DType

if TYPE_CHECKING:
    from autotune.compiler.stages import Stages

MOST_PIECES = 1024
"""Of an element that a step appends: where the axis is not the first one, it is spread in memory."""

Type = tuple[np.dtype[np.generic], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Growing:
    """An input of a body to whose end each step appends an element along an axis; its value has room behind it.

    Attributes:
        item: the result that is appended.
        length: of the input in the first step.
    """

    name: str
    item: str
    axis: int
    length: int


@dataclass(frozen=True, slots=True)
class BodyForm:
    """What a body takes and gives, by name.

    Attributes:
        number, condition: its inputs for the number of the step, and for the condition; None where it has none.
        carried: inputs, and what they are in the next step.
        sliced: inputs that are another part of a value in each step, and whether the last part comes first.
        collected: results that become part of an output in each step, and whether the first becomes the last part.
        goes_on: the result that says whether there is a next step; None where none does.
        grown: inputs that grow, in memory with room. `length`: the input that tells how long they are; it may be none.
        window: the input that is as long as what a step may look up of a slice, and the most elements that one has.
    """

    number: str | None
    condition: str | None
    carried: tuple[tuple[str, str], ...]
    sliced: tuple[tuple[str, bool], ...]
    collected: tuple[tuple[str, bool], ...]
    goes_on: str | None
    grown: tuple[Growing, ...] = ()
    length: str = ""
    window: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FixedLoop:
    """A loop that native code can take, or begin.

    Attributes:
        special: what a step begins with.
        stages: give what follows.
        values: of the body's inputs in the first step; of sliced ones all parts.
    """

    form: BodyForm
    special: Specialisation
    stages: Stages
    values: Mapping[str, Array]

    @staticmethod
    def of(
        form: BodyForm, special: Specialisation, stages: Stages, values: Mapping[str, HostValue]
    ) -> FixedLoop | None:
        """None where the body is more than programs, or carries what is no tensor, or changes its form."""
        if not BodyWays.takes_part(special) or not all(is_tensor(value) for value in values.values()):
            return None
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        found = FixedLoop(form, special, stages, arrays)
        return found if special.rest is not None or found.fits(Stretch(special, None, None)) else None

    def fits(self, last: Stretch) -> bool:
        """Whether a step that ends there gives what the next one can take."""
        goes_on = self.form.goes_on
        if goes_on is not None:
            dtype, shape = self.type_of(last, goes_on)
            if dtype != np.bool_ or math.prod(shape) != 1:
                return False
        for one in self.form.grown:
            dtype, shape = _type(self.values[one.name])
            item = dtype, (*shape[: one.axis], 1, *shape[one.axis + 1 :])
            if self.type_of(last, one.item) != item or math.prod(shape[: one.axis]) > MOST_PIECES:
                return False
        return all(self.type_of(last, result) == _type(self.values[name]) for name, result in self.form.carried)

    def type_of(self, stretch: Stretch, result: str) -> Type:
        """dtype and shape of a value behind a stretch."""
        found = stretch.found(result)
        if isinstance(found, tuple):
            spec, _ = found[0].outputs[found[1]]
            return DType(spec.dtype).numpy, spec.shape
        if isinstance(found, np.ndarray):
            return _type(found)
        if found in (self.form.number, self.form.condition):
            return np.dtype(np.int64 if found == self.form.number else np.bool_), ()
        array = self.outer(found)
        sliced = any(found == name for name, _ in self.form.sliced)
        return array.dtype, array.shape[1:] if sliced else array.shape

    def outer(self, name: str) -> Array:
        """The value that an input of the body has from outside."""
        return self.values[name] if name in self.values else self.stages.initializers[name]

    def run(self, steps: int, exact: bool, guard: LoopGuard, watch: Watch | None) -> Taken:
        """
        Args:
            steps: how many at most.
            exact: so many there will be, if nothing ends the loop.
            guard: sees to the memory, and tells of the time.
            watch: told of each program that steps come to.

        Raises:
            InputError, ModelError: a step had impossible values.
            MemoryLimitError: the guard refuses to take more.
        """
        run = NativeSteps(self, steps, exact, guard, watch)
        try:
            return run.taken()
        finally:
            run.ways.give_back()


def _type(array: Array) -> Type:
    return array.dtype, array.shape
