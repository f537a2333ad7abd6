"""A model that runs shapes it has not seen in larger ones that it has: padded where that is proved to change nothing.

What may be cut along a dimension (a batch) runs in pieces of powers of two; a dimension along which elements meet
(tokens) is padded, with masks inside (`graph.frontend.buckets`). A shape for which there is a program that is not much
larger is answered by that, while a better one is made in the background.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from autotune import machine
from autotune.compiler.again import OFTEN
from autotune.compiler.axes import Axes
from autotune.compiler.background import Background
from autotune.compiler.buckets import PADDING
from autotune.compiler.compile import CompiledModel
from autotune.compiler.shapes import extents_in
from autotune.compiler.sizes import Sizes
from autotune.compiler.specialisation import Specialisation, Watch
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.errors import InputError, ModelError
from autotune.graph import one_line, partition
from autotune.graph.frontend import OnnxModel, convert_whole
from autotune.graph.host import HostValue
from autotune.ops.workload import Workload
from autotune.runtime.executor import Array
from autotune.runtime.open_axes import Extents, Piece
from autotune.runtime.selection import least_pieces
from autotune.runtime.shape_use import ShapeUse
from autotune.runtime.trace import RunTrace
from autotune.target import Target
from autotune.tensor.declared import bind_symbols

_log = logging.getLogger(__name__)


class BucketedModel(StagedModel):
    """A staged model that is asked for many shapes.

    Args:
        target: what it is compiled for; the others are those of `StagedModel`.
    """

    def __init__(self, model: OnnxModel, making: Making, target: Target) -> None:
        super().__init__(model, making)
        self._axes = Axes.of(model)
        self._padded = StagedModel(self._axes.masked, replace(making, looked_at=True))
        self._made: dict[Extents, CompiledModel | None] = {}
        self._chosen: dict[tuple[Extents, int], tuple[Sequence[Piece], float]] = {}  # by bucket and length of a piece
        self._sizes, self._padding_known = Sizes(self._axes.open, target), False
        self._making, self._took = making, 0.0
        self._came: Counter[Extents] = Counter()  # how often runs went without programs of these buckets
        self._lost: dict[Extents, float] = {}  # how many seconds longer they took
        self._spare = machine.allowed_cores() > target.num_threads
        self._refused: set[Extents] = set()
        self._foreseen: set[Extents] = set()  # buckets whose programs somebody has
        self._background = Background()
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

    def shapes(self, held: set[int] | None = None) -> list[ShapeUse]:
        """The programs that are kept."""
        held = set() if held is None else held
        return [*self._padded.shapes(held), *super().shapes(held)]

    @property
    def weights(self) -> dict[int, int]:
        return {**self._padded.weights, **super().weights}

    def want_few(self) -> None:
        """From now on, short runs are padded rather than have programs of their own."""
        self._sizes = self._sizes.for_few()

    def expect(self, extents: Mapping[str, int], workloads: Iterable[Workload], seconds: float) -> None:
        """What a program for exactly these extents tells, which was made before and took so long to be made; not what
        padding costs, for its kernels do not end where a run's data does. Where runs are short, they are padded rather
        than have programs of their own."""
        places = tuple(extents[symbol] for symbol in self._axes.open.symbols)
        told = self._sizes.told(places, workloads).for_few()
        self._sizes, self._took = replace(told, padding=self._sizes.padding), seconds

    def foresee(self, exact: Sequence[Mapping[str, int]], ranged: Sequence[Mapping[str, int]] = ()) -> None:
        """See `StagedModel.foresee`: nobody waits where one of these serves."""
        symbols = self._axes.open.symbols
        self._foreseen.update(tuple(one[s] for s in symbols) for one in ranged if all(s in one for s in symbols))
        self._chosen.clear()

    def wait(self) -> None:
        """Until no program is being made in the background."""
        super().wait()
        self._padded.wait()
        self._background.wait()

    def prepare(self, extents: Mapping[str, int]) -> CompiledModel | None:
        """Make the programs for runs of these extents. Raises as `StagedModel.prepare`."""
        missing = [symbol for symbol in self._axes.open.symbols if symbol not in extents]
        if missing:
            raise InputError(f"no extent is given for {', '.join(missing)}")
        if not self._serves(extents):
            return super().prepare(extents)
        self._look(extents)
        for piece in self._sizes.pieces(extents):
            self._make(piece.bucket)
        return self._made[piece.bucket]

    def run(
        self, feeds: Mapping[str, object], watch: Watch | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """Outputs in the model's order, as new arrays; see `StagedModel.run`."""
        values = self.checked(feeds)
        extents = extents_in(self.inputs, values)
        if self._serves(extents):
            try:
                return self._joined(values, extents, watch, trace)
            except (InputError, ModelError) as error:
                # What is wrong with this run the exact program says; what is wrong with a larger shape is no matter.
                _log.info("%s runs as it is: %s", extents, error)
        return super().run(feeds, watch, trace)

    def alone(self, extents: Mapping[str, int]) -> tuple[Mapping[str, int], Specialisation, bool] | None:
        """The one program that serves runs of these extents now, with its own, and whether a better one is to come.

        None where such a run takes more than one, or nobody has looked for one yet.
        """
        if not self._serves(extents):
            return None
        pieces: Sequence[Piece] = self._sizes.pieces(extents)
        longer = 1.0
        if len(pieces) == 1 and pieces[0].bucket not in self._made:
            pieces, longer = self._chosen.get((pieces[0].bucket, pieces[0].length), ((), 1.0))
        if len(pieces) != 1 or self._made.get(pieces[0].bucket) is None:
            return None
        bucket = dict(zip(self._axes.open.symbols, pieces[0].bucket))
        found = self._padded.beginning(bucket)
        return None if found.calls or found.rest is not None else (bucket, found, longer > 1 + PADDING)

    def is_better(self, extents: Mapping[str, int]) -> bool:
        """Whether the better program for such runs is there; where it is not, it is made in the background."""
        bucket, _, length = self._sizes.pieces(extents)[0]
        if bucket not in self._made and bucket not in self._refused:
            _, longer = self._chosen.get((bucket, length), ((), 1.0))
            self._miss(bucket, (longer - 1) * self._sizes.seconds(bucket, bucket))
        return bucket in self._made

    def _serves(self, extents: Mapping[str, int]) -> bool:
        """Whether runs of these extents may go in buckets."""
        named = all(None not in (declared.dims or (None,)) for declared in self.inputs)
        return named and bool(self._axes.open.free) and all(extents.values())

    def _joined(
        self, values: Mapping[str, HostValue], extents: Mapping[str, int], watch: Watch | None, trace: RunTrace | None
    ) -> list[Array]:
        """The results of all pieces together."""
        self._look(extents)
        ready = [found for piece in self._sizes.pieces(extents) for found in self._ready(piece)]
        arrays = cast("Mapping[str, Array]", values)  # inputs of known ranks are tensors
        return self._axes.open.run(arrays, extents, ready, lambda _, given: self._padded.run(given, watch, trace))

    def _look(self, extents: Mapping[str, int]) -> None:
        """Learn what runs are cut into from the kernels of one that is whole, before any is compiled: the first program
        would be for all of it, and mostly of use to none but the largest."""
        cut, symbols = self._axes.open.cut, self._axes.open.symbols
        if self._sizes.density is not None or self._made or cut is None or extents[cut.symbol] == 1:
            return
        bucket = self._sizes.pieces(extents)[0].bucket
        with one_line():
            masked = self._axes.masked
            graph = convert_whole(replace(masked, inputs=bind_symbols(masked.inputs, dict(zip(symbols, bucket)))))
        if graph is not None:
            groups = partition(self._making.optimize(graph))
            self._sizes = self._sizes.told(bucket, (group.workload for group in groups if not group.is_view))
            self._padding_known = True

    def _ready(self, piece: Piece) -> Sequence[Piece]:
        """A piece in a bucket that has a program: its own unless others will do for now, cut further perhaps."""
        wanted = piece.bucket
        if wanted not in self._made:
            key = wanted, piece.length
            chosen = self._chosen.get(key)
            if chosen is None:
                chosen = self._chosen[key] = self._found(wanted, piece.length)
            found, longer = chosen
            took = math.inf if self._foreseen else self._took
            loss = (longer - 1) * self._sizes.seconds(wanted, wanted)
            if found and loss <= took:  # else waiting takes less
                if longer > 1 + PADDING:
                    self._miss(wanted, loss)
                return [Piece(bucket, piece.start + start, length) for bucket, start, length in found]
            self._make(wanted)
        return [piece]

    def _miss(self, bucket: Extents, loss: float) -> None:
        """A run took so many seconds longer without a program of this bucket: it is made in the background once that
        is worth it, for most shapes of short batches never come again.

        On a core that runs leave free it costs little: when it is wanted a second time. On their own core, when as much
        was lost as it takes to be made, which is at most twice what knowing the future would have cost (ski rental;
        Karlin et al., "Competitive snoopy caching", 1988), or when it was wanted often: of short runs what is around
        the kernels is lost, too.
        """
        self._came[bucket] += 1
        self._lost[bucket] = self._lost.get(bucket, 0.0) + loss
        often = self._came[bucket] > (1 if self._spare else OFTEN)
        if often or self._lost[bucket] >= self._took:
            self._background.offer(lambda: self._make(bucket, waited=False))

    def _found(self, wanted: Extents, length: int) -> tuple[Sequence[Piece], float]:
        """A piece in those programs that there are that should take the least time, and how many times as long as its
        own would; nothing where none fit."""
        symbols, cut, sizes = self._axes.open.symbols, self._axes.open.cut, self._sizes
        at = None if cut is None else symbols.index(cut.symbol)
        fits = [
            made for made in {**self._made, **dict.fromkeys(self._foreseen - self._refused)}
            if all(a == b if s in self._axes.exact else a >= b or n == at
                   for n, (s, a, b) in enumerate(zip(symbols, made, wanted)))
        ]  # fmt: skip
        if not fits:
            return (), 0.0

        def seconds(made: Extents, count: int) -> float:
            return sizes.seconds(made, wanted if at is None else (*wanted[:at], count, *wanted[at + 1 :]))

        if at is None:
            best = min(fits, key=lambda made: seconds(made, length))
            return (Piece(best, 0, length),), seconds(best, length) / seconds(wanted, length)
        found = least_pieces(length, at, fits, seconds)
        return found, sum(seconds(bucket, count) for bucket, _, count in found) / seconds(wanted, length)

    def _make(self, bucket: Extents, waited: bool = True) -> None:
        """Have a program for a bucket, for which a run waits, or nobody."""
        if bucket in self._made:
            return
        if bucket in self._refused:
            raise ModelError("this bucket was refused before")
        start = time.perf_counter()
        try:
            program = self._padded.prepare(dict(zip(self._axes.open.symbols, bucket)))
        except (InputError, ModelError):
            self._refused.add(bucket)
            raise
        if program is not None and not self._padding_known:
            kernels = (kernel.workload for kernel in program.kernels)
            self._sizes, self._padding_known = self._sizes.told(bucket, kernels), True
        if waited:  # in the background it takes as long as runs let it
            self._took = max(self._took, time.perf_counter() - start)  # one that was kept is there at once
        self._made[bucket] = program
        self._chosen.clear()
