"""Shapes that a model is made ready for: those that somebody names, or, of decoders, those that they go through."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.compiler.prompts import appended_rows
from autotune.errors import ModelError
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad
from autotune.graph.frontend.caches import Caches, caches_of
from autotune.tensor.declared import ModelInput
from autotune.tensor.shape_range import Extent, ShapeRange, extents_of_range, with_symbols

CONTEXT, PROMPT = range(32, 513), range(16, 257)
"""Tokens behind which a decoder takes steps, and of a prompt, where nobody names a shape: a program serves twice as
many as the last."""
MOST_SHAPES = 64

Extents = dict[str, int]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Extents of the open dimensions.

    Attributes:
        exact: that were named one by one. `ranged`: that stand for ranges.
        guessed: nobody has named any of them, so that the model need not have them all.
    """

    exact: tuple[Extents, ...] = ()
    ranged: tuple[Extents, ...] = ()
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class _Decoder:
    """The open dimensions of a model with caches that grow.

    Attributes:
        past: of old rows. `new`: of new ones, or how many these are. `whole`: of both together.
        beside: of others of the caches, their batch first.
        batches: of other inputs, which torch.export names anew for each.
    """

    past: str
    new: str | int
    whole: tuple[str, ...]
    beside: tuple[str, ...]
    batches: tuple[str, ...]

    @classmethod
    def of(cls, model: OnnxModel, caches: Caches) -> _Decoder | None:
        """None where nobody knows how many rows are new."""
        try:
            new = appended_rows(model, caches)
        except (CannotPad, ModelError):
            return None
        if not isinstance(new, (str, int)):
            return None
        names = {cache.past for cache in caches.each}
        beside = _symbols([i for i in model.inputs if i.name in names], {caches.symbol})
        first = [replace(i, dims=i.dims[:1]) for i in model.inputs if i.dims and len(i.dims) > 1]
        batches = _symbols(first, {caches.symbol, new, *beside})
        whole = _symbols(model.inputs, {caches.symbol, new, *beside, *batches})
        return cls(caches.symbol, new, whole, beside, batches)

    def completed(self, given: ShapeRange, known: set[str]) -> list[ShapeRange]:
        """With what it leaves open: one of what there is beside tokens, steps of one token, and prompts."""
        dims: dict[str, Sequence[Extent]] = {**given.dims, **{s: (1,) for s in self.beside if s not in known}}
        dims |= {s: (0,) for s in (*self.whole, *self.batches) if s not in known}  # see `whole_of`
        steps: dict[str, Sequence[Extent]] = {} if self.past in known else {self.past: (CONTEXT,)}
        if not isinstance(self.new, str):
            return [ShapeRange({**dims, **steps}, given.weight)]
        if self.past in known:
            return [ShapeRange(dims if self.new in known else {**dims, self.new: (1,)}, given.weight)]
        prompts = {self.past: (0,), self.new: given.dims.get(self.new, (PROMPT,))}
        return [ShapeRange({**dims, **more}, given.weight) for more in ({**steps, self.new: (1,)}, prompts)]

    def whole_of(self, extents: Extents, known: set[str]) -> Extents:
        """What nobody named is as long as old and new rows together; batches are those of the caches."""
        new = extents[self.new] if isinstance(self.new, str) else self.new
        batch = extents[self.beside[0]] if self.beside else 1
        found = {**dict.fromkeys(self.whole, extents[self.past] + new), **dict.fromkeys(self.batches, batch)}
        return {**extents, **{symbol: extent for symbol, extent in found.items() if symbol not in known}}


def foreseen(model: OnnxModel, wanted: Sequence[ShapeRange]) -> Foreseen:
    """What a model is made ready for: of a range its ends, and the powers of two between them.

    Args:
        wanted: shapes, and ranges of them; nothing where none is named.

    Raises:
        ModelError: the model cannot have these shapes, leaves some open, or they are too many.
    """
    inputs = with_symbols(model.inputs)
    caches = caches_of(model)
    decoder = None if caches is None else _Decoder.of(replace(model, inputs=inputs), caches)
    exact: list[Extents] = []
    ranged: list[Extents] = []
    for given in wanted or [ShapeRange({})]:
        known = _named(inputs, given.dims)
        for one in [given] if decoder is None else decoder.completed(given, known):
            ranges = extents_of_range(inputs, one)
            into = ranged if any(len(extents) > 1 for extents in ranges.values()) else exact
            every = (dict(zip(ranges, extents)) for extents in itertools.product(*map(_ladder, ranges.values())))
            into += every if decoder is None else [decoder.whole_of(extents, known) for extents in every]
    count = len(exact) + len(ranged)
    if count > MOST_SHAPES:
        raise ModelError(f"the model is to be made ready for {count} shapes, {MOST_SHAPES} at most: name fewer")
    return Foreseen(tuple(exact), tuple(ranged), decoder is not None and not wanted)


def _ladder(extents: range) -> list[int]:
    powers = (1 << n for n in range(extents[-1].bit_length()))
    return sorted({extents[0], extents[-1], *(power for power in powers if power in extents)})


def _symbols(inputs: Sequence[ModelInput], without: set[str | int]) -> tuple[str, ...]:
    found = (dim for declared in inputs for dim in declared.dims or () if isinstance(dim, str))
    return tuple(dict.fromkeys(dim for dim in found if dim not in without))


def _named(inputs: Sequence[ModelInput], dims: Mapping[str, object]) -> set[str]:
    """The open dimensions that names of inputs and of dimensions say something about."""
    of_inputs = _symbols([declared for declared in inputs if declared.name in dims], set())
    return {*of_inputs, *(symbol for symbol in _symbols(inputs, set()) if symbol in dims)}
