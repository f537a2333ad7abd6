"""A kernel on the test bench: loaded, with guarded buffers for all that it touches."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType, TracebackType

import numpy as np

from autotune.codegen.kernel import KernelObject
from autotune.codegen.link import load_objects
from autotune.lower.ir import Operand
from autotune.lower.operands import fill_operand
from autotune.measure.buffers import GuardedBuffer, SpareBuffers
from autotune.measure.reference import Array, Reference
from autotune.runtime.native import native_runtime
from autotune.runtime.threads import Plan, Step, ThreadPool
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.layout import Layout


class TaskData:
    """What the trials of one workload share: the reference, and the inputs in each layout that was asked for."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self._packed: dict[tuple[str, Layout, ComputeDef | None], GuardedBuffer] = {}

    def input(self, operand: Operand) -> GuardedBuffer:
        """The operand's value in its physical form; writing to it is a fault."""
        key = (operand.name, operand.layout, operand.prepared)
        if key not in self._packed:
            if len(self._packed) >= 32:  # layouts are few; a space with many must not fill the memory
                self._packed.pop(next(iter(self._packed)))
            buffer = GuardedBuffer(operand.bytes, poisoned=False)
            fill_operand(operand, self.inputs, buffer.bytes)
            buffer.freeze()
            self._packed[key] = buffer
        return self._packed[key]

    @property
    def inputs(self) -> dict[str, Array]:
        """The workload's inputs: `in0`, `in1`, ..."""
        return {f"in{n}": array for n, array in enumerate(self.reference.inputs)}

    def forget_packed(self) -> None:
        """Drops the layouts, which are made again faster than the reference."""
        self._packed.clear()

    @property
    def nbytes(self) -> int:
        """Memory held, roughly."""
        arrays = [*self.reference.inputs, *self.reference.outputs]
        return sum(array.nbytes for array in arrays) + sum(buffer.bytes.nbytes for buffer in self._packed.values())


class Bench:
    """One loaded kernel with buffers for up to `threads` threads. Outputs and scratch are its own, until it closes."""

    def __init__(
        self,
        kernel: KernelObject,
        task: TaskData,
        threads: int,
        spare: SpareBuffers | None = None,
        lender: Bench | None = None,
    ) -> None:
        """
        Args:
            spare: where outputs and scratch come from, with anything in them; None makes new ones, full of poison.
            lender: a bench that outlives this one, whose outputs and scratch it uses, where they are as large: what
                memory they lie in makes up to 4 % of what a kernel that streams takes, and says nothing of the kernel.

        Raises:
            CodegenError: the object does not link.
            MemoryError: the buffers do not fit.
        """
        self.kernel = kernel
        self.task = task
        self._spare = spare
        self._own: list[GuardedBuffer] = []
        lent = [] if lender is None else lender.written()

        def take(size: int) -> GuardedBuffer:
            for place, buffer in enumerate(lent):
                if buffer.bytes.size == size:
                    return lent.pop(place)
            self._own.append(GuardedBuffer(size) if spare is None else spare.take(size))
            return self._own[-1]

        self._buffers = [
            task.input(operand) if operand.role == "input" else take(operand.bytes) for operand in kernel.operands
        ]
        self.scratch = (take(kernel.shared_scratch), take(kernel.thread_scratch * threads))
        self._library = load_objects([kernel.object_code], native_runtime().imports)
        self._address = self._library.address(kernel.symbol)

    def close(self) -> None:
        """Idempotent. Nothing of it may be used then."""
        self._library.close()
        if self._spare is not None:
            for buffer in self._own:
                self._spare.give(buffer)
            self._spare = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, pool: ThreadPool, elsewhere: Mapping[str, int] = MappingProxyType({})) -> None:
        """Run the kernel once; operands named in `elsewhere` lie at those addresses instead."""
        pool.run_plan(Plan(pool, [[self._step(elsewhere)]]))

    def time(
        self, pool: ThreadPool, number: int, batches: int, constants: Sequence[dict[str, int]] = ({},)
    ) -> list[float]:
        """Seconds per run in each of so many batches of `number` runs, one batch after the other.

        The runs rotate through `constants`, addresses of input copies by operand name.
        """
        plan = Plan(pool, [[self._step(addresses)] for addresses in constants])
        with ExitStack() as stack:
            for buffer in {id(buffer): buffer for buffer in (*self._buffers, *self.scratch)}.values():
                stack.enter_context(buffer.readable_behind())
            return [float(seconds) for seconds in pool.time_plan(plan, number, batches)]

    def poison_outputs(self) -> None:
        for _, buffer in self.outputs():
            buffer.poison()

    def poison_scratch(self) -> None:
        for buffer in self.scratch:
            buffer.poison()

    def outputs(self) -> list[tuple[Operand, GuardedBuffer]]:
        pairs = zip(self.kernel.operands, self._buffers, strict=True)
        return [(operand, buffer) for operand, buffer in pairs if operand.role == "output"]

    def written(self) -> list[GuardedBuffer]:
        """Outputs and scratch."""
        return [*(buffer for _, buffer in self.outputs()), *self.scratch]

    def logical_outputs(self) -> list[Array]:
        return [operand.layout.unpack(physical(operand, buffer), operand.shape) for operand, buffer in self.outputs()]

    def stray_write(self) -> str | None:
        """Which buffer was written beside its data, close enough to miss the guard page; None when none was."""
        for operand, buffer in self.outputs():
            if not buffer.slack_intact():
                return f"the bytes beside output {operand.name}"
        for name, buffer in zip(("shared", "per-thread"), self.scratch, strict=True):
            if not buffer.slack_intact():
                return f"the bytes beside the {name} scratch"
        return None

    def _step(self, replaced: Mapping[str, int]) -> Step:
        operands = [
            replaced.get(operand.name, buffer.address)
            for operand, buffer in zip(self.kernel.operands, self._buffers, strict=True)
        ]
        return Step(self._address, [*operands, *(buffer.address for buffer in self.scratch)])


def physical(operand: Operand, buffer: GuardedBuffer) -> Array:
    """The buffer as an array in the operand's physical shape."""
    return buffer.view(operand.dtype.numpy, operand.layout.physical_shape(operand.shape))


@functools.lru_cache(maxsize=64)
def outside(layout: Layout, shape: tuple[int, ...]) -> Array | None:
    """Where the physical form holds halo or block padding, as a mask; None when there is none."""
    data = replace(layout, fill=0).pack(np.ones(shape, np.bool_))
    return None if data.all() else ~data
