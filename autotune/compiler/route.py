"""What runs of a staged model went through, bound for the next one that takes the same way.

Each stop is a specialisation with buffers of its own: programs read what those before them wrote where it lies, so that
a run sets no more than the addresses of what comes from outside, and looks up the next stop by what may differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autotune.compiler.host_steps import HostSteps
from autotune.compiler.loop_guard import LoopGuard
from autotune.compiler.native_rows import RowMemory, RowMoves
from autotune.compiler.room import EXACTLY, Room
from autotune.compiler.specialisation import Bound, Specialisation
from autotune.compiler.value_forms import digest
from autotune.errors import ModelError
from autotune.graph import one_line
from autotune.graph.host import HostValue, described
from autotune.runtime.executor import Array, Context, Executor
from autotune.runtime.form import ALIGN, Form
from autotune.runtime.process import process_number
from autotune.runtime.program import INPUT, OUTPUT
from autotune.runtime.threads import ThreadPool
from autotune.tensor.aligned import aligned_empty

MAX_STOPS = 512


@dataclass(eq=False, slots=True)
class Stop:
    """A specialisation, ready for runs that come this way.

    Attributes:
        context: of its program; None where there is nothing to compute.
        reads: the program's inputs whose values come from elsewhere in every run.
        again: those of them that a program before it has read: its context and number say where.
        taken: who has read what comes from elsewhere, by name.
        makes: outputs that kernels write into new memory in every run.
        views: values that lie at the same place in every run, and constants.
        same: other names of values that come from elsewhere.
        lists: names of sequences, and of what they hold.
        calls: host functions; with each the names of its results.
        steps: the same one after the other, for runs that nobody guards.
        plain: there is nothing to do here but to look up the next stop.
        open: what of the rest's inputs has a form that the way here does not tell.
        bound: names of values that lie at the same place whenever a run comes this way.
        sure: names of values whose forms the way here tells.
        decisive: inputs of the rest for whose values it is made.
        ways: the next stops.
    """

    special: Specialisation
    context: Context | None
    reads: tuple[tuple[int, str], ...]
    again: tuple[tuple[int, Context, int], ...]
    taken: Mapping[str, tuple[Context, int]]
    makes: tuple[tuple[int, Form, str], ...]
    views: Mapping[str, Array]
    same: tuple[tuple[str, str, tuple[int, ...] | None], ...]
    lists: Mapping[str, tuple[str, ...] | None]
    calls: tuple[tuple[Bound, tuple[str, ...]], ...]
    steps: HostSteps
    plain: bool
    open: tuple[str, ...]
    bound: frozenset[str]
    sure: frozenset[str]
    decisive: tuple[str, ...]
    ways: dict[Hashable, Stop] = field(default_factory=dict)


class Route:
    """The stops that runs have come by; one run at a time.

    Args:
        results: names of what a run gives.
        memory: in which native code moves rows.

    Attributes:
        begun: where runs of the last known types begin, and what tells these from others.
        nbytes: what is kept for it: packed weights and arenas.
    """

    def __init__(self, results: tuple[str, ...], version: int, memory: RowMemory) -> None:
        self.version, self.process = version, process_number()
        self.starts: dict[Hashable, Stop] = {}
        self.begun: tuple[object, Stop | None] = (None, None)
        self.count = self.nbytes = 0
        self._weights: dict[int, int] = {}
        self._arenas: list[Array] = []  # one for each stop of a way; ways share them, since one runs at a time
        self._results, self._memory = frozenset(results), memory
        self._pools: dict[int, ThreadPool] = {}

    def stop(
        self,
        special: Specialisation,
        depth: int,
        values: Mapping[str, HostValue],
        last: Stop | None,
        sure: frozenset[str],
    ) -> Stop:
        """A new stop.

        Args:
            depth: how many stops come before it.
            values: of the run that comes here first.
            last: the stop before it.
            sure: names of values whose forms are the same whenever a run comes to the first stop.
        """
        self.count += 1
        bound: frozenset[str] = frozenset()
        taken: dict[str, tuple[Context, int]] = {}
        if last is not None:
            bound, sure, taken = last.bound, last.sure, dict(last.taken)
        if special.program is not None:
            self._weights.update(special.weights)
        views: dict[str, Array] = {**special.stage.constants}
        reads: list[tuple[int, str]] = []
        again: list[tuple[int, Context, int]] = []
        makes: list[tuple[int, Form, str]] = []
        same: list[tuple[str, str, tuple[int, ...] | None]] = []
        context = None
        for name, source in special.stage.aliases.items():
            if source in bound:
                views[name] = tensor(values[source])
            else:
                same.append((name, source, None))
        if special.program is not None:
            executor = special.program.executor
            context = executor.bound(self._pool(executor), self._arena(depth, executor.program.arena_bytes))
            for n, name in enumerate(special.reads):
                if not context.is_read(n):  # it was asked for its form or its value, or is passed on
                    continue
                if name in bound:
                    context.read_one(n, tensor(values[name]))
                elif name in taken:
                    again.append((n, *taken[name]))
                else:
                    reads.append((n, name))
                    taken[name] = context, n
            for n, ((_, ref), name) in enumerate(zip(executor.program.outputs, special.writes)):
                found = context.outputs[n]
                if n in context.direct and name in self._results and not executor.forms[n].small:
                    makes.append((n, executor.forms[n], name))
                elif n in context.direct:
                    views[name] = context.own(n)
                elif found is not None:
                    views[name] = found
                else:
                    source = special.reads[ref.offset] if ref.space == INPUT else special.writes[ref.offset]
                    assert ref.space in (INPUT, OUTPUT)
                    same.append((name, source, executor.forms[n].shape))
        self.nbytes = sum(self._weights.values()) + sum(arena.nbytes for arena in self._arenas)
        rest = special.rest
        known = {**{name: values[name] for name in sure if name in values}, **views}
        fixed = bound.union(views)
        calls = tuple((call.bind(known, fixed), call.writes) for call in special.calls)
        wanted = self._results.union(() if rest is None else rest.part.inputs)
        bound_calls = [call for call, _ in calls]
        steps = HostSteps(special.calls, bound_calls, special.stage.constants, wanted, self._pool, self._take)
        bound = fixed.union(*(names for call, names in calls if call.places))
        certain = {name for name, source, _ in same if source in sure}
        sure = sure.union(views, special.writes, certain)
        waiting = () if rest is None else tuple(name for name in rest.part.inputs if name not in sure)
        decisive = () if rest is None else rest.decisive
        lists = special.stage.lists
        plain = context is None and not (views or same or calls or lists)
        return Stop(
            special, context, tuple(reads), tuple(again), taken, tuple(makes), views, tuple(same), lists, calls, steps,
            plain, waiting, bound, sure, decisive,
        )  # fmt: skip

    def _take(self, moves: RowMoves, nbytes: int) -> None:
        """Before native code takes more memory to move rows in."""
        self._memory.take(moves, nbytes, self.nbytes)

    def _pool(self, executor: Executor) -> ThreadPool:
        """The threads that run a program."""
        threads = executor.program.num_threads
        if threads not in self._pools:
            self._pools[threads] = executor.pool()
        return self._pools[threads]

    def _arena(self, depth: int, nbytes: int) -> Array:
        """Memory for the intermediate values of a stop. Stops that have a smaller one keep that."""
        while len(self._arenas) <= depth:
            self._arenas.append(np.empty(0, np.uint8))
        if self._arenas[depth].nbytes < nbytes + ALIGN:
            # Pages that nobody writes cost nothing; doubling keeps those few that outgrown arenas hold.
            self._arenas[depth] = aligned_empty(1 << (nbytes + ALIGN - 1).bit_length())
        return self._arenas[depth]


def key(stop: Stop, room: Room, values: Mapping[str, HostValue], growing: frozenset[str]) -> Hashable:
    """What tells where a run goes on."""
    if stop.decisive is not room.decisive:  # more values were found to decide
        stop.decisive = room.decisive
        stop.ways.clear()
    return begins(room, stop.open, stop.decisive, values, growing)


def begins(
    room: Room,
    inputs: tuple[str, ...],
    decisive: tuple[str, ...],
    values: Mapping[str, HostValue],
    growing: frozenset[str],
) -> Hashable:
    """What a part is made for, of these inputs and values that decide: forms, those that grow left out, and values."""
    typed = room.typed
    served = EXACTLY
    if room.open is not None or room.eager:
        served = room.served(values)
        growing, typed = (growing if not typed else frozenset()).union(served.free), False
    found: list[Hashable] = [room.typed, served.by]
    for name in inputs:  # on the path of every run, so written out: `form_of`
        value = values[name]
        if not isinstance(value, np.ndarray) or (name in growing and not typed):
            found.append(None)
        elif value.dtype.hasobject:
            found.append(object)
        else:
            found.append(value.dtype)
            found.append(value.shape)
    for name in decisive:
        if name not in served.told:
            found.append(digest(values[name]))
    return tuple(found)


def pass_by(stop: Stop, values: dict[str, HostValue], fresh: set[str], guard: LoopGuard | None = None) -> None:
    """Run what is at a stop; its values are added, and names of arrays that nobody else has.

    Args:
        guard: told what memory host functions are about to take; the caller has told it of the program's.

    Raises:
        InputError, ModelError: the values are impossible.
        MemoryLimitError: the guard refuses to take more.
    """
    stop.special.life.runs += 1
    if stop.special.look is not None:
        stop.special.look(values)
    if stop.plain:
        return
    context = stop.context
    if context is not None:
        for n, name in stop.reads:
            context.read_one(n, values[name])  # type: ignore[arg-type]  # where the way is known, its form is
        for n, before, m in stop.again:
            context.read_at(n, before.place_read(m))
        for n, form, name in stop.makes:
            values[name], address = form.lent()
            context.write_to(n, address)
            fresh.add(name)
        context.run()
    values.update(stop.views)
    for name, source, shape in stop.same:
        values[name] = values[source] if shape is None else tensor(values[source]).reshape(shape)
    for name, items in stop.lists.items():
        values[name] = None if items is None else [tensor(values[item]) for item in items]
    if not stop.calls:
        return
    fresh.update(stop.steps.fresh)
    try:
        if guard is None:
            stop.steps.run(values)
            return
        for call, names in stop.calls:
            if call.takes is not None:
                guard.take(call.takes(values))
            for name, found in zip(names, call.results(values)):
                values[name] = found
    except ModelError:
        with one_line():
            raise


def tensor(value: HostValue) -> Array:
    """A value that must be a tensor."""
    if not isinstance(value, np.ndarray):
        raise ModelError(f"a tensor is needed where the model has {described(value)}")
    return value
