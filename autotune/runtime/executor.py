"""Executor: runs a Program. Nothing but NumPy and the linked objects is on the path."""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.codegen.jit import Library, Linker, load_objects
from autotune.errors import InputError
from autotune.runtime.native import NativeRuntime, load_runtime, native_runtime
from autotune.runtime.program import ARENA, CONSTANTS, INPUT, OUTPUT, Program, Ref, TensorSpec
from autotune.runtime.threads import Plan, Step, ThreadPool, aligned_empty
from autotune.target import Target
from autotune.tensor.dtype import DType

Array = npt.NDArray[Any]
ALIGN = 64
MAX_CONTEXTS = 4
_NOTHING: Array = np.empty(0, np.uint8)


class Context:
    """What one run needs for itself: an arena, frames that point into it, and threads."""

    def __init__(
        self,
        program: Program,
        kernels: Sequence[int],
        constants: Array,
        keep: Sequence[object],
        runtime: NativeRuntime,
    ) -> None:
        self.arena = aligned_empty(program.arena_bytes + ALIGN)
        self.pool = ThreadPool(program.num_threads, native=runtime)
        bases = {ARENA: int(self.arena.ctypes.data), CONSTANTS: int(constants.ctypes.data)}
        # Outputs that kernels write straight into the caller's array; another output may be a view of the same one.
        self.direct = [n for n, (_, r) in enumerate(program.outputs) if r == Ref(OUTPUT, n)]
        results = [_aligned(s) if n in self.direct else _NOTHING for n, (s, _) in enumerate(program.outputs)]
        self.staged = {INPUT: [_aligned(s) for s in program.inputs], OUTPUT: results}
        entries: dict[str, list[list[int]]] = {space: [[] for _ in found] for space, found in self.staged.items()}
        steps, place = [], 0
        for call in program.calls:
            frame = []
            for r in call.frame:
                if r.space in entries:
                    entries[r.space][r.offset].append(place)
                    frame.append(_address(self.staged[r.space][r.offset]))
                else:
                    frame.append(bases[r.space] + r.offset)
                place += 1
            place += 1  # the barrier, which the plan appends
            steps.append(Step(kernels[call.object], frame))
        self.plan = Plan(self.pool, [steps], keep=[self.arena, constants, *keep])
        self.entries = {space: [np.array(e, dtype=np.intp) for e in found] for space, found in entries.items()}
        self.addresses = [_address(a) for a in self.staged[INPUT]]
        self.current = list(self.addresses)
        # Where the other outputs lie, but for inputs passed through: made once, copied in every run.
        bytes_of = {ARENA: self.arena, CONSTANTS: constants}
        self.outputs = [_view(bytes_of[r.space], s, r) if r.space in bytes_of else None for s, r in program.outputs]

    def point(self, output: int, array: Array) -> None:
        """Let the kernels write an output straight into `array`."""
        self.plan.frames[self.entries[OUTPUT][output]] = _address(array)


