"""Runs a model, or the body of a loop, part by part: each becomes a program once what it depends on is known."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from autotune.compiler.background import Background
from autotune.compiler.bounded_cache import BoundedCache
from autotune.compiler.compile import CompiledModel
from autotune.compiler.decided import Decided, MoreValuesError, OpenError
from autotune.compiler.heap import trim
from autotune.compiler.host import value_bytes
from autotune.compiler.loop_guard import LoopGuard, LoopLimit
from autotune.compiler.native_rows import RowMemory
from autotune.compiler.programs import Programs
from autotune.compiler.room import Room, Served
from autotune.compiler.route import MAX_STOPS, Route, Stop, begins, key, pass_by, tensor
from autotune.compiler.specialisation import (
    NOBODY,
    Call,
    HostCall,
    Observers,
    ProgramStep,
    Specialisation,
    nbytes_of,
)
from autotune.compiler.value_forms import is_tensor
from autotune.errors import ModelError
from autotune.graph import Graph, Value, one_line, optimize, verify
from autotune.graph.frontend import OnnxModel, Part, Stage, convert_part
from autotune.graph.frontend.body import body_model
from autotune.graph.frontend.part import Body
from autotune.graph.host import HostValue
from autotune.runtime.executor import MAX_CONTEXTS, Array
from autotune.runtime.process import process_number
from autotune.target import Target
from autotune.tensor.dtype import DType

if TYPE_CHECKING:
    from autotune.compiler.loops import LoopBody

_log = logging.getLogger(__name__)

MAX_SPECIALISATIONS = 512
MAX_SPECIALISED_BYTES = 2**31  # packed weights of all of them


MAX_LOOP_STEPS = 2**24


@dataclass(frozen=True, slots=True)
class Making:
    """How the programs of a model are made.

    Attributes:
        compile: makes a program of an optimised graph.
        optimize: runs the graph passes.
        max_loop_steps: a loop that goes on for longer is refused.
        max_memory: bytes that packed weights and the memory of a run may take together; None for all that there is.
        target: what they are for; None where there is to be one for each extent that data decides.
        programs: those that are known already.
        looked_at: the model is another form of one that was looked at whole, so nothing is refused before it runs.
    """

    compile: Callable[[Graph], CompiledModel]
    optimize: Callable[[Graph], Graph] = optimize
    max_loop_steps: int = MAX_LOOP_STEPS
    max_memory: int | None = None
    target: Target | None = None
    programs: Programs | None = None
    looked_at: bool = False

    def program(self, graph: Graph) -> CompiledModel:
        """That of a graph as it was converted."""
        found = None if self.programs is None else self.programs.recall(graph)
        if found is None:
            found = self.compile(self.optimize(graph))
            if self.programs is not None:
                self.programs.keep(graph, found)
        return found


@dataclass(eq=False)
class Workshop:
    """What a model and the bodies of its loops have in common.

    Attributes:
        limit: of the memory of one loop.
        rows: the memory in which native code moves rows.
    """

    making: Making
    limit: LoopLimit
    rows: RowMemory
    cache: BoundedCache[Specialisation] = field(
        default_factory=lambda: BoundedCache(MAX_SPECIALISATIONS, MAX_SPECIALISED_BYTES, nbytes_of)
    )
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    background: Background = field(default_factory=Background)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the runs so far have shown: host nodes, and the most programs that one run was made of."""

    runs: bool = False
    segments: int = 0
    hosts: frozenset[int] = frozenset()

    def holds(self, segments: int, hosts: Collection[int]) -> bool:
        return self.runs and segments <= self.segments and self.hosts.issuperset(hosts)

    def and_also(self, segments: int, hosts: Collection[int]) -> Seen:
        return Seen(True, max(segments, self.segments), self.hosts.union(hosts))


