"""A model that runs shapes it has not seen in larger ones that it has: padded where that is proved to change nothing.

What may be cut along a dimension (a batch) runs in pieces of powers of two; a dimension along which elements meet
(tokens) is padded, with masks inside (`graph.frontend.buckets`). A shape for which there is a program that is not much
larger is answered by that, while a better one is made in the background.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.compiler.background import Background
from autotune.compiler.buckets import cropped, enough, padded, padded_size, pieces
from autotune.compiler.compile import CompiledModel
from autotune.compiler.shapes import ShapeUse, extents_of
from autotune.compiler.specialisation import Watch
from autotune.compiler.staged import StagedModel
from autotune.errors import InputError, ModelError
from autotune.graph import Graph
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad, Padding, padded_model, padding_of, valid_name
from autotune.graph.host import HostValue
from autotune.runtime.executor import Array
from autotune.runtime.trace import RunTrace
from autotune.target import Target

_log = logging.getLogger(__name__)

WASTE = 2.0
"""How much larger a program may be that answers while a better one is made."""

Extents = tuple[int, ...]


@dataclass(frozen=True)
class Axes:
    """What may be done with the open dimensions of a model.

    Attributes:
        padded: those along which elements meet, or are told by their place.
        cut: those along which they do not: pieces are the whole.
        exact: the others, and why.
        masked: the model with masks in it, and an input for each dimension that has some.
    """

    padded: tuple[Padding, ...]
    cut: tuple[Padding, ...]
    exact: Mapping[str, str]
    masked: OnnxModel

    @classmethod
    def of(cls, model: OnnxModel) -> Axes:
        """Each dimension is looked at in the model that the ones before it made."""
        symbols = dict.fromkeys(d for i in model.inputs for d in i.dims or () if isinstance(d, str))
        padded: list[Padding] = []
        cut: list[Padding] = []
        exact: dict[str, str] = {}
        for symbol in symbols:
            try:
                found = padding_of(model, symbol)
            except CannotPad as error:
                exact[symbol] = str(error)
                continue
            model = padded_model(model, found)
            (padded if found.mixes else cut).append(found)
        return cls(tuple(padded), tuple(cut), exact, model)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Dimensions that need not be exact."""
        return tuple(found.symbol for found in (*self.padded, *self.cut))


