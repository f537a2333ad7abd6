"""Models whose shapes depend on the run: several programs and host functions, specialised as values become known.

The model starts as one part (`graph.frontend.part`). What can be converted of a part becomes a program; it runs,
then the host functions that follow it, and what waited for their values is the next part. A part is converted for the
types of its inputs, and for the values of those few inputs that decide shapes: such specialisations are kept in a
bounded cache, so a model that sees the same shapes again compiles nothing.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.compiler.bounded_cache import BoundedCache
from autotune.compiler.compile import CompiledModel
from autotune.compiler.outline import known_types, label, least_segments, possible_hosts
from autotune.compiler.specialisation import ProgramStep, Room, Specialisation, Step
from autotune.errors import ModelError
from autotune.graph import Graph, Value, one_line, optimize, verify
from autotune.graph.frontend import (
    ModelInput,
    ModelOutput,
    OnnxModel,
    Part,
    Stage,
    check_feeds,
    convert_part,
    convert_whole,
    whole,
)
from autotune.runtime.executor import Array, as_feed
from autotune.tensor.dtype import DType

MAX_SPECIALISATIONS = 64
MAX_SPECIALISED_BYTES = 2**31  # packed weights of all of them


def compile_or_stage(
    model: OnnxModel, compile: Callable[[Graph], CompiledModel], optimize: Callable[[Graph], Graph] = optimize
) -> CompiledModel | StagedModel:
    """One program where that is possible.

    Args:
        compile: makes a program of an optimised graph.
        optimize: runs the graph passes.

    Raises:
        UnsupportedError, ModelError: what no run could bring to work is refused at once.
    """
    with one_line():
        graph = convert_whole(model)
    if graph is None:
        return StagedModel(model, compile, optimize)
    del model  # weights are held once: not in the file's form, nor as they were before the passes
    verify(graph)
    graph = optimize(graph)
    return compile(graph)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the runs so far have shown: host nodes, and the most programs that one run was made of."""

    runs: bool = False
    segments: int = 0
    hosts: frozenset[int] = frozenset()

    def holds(self, segments: int, hosts: Collection[int]) -> bool:
        return self.runs and segments <= self.segments and self.hosts.issuperset(hosts)

    def and_also(self, segments: int, hosts: Collection[int]) -> _Seen:
        return _Seen(True, max(segments, self.segments), self.hosts.union(hosts))


