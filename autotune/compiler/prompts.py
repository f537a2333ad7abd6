"""Prompts: runs of a model with caches in which nothing is yet, of any length.

Empty caches are no open dimension, and a model without them is one like others: its shapes come as those of any model
do, so a prompt of another length need not wait for a program of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from autotune.compiler.staged import StagedModel
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad, dimensions_of
from autotune.graph.frontend.caches import Caches
from autotune.tensor.declared import ModelInput, bind_symbols

_log = logging.getLogger(__name__)

MOST_PROMPTS = 4
"""Models of prompts, told apart by which open dimensions are as long as the prompt."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """What a run appends to caches.

    Attributes:
        count: rows, the same number in each.
        lengths: symbols of the dimensions that are as long as old and new rows together.
    """

    count: int
    lengths: frozenset[str]

    @classmethod
    def of(cls, model: OnnxModel, caches: Caches, extents: Mapping[str, int]) -> NewRows:
        """Those of a run with inputs of these extents. Raises CannotPad where nobody knows."""
        dims = dimensions_of(replace(model, inputs=bind_symbols(model.inputs, extents)))
        found = {known[cache.axis] if (known := dims.get(cache.new)) else None for cache in caches.each}
        count = found.pop() if len(found) == 1 else None
        if not isinstance(count, int) or count < 1:
            raise CannotPad("how many rows a step appends is not known before it runs")
        beside = {dim for i in model.inputs if caches.symbol in (i.dims or ()) for dim in i.dims or ()}
        whole = extents[caches.symbol] + count
        return cls(count, frozenset(s for s, extent in extents.items() if extent == whole and s not in beside))

    def renamed(self, inputs: tuple[ModelInput, ...], length: str) -> tuple[ModelInput, ...]:
        """Inputs with one symbol in place of those of all dimensions of that length."""
        return tuple(
            replace(i, dims=i.dims and tuple(length if dim in self.lengths else dim for dim in i.dims)) for i in inputs
        )


class Prompts:
    """The models of prompts; may be asked from several threads.

    Args:
        model: with its caches. `make`: what runs a model of which those are empty.
    """

    def __init__(self, model: OnnxModel, caches: Caches, make: Callable[[OnnxModel], StagedModel]) -> None:
        self._model, self._caches, self._make = model, caches, make
        self._kinds: list[tuple[frozenset[str], StagedModel]] = []
        self._refused = False
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[StagedModel]:
        return iter([model for _, model in self._kinds])

    def of(self, extents: Mapping[str, int]) -> StagedModel | None:
        """What runs a prompt of these extents; None where that is none, or nothing is known of it."""
        if extents.get(self._caches.symbol) != 0:
            return None
        with self._lock:
            for lengths, model in self._kinds:
                if len({extents[symbol] for symbol in lengths}) == 1:
                    return model
            if self._refused or len(self._kinds) >= MOST_PROMPTS:
                return None
            try:
                rows = NewRows.of(self._model, self._caches, extents)
            except CannotPad as error:
                _log.info("prompts run as they are: %s", error)
                self._refused = True
                return None
            if not rows.lengths:
                return None
            empty = bind_symbols(self._model.inputs, {self._caches.symbol: 0})
            length = next(dim for i in empty for dim in i.dims or () if dim in rows.lengths)
            made = self._make(replace(self._model, inputs=rows.renamed(empty, str(length))))
            self._kinds.append((rows.lengths, made))
            self._kinds.sort(key=lambda kind: len(kind[0]))  # those that ask for the least come first
            return made
