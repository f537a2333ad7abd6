"""Steps of a model whose caches grow: what those have in common that the same programs run, padded to a few sizes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from autotune.compiler.buckets import power_or_half
from autotune.compiler.prompts import NewRows
from autotune.compiler.specialisation import Specialisation
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.errors import InputError, ModelError
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import (
    CannotPad,
    Padding,
    counted_from_zero,
    kept_apart,
    padded_model,
    padding_of,
    valid_name,
)
from autotune.graph.frontend.buckets.computed import difference
from autotune.graph.frontend.caches import Caches, with_room
from autotune.tensor.declared import bind_symbols, rename_symbols
from autotune.tensor.dtype import DType

_log = logging.getLogger(__name__)

LEAST_ROOM = 64
"""Rows: below that, room costs less than another program does."""

LEAST_SIZE = 8
"""Of other dimensions that are padded."""

FINER = 32
"""Behind this size there are others between powers of two: what is padded takes longer there than reading weights."""

Sizes = tuple[int, ...]
"""What a program is for: the room of the caches, and the size of each other dimension that is padded."""


@dataclass(eq=False)
class Steps:
    """Steps that differ in nothing but the length of what came before, and other dimensions that may be padded.

    Attributes:
        extents: of the open dimensions that must be as they were in the first of them.
        past: symbol of the rows that came before.
        rows: that a step appends; where that differs from step to step, the symbol of the dimension that is as long.
        lengths: symbols of old and new rows together.
        names: what symbols are called in programs, where they are as long as another one.
        paddings: what a program does to its outputs, and whether it must be told where padding begins: along old and
            new rows together, then along other dimensions.
        model: with these dimensions open.
        places: an input and its axis by which the extents of those that differ are known.
        feeds: names and dtypes of the inputs, and which of the forms they have.
        forms: dimensions; symbols of those that differ from step to step.
        programs: by sizes.
        last: sizes of the one that ran last, in whose room caches most likely are.
    """

    extents: Mapping[str, int]
    past: str
    rows: int | str
    lengths: frozenset[str]
    names: Mapping[str, str]
    paddings: Sequence[Padding]
    model: StagedModel
    places: Mapping[str, tuple[str, int]]
    feeds: Sequence[tuple[str, np.dtype[np.generic], int]]
    forms: Sequence[tuple[int | str, ...]]
    programs: dict[Sizes, Specialisation] = field(default_factory=dict)
    last: Sizes = ()

    @cached_property
    def padded(self) -> tuple[str, ...]:
        """Symbols of what is padded beside old and new rows together."""
        return tuple(padding.symbol for padding in self.paddings[1:])

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The inputs of programs that are told where padding begins, in the order of the paddings."""
        return tuple(valid_name(padding.symbol) for padding in self.paddings)

    @cached_property
    def outputs(self) -> Mapping[str, Mapping[int, int]]:
        """The axes of each output that are padded, and by which of the paddings."""
        found: dict[str, dict[int, int]] = {name: {} for name in self.paddings[0].outputs}
        for number, padding in enumerate(self.paddings):
            for name, axes in padding.outputs.items():
                found[name].update(dict.fromkeys(axes, number))
        return found

    @cached_property
    def dims(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """The same of the inputs, of those that have such axes."""
        places = {padding.symbol: number for number, padding in enumerate(self.paddings)}
        found = {
            name: [(axis, places[dim]) for axis, dim in enumerate(self.forms[form]) if dim in places]
            for name, _, form in self.feeds
        }
        return {name: axes for name, axes in found.items() if axes}

    def prepare(self, sizes: Sizes) -> None:
        """Have a program for these sizes, if there can be one: the step that needs it meets the error itself."""
        try:
            self.program(sizes)
        except (InputError, ModelError, CannotPad) as error:
            _log.info("there is no program for caches of %d rows: %s", sizes[0], error)

    def known(self, feeds: Mapping[str, object]) -> Mapping[str, int] | None:
        """The extents of what differs from step to step, where feeds are arrays of just such a step; None where
        somebody must look closer."""
        extents: dict[int | str, int] = {}
        for symbol, (name, axis) in self.places.items():  # on the path of every step
            value = feeds.get(name)
            if type(value) is not np.ndarray or value.ndim <= axis:
                return None
            extents[symbol] = value.shape[axis]
        rows = self._appends(extents)  # type: ignore[arg-type]
        if len(feeds) != len(self.feeds) or not rows or not all(extents.values()):
            return None
        extents[self.paddings[0].symbol] = extents[self.past] + rows
        shapes = [tuple(extents.get(extent, extent) for extent in form) for form in self.forms]
        for name, dtype, form in self.feeds:
            value = feeds.get(name)
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shapes[form]:
                return None
        return extents  # type: ignore[return-value]

    def _appends(self, extents: Mapping[str, int]) -> int:
        """The rows that a run appends; 0 where it is none of these steps: single rows have programs of their own."""
        if isinstance(self.rows, int):
            return self.rows
        return extents[self.rows] if extents[self.rows] > 1 else 0

    def length(self, extents: Mapping[str, int]) -> int:
        """Old and new rows together."""
        return extents[self.past] + self._appends(extents)

    def fits(self, extents: Mapping[str, int]) -> bool:
        """Whether a run of these extents is such a step."""
        rows, length = self._appends(extents), self.length(extents)
        same = all(extents[symbol] == n for symbol, n in self.extents.items())
        alike = {s: length if s in self.lengths else extents[name] for s, name in self.names.items()}
        there = rows > 0 and all(extents[symbol] for symbol in self.padded)  # of nothing there is no softmax
        return same and there and all(extents[symbol] == extent for symbol, extent in alike.items())

    def sizes(self, extents: Mapping[str, int], most: int | None, held: int = 0) -> Sizes:
        """What a step of these extents is padded to.

        Args:
            most: rows that caches may have; None for any number.
            held: rows that the memory of the caches has already, and that are to be kept.
        """
        length = self.length(extents)
        if not self.padded:  # on the path of every step
            room = max(LEAST_ROOM, held, _power(length))
            return (room if most is None else min(room, most),)
        padded = [_size(extents[symbol]) for symbol in self.padded]
        written = max([length, *(extents[self.past] + n for s, n in zip(self.padded, padded) if s == self.rows)])
        room = max(LEAST_ROOM, held, _power(written))  # padded rows are written, too
        if most is not None and room > most:
            room = most
            padded = [extents[s] if s == self.rows and written > most else n for s, n in zip(self.padded, padded)]
        return room, *padded

    def there(self, extents: Mapping[str, int]) -> Sizes | None:
        """The sizes of the least program that there is and that serves a step of these extents; caches are copied to
        more room for it, which takes less time than a program does."""

        def serves(sizes: Sizes) -> bool:
            found = dict(zip(self.padded, sizes[1:]))
            large = all(size >= extents[symbol] for symbol, size in found.items())
            return large and max(self.length(extents), extents[self.past] + found.get(str(self.rows), 0)) <= sizes[0]

        return min(filter(serves, list(self.programs)), key=lambda sizes: (sizes[0], np.prod(sizes)), default=None)

    def most(self, room: int) -> Sizes:
        """The largest sizes of other dimensions than the caches that there are programs for in that room."""
        found = [sizes[1:] for sizes in list(self.programs) if sizes[0] == room]
        return tuple(map(max, *found)) if len(found) > 1 else found[0]

    def program(self, sizes: Sizes) -> Specialisation:
        """The one that runs all of a step. Raises CannotPad where a step is more than a program."""
        if sizes not in self.programs:
            symbols = (padding.symbol for padding in self.paddings)
            found = self.model.beginning(dict(zip(symbols, sizes)))
            whole = found.program is not None and not found.calls and found.rest is None
            if not whole or not set(self.paddings[0].outputs) <= set(found.writes):
                raise CannotPad("a step is no single program")
            self.programs[sizes] = found
        return self.programs[sizes]


def _size(extent: int) -> int:
    """What an extent is padded to."""
    return power_or_half(max(extent, LEAST_SIZE), FINER)


def _power(extent: int) -> int:
    """The power of two from an extent on."""
    return 1 << (extent - 1).bit_length()


def proved_steps(
    model: OnnxModel,
    making: Making,
    caches: Caches,
    extents: Mapping[str, int],
    rows: NewRows,
    appended: int | str,
) -> Steps:
    """Steps like a run of these extents.

    Args:
        rows: that it appends.
        appended: how many such steps append: as many, or the symbol of a dimension that is as long.

    Raises:
        CannotPad: padding the caches may change a result.
    """
    grow = {caches.symbol, appended, rows.symbol, *rows.lengths}
    beside = {dim for i in model.inputs if grow & {*(i.dims or ())} for dim in i.dims or ()}
    others = {symbol: extent for symbol, extent in extents.items() if symbol not in grow}
    free = [s for s, extent in others.items() if s not in beside and extent]  # sources of translations, of any length
    alike = {extents[symbol]: symbol for symbol in reversed(free)}
    names = {symbol: alike[extents[symbol]] for symbol in free if alike[extents[symbol]] != symbol}
    if rows.symbol is not None and appended != rows.symbol:
        others[rows.symbol] = rows.count
    for opened in (list(alike.values()), []) if free else ([],):
        try:
            return _steps(model, making, caches, rows, appended, others, opened, names if opened else {})
        except CannotPad:
            if not opened:
                raise
    raise AssertionError


def _along_rows(
    roomy: OnnxModel, rows: NewRows, appended: int | str, length: str, written: Sequence[str]
) -> tuple[list[Padding], OnnxModel]:
    """Padded along old and new rows together, and along new ones where their number differs. Raises CannotPad."""
    paddings = [padding_of(roomy, length, 1 if isinstance(appended, str) else rows.count)]
    padded = padded_model(roomy, paddings[0])
    if isinstance(appended, str):
        paddings.append(padding_of(padded, appended, roomy=written))
        padded = padded_model(padded, paddings[-1])
    return paddings, padded


def _steps(
    model: OnnxModel,
    making: Making,
    caches: Caches,
    rows: NewRows,
    appended: int | str,
    others: Mapping[str, int],
    opened: Sequence[str],
    names: Mapping[str, str],
) -> Steps:
    """With some of the other dimensions open; which of those can be padded is found out. Raises CannotPad."""
    fixed = {symbol: extent for symbol, extent in others.items() if symbol not in opened and symbol not in names}
    length = f"{caches.symbol} + {appended}"
    names = {**names, **dict.fromkeys(rows.lengths, length)}
    source = replace(model, inputs=bind_symbols(rename_symbols(model.inputs, names), fixed))
    many = isinstance(appended, str)
    roomy = with_room(source, caches, appended, length)
    if many:
        roomy = counted_from_zero(roomy, difference(length, appended))
    written = [model.nodes[cache.joint].proto.input[0] for cache in caches.each]
    try:
        paddings, padded = _along_rows(roomy, rows, appended, length, written)
    except CannotPad:
        apart = kept_apart(roomy, length, *([appended] if isinstance(appended, str) else []))
        if apart is roomy:
            raise
        paddings, padded = _along_rows(apart, rows, appended, length, written)
    for symbol in opened:
        try:
            found = padding_of(padded, symbol)
            if not found.mixes:
                raise CannotPad("what lies along it never meets: each element would be computed for nothing")
            paddings.append(found)
            padded = padded_model(padded, found)
        except CannotPad as error:
            _log.info("dimension %s is compiled for each extent: %s", symbol, error)
            fixed[symbol] = others[symbol]
            padded = replace(padded, inputs=bind_symbols(padded.inputs, {symbol: others[symbol]}))
    called = bind_symbols(rename_symbols(model.inputs, names), fixed)
    forms = {i.name: tuple(d or 0 for d in i.dims or ()) for i in called}
    kinds = list(dict.fromkeys(forms.values()))
    feeds = [(i.name, DType(i.dtype).numpy, kinds.index(forms[i.name])) for i in model.inputs]
    differ = (caches.symbol, *(padding.symbol for padding in paddings[1:]))
    places = {s: next((name, form.index(s)) for name, form in forms.items() if s in form) for s in differ}
    staged = StagedModel(padded, replace(making, looked_at=True))
    return Steps(fixed, caches.symbol, appended, rows.lengths, names, paddings, staged, places, feeds, kinds)