class BucketedModel(StagedModel):
    """A staged model that is asked for many shapes.

    Args:
        target: what it is compiled for; the others are those of `StagedModel`.
    """

    def __init__(
        self,
        model: OnnxModel,
        compile: Callable[[Graph], CompiledModel],
        optimize: Callable[[Graph], Graph],
        max_loop_steps: int,
        target: Target,
    ) -> None:
        super().__init__(model, compile, optimize, max_loop_steps)
        self._axes = Axes.of(model)
        self._padded = StagedModel(self._axes.masked, compile, optimize, max_loop_steps)
        self._target = target
        self._made: dict[Extents, CompiledModel | None] = {}
        self._refused: set[Extents] = set()
        self._background = Background()
        self._symbols = tuple(dict.fromkeys(d for i in model.inputs for d in i.dims or () if isinstance(d, str)))
        for symbol, why in self._axes.exact.items():
            _log.info("dimension %s is compiled for each extent: %s", symbol, why)

    @property
    def host_nodes(self) -> tuple[str, ...]:
        return self._padded.host_nodes

    @property
    def segments(self) -> int:
        return self._padded.segments

    @property
    def axes(self) -> Axes:
        """What is done with each open dimension."""
        return self._axes

    def shapes(self) -> list[ShapeUse]:
        """The programs that are kept."""
        return [*self._padded.shapes(), *super().shapes()]

    def wait(self) -> None:
        """Until no program is being made in the background."""
        self._background.wait()

    def prepare(self, extents: Mapping[str, int]) -> CompiledModel | None:
        """Make the programs for runs of these extents. Raises as `StagedModel.prepare`."""
        missing = [symbol for symbol in self._symbols if symbol not in extents]
        if missing:
            raise InputError(f"no extent is given for {', '.join(missing)}")
        if not self._serves(extents):
            return super().prepare(extents)
        for wanted, _, _ in self._plan(extents):
            self._make(wanted)
        return self._made[wanted]

    def run(
        self, feeds: Mapping[str, object], watch: Watch | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """Outputs in the model's order, as new arrays; see `StagedModel.run`."""
        values = self.checked(feeds)
        extents = extents_of(self.inputs, values)
        if self._serves(extents):
            try:
                return self._joined(values, extents, watch, trace)
            except (InputError, ModelError) as error:
                # What is wrong with this run the exact program says; what is wrong with a larger shape is no matter.
                _log.info("%s runs as it is: %s", extents, error)
        return super().run(feeds, watch, trace)

    def _serves(self, extents: Mapping[str, int]) -> bool:
        """Whether runs of these extents may go in buckets."""
        named = all(None not in (declared.dims or (None,)) for declared in self.inputs)
        return named and bool(self._axes.symbols) and all(extents.values())

    def _joined(
        self, values: Mapping[str, HostValue], extents: Mapping[str, int], watch: Watch | None, trace: RunTrace | None
    ) -> list[Array]:
        """The results of all pieces together."""
        parts: list[list[Array]] = []
        for wanted, start, length in self._plan(extents):
            bucket = dict(zip(self._symbols, self._ready(wanted)))
            piece = {**extents, **({self._cut.symbol: length} if self._cut is not None else {})}
            results = self._padded.run(self._given(values, bucket, piece, start), watch, trace)
            parts.append([self._cropped(n, found, bucket, piece) for n, found in enumerate(results)])
        if len(parts) == 1:
            return parts[0]
        assert self._cut is not None
        along = list(self._cut.outputs.values())
        return [np.concatenate(found, axis=axes[0]) if axes else found[0] for axes, found in zip(along, zip(*parts))]

    @property
    def _cut(self) -> Padding | None:
        """The dimension that is cut."""
        return self._axes.cut[0] if self._axes.cut else None

    def _plan(self, extents: Mapping[str, int]) -> list[tuple[Extents, int, int]]:
        """The wanted bucket of each piece, and where along the cut dimension it starts and how long it is."""
        free = self._axes.symbols
        bucket = {s: padded_size(n) if s in free else n for s, n in extents.items()}
        if self._cut is None:
            return [(tuple(bucket[s] for s in self._symbols), 0, 0)]
        symbol = self._cut.symbol
        lengths = pieces(extents[symbol], self._most({**bucket, symbol: 1}, extents[symbol]))
        starts = itertools.accumulate([0, *lengths[:-1]])
        return [
            (tuple({**bucket, symbol: length}[s] for s in self._symbols), start, length)
            for start, length in zip(starts, lengths)
        ]

    def _most(self, one: Mapping[str, int], extent: int) -> int:
        """The largest piece, given the extents of a single element: what is known of any program tells."""
        for made, program in list(self._made.items()):
            if program is not None:
                share = math.prod(one.values()) / math.prod(made)
                return enough(program.program.flops * share, program.program.constant_bytes, self._target)
        return 1 << extent.bit_length()

    def _ready(self, wanted: Extents) -> Extents:
        """A bucket with a program that holds what is wanted: it itself unless another one will do for now."""
        if wanted in self._made:
            return wanted
        fixed = [n for n, symbol in enumerate(self._symbols) if symbol not in self._axes.symbols]
        most = WASTE * math.prod(wanted)
        fits = [
            made for made in list(self._made)
            if math.prod(made) <= most and all(a >= b for a, b in zip(made, wanted))
            and all(made[n] == wanted[n] for n in fixed)
        ]  # fmt: skip
        if not fits:
            self._make(wanted)
            return wanted
        self._background.offer(lambda: self._make(wanted))
        return min(fits, key=math.prod)

    def _make(self, bucket: Extents) -> None:
        """Have a program for a bucket."""
        if bucket in self._made:
            return
        if bucket in self._refused:
            raise ModelError("this bucket was refused before")
        try:
            self._made[bucket] = self._padded.prepare(dict(zip(self._symbols, bucket)))
        except (InputError, ModelError):
            self._refused.add(bucket)
            raise

    def _given(
        self, values: Mapping[str, HostValue], bucket: Mapping[str, int], piece: Mapping[str, int], start: int
    ) -> dict[str, HostValue]:
        """What a piece's program reads, zeros in the padding."""
        found: dict[str, HostValue] = {valid_name(p.symbol): np.asarray(piece[p.symbol], np.int64)
                                       for p in self._axes.padded if p.is_told}  # fmt: skip
        cut = self._cut.symbol if self._cut is not None else ""
        for declared in self.inputs:
            value = values[declared.name]
            dims = declared.dims or ()
            assert isinstance(value, np.ndarray)
            inside = tuple(
                slice(start, start + piece[cut]) if d is not None and d == cut else slice(None) for d in dims
            )
            array = value[inside]
            shape = tuple(d if isinstance(d, int) else bucket[str(d)] for d in dims)
            found[declared.name] = padded(array, shape)
        return found

    def _cropped(self, output: int, found: Array, bucket: Mapping[str, int], piece: Mapping[str, int]) -> Array:
        """An output without padding."""
        inside: dict[int, int] = {}
        for padding in (*self._axes.padded, *self._axes.cut):
            if bucket[padding.symbol] != piece[padding.symbol]:
                inside.update(dict.fromkeys(list(padding.outputs.values())[output], piece[padding.symbol]))
        return cropped(found, inside)
