"""What a part of a model became: a program and host functions, with everything looked up that each run needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Union

from autotune.compiler.bound_host import Found, bound
from autotune.compiler.compile import CompiledModel
from autotune.compiler.host import GROWS, Runner, prepared
from autotune.compiler.room import Room
from autotune.graph.frontend import OnnxModel, Part, Stage
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host import HostValue
from autotune.runtime.executor import Array
from autotune.runtime.form import output_bytes
from autotune.runtime.trace import RunTrace

if TYPE_CHECKING:
    from autotune.compiler.body_ways import BodyWays
    from autotune.compiler.bound_open import BoundOpen
    from autotune.compiler.bucketed import BucketedModel

_FRESH = frozenset(("Compress", "MaskedSelect", "NonMaxSuppression", "NonZero", "TfIdfVectorizer", "Unique"))


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """What a run did: a program on these feeds."""

    program: CompiledModel
    feeds: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class HostStep:
    """What a run did: a host function on these values, None for inputs that are left out."""

    node: NodeAttributes
    function: Runner
    values: Sequence[HostValue]

    @property
    def label(self) -> str:
        return self.node.label

    def run(self) -> Sequence[HostValue]:
        return self.function(self.values)


class LoopStep(Protocol):
    """What a run did: a loop, step by step."""

    @property
    def label(self) -> str: ...
    def run(self) -> Sequence[HostValue]: ...


Step = Union[ProgramStep, HostStep, LoopStep]
Watch = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told of a run.

    Attributes:
        watch: of each program and each host function before it runs.
        trace: of when each kernel and each host function ran.
    """

    watch: Watch | None = None
    trace: RunTrace | None = None


NOBODY = Observers()


@dataclass(frozen=True, slots=True)
class Bound:
    """A call on the way of a run.

    Attributes:
        results: what it gives on the values of a run.
        fresh: the arrays that it gives are nobody else's.
        places: they lie at the same place in every run.
        takes: bytes of what it is about to make, see `Call.takes`; None where that is never more than it is given.
        open: what runs the programs of which it gives the results, and nothing else.
    """

    results: Callable[[Mapping[str, HostValue]], Sequence[HostValue]]
    fresh: bool
    places: bool = False
    takes: Callable[[Mapping[str, HostValue]], int] | None = None
    open: BoundOpen | None = None


class Call(Protocol):
    """A node of a specialisation that runs on the host, a loop perhaps; `writes` names its outputs, empty where nobody
    wants one. Where it is `fresh`, the arrays that it gives are nobody else's. `takes` says how many bytes it is about
    to make of these values, 0 where that is no more than they are or where it sees to that itself."""

    @property
    def writes(self) -> tuple[str, ...]: ...
    @property
    def fresh(self) -> bool: ...
    def takes(self, values: Mapping[str, HostValue]) -> int: ...
    def step(self, values: Mapping[str, HostValue], observers: Observers) -> HostStep | LoopStep: ...
    def bind(self, known: Mapping[str, HostValue], fixed: Collection[str]) -> Bound: ...


class Opened(Call, Protocol):
    """A call that runs programs for any extents that data decides."""

    @property
    def model(self) -> BucketedModel: ...


