"""What a part of a model became: a program and host functions, with everything looked up that each run needs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np

from autotune.compiler.compile import CompiledModel
from autotune.compiler.host import run_on_host
from autotune.graph.frontend import OnnxModel, Part, Stage
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.runtime.executor import Array

_SHORT = 64  # bytes of a value that is its own digest


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """What a run did: a program on these feeds."""

    program: CompiledModel
    feeds: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class HostStep:
    """What a run did: a host function on these arrays, None for inputs that are left out."""

    node: NodeAttributes
    arrays: Sequence[Array | None]

    @property
    def label(self) -> str:
        return self.node.label

    def run(self) -> Sequence[Array]:
        return run_on_host(self.node, self.arrays)


Step = Union[ProgramStep, HostStep]


@dataclass(eq=False)
class Room:
    """A part of the model, and what its specialisations depend on.

    Attributes:
        number: tells it from all others of the model.
        part: the nodes.
        is_whole: it is the whole model.
        decisive: inputs for whose values it is made, not only for their types; they are found out as runs come.
    """

    number: int
    part: Part
    is_whole: bool
    decisive: tuple[str, ...]

    def key(self, values: Mapping[str, Array], decisive: tuple[str, ...]) -> tuple[object, ...]:
        """What two runs have in common that use the same specialisation."""
        types = [(values[name].dtype, values[name].shape) for name in self.part.inputs]
        return (self.number, decisive, *types, *(_digest(values[name]) for name in decisive))


@dataclass(frozen=True, slots=True)
class HostCall:
    """A host node of a specialisation.

    Attributes:
        reads: names of the inputs; None where one is left out.
        constants: those of them that are initializers.
        writes: names of the outputs, empty where nobody wants one.
    """

    node: NodeAttributes
    reads: tuple[str | None, ...]
    constants: Mapping[str, Array]
    writes: tuple[str, ...]

    @classmethod
    def of(cls, model: OnnxModel, index: int) -> HostCall:
        entry = model.nodes[index]
        node = NodeAttributes(entry.proto, entry.opset, model.folder)
        reads = tuple(name or None for name in entry.proto.input)
        constants = {name: model.initializers[name] for name in reads if name and name in model.initializers}
        return cls(node, reads, constants, tuple(entry.proto.output))

    def step(self, values: Mapping[str, Array]) -> HostStep:
        """The call on the values of a run; a value hides the initializer of its name."""
        arrays = [
            None if name is None else values[name] if name in values else self.constants[name] for name in self.reads
        ]
        return HostStep(self.node, arrays)


@dataclass(frozen=True, slots=True)
class Specialisation:
    """A stage, ready to run.

    Attributes:
        stage: what the part became for these types and values.
        program: None where there is nothing to compute.
        reads, writes: names of the program's inputs and outputs, in its order.
        calls: the host functions behind it.
        rest: what remains after that.
    """

    stage: Stage
    program: CompiledModel | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    calls: tuple[HostCall, ...]
    rest: Room | None

    @classmethod
    def of(
        cls, model: OnnxModel, stage: Stage, program: CompiledModel | None, room: Callable[[Part], Room]
    ) -> Specialisation:
        """
        Args:
            room: finds the one of a part.
        """
        reads = () if program is None else tuple(spec.name for spec in program.program.inputs)
        writes = () if program is None else tuple(spec.name for spec, _ in program.program.outputs)
        calls = tuple(HostCall.of(model, index) for index in stage.hosts)
        return cls(stage, program, reads, writes, calls, None if stage.rest is None else room(stage.rest))

    @property
    def nbytes(self) -> int:
        """Bytes of its packed weights."""
        return 0 if self.program is None else self.program.constants.nbytes


def _digest(array: Array) -> bytes:
    data = np.ascontiguousarray(array).tobytes()
    return data if len(data) <= _SHORT else hashlib.sha256(data).digest()
