"""A compiled file with programs of several shapes: each run takes those that fit it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.errors import InputError
from autotune.metadata import ModelMetadata
from autotune.runtime.artifact import Artifact
from autotune.runtime.executor import MAX_CONTEXTS, Array, Context, Executor, as_feed, dtype_name
from autotune.runtime.form import ALIGN
from autotune.runtime.lender import Lender
from autotune.runtime.open_axes import Extents, Piece
from autotune.runtime.shape_use import ShapeUse
from autotune.runtime.threads import ThreadPool
from autotune.runtime.trace import RunTrace
from autotune.tensor.aligned import aligned_empty
from autotune.tensor.declared import Dim, ModelInput, ModelOutput, bind_shapes, check_feeds, extents_of
from autotune.tensor.dtype import DType

REMEMBERED = 4096
"""Shapes for which the programs are remembered."""


@dataclass(eq=False, slots=True)
class _Seat:
    """What one run at a time has: threads and memory, which all programs share, and frames for each."""

    pool: ThreadPool
    arena: Array
    contexts: dict[int, Context] = field(default_factory=dict)


class OpenExecutor:
    """`run` may be called from several threads; a program is linked when it is first needed.

    Args:
        artifact: with a selection.
        exact: refuse runs for whose very shape there is no program.
        shapes: dimensions that all runs will have, as for `bind_shapes`.

    Raises:
        TargetError: this CPU cannot run the programs.
        ModelError: the inputs cannot have these shapes.
    """

    host_nodes: tuple[str, ...] = ()

    def __init__(
        self, artifact: Artifact, exact: bool = False, shapes: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        if artifact.selection is None:
            raise ValueError("one program serves all runs")
        self._artifact, self._selection = artifact, artifact.selection
        self._inputs = bind_shapes(self._selection.axes.inputs, shapes or {})
        choose = self._selection.exactly if exact else self._selection.pieces
        self._pieces = functools.lru_cache(REMEMBERED)(choose)
        self._dtypes = {declared.name: DType(declared.dtype).numpy for declared in self._inputs}
        self._executors: dict[int, Executor] = {}
        self._runs: Counter[int] = Counter()
        self._seats = Lender(functools.partial(_seat, self._executor(0), artifact), MAX_CONTEXTS)

    @property
    def inputs(self) -> tuple[ModelInput, ...]:
        """In the model's order; open dimensions are symbols."""
        return self._inputs

    @functools.cached_property
    def outputs(self) -> tuple[ModelOutput, ...]:
        """In the model's order; dimensions that follow from open ones in a way that nobody has proved are None."""
        free = self._selection.axes.free
        found = []
        for n, (spec, _) in enumerate(self._artifact.programs[0].outputs):
            shapes = [program.outputs[n][0].shape for program in self._artifact.programs]
            known: dict[int, Dim] = {axis: open.symbol for open in free for axis in open.outputs[n]}
            same = {axis: extents[0] for axis, extents in enumerate(zip(*shapes)) if len(set(extents)) == 1}
            dims = tuple(known.get(axis, same.get(axis)) for axis in range(len(spec.shape)))
            found.append(ModelOutput(spec.name, spec.dtype, dims))
        return tuple(found)

    @property
    def metadata(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._artifact.programs[0].metadata

    @property
    def segments(self) -> int:
        """How many programs follow from one another in a run."""
        return 1

    def shapes(self) -> list[ShapeUse]:
        """The programs, in the order of the file."""
        return [
            ShapeUse({spec.name: spec.shape for spec in program.inputs}, self._runs[n], 0.0, candidate.weight_bytes,
                     candidate.own_bytes, program.arena_bytes)
            for n, (program, candidate) in enumerate(zip(self._artifact.programs, self._selection.candidates))
        ]  # fmt: skip

    def flops(self, feeds: Mapping[str, Array]) -> int:
        """Of the programs that a run of such feeds takes, 2 per multiply-add."""
        return sum(self._artifact.programs[self._selection.numbers[p.bucket]].flops for p in self._wanted(feeds)[1])

    def prepare(self, extents: Mapping[str, int]) -> None:
        """Link the programs that a run of these extents takes. Raises InputError where there are none."""
        symbols = self._selection.axes.symbols
        missing = [symbol for symbol in symbols if symbol not in extents]
        if missing:
            raise InputError(f"no extent is given for {', '.join(missing)}")
        for piece in self._pieces(tuple(extents[symbol] for symbol in symbols)):
            self._executor(self._selection.numbers[piece.bucket])

    def run(self, feeds: Mapping[str, object], trace: RunTrace | None = None) -> list[Array]:
        """Outputs in the model's order, as new arrays.

        Raises:
            InputError: a feed is missing, unknown, or of another dtype or shape, or holds an index that is out of
                range; or there is no program for their shapes.
            MemoryLimitError: there is no room for intermediate values or outputs.
        """
        values = self._checked(feeds)
        extents, pieces = self._wanted(values)
        seat = self._seats.take()
        try:
            return self._selection.axes.run(values, extents, pieces, functools.partial(self._call, seat, trace))
        finally:
            self._seats.give(seat)

    def _wanted(self, values: Mapping[str, Array]) -> tuple[Mapping[str, int], Sequence[Piece]]:
        """The extents of a run, and its pieces."""
        axes = self._selection.axes
        extents = extents_of(axes.inputs, {name: array.shape for name, array in values.items()})
        return extents, self._pieces(tuple(extents[symbol] for symbol in axes.symbols))

    def _call(self, seat: _Seat, trace: RunTrace | None, bucket: Extents, feeds: dict[str, Array]) -> list[Array]:
        """One program."""
        number = self._selection.numbers[bucket]
        executor = self._executor(number)
        self._runs[number] += 1
        try:
            if number not in seat.contexts:
                seat.contexts[number] = executor.bound(seat.pool, seat.arena)
            arrays = [feeds[spec.name] for spec in executor.program.inputs]
            return executor.run_in(seat.contexts[number], arrays, trace=trace)
        except MemoryError as error:
            raise executor.too_large() from error

    def _executor(self, number: int) -> Executor:
        """A program, linked."""
        found = self._executors.get(number)
        if found is None:
            found = self._executors.setdefault(number, Executor(*self._artifact.alone(number)))
        return found

    def _checked(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        dtypes = self._dtypes
        values = {name: as_feed(name, a, dtypes[name]) if name in dtypes else np.empty(0) for name, a in feeds.items()}
        check_feeds(self._inputs, {name: (dtype_name(array), array.shape) for name, array in values.items()})
        return values


def _seat(executor: Executor, artifact: Artifact) -> _Seat:
    size = max(program.arena_bytes for program in artifact.programs)
    return _Seat(executor.pool(), aligned_empty(size + ALIGN))
