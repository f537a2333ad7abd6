"""Prompts: runs of a model with caches in which nothing is yet, of any length.

Empty caches are no open dimension, and a model without them is one like others: its shapes come as those of any model
do, so a prompt of another length need not wait for a program of its own.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.compiler.staged import StagedModel
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad, dimensions_of, that_pads
from autotune.graph.frontend.buckets.facts import Extent
from autotune.graph.frontend.caches import Caches
from autotune.tensor.declared import bind_symbols, rename_symbols

_log = logging.getLogger(__name__)

MOST_PROMPTS = 16
"""Models of prompts, told apart by which open dimensions are as long as the prompt, and by batches."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """What a run appends to caches.

    Attributes:
        count: rows, the same number in each.
        symbol: of the open dimension that is as long; None where there is none.
        lengths: symbols of the dimensions that are as long as old and new rows together.
    """

    count: int
    symbol: str | None
    lengths: frozenset[str]


@dataclass(frozen=True)
class Appending:
    """A model that appends rows to caches."""

    model: OnnxModel
    caches: Caches

    @functools.cached_property
    def rows(self) -> Extent:
        """How many it appends, as far as that is known of any run."""
        return appended_rows(self.model, self.caches)

    def new_rows(self, extents: Mapping[str, int]) -> NewRows:
        """Those of a run with inputs of these extents. Raises CannotPad where nobody knows."""
        model, caches, symbol = self.model, self.caches, self.rows
        count: Extent = extents.get(symbol, 0) if isinstance(symbol, str) else symbol
        if not isinstance(count, int):  # a sum, or nobody knows
            count = appended_rows(replace(model, inputs=bind_symbols(model.inputs, extents)), caches)
        if not isinstance(count, int) or count < 1:
            raise CannotPad("how many rows a step appends is not known before it runs")
        beside = {dim for i in model.inputs if caches.symbol in (i.dims or ()) for dim in i.dims or ()}
        whole = extents[caches.symbol] + count
        lengths = frozenset(s for s, extent in extents.items() if extent == whole and s not in beside)
        if not isinstance(symbol, str) and count > 1:  # whoever takes it for that has to prove it
            alike = [s for s, extent in extents.items() if extent == count and s not in beside and s not in lengths]
            symbol = alike[0] if len(alike) == 1 else None
        return NewRows(count, symbol if isinstance(symbol, str) and extents.get(symbol) == count else None, lengths)


def appended_rows(model: OnnxModel, caches: Caches) -> Extent:
    """How many rows go to each cache, as far as is known of any; None where they differ, or nobody knows. A proof that
    rests on it looks at each. Raises CannotPad: as `dimensions_of`."""
    dims = dimensions_of(model)
    found = {known[cache.axis] for cache in caches.each if (known := dims.get(cache.new))} - {None}
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class _Kind:
    """Prompts that one model runs.

    Attributes:
        lengths: symbols of what must be as long as the prompt.
        others: extents of what must be as it was in the first of them.
        model: None where they run as they are.
    """

    lengths: frozenset[str] = frozenset()
    others: Mapping[str, int] = field(default_factory=dict)
    model: StagedModel | None = None

    def asks(self) -> tuple[bool, int]:
        """How much it asks for: what asks for less serves more prompts. What serves none comes last."""
        return self.model is None, len(self.lengths) + len(self.others)

    def fits(self, extents: Mapping[str, int]) -> bool:
        same = all(extents[symbol] == extent for symbol, extent in self.others.items())
        return same and len({extents[symbol] for symbol in self.lengths}) <= 1


class Prompts:
    """The models of prompts, those that ask for the least first; may be asked from several threads.

    Args:
        appending: the model with its caches. `make`: what runs a model of which those are empty.
    """

    def __init__(self, appending: Appending, make: Callable[[OnnxModel], StagedModel]) -> None:
        self._appending, self._make = appending, make
        self._model, self._caches = appending.model, appending.caches
        self._kinds: list[_Kind] = []
        self._exact: Sequence[Mapping[str, int]] = ()
        self._ranged: Sequence[Mapping[str, int]] = ()
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[StagedModel]:
        return iter([kind.model for kind in self._kinds if kind.model is not None])

    def foresee(self, exact: Sequence[Mapping[str, int]], ranged: Sequence[Mapping[str, int]]) -> None:
        """See `StagedModel.foresee`; before the first prompt."""
        empty = self._caches.symbol
        self._exact, self._ranged = ([one for one in every if one.get(empty) == 0] for every in (exact, ranged))

    def of(self, extents: Mapping[str, int]) -> StagedModel | None:
        """What runs a prompt of these extents; None where that is none, or nothing is known of it."""
        if extents.get(self._caches.symbol) != 0:
            return None
        with self._lock:
            found = next((kind for kind in self._kinds if kind.fits(extents)), None)
            if found is None:
                found = self._kind(extents)
                if len(self._kinds) == MOST_PROMPTS:
                    self._kinds.remove(max(self._kinds, key=_Kind.asks))  # the oldest of those that ask for most
                self._kinds.append(found)
                self._kinds.sort(key=_Kind.asks)
            return found.model

    def _kind(self, extents: Mapping[str, int]) -> _Kind:
        """What prompts like these have in common: as little as possible."""
        try:
            rows = self._appending.new_rows(extents)
        except CannotPad as error:
            _log.info("prompts run as they are: %s", error)
            return _Kind()
        empty = bind_symbols(self._model.inputs, {self._caches.symbol: 0})
        length = next((dim for i in empty for dim in i.dims or () if dim in rows.lengths), None)
        others = {s: n for s, n in extents.items() if s != self._caches.symbol and s not in rows.lengths}
        for fixed in ({}, others):  # where batches are not known to be alike, for this one
            inputs = bind_symbols(rename_symbols(empty, dict.fromkeys(rows.lengths, str(length))), fixed)
            model = replace(self._model, inputs=inputs)
            try:
                made = self._make(that_pads(model, str(length))[0])
                exact, ranged = (
                    [one for one in every if all(one.get(s) == n for s, n in fixed.items())]
                    for every in (self._exact, self._ranged)
                )
                made.foresee(exact, ranged)
                return _Kind(rows.lengths, fixed, made)
            except CannotPad as error:
                _log.info("prompts of %s run as they are: %s", fixed or "any batch", error)
        return _Kind(rows.lengths, others)
