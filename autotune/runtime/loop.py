"""A loop whose body is one program: values lie where the body's kernels find them, and native code takes the steps."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.codegen.link import Library, load_objects
from autotune.codegen.loop_ir import loop_object
from autotune.runtime.address import address
from autotune.runtime.executor import Context
from autotune.runtime.program import INPUT, OUTPUT


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies in step i: at address + (i & mask) · stride."""

    address: int
    stride: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """What is copied after each step."""

    source: Place
    destination: Place
    nbytes: int


class StepLoop:
    """The steps of a loop, on a context of the body's program that belongs to it meanwhile.

    Args:
        inputs, outputs: places of the program's inputs, and of outputs that its kernels write straight.
        copies: of the other results.
        counter: address of an i64 that gets the number of the step.
        condition: address of a byte, and how far the one beside it is; None where nothing ends the loop early.
    """

    def __init__(
        self,
        context: Context,
        inputs: Sequence[Place],
        outputs: dict[int, Place],
        copies: Sequence[Copy],
        counter: int,
        condition: tuple[int, int] | None,
    ) -> None:
        points = [(entry, p) for n, p in enumerate(inputs) for entry in context.entries(INPUT, n)]
        points += [(entry, p) for n, p in outputs.items() for entry in context.entries(OUTPUT, n)]
        rows = [(entry, p.address, p.stride, p.mask) for entry, p in points]
        moves = [
            (c.source.address, c.source.stride, c.source.mask, c.destination.address, c.destination.stride,
             c.destination.mask, c.nbytes)
            for c in copies
        ]  # fmt: skip
        self._context = context
        self._points, self._copies = np.asarray(rows, np.int64), np.asarray(moves, np.int64)
        self._checks = np.asarray(context.flags(), np.int64)
        at, beside = condition or (0, 0)
        self._loop = np.asarray(
            [0, 0, counter, address(self._points), len(rows), address(self._copies), len(moves), at, beside,
             address(self._checks), len(self._checks)],
            np.int64,
        )  # fmt: skip

    @property
    def steps(self) -> int:
        """How many were taken."""
        return int(self._loop[0])

    @steps.setter
    def steps(self, taken: int) -> None:
        self._loop[0] = taken

    def run(self, end: int) -> bool:
        """Go on until `end` steps are taken; whether the loop may go on after that.

        Raises:
            InputError: a step had impossible values.
        """
        self._loop[1] = end
        found = self._context.pool.run_loop(_native().run, self._context.plan, address(self._loop))
        if found > 1:
            self._context.check()
        return found == 0


class NativeLoop:
    """The driver, in this process."""

    def __init__(self) -> None:
        self.library: Library = load_objects([loop_object()])
        pointer = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer, pointer, pointer)
        self.run = kind(self.library.address("autotune_loop"))


@functools.cache
def _native() -> NativeLoop:
    """Compiled once per process, by the first who asks."""
    return NativeLoop()