@dataclass(frozen=True, slots=True)
class HostCall:
    """A host function of a specialisation.

    Attributes:
        function: what runs the node.
        reads: names of the inputs; None where one is left out.
        constants: those of them that are initializers.
    """

    node: NodeAttributes
    function: Runner
    reads: tuple[str | None, ...]
    constants: Mapping[str, Array]
    writes: tuple[str, ...]

    @property
    def fresh(self) -> bool:
        return self.node.op in _FRESH

    def takes(self, values: Mapping[str, HostValue]) -> int:
        return GROWS[self.node.op](self.node, self._given(values)) if self.node.op in GROWS else 0

    @classmethod
    def of(cls, model: OnnxModel, index: int) -> HostCall:
        entry = model.nodes[index]
        reads = tuple(name or None for name in entry.proto.input)
        constants = {name: model.initializers[name] for name in reads if name and name in model.initializers}
        node = model.attributes(index)
        return cls(node, prepared(node), reads, constants, tuple(entry.proto.output))

    def step(self, values: Mapping[str, HostValue], observers: Observers) -> HostStep:
        """The call on the values of a run."""
        return HostStep(self.node, self.function, self._given(values))

    def bind(self, known: Mapping[str, HostValue], fixed: Collection[str]) -> Bound:
        """The call on a way.

        Args:
            known: values that are there, with the forms that they have in every run.
            fixed: names of those among them that lie at the same place in every run.
        """
        alone = self.constants.keys() - known  # a value hides the initializer of its name
        found = bound(self.node, self.reads, {**self.constants, **known}, alone.union(fixed))
        if found is None:
            takes = self.takes if self.node.op in GROWS else None
            return Bound(self._results, self.fresh, takes=takes)
        quick, places, fresh = found
        if isinstance(quick, Found):
            return Bound(quick, fresh, places)

        def results(values: Mapping[str, HostValue]) -> Sequence[HostValue]:
            given = quick(values)
            return self._results(values) if given is None else given

        return Bound(results, fresh, places)

    def _results(self, values: Mapping[str, HostValue]) -> Sequence[HostValue]:
        return self.function(self._given(values))

    def _given(self, values: Mapping[str, HostValue]) -> list[HostValue]:
        """A value hides the initializer of its name."""
        constants = self.constants
        return [None if n is None else values[n] if n in values else constants[n] for n in self.reads]


@dataclass(eq=False, slots=True)
class Life:
    """What became of a specialisation: seconds that it took to make, and runs that it served."""

    seconds: float = 0.0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Specialisation:
    """A stage, ready to run.

    Attributes:
        stage: what the part became for these types and values.
        program: None where there is nothing to compute.
        reads, writes: names of the program's inputs and outputs, in its order.
        calls: the host functions behind it.
        rest: what remains after that.
        takes: bytes of the memory that a run of the program takes, outputs included.
        life: counts its runs.
        opened: those of the calls, the first, that run programs for any extents that data decides.
        look: told of the values of each run that comes here.
        ways: through the body of a loop, where a step begins with it, for the next run of the loop.
    """

    stage: Stage
    program: CompiledModel | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    calls: tuple[Call, ...]
    rest: Room | None
    takes: int = 0
    life: Life = field(default_factory=Life)
    opened: tuple[Opened, ...] = ()
    look: Callable[[Mapping[str, HostValue]], None] | None = None
    ways: list[BodyWays] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        stage: Stage,
        program: CompiledModel | None,
        call: Callable[[Stage, int], Call],
        room: Callable[[Part], Room],
        seconds: float = 0.0,
        opened: tuple[Opened, ...] = (),
    ) -> Specialisation:
        """
        Args:
            seconds: that it took to make the program.
            call: makes the call of a node of the stage's hosts.
            room: finds the one of a part.
            opened: what is called before those of the hosts.
        """
        reads = () if program is None else tuple(spec.name for spec in program.program.inputs)
        writes = () if program is None else tuple(spec.name for spec, _ in program.program.outputs)
        calls = (*opened, *(call(stage, index) for index in stage.hosts))
        takes = 0 if program is None else program.program.arena_bytes + output_bytes(program.program)
        rest = None if stage.rest is None else room(stage.rest)
        return cls(stage, program, reads, writes, calls, rest, takes, Life(seconds), opened)

    @property
    def programs(self) -> int:
        """How many a run that comes here is made of."""
        return int(self.program is not None) + len(self.opened)

    @property
    def weights(self) -> dict[int, int]:
        """Bytes of its packed weights, by where they are."""
        held: dict[int, int] = {} if self.program is None else dict(self.program.constants.memory)
        for call in self.opened:
            held.update(call.model.weights)
        return held


def nbytes_of(specials: Iterable[Specialisation]) -> int:
    """Bytes of packed weights; those that several share count once."""
    held: dict[int, int] = {}
    for special in specials:
        held.update(special.weights)
    return sum(held.values())
