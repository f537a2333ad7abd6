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
from dataclasses import dataclass, replace

import numpy as np

from autotune.compiler.background import Background
from autotune.compiler.buckets import LEFT_OUT, PADDING, cropped, enough, padded, padded_size, padding_cost, pieces
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

WASTE = 1.5
"""How much longer a program may take that answers while a better one is made."""

Extents = tuple[int, ...]
Piece = tuple[Extents, int, int]
"""A bucket, where along the dimension that is cut a piece starts, and how long it is."""


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
        """Each dimension is looked at in the model that the ones before it made. Where one has an end that the program
        is told, those that are cut have one, too: a piece then fits a larger program."""
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
        if any(found.ends for found in padded):
            for n, found in enumerate(cut):
                if not found.ends:
                    cut[n] = replace(found, ends=True)
                    model = padded_model(model, cut[n])
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
        self._cost = 1 - LEFT_OUT  # of padding: an optimist's guess until a program tells
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
        if not self._made:
            self._make(self._plan(extents)[0][0])  # which tells what padding costs
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
        for made, start, length in [ready for piece in self._plan(extents) for ready in self._ready(piece)]:
            bucket = dict(zip(self._symbols, made))
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

    def _plan(self, extents: Mapping[str, int]) -> list[Piece]:
        """The pieces of a run, in the buckets that they should have."""
        free, costs = self._axes.symbols, self._costs
        bucket = {s: padded_size(n, costs[s]) if s in free else n for s, n in extents.items()}
        if self._cut is None:
            return [(tuple(bucket[s] for s in self._symbols), 0, 0)]
        symbol = self._cut.symbol
        most = self._most({**bucket, symbol: 1}, extents[symbol])
        lengths = pieces(extents[symbol], most, whole=self._cut.ends)
        starts = itertools.accumulate([0, *lengths[:-1]])
        return [
            (tuple({**bucket, symbol: padded_size(length, costs[symbol])}[s] for s in self._symbols), start, length)
            for start, length in zip(starts, lengths)
        ]

    def _most(self, one: Mapping[str, int], extent: int) -> int:
        """The largest piece, given the extents of a single element: what is known of any program tells."""
        for made, program in list(self._made.items()):
            if program is not None:
                share = math.prod(one.values()) / math.prod(made)
                return enough(program.program.flops * share, program.program.constant_bytes, self._target)
        return 1 << extent.bit_length()

    def _ready(self, piece: Piece) -> list[Piece]:
        """A piece in a bucket that has a program: its own unless others will do for now, cut further perhaps."""
        wanted = piece[0]
        if wanted not in self._made:
            found = self._found(piece)
            if found:
                if len(found) > 1 or self._longer(found[0][0], wanted) > 1 + PADDING:
                    self._background.offer(lambda: self._make(wanted))
                return found
            self._make(wanted)
        return [piece]

    def _found(self, piece: Piece) -> list[Piece]:
        """A piece in programs that there are; nothing where they would take much longer than its own."""
        wanted, start, length = piece
        fixed = [n for n, symbol in enumerate(self._symbols) if symbol not in self._axes.symbols]
        fits = [
            made for made in list(self._made)
            if all(a >= b for a, b in zip(made, wanted)) and all(made[n] == wanted[n] for n in fixed)
            and self._longer(made, wanted) <= WASTE
        ]  # fmt: skip
        if fits:
            return [(min(fits, key=lambda made: self._longer(made, wanted)), start, length)]
        if length < 2 or self._cut is None:
            return []
        at, half = self._symbols.index(self._cut.symbol), length // 2
        halves = [(start, half), (start + half, length - half)]
        found = [self._found(((*wanted[:at], n, *wanted[at + 1 :]), begin, n)) for begin, n in halves]
        return [ready for part in found for ready in part] if all(found) else []

    def _longer(self, made: Extents, wanted: Extents) -> float:
        """How many times as long a larger program takes as one for just what is wanted."""
        costs = [self._costs[symbol] for symbol in self._symbols]
        return math.prod(1 + (a / b - 1) * cost for a, b, cost in zip(made, wanted, costs))

    @property
    def _costs(self) -> Mapping[str, float]:
        """What padding costs along each dimension; where it tells nobody where it ends, as much as all else."""
        ends = {padding.symbol for padding in (*self._axes.padded, *self._axes.cut) if padding.ends}
        return {symbol: self._cost if symbol in ends else 1.0 for symbol in self._symbols}

    def _make(self, bucket: Extents) -> None:
        """Have a program for a bucket."""
        if bucket in self._made:
            return
        if bucket in self._refused:
            raise ModelError("this bucket was refused before")
        try:
            program = self._padded.prepare(dict(zip(self._symbols, bucket)))
        except (InputError, ModelError):
            self._refused.add(bucket)
            raise
        if program is not None and not self._made:
            self._cost = padding_cost(kernel.workload for kernel in program.kernels)
        self._made[bucket] = program

    def _given(
        self, values: Mapping[str, HostValue], bucket: Mapping[str, int], piece: Mapping[str, int], start: int
    ) -> dict[str, HostValue]:
        """What a piece's program reads, zeros in the padding."""
        found: dict[str, HostValue] = {valid_name(p.symbol): np.asarray(piece[p.symbol], np.int64)
                                       for p in (*self._axes.padded, *self._axes.cut) if p.ends}  # fmt: skip
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
