"""A loop whose body is programs: values lie where their kernels find them, and native code takes the steps."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from autotune.codegen.link import Library, load_objects
from autotune.codegen.loop_ir import LEG_WORDS, loop_object
from autotune.runtime.address import address
from autotune.runtime.executor import Array, Context
from autotune.runtime.once import once
from autotune.runtime.program import INPUT, OUTPUT
from autotune.runtime.threads import ThreadPool

MAX_LEGS = 64  # of one loop: bodies whose ways are more go step by step


class Halt(Enum):
    """Why native code returns."""

    DONE = 0  # as many steps as were asked for
    ENDED = 1  # the condition says so
    FAILED = 2
    ASKED = 3  # nobody has said which leg follows


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies in step i: at address + (i & mask) · stride."""

    address: int
    stride: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """What is copied after a program has run."""

    source: Place
    destination: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class Leg:
    """A program of a step.

    Attributes:
        context: of the program, which belongs to the loop meanwhile; None where nothing is computed.
        inputs, outputs: places of the program's inputs and outputs, by number, where its kernels read and write those.
        copies: of results.
        asks: places and bytes of the values that say which leg follows; None at the end of a step.
    """

    context: Context | None
    inputs: Mapping[int, Place]
    outputs: Mapping[int, Place]
    copies: Sequence[Copy]
    asks: Sequence[tuple[Place, int]] | None


class StepLoop:
    """The steps of a loop.

    Args:
        counter: address of an i64 that gets the number of the step.
        condition: address of a byte, and how far the one beside it is; None where nothing ends the loop early.
    """

    def __init__(self, counter: int, condition: tuple[int, int] | None) -> None:
        self._pool: ThreadPool | None = None
        self._legs = np.zeros((MAX_LEGS, LEG_WORDS), np.int64)
        self._asked: list[Array] = []
        self._answers: list[Array] = []
        self._keep: list[Array] = []
        self._loop = np.asarray([0, 0, counter, address(self._legs), 0, *(condition or (0, 0))], np.int64)

    def add(self, leg: Leg) -> int:
        """The number of a new leg; number 0 is the first one of a step. All programs run on the same threads."""
        number = len(self._asked)
        sizes = [-(-nbytes // 8) for _, nbytes in leg.asks or ()]
        asked = np.zeros(max(sum(sizes), 1), np.int64)
        points = []
        copies = [(c.source, c.destination, c.nbytes) for c in leg.copies]
        plan, flags = 0, np.zeros(0, np.int64)
        if leg.context is not None:
            self._pool = leg.context.pool
            plan, flags = leg.context.plan.address, np.asarray(leg.context.flags(), np.int64)
            for space, places in ((INPUT, leg.inputs), (OUTPUT, leg.outputs)):
                points += [(entry, p) for n, p in places.items() for entry in leg.context.entries(space, n)]
        word = 0
        for (place, nbytes), size in zip(leg.asks or (), sizes):
            copies.append((place, Place(address(asked) + 8 * word), nbytes))
            word += size
        aims = np.asarray([(entry, p.address, p.stride, p.mask) for entry, p in points], np.int64)
        moves = np.asarray(
            [(a.address, a.stride, a.mask, b.address, b.stride, b.mask, nbytes) for a, b, nbytes in copies], np.int64
        )
        self._legs[number] = (
            plan, address(aims), len(points), address(flags), len(flags), address(moves), len(copies),
            0 if leg.asks is None else address(asked), sum(sizes), 0, 0,
        )  # fmt: skip
        self._keep += [aims, flags, moves]
        self._asked.append(asked[: sum(sizes)])
        self._answers.append(np.zeros((0, 1 + sum(sizes)), np.int64))
        return number

    @property
    def steps(self) -> int:
        """How many were taken."""
        return int(self._loop[0])

    @steps.setter
    def steps(self, taken: int) -> None:
        self._loop[0] = taken

    @property
    def leg(self) -> int:
        """The one that failed, or asked."""
        return int(self._loop[4])

    def answer(self, number: int) -> None:
        """What was asked now and in later steps, a leg is the answer to; the step goes on with it."""
        leg = self.leg
        rows = np.vstack([self._answers[leg], [[number, *self._asked[leg]]]])
        self._answers[leg] = rows
        self._legs[leg, -2:] = address(rows), len(rows)
        self._loop[4] = number

    def run(self, end: int) -> Halt:
        """Go on until `end` steps are taken."""
        self._loop[1] = end
        native = _native()
        if self._pool is None:
            return Halt(native.run(0, 0, address(self._loop)))
        return Halt(self._pool.run_loop(native.run, address(self._loop)))


class NativeLoop:
    """The driver, in this process."""

    def __init__(self) -> None:
        self.library: Library = load_objects([loop_object()])
        pointer = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer, pointer)
        self.run = kind(self.library.address("autotune_loop"))


@once
def _native() -> NativeLoop:
    """Compiled once per process, by the first who asks."""
    return NativeLoop()
