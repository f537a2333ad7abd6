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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autotune.compiler.bounded_cache import BoundedCache
from autotune.compiler.compile import CompiledModel
from autotune.errors import ModelError
from autotune.graph import Graph, Value, one_line, optimize, verify
from autotune.graph.frontend import (
    ModelInput,
    OnnxModel,
    Part,
    Stage,
    check_feeds,
    convert_part,
    convert_whole,
    whole,
)
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host import host_function, run_host
from autotune.runtime.executor import Array
from autotune.tensor.dtype import DType

MAX_SPECIALISATIONS = 64
MAX_SPECIALISED_BYTES = 2**31  # packed weights of all of them


def compile_or_stage(model: OnnxModel, compile: Callable[[Graph], CompiledModel]) -> CompiledModel | StagedModel:
    """One program where that is possible.

    Args:
        compile: makes a program of an optimised graph.

    Raises:
        UnsupportedError, ModelError: what no run could bring to work is refused at once.
    """
    with one_line():
        graph = convert_whole(model)
    if graph is None:
        return StagedModel(model, compile)
    verify(graph)
    return compile(optimize(graph))


@dataclass(frozen=True)
class Specialisation:
    """A stage with its program, None where there is nothing to compute."""

    stage: Stage
    program: CompiledModel | None


@dataclass
class _Seen:
    """What the runs so far have shown."""

    hosts: dict[int, None] = field(default_factory=dict)
    segments: int = 0


class StagedModel:
    """A model that becomes programs while it runs. `run` may be called from several threads.

    Args:
        model: the parsed model.
        compile: makes a program of an optimised graph.

    Raises:
        UnsupportedError, ModelError: what no run could bring to work is refused at once.
    """

    def __init__(self, model: OnnxModel, compile: Callable[[Graph], CompiledModel]) -> None:
        self._model, self._compile = model, compile
        self._lock = threading.Lock()
        self._cache: BoundedCache[Specialisation] = BoundedCache(MAX_SPECIALISATIONS, MAX_SPECIALISED_BYTES, _bytes)
        self._decisive: dict[tuple[bool, Part], tuple[str, ...]] = {}  # inputs of a part whose values it is made for
        self._whole = whole(model)
        self._seen = _Seen()
        types = {declared.name: declared.value for declared in model.inputs if declared.value is not None}
        self._first = self._specialise(self._whole, types, None, ()) if len(types) == len(model.inputs) else None

    @property
    def inputs(self) -> tuple[ModelInput, ...]:
        """Inputs in the model's order; open dimensions are symbols or None."""
        return self._model.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(declared.name for declared in self._model.inputs)

    @property
    def outputs(self) -> Mapping[str, str | None]:
        """Names of the outputs in order, each with its declared dtype, if it has one."""
        return self._model.outputs

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """The nodes that run on the host: as seen in the runs so far, before the first those that may."""
        rest = self._first.stage.rest if self._first is not None else self._whole
        found = dict.fromkeys((*(self._first.stage.hosts if self._first else ()), *self._seen.hosts))
        if not self._seen.segments and rest is not None:
            found.update(dict.fromkeys(n for n in rest.nodes if host_function(self._model.nodes[n].proto) is not None))
        return tuple(self._attributes(index).label for index in sorted(found))

    @property
    def segments(self) -> int:
        """How many programs one run is made of: the most seen so far, before the first run the least possible."""
        if self._seen.segments:
            return self._seen.segments
        first = self._first
        return 1 if first is None else (first.program is not None) + (first.stage.rest is not None)

    @property
    def specialisations(self) -> int:
        """How many programs are kept now, beside the first."""
        return len(self._cache)

    def run(self, feeds: Mapping[str, object]) -> list[Array]:
        """Outputs in the model's order, as new arrays.

        Args:
            feeds: one array per input, of its dtype and of a shape that the model allows.

        Raises:
            InputError: a feed is missing, unknown, or of another dtype or shape; a value is out of its range.
            ModelError: these shapes or values make the model impossible.
        """
        values = {name: np.asarray(array) for name, array in feeds.items()}
        check_feeds(self._model.inputs, {name: (_dtype(name, a), a.shape) for name, a in values.items()})
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
                results = special.program.run({spec.name: values[spec.name] for spec in program.inputs})
                values.update((spec.name, array) for (spec, _), array in zip(program.outputs, results))
                fresh.update(spec.name for spec, _ in program.outputs)
                segments += 1
            for index in special.stage.hosts:
                self._run_host(index, values)
            hosts += special.stage.hosts
            part = special.stage.rest
        with self._lock:
            self._seen.segments = max(self._seen.segments, segments)
            self._seen.hosts.update(dict.fromkeys(hosts))
        return [values[name] if name in fresh else values[name].copy() for name in self._model.outputs]

    def _run_host(self, index: int, values: dict[str, Array]) -> None:
        node, constants = self._attributes(index), self._model.initializers
        arrays = [None if not n else values[n] if n in values else constants[n] for n in node.proto.input]
        with one_line():
            results = run_host(node, arrays)
        values.update((name, array) for name, array in zip(node.proto.output, results) if name)

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
        with one_line():
            stage = convert_part(self._model, part, types, values)
            if stage.graph is not None:
                verify(stage.graph)
        if not set(stage.observed) <= set(decisive):
            raise _MoreValuesError(stage.observed)  # it would be kept for other values too
        return Specialisation(stage, self._compile(optimize(stage.graph)) if stage.graph is not None else None)


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
