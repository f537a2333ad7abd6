"""The programs of a model for several shapes, compiled: one file, in which each weight is stored once."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.arguments import checked
from autotune.compiler.compile import CompiledModel
from autotune.compiler.memory import ALIGN
from autotune.compiler.shape_programs import ShapePrograms
from autotune.runtime.address import address
from autotune.runtime.artifact import Artifact, save_artifact
from autotune.runtime.constants import Array, Constants
from autotune.runtime.open_axes import Extents
from autotune.runtime.open_executor import OpenExecutor
from autotune.runtime.program import CONSTANTS, Program, Ref
from autotune.runtime.selection import Candidate, Selection
from autotune.runtime.signature import Signer
from autotune.search_spaces.space.limit import limit
from autotune.target import Target


@dataclass(frozen=True, slots=True)
class ProgramUse:
    """A program of a file.

    Attributes:
        extents: of the open dimensions.
        own_bytes: of packed weights that no program before it reads.
        arena_bytes: of the intermediate values of a run.
    """

    extents: Mapping[str, int]
    own_bytes: int
    arena_bytes: int


@dataclass(frozen=True, repr=False)
class CompiledShapes:
    """Programs that share objects and packed weights; `run` takes those that fit a run, `save` writes them to one file.

    Attributes:
        models: the programs by the extents of the open dimensions.
        artifact: all of them together.
    """

    models: Mapping[Extents, CompiledModel]
    artifact: Artifact

    @classmethod
    def of(cls, programs: ShapePrograms, models: Mapping[Extents, CompiledModel]) -> CompiledShapes:
        """
        Args:
            models: compiled of what `programs` yields.
        """
        merge = _Merge()
        merged = [merge.add(model) for model in models.values()]
        candidates = tuple(
            Candidate(extents, seconds, model.program.constant_bytes, own, reading)
            for (extents, model), (_, own) in zip(models.items(), merged)
            for seconds, reading in [_times(model)]
        )
        costs = programs.sizes.costs
        selection = Selection(programs.axes.open, tuple(costs[s] for s in programs.axes.open.symbols), candidates)
        constants = merge.constants()
        return cls(
            models,
            Artifact(
                tuple(replace(program, constant_bytes=constants.nbytes) for program, _ in merged),
                tuple(merge.objects),
                constants,
                next(iter(models.values())).runtime,
                selection,
            ),
        )

    def __repr__(self) -> str:
        """One line, without code and weights."""
        weights = f"{self.artifact.constants.nbytes} bytes of weights"
        return f"<CompiledShapes of {', '.join(self.symbols)}: {len(self.models)} programs, {weights}>"

    @property
    def uses(self) -> list[ProgramUse]:
        """What each program takes, in the order of the file."""
        assert self.artifact.selection is not None
        return [
            ProgramUse(dict(zip(self.symbols, found.extents)), found.own_bytes, program.arena_bytes)
            for found, program in zip(self.artifact.selection.candidates, self.artifact.programs)
        ]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The open dimensions."""
        assert self.artifact.selection is not None
        return self.artifact.selection.axes.symbols

    @functools.cached_property
    def executor(self) -> OpenExecutor:
        """The programs, linked as they are needed."""
        return OpenExecutor(self.artifact)

    @checked
    def run(self, feeds: Mapping[str, object]) -> list[Array]:
        """Outputs in order; see `OpenExecutor.run`."""
        return self.executor.run(feeds)

    @checked
    def save(self, path: str | Path, sign: str | Path | None = None) -> None:
        """Write one file; see `CompiledModel.save`."""
        save_artifact(Path(path), self.artifact, None if sign is None else Signer.load(sign))


class _Merge:
    """Objects and constants of several programs, one after another; those that several have once."""

    def __init__(self) -> None:
        self.objects: dict[bytes, int] = {}
        self._parts: dict[tuple[int, int], tuple[int, Array]] = {}
        self._size = 0

    def add(self, model: CompiledModel) -> tuple[Program, int]:
        """The program, in the places that its objects and constants have here, and the bytes that are new."""
        numbers = [self.objects.setdefault(code, len(self.objects)) for code in model.objects]
        before, held = self._size, model.constants
        starts = [self._place(part) for part in held.parts]

        def moved(ref: Ref) -> Ref:
            if ref.space != CONSTANTS:
                return ref
            part, within = held.locate(ref.offset)
            return Ref(CONSTANTS, starts[part] + within)

        program = model.program
        calls = tuple(
            replace(call, object=numbers[call.object], frame=tuple(map(moved, call.frame))) for call in program.calls
        )
        outputs = tuple((spec, moved(ref)) for spec, ref in program.outputs)
        checks = tuple(replace(check, ref=moved(check.ref)) for check in program.checks)
        return replace(program, calls=calls, outputs=outputs, checks=checks), self._size - before

    def constants(self) -> Constants:
        """All constants."""
        starts, parts = zip(*self._parts.values()) if self._parts else ((), ())
        return Constants(self._size, tuple(starts), tuple(parts))

    def _place(self, part: Array) -> int:
        key = (address(part), part.nbytes)  # an empty one may lie where another begins
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = (self._size, part)
            self._size += -(-part.nbytes // ALIGN) * ALIGN
        return found[0]


def _times(model: CompiledModel) -> tuple[float, float]:
    """The least seconds of a run without its weights, and those in which they are read: programs of one model are as
    far above them as each other."""
    target = Target.from_json(model.program.target)
    where = target.residency(model.program.constant_bytes)
    limits = [limit(kernel.workload, target, residency=where) for kernel in model.kernels]
    return sum(max(found.arithmetic, found.others) for found in limits), sum(found.reading for found in limits)