class StagedModel:
    """A model that becomes programs while it runs. `run` may be called from several threads.

    Args:
        model: the parsed model.
        compile: makes a program of an optimised graph.
        optimize: runs the graph passes.

    Raises:
        UnsupportedError, ModelError: what no run could bring to work is refused at once.
    """

    def __init__(
        self,
        model: OnnxModel,
        compile: Callable[[Graph], CompiledModel],
        optimize: Callable[[Graph], Graph] = optimize,
    ) -> None:
        self._model, self._compile, self._optimize = model, compile, optimize
        self._lock = threading.Lock()
        self._converting = threading.Lock()  # the table of nodes may grow
        self._cache: BoundedCache[Specialisation] = BoundedCache(MAX_SPECIALISATIONS, MAX_SPECIALISED_BYTES, _nbytes)
        self._dtypes = {declared.name: DType(declared.dtype).numpy for declared in model.inputs}
        self._fed: object = None  # names and types of the last feeds that were right
        self._numbers = itertools.count()
        self._rooms: weakref.WeakValueDictionary[Part, Room] = weakref.WeakValueDictionary()  # those in the cache
        part = whole(model)
        self._whole = Room(next(self._numbers), part, True, tuple(sorted(part.fixed)))
        self._seen = _Seen()
        types = known_types(model.inputs)
        self._start = self._converted(part, types, None)
        self._first = self._built(self._start) if len(types) == len(model.inputs) else None

    @property
    def inputs(self) -> tuple[ModelInput, ...]:
        """Inputs in the model's order; open dimensions are symbols or None."""
        return self._model.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(declared.name for declared in self._model.inputs)

    @property
    def outputs(self) -> tuple[ModelOutput, ...]:
        """Outputs in the model's order, as it declares them."""
        return tuple(self._model.outputs.values())

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """The nodes that run on the host: as seen in the runs so far, before the first those that may."""
        hosts = set(self._seen.hosts)
        if not self._seen.runs:
            hosts.update(self._start.hosts, possible_hosts(self._model, self._start))
        return tuple(label(self._model, index) for index in sorted(hosts))

    @property
    def segments(self) -> int:
        """How many programs a run is made of: the most seen so far, before the first run the least possible."""
        return self._seen.segments if self._seen.runs else least_segments(self._start)

    @property
    def specialisations(self) -> int:
        """How many programs are kept now, beside the first."""
        return len(self._cache)

    def run(self, feeds: Mapping[str, object], watch: Callable[[Step], None] | None = None) -> list[Array]:
        """Outputs in the model's order, as new arrays.

        Args:
            feeds: one array per input, of its dtype and of a shape that the model allows.
            watch: told of each program and each host function before it runs.

        Raises:
            InputError: a feed is missing, unknown, or of another dtype or shape; a value is out of its range.
            ModelError: these shapes or values make the model impossible.
        """
        values = self._values(feeds)
        fresh: set[str] = set()  # results: arrays that nobody else has
        room: Room | None = self._whole
        segments = 0
        hosts: list[int] = []
        while room is not None:
            special = self._first if room is self._whole and self._first is not None else self._of(room, values)
            values.update(special.stage.constants)
            for name, source in special.stage.aliases.items():
                values[name] = values[source]
            if special.program is not None:
                arrays = [values[name] for name in special.reads]
                if watch is not None:
                    watch(ProgramStep(special.program, dict(zip(special.reads, arrays))))
                values.update(zip(special.writes, special.program.run_checked(arrays)))
                fresh.update(special.writes)
                segments += 1
            if special.calls:
                with one_line():
                    for call in special.calls:
                        host = call.step(values)
                        if watch is not None:
                            watch(host)
                        values.update(zip(call.writes, host.run()))
                        fresh.update(call.writes)
                hosts += special.stage.hosts
            room = special.rest
        if not self._seen.holds(segments, hosts):
            with self._lock:
                self._seen = self._seen.and_also(segments, hosts)
        return [values[name] if name in fresh else values[name].copy() for name in self._model.outputs]

    def _values(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        """The feeds as arrays, checked; types that were right in the last run are right again."""
        dtypes = self._dtypes
        values = {name: as_feed(name, a, dtypes[name]) if name in dtypes else np.empty(0) for name, a in feeds.items()}
        types = [(name, array.dtype, array.shape) for name, array in values.items()]
        if types != self._fed:
            check_feeds(self._model.inputs, {name: (_dtype_name(a), a.shape) for name, a in values.items()})
            self._fed = types
        return values

    def _of(self, room: Room, values: Mapping[str, Array]) -> Specialisation:
        """The specialisation of a part for these values, from the cache where possible."""
        while True:
            decisive = room.decisive
            try:
                make = functools.partial(self._specialise, room, values, decisive)
                return self._cache.get(room.key(values, decisive), make)
            except _MoreValuesError as error:
                with self._lock:
                    room.decisive = tuple(dict.fromkeys((*room.decisive, *error.names)))

    def _specialise(self, room: Room, values: Mapping[str, Array], decisive: tuple[str, ...]) -> Specialisation:
        given = {name: values[name] for name in room.part.inputs}
        types = {name: Value(name, _dtype(name, array), array.shape) for name, array in given.items()}
        # The whole model is never made for values: what they do not touch is compiled once.
        stage = self._converted(room.part, types, None if room.is_whole else given)
        if not set(stage.observed) <= set(decisive):
            raise _MoreValuesError(stage.observed)  # it would be kept for other values too
        return self._built(stage)

    def _converted(self, part: Part, types: Mapping[str, Value], values: Mapping[str, Array] | None) -> Stage:
        with one_line(), self._converting:
            stage = convert_part(self._model, part, types, values)
            if stage.graph is not None:
                verify(stage.graph)
            return stage

    def _built(self, stage: Stage) -> Specialisation:
        program = self._compile(self._optimize(stage.graph)) if stage.graph is not None else None
        return Specialisation.of(self._model, stage, program, self._room)

    def _room(self, part: Part) -> Room:
        with self._lock:
            return self._rooms.setdefault(part, Room(next(self._numbers), part, False, tuple(sorted(part.fixed))))


class _MoreValuesError(Exception):
    """A stage depends on values that its key does not hold."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names


def _nbytes(special: Specialisation) -> int:
    return special.nbytes


def _dtype(name: str, array: Array) -> str:
    try:
        return DType.of(array.dtype).value
    except KeyError as error:
        raise ModelError(f"'{name}' is of dtype {array.dtype}, which no tensor has") from error


def _dtype_name(array: Array) -> str:
    """What an array's dtype is called; one that no tensor has fits no input."""
    try:
        return DType.of(array.dtype).value
    except KeyError:
        return str(array.dtype)