class Stages:
    """`run` may be called from several threads.

    Args:
        model: the table of nodes.
        part: all of them.
        results: names of what a run gives.
        workshop: shared with the loops around.
    """

    def __init__(self, model: OnnxModel, part: Part, results: tuple[str, ...], workshop: Workshop) -> None:
        self.seen = Seen()
        self.made = 0  # specialisations, those that are gone included
        self.may_grow = True  # whether it is worth anything to tell inputs that grow
        self._growing: frozenset[str] = frozenset()
        self.first: Specialisation | None = None  # of the whole, where its types are known before any run
        self.model, self._results, self.workshop = model, results, workshop
        self._routes: list[Route] = []  # the last used comes first: what it reads and writes is in the caches
        self._made_routes = self._version = 0
        self.lock = threading.Lock()
        self._converting = threading.Lock()  # the table of nodes may grow
        self._rooms: weakref.WeakValueDictionary[Part, Room] = weakref.WeakValueDictionary()  # those in the cache
        self._bodies: dict[Body, LoopBody] = {}
        self._decided = Decided(self)
        self._whole = Room(next(workshop.numbers), part, True, tuple(sorted(part.fixed)))

    def run(
        self,
        values: dict[str, HostValue],
        observers: Observers,
        forms: object = None,
        guard: LoopGuard | None = None,
    ) -> list[HostValue]:
        """What the model gives; arrays that nobody else has.

        Args:
            values: those of the inputs, which fit; values on the way are added.
            observers: told of what runs.
            forms: the same object only if the values have the same types; None where that is not known.
            guard: of the loop whose step it is; told what memory is about to be taken.

        Raises:
            InputError: a value is out of its range.
            ModelError: these shapes or values make the model impossible.
            MemoryLimitError: the guard refuses to take more.
        """
        if observers is NOBODY:
            route = self._taken_route()
            if route is not None:
                try:
                    return self._along(route, values, forms, guard)
                finally:
                    self._routes.append(route)
        return self._observed(values, observers, guard)

    def _taken_route(self) -> Route | None:
        """A route that nobody runs on; None when there are enough."""
        try:
            route = self._routes.pop()
        except IndexError:
            with self.lock:
                if self._made_routes == MAX_CONTEXTS:
                    return None
                self._made_routes += 1
            return Route(self._results, self._version, self.workshop.rows)
        full = route.count > MAX_STOPS or route.nbytes > MAX_SPECIALISED_BYTES
        if full or route.version != self._version or route.process != process_number():
            return Route(self._results, self._version, self.workshop.rows)
        return route

    def _along(
        self, route: Route, values: dict[str, HostValue], forms: object, guard: LoopGuard | None
    ) -> list[HostValue]:
        """`run` by the stops of a route; those that it has not are added."""
        fresh: set[str] = set()
        came: list[Stop] = []
        growing, room = self._growing, self._whole
        stop = route.begun[1] if forms is not None and forms is route.begun[0] and not room.decisive else None
        if stop is None:
            start = begins(room, room.part.inputs, room.decisive, values, growing)
            stop = route.starts.get(start)
            route.begun = forms, stop
        ways, new = route.starts, False
        special: Specialisation | None = None
        try:
            while True:
                if stop is None:
                    special = None
                    special = self.first if room is self._whole and self.first is not None else self._of(room, values)
                    last = came[-1] if came else None
                    sure = frozenset(values).difference(growing)  # before the first stop
                    if guard is not None:
                        guard.take(special.takes)
                    stop, new = route.stop(special, len(came), values, last, sure), True
                    if last is None or last.decisive is room.decisive:  # what decides may just have been found out
                        ways[start] = stop
                elif guard is not None:
                    guard.take(stop.special.takes)
                came.append(stop)
                pass_by(stop, values, fresh, guard)
                rest = stop.special.rest
                if rest is None:
                    break
                room, ways = rest, stop.ways
                start = key(stop, room, values, growing)
                stop = ways.get(start)
        except MemoryError as error:
            at = special if stop is None else stop.special
            if at is None or at.program is None:
                raise
            raise at.program.executor.too_large() from error
        if new:
            hosts = [index for stop in came for index in stop.special.stage.hosts]
            self._saw(sum(stop.special.programs for stop in came), hosts)
        results = []
        for name in self._results:
            found = values.get(name)
            kept = not isinstance(found, np.ndarray) or name not in fresh
            results.append(self._result(name, values, fresh, guard) if kept else found)
        return results

    def _saw(self, segments: int, hosts: Collection[int]) -> None:
        if not self.seen.holds(segments, hosts):
            with self.lock:
                self.seen = self.seen.and_also(segments, hosts)

    def _observed(self, values: dict[str, HostValue], observers: Observers, guard: LoopGuard | None) -> list[HostValue]:
        """`run` with each step told to somebody."""
        watch, trace = observers.watch, observers.trace
        fresh: set[str] = set()  # results: arrays that nobody else has
        room: Room | None = self._whole
        segments = 0
        hosts: list[int] = []
        while room is not None:
            special = self.first if room is self._whole and self.first is not None else self._of(room, values)
            values.update(special.stage.constants)
            for name, source in special.stage.aliases.items():
                values[name] = values[source]
            special.life.runs += 1
            if special.look is not None:
                special.look(values)
            if guard is not None:
                guard.take(special.takes)
            if special.program is not None:
                arrays = [tensor(values[name]) for name in special.reads]
                if watch is not None:
                    watch(ProgramStep(special.program, dict(zip(special.reads, arrays))))
                values.update(zip(special.writes, special.program.run_checked(arrays, trace)))
                fresh.update(special.writes)
            segments += special.programs
            for name, items in special.stage.lists.items():
                values[name] = None if items is None else [tensor(values[item]) for item in items]
            if special.calls:
                with one_line():
                    for call in special.calls:
                        step = call.step(values, observers)
                        if watch is not None:
                            watch(step)
                        if guard is not None:
                            guard.take(call.takes(values))
                        begin = trace.now() if trace is not None else 0.0
                        values.update(zip(call.writes, step.run()))
                        if call.fresh:
                            fresh.update(call.writes)
                        if trace is not None:
                            trace.span("Host", step.label, begin, trace.now() - begin)
                hosts += special.stage.hosts
            room = special.rest
        self._saw(segments, hosts)
        return [self._result(name, values, fresh, guard) for name in self._results]

    def _result(
        self, name: str, values: Mapping[str, HostValue], fresh: set[str], guard: LoopGuard | None
    ) -> HostValue:
        found = values[name] if name in values else self.model.initializers[name]
        if found is None or (name in fresh and not isinstance(found, list)):
            return found
        if guard is not None:
            guard.take(value_bytes(found))
        return [item.copy() for item in found] if isinstance(found, list) else found.copy()

    def whole(self, values: Mapping[str, HostValue]) -> Specialisation:
        """What the model begins with for values of these types."""
        return self.first if self.first is not None else self._of(self._whole, values)

    def following(self, room: Room, values: Mapping[str, HostValue]) -> Specialisation:
        """What a part becomes that was left, for such values."""
        return self._of(room, values)

    @property
    def initializers(self) -> Mapping[str, Array]:
        return self.model.initializers

    def grow(self, names: Collection[str]) -> None:
        """From now on these inputs have another shape every time: what only moves their elements runs on the host."""
        with self.lock:
            self._growing = self._growing.union(names) if self.may_grow else frozenset()
            self._version += 1

    def grow_no_more(self) -> None:
        """It was worth nothing: what has to be compiled again for every shape is what computes."""
        with self.lock:
            self.may_grow, self._growing = False, frozenset()
            self._version += 1

    def outline(self, types: Mapping[str, Value]) -> Stage:
        """What the whole becomes where these types are known, before any run."""
        return self.converted(self._whole.part, types, None, False)

    def built(self, stage: Stage) -> Specialisation:
        """A stage with its program."""
        program, start = None, time.perf_counter()
        if stage.graph is not None:
            program = self.workshop.making.program(stage.graph)
            trim()  # some ms: programs for many shapes leave their graphs' holes between what stays
            forms = ", ".join(f"{value.name} {list(value.shape)}" for value in stage.graph.inputs)
            _log.info("made a program for %s in %.2f s", forms or "what needs no inputs", time.perf_counter() - start)
        return Specialisation.of(stage, program, self.call, self.room, time.perf_counter() - start)

    def _of(self, room: Room, values: Mapping[str, HostValue]) -> Specialisation:
        """The specialisation of a part for these values, from the cache where possible."""
        while True:
            decisive, growing = room.decisive, self._growing if not room.typed else frozenset[str]()
            served = room.served(values)  # once: another run may change it
            try:
                make = functools.partial(self._specialise, room, values, decisive, growing, served)
                return self.workshop.cache.get(room.key(values, decisive, growing, served), make)
            except MoreValuesError as error:
                with self.lock:
                    room.decisive = tuple(dict.fromkeys((*room.decisive, *error.names)))
            except _TypesError:
                room.typed = True
            except OpenError:
                pass  # the room's form is another now

    def _specialise(
        self,
        room: Room,
        values: Mapping[str, HostValue],
        decisive: tuple[str, ...],
        growing: frozenset[str],
        served: Served,
    ) -> Specialisation:
        given = {name: values[name] for name in room.part.inputs}
        loop, eager = growing.intersection(given), isinstance(served.by, frozenset)
        grown = loop.union(served.free) if eager else loop
        types = self.types(given, grown)
        # The whole model is never made for values: what they do not touch is compiled once.
        stage = self.converted(room.part, types, given, not room.is_whole, grown, eager)
        if grown and not stage.gets_on(room.part):
            if not eager:
                raise _TypesError
            with self.lock:
                room.do_less()
            raise OpenError
        if not set(stage.observed) <= set(decisive):
            raise MoreValuesError(stage.observed)  # it would be kept for other values too
        self.made += 1
        if room.is_whole or loop or self.workshop.making.target is None:
            return self.built(stage)
        return self._decided.specialised(room, served, stage, given, decisive)

    @staticmethod
    def types(values: Mapping[str, HostValue], without: Collection[str] = ()) -> dict[str, Value]:
        """Those of tensors of numbers."""
        return {
            name: _type(name, tensor(value))
            for name, value in values.items()
            if is_tensor(value) and name not in without
        }

    def converted(
        self,
        part: Part,
        types: Mapping[str, Value],
        values: Mapping[str, HostValue] | None,
        observe: bool,
        growing: Collection[str] = (),
        eager: bool = False,
        barred: Collection[int] = (),
    ) -> Stage:
        """What becomes of a part; see `convert_part`."""
        with one_line(), self._converting:
            stage = convert_part(self.model, part, types, values, observe, growing, eager, barred)
            if stage.graph is not None:
                verify(stage.graph)
            return stage

    def call(self, stage: Stage, index: int) -> Call:
        """That of one of its hosts."""
        if index not in stage.bodies:
            return HostCall.of(self.model, index)
        from autotune.compiler.loops import LoopBody, LoopCall  # which run stages

        body = stage.bodies[index]
        with self._converting:
            if body not in self._bodies:
                self._bodies[body] = LoopBody.of(self.model, body, self.of_body, self.workshop)
            return LoopCall.of(self.model, body, self._bodies[body], self.workshop)

    def of_body(self, body: Body, results: tuple[str, ...]) -> Stages:
        """What runs the body of one of the loops."""
        inner, part = body_model(self.model, body, results)
        return Stages(inner, part, results, self.workshop)

    def room(self, part: Part) -> Room:
        """The one of a part."""
        with self.lock:
            fixed = tuple(sorted(part.fixed))
            return self._rooms.setdefault(part, Room(next(self.workshop.numbers), part, False, fixed))


class _TypesError(Exception):
    """Without the types of values that grow nothing can be done."""


def _type(name: str, array: Array) -> Value:
    try:
        return Value(name, DType.of(array.dtype).value, array.shape)
    except KeyError as error:
        raise ModelError(f"'{name}' is of dtype {array.dtype}, which no tensor has") from error
