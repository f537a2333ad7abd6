"""Programs for any extents that data decides, on the way of a run: what serves such extents is looked up once.

Most runs take one program, which is there; theirs are padded into memory that is kept, and what is no padding of the
results is copied out. All others go through the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from autotune.compiler.shapes import extents_in
from autotune.compiler.specialisation import Life
from autotune.errors import InputError
from autotune.runtime.address import address
from autotune.runtime.executor import Array, Context, Executor
from autotune.runtime.program import INPUT, OUTPUT
from autotune.tensor.dtype import DType

if TYPE_CHECKING:
    from autotune.compiler.bucketed import BucketedModel

MOST_FITS = 256
"""Forms of runs whose programs are remembered."""

Values = Mapping[str, Array]
Shapes = tuple[tuple[int, ...], ...]
Window = tuple[slice, ...]


@dataclass(eq=False, slots=True)
class _Padded:
    """An input of a program, in memory of its own.

    Attributes:
        place: where that is.
        filled: what of it is no padding; all else is zeros.
    """

    room: Array
    place: int
    filled: Window = ()

    def take(self, array: Array, window: Window) -> None:
        if self.filled != window:
            self.room.fill(0)
            self.filled = window
        self.room[window] = array


def _padded(form: tuple[int, ...], dtype: np.dtype[np.generic]) -> _Padded:
    room: Array = np.zeros(form, dtype)
    return _Padded(room, address(room))


@dataclass(frozen=True, slots=True)
class OpenFit:
    """What serves runs of one form.

    Attributes:
        executor: of the program.
        given: numbers and names of inputs that are read where they are.
        padded: of those that are padded, with what is theirs.
        ends: inputs that say where padding begins.
        results: of the model, in its order: the program's output, and what of it is no padding.
        late: a better program is to come; the model, when it runs, sees to that.
    """

    executor: Executor
    life: Life
    given: Sequence[tuple[int, str]]
    padded: Sequence[tuple[int, str, _Padded, Window]]
    ends: Sequence[tuple[int, Array]]
    results: Sequence[tuple[int, Window]]
    late: bool

    def run(self, values: Values) -> list[Array] | None:
        """None where it takes more than this."""
        context = self.executor.lent()
        try:
            for n, name in self.given:
                context.read_one(n, values[name])
            for n, name, padded, window in self.padded:
                padded.take(values[name], window)
                context.read_at(n, padded.place)
            for n, end in self.ends:
                context.read_one(n, end)
            context.run()
            self.life.runs += 1
            return [_output(context, n)[window].copy() for n, window in self.results]
        except InputError:  # what is wrong with this run the model says
            return None
        finally:
            self.executor.release(context)


def _output(context: Context, number: int) -> Array:
    found = context.outputs[number]
    return context.own(number) if found is None else found


@dataclass(eq=False)
class BoundOpen:
    """A model with open dimensions, on the way of one run at a time.

    Args:
        reads: names of its inputs. `open`: of those whose extents data decides.
    """

    model: BucketedModel
    reads: Sequence[str]
    open: Sequence[str]
    _fits: dict[Shapes, OpenFit] = field(default_factory=dict)
    _rooms: dict[tuple[str, tuple[int, ...]], _Padded] = field(default_factory=dict)

    def results(self, values: Values) -> list[Array] | None:
        """The outputs in the model's order, as new arrays; None is for the model to give, or to refuse."""
        fit = self.fit(values)
        if fit is None or fit.late:
            return None
        found = fit.run(values)
        if found is None:
            self._fits.pop(self._shapes(values), None)
        return found

    def fit(self, values: Values) -> OpenFit | None:
        """What serves runs like this one now; None where that is not one program that is there."""
        shapes = self._shapes(values)
        fit = self._fits.get(shapes)
        if fit is None:
            fit = self._fit({name: values[name] for name in self.reads})
            if fit is None or fit.late:
                return fit
            if len(self._fits) >= MOST_FITS:
                self._fits.clear()
            self._fits[shapes] = fit
        return fit

    def _shapes(self, values: Values) -> Shapes:
        return tuple([values[name].shape for name in self.open])

    def _fit(self, values: Values) -> OpenFit | None:
        extents = extents_in(self.model.inputs, values)
        found = self.model.alone(extents)
        if found is None:
            return None
        bucket, special, late = found
        program, names = special.program, [output.name for output in self.model.outputs]
        if program is None or not set(names) <= set(special.writes):
            return None
        executor, axes = program.executor, self.model.axes.open
        numbers = {name: n for n, name in enumerate(special.reads)}
        if any(
            ref.space == INPUT or (ref.space == OUTPUT and ref.offset != n)
            for n, (_, ref) in enumerate(executor.program.outputs)
        ):  # views of what is elsewhere
            return None
        ends = [(numbers[a.end], np.asarray(extents[a.symbol], np.int64)) for a in axes.free if a.end in numbers]
        given: list[tuple[int, str]] = []
        padded: list[tuple[int, str, _Padded, Window]] = []
        told = {axis.end for axis in axes.free}
        for name, n in numbers.items():
            if name in told:
                continue
            array, spec = values.get(name), executor.inputs[n]
            if not isinstance(array, np.ndarray) or array.dtype != DType(spec.dtype).numpy:
                return None
            form = spec.shape
            if array.shape == form:
                given.append((n, name))
                continue
            room = self._rooms.get((name, form))
            if room is None:
                room = self._rooms[name, form] = _padded(form, array.dtype)
            padded.append((n, name, room, tuple(map(slice, array.shape))))
        results: list[tuple[int, Window]] = []
        for position, name in enumerate(names):
            n = special.writes.index(name)
            spec, _ = executor.program.outputs[n]
            window = [slice(None)] * len(spec.shape)
            for axis in axes.free:
                if bucket[axis.symbol] != extents[axis.symbol]:
                    for place in axis.outputs[position]:
                        window[place] = slice(extents[axis.symbol])
            results.append((n, tuple(window)))
        return OpenFit(executor, special.life, given, padded, ends, results, late)