class Executor:
    """A loaded program. `run` may be called from several Python threads at once; each call has an arena of its own.

    Args:
        objects: relocatable objects, each with a function `kernel`.
        constants: packed weights, u8.
        runtime: the runtime's object; None compiles this version's.

    Raises:
        TargetError: this CPU cannot run the program.
        CodegenError: an object does not link.
    """

    def __init__(
        self, program: Program, objects: Sequence[bytes], constants: Array, runtime: bytes | None = None
    ) -> None:
        Target.from_json(program.target).require_host()
        self.program = program
        self.constants = constants
        self._runtime = native_runtime() if runtime is None else load_runtime(runtime)
        linker = Linker()
        self._libraries: list[Library] = [load_objects([o], self._runtime.imports, linker=linker) for o in objects]
        self._kernels = [library.address("kernel") for library in self._libraries]
        self._free: queue.LifoQueue[Context] = queue.LifoQueue()
        self._made = 0
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._specs = {s.name: (n, s, DType(s.dtype).numpy) for n, s in enumerate(program.inputs)}

    def run(self, feeds: Mapping[str, object]) -> list[Array]:
        """Outputs in the program's order, as new arrays.

        Args:
            feeds: one array per input, of its dtype and shape.

        Raises:
            InputError: a feed is missing, unknown, or of another dtype or shape.
        """
        arrays = self._checked(feeds)
        context = self._take()
        try:
            self._point_inputs(context, arrays)
            fresh = {n: _aligned(self.program.outputs[n][0]) for n in context.direct}
            for n, array in fresh.items():
                context.point(n, array)
            if self.program.calls:
                context.pool.run_plan(context.plan)
            places: dict[str, Mapping[int, Array]] = {INPUT: dict(enumerate(arrays)), OUTPUT: fresh}
            results = []
            for n, (spec, ref) in enumerate(self.program.outputs):
                view = context.outputs[n]
                if n in fresh:
                    results.append(fresh[n])
                elif view is not None:
                    results.append(view.copy())
                else:
                    results.append(places[ref.space][ref.offset].reshape(spec.shape).copy())
            return results
        finally:
            for n in context.direct:  # nobody else's memory is written when the plan is timed or profiled
                context.point(n, context.staged[OUTPUT][n])
            self._free.put(context)

    def context(self) -> Context:
        """A context for benchmarks and profiling; give it back with `release`."""
        return self._take()

    def release(self, context: Context) -> None:
        self._free.put(context)

    def _checked(self, feeds: Mapping[str, object]) -> list[Array]:
        if len(feeds) != len(self._specs) or any(name not in feeds for name in self._specs):
            wanted = ", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in self.program.inputs)
            raise InputError(f"the model takes {wanted or 'no inputs'}; got {', '.join(map(str, feeds)) or 'nothing'}")
        arrays: list[Array] = []
        for name, (_, spec, dtype) in self._specs.items():
            array = np.asarray(feeds[name])
            if array.shape != spec.shape or array.dtype != dtype:
                raise InputError(
                    f"input {name!r} must be {spec.dtype}{list(spec.shape)}, got {array.dtype}{list(array.shape)}"
                )
            arrays.append(array)
        return arrays

    def _point_inputs(self, context: Context, arrays: Sequence[Array]) -> None:
        """Contiguous feeds are read where they are; others are copied once."""
        for n, array in enumerate(arrays):
            address = _address(array)
            if not (array.flags.c_contiguous and array.flags.aligned):
                np.copyto(context.staged[INPUT][n], array)
                address = context.addresses[n]
            if context.current[n] != address:
                context.plan.frames[context.entries[INPUT][n]] = address
                context.current[n] = address

    def _take(self) -> Context:
        """A free context, a new one while there are few, or the next to become free."""
        if os.getpid() != self._process:
            # Threads do not survive a fork: the child starts with contexts of its own.
            self._process, self._free, self._made, self._lock = os.getpid(), queue.LifoQueue(), 0, threading.Lock()
        try:
            return self._free.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            room = self._made < MAX_CONTEXTS
            self._made += room
        if not room:
            return self._free.get()
        try:
            return Context(self.program, self._kernels, self.constants, self._libraries, self._runtime)
        except BaseException:
            with self._lock:
                self._made -= 1
            raise


def _aligned(spec: TensorSpec) -> Array:
    return _view(aligned_empty(max(_bytes(spec), 1)), spec, Ref(ARENA, 0))


def _view(memory: Array, spec: TensorSpec, ref: Ref) -> Array:
    """The tensor that lies in `memory`, u8, where `ref` says."""
    found: Array = memory[ref.offset : ref.offset + _bytes(spec)].view(DType(spec.dtype).numpy)
    return found.reshape(spec.shape)


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * DType(spec.dtype).numpy.itemsize


def _address(array: Array) -> int:
    # Half the time of `array.ctypes.data`, and this is on the path of every run.
    return int(array.__array_interface__["data"][0])
