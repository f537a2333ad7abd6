"""Program: a compiled model as plain data. What the executor runs and a compiled file holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autotune.errors import CompiledModelError
from autotune.metadata import ModelMetadata

ARENA, CONSTANTS, INPUT, OUTPUT = "arena", "constants", "input", "output"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A model input or output: its name, dtype (`DType` string) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a buffer is: a byte offset in the arena or the constants, or the number of a model input or output."""

    space: str
    offset: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel: which object, what its frame points to (operands, shared scratch, thread scratch), and a label."""

    object: int
    frame: tuple[Ref, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Check:
    """A run that leaves anything but 0 in the i32 at `ref` had impossible values, and fails with this complaint."""

    ref: Ref
    complaint: str


@dataclass(frozen=True, slots=True)
class Program:
    """Everything but the bytes of objects and constants.

    Attributes:
        target: JSON of the `Target` the kernels were compiled for.
        num_threads: threads that run it together.
        inputs: in the model's order.
        outputs: each with the place of its row-major value.
        calls: kernels in order, a barrier after each.
        arena_bytes: memory of one run, scratch included.
        constant_bytes: size of the packed weights.
        flops: of one run, 2 per multiply-add.
        checks: what must hold of a run's values.
        metadata: what the model says about itself; no part of what makes programs equal.
        precision: in which floats products are computed, in words.
        updates: pairs of numbers of an input and of an output that is the input but for some elements: when the caller
            hands in one memory for both, only those are written. No other output may lie where an input does.
    """

    target: str
    num_threads: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[tuple[TensorSpec, Ref], ...]
    calls: tuple[KernelCall, ...]
    arena_bytes: int
    constant_bytes: int
    flops: int = 0
    checks: tuple[Check, ...] = ()
    metadata: ModelMetadata = field(default=ModelMetadata(), compare=False)
    precision: str = "f32"
    updates: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; `from_json` is its inverse."""
        return {
            "target": self.target,
            "num_threads": self.num_threads,
            "inputs": [_spec(s) for s in self.inputs],
            "outputs": [[_spec(s), [r.space, r.offset]] for s, r in self.outputs],
            "calls": [[c.object, [[r.space, r.offset] for r in c.frame], c.label] for c in self.calls],
            "arena_bytes": self.arena_bytes,
            "constant_bytes": self.constant_bytes,
            "flops": self.flops,
            "checks": [[[c.ref.space, c.ref.offset], c.complaint] for c in self.checks],
            "metadata": self.metadata.to_json(),
            "precision": self.precision,
            "updates": [list(pair) for pair in self.updates],
        }

    @staticmethod
    def from_json(data: Any) -> Program:
        """The program of a compiled file.

        Raises:
            CompiledModelError: when the data is not one, or a buffer lies outside its space.
        """
        try:
            program = Program(
                str(data["target"]),
                int(data["num_threads"]),
                tuple(_to_spec(s) for s in data["inputs"]),
                tuple((_to_spec(s), Ref(str(r[0]), int(r[1]))) for s, r in data["outputs"]),
                tuple(
                    KernelCall(int(o), tuple(Ref(str(s), int(n)) for s, n in frame), str(label))
                    for o, frame, label in data["calls"]
                ),
                int(data["arena_bytes"]),
                int(data["constant_bytes"]),
                int(data["flops"]),
                tuple(Check(Ref(str(s), int(n)), str(complaint)) for (s, n), complaint in data["checks"]),
                ModelMetadata.from_json(data.get("metadata", {})),
                str(data.get("precision", "f32")),
                tuple((int(i), int(o)) for i, o in data.get("updates", ())),
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CompiledModelError(
                f"the plan of the compiled model is malformed ({error}); compile it again"
            ) from error
        limits = {ARENA: program.arena_bytes, CONSTANTS: program.constant_bytes, INPUT: len(program.inputs) - 1,
                  OUTPUT: len(program.outputs) - 1}  # fmt: skip
        refs = [r for c in program.calls for r in c.frame] + [r for _, r in program.outputs]
        refs += [check.ref for check in program.checks]
        refs += [Ref(space, n) for pair in program.updates for space, n in zip((INPUT, OUTPUT), pair)]
        for r in refs:
            if not 0 <= r.offset <= limits.get(r.space, -1):
                raise CompiledModelError(f"the compiled model refers to {r.space} {r.offset}, which does not exist")
        return program


def _spec(s: TensorSpec) -> list[Any]:
    return [s.name, s.dtype, list(s.shape)]


def _to_spec(data: Any) -> TensorSpec:
    return TensorSpec(str(data[0]), str(data[1]), tuple(int(d) for d in data[2]))
