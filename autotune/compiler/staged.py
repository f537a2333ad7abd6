"""Models whose shapes depend on the run: several programs and host functions, specialised as values become known.

The model starts as one part (`graph.frontend.part`). What can be converted of a part becomes a program; it runs,
then the host functions that follow it, and what waited for their values is the next part. A part is converted for the
types of its inputs, and for the values of those few inputs that decide shapes: such specialisations are kept in a
bounded cache, so a model that sees the same shapes again compiles nothing.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np

from autotune.compiler.bounded_cache import BoundedCache
from autotune.compiler.compile import CompiledModel
from autotune.compiler.host import run_on_host
from autotune.compiler.outline import known_types, label, least_segments, possible_hosts
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
from autotune.graph.frontend.attributes import NodeAttributes
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


@dataclass(frozen=True)
class Specialisation:
    """A stage with its program, None where there is nothing to compute."""

    stage: Stage
    program: CompiledModel | None


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """What a run did: a program on these feeds."""

    program: CompiledModel
    feeds: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class HostStep:
    """What a run did: a host function on these arrays, None for inputs that are left out."""

    label: str
    node: NodeAttributes
    arrays: Sequence[Array | None]

    def run(self) -> Sequence[Array]:
        return run_on_host(self.node, self.arrays)


Step = Union[ProgramStep, HostStep]


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
        self._cache: BoundedCache[Specialisation] = BoundedCache(MAX_SPECIALISATIONS, MAX_SPECIALISED_BYTES, _bytes)
        self._decisive: dict[tuple[bool, Part], tuple[str, ...]] = {}  # inputs of a part whose values it is made for
        self._whole = whole(model)
        self._seen = _Seen()
        types = known_types(model.inputs)
        self._start = self._converted(self._whole, types, None)
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
        dtypes = {declared.name: DType(declared.dtype).numpy for declared in self._model.inputs}
        values = {name: as_feed(name, a, dtypes[name]) if name in dtypes else np.empty(0) for name, a in feeds.items()}
        check_feeds(self._model.inputs, {name: (_fed(a), a.shape) for name, a in values.items()})
        fresh: set[str] = set()  # results of programs: arrays that nobody else has
        part: Part | None = self._whole
        segments = 0
        hosts: list[int] = []
        while part is not None:
            special = self._first if part is self._whole and self._first is not None else self._of(part, values)
            values.update(special.stage.constants)
            values.update((name, values[source]) for name, source in special.stage.aliases.items())
            if special.program is not None:
                program = special.program.program
                wanted = {spec.name: values[spec.name] for spec in program.inputs}
                if watch is not None:
                    watch(ProgramStep(special.program, wanted))
                results = special.program.run(wanted)
                values.update((spec.name, array) for (spec, _), array in zip(program.outputs, results))
                fresh.update(spec.name for spec, _ in program.outputs)
                segments += 1
            for index in special.stage.hosts:
                host = self._host(index, values)
                if watch is not None:
                    watch(host)
                with one_line():
                    found = host.run()
                values.update((name, array) for name, array in zip(host.node.proto.output, found) if name)
            hosts += special.stage.hosts
            part = special.stage.rest
        if not self._seen.holds(segments, hosts):
            with self._lock:
                self._seen = self._seen.and_also(segments, hosts)
        return [values[name] if name in fresh else values[name].copy() for name in self._model.outputs]

    def _host(self, index: int, values: Mapping[str, Array]) -> HostStep:
        node, constants = self._attributes(index), self._model.initializers
        arrays = [None if not n else values[n] if n in values else constants[n] for n in node.proto.input]
        return HostStep(node.label, node, arrays)

    def _attributes(self, index: int) -> NodeAttributes:
        entry = self._model.nodes[index]
        return NodeAttributes(entry.proto, entry.opset, self._model.folder)

    def _of(self, part: Part, values: Mapping[str, Array]) -> Specialisation:
        """The specialisation of a part for these values, from the cache where possible."""
        given = {name: values[name] for name in part.inputs}
        types = {name: Value(name, _dtype(name, array), array.shape) for name, array in given.items()}
        # The whole model is never made for values: what they do not touch is compiled once.
        is_whole = part is self._whole
        while True:
            decisive = self._decisive.get((is_whole, part), tuple(sorted(part.fixed)))
            digests = tuple(hashlib.sha256(np.ascontiguousarray(given[n]).tobytes()).digest() for n in decisive)
            key = (is_whole, part, tuple((v.dtype, v.shape) for v in types.values()), decisive, digests)
            make = functools.partial(self._specialise, part, types, None if is_whole else given, decisive)
            try:
                return self._cache.get(key, make)
            except _MoreValuesError as error:
                with self._lock:
                    known = self._decisive.get((is_whole, part), decisive)
                    self._decisive[is_whole, part] = tuple(dict.fromkeys((*known, *error.names)))

    def _specialise(
        self,
        part: Part,
        types: Mapping[str, Value],
        values: Mapping[str, Array] | None,
        decisive: tuple[str, ...],
    ) -> Specialisation:
        stage = self._converted(part, types, values)
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
        return Specialisation(stage, self._compile(self._optimize(stage.graph)) if stage.graph is not None else None)


class _MoreValuesError(Exception):
    """A stage depends on values that its key does not hold."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names


def _bytes(special: Specialisation) -> int:
    return 0 if special.program is None else special.program.constants.nbytes


def _dtype(name: str, array: Array) -> str:
    try:
        return DType.of(array.dtype).value
    except KeyError as error:
        raise ModelError(f"'{name}' is of dtype {array.dtype}, which no tensor has") from error


def _fed(array: Array) -> str:
    """What an array's dtype is called; one that no tensor has fits no input."""
    try:
        return DType.of(array.dtype).value
    except KeyError:
        return str(array.dtype)
