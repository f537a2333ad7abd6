"""Executor: runs a Program. Nothing but NumPy and the linked objects is on the path."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import InputError, MemoryLimitError
from autotune.runtime.address import address as address_of
from autotune.runtime.address import place_of
from autotune.runtime.constants import Constants
from autotune.runtime.form import ALIGN, Form, output_bytes
from autotune.runtime.form import spec_bytes as _bytes
from autotune.runtime.kernels import link_kernels
from autotune.runtime.lender import Lender
from autotune.runtime.native import NativeRuntime, load_runtime, native_runtime
from autotune.runtime.program import ARENA, CONSTANTS, INPUT, OUTPUT, Program, Ref, TensorSpec
from autotune.runtime.threads import Plan, Step, ThreadPool
from autotune.runtime.trace import RunTrace
from autotune.target import Target
from autotune.tensor.aligned import aligned_empty
from autotune.tensor.dtype import DType

Array = npt.NDArray[Any]
MAX_CONTEXTS = 4
_NOWHERE: tuple[Array, int] = (np.empty(0, np.uint8), 0)
_FLAG = TensorSpec("", "i32", ())
NOTHING: Mapping[int, Array] = {}


class Context:
    """What one run needs for itself: an arena, frames that point into it, and threads."""

    def __init__(
        self,
        program: Program,
        kernels: Sequence[int],
        constants: Constants,
        keep: Sequence[object],
        runtime: NativeRuntime,
        pool: ThreadPool | None = None,
        arena: Array | None = None,
    ) -> None:
        self.arena = aligned_empty(program.arena_bytes + ALIGN) if arena is None else arena
        self.pool = pool or ThreadPool(program.num_threads, native=runtime)
        base = int(self.arena.ctypes.data)
        # Outputs that kernels write straight into the caller's array; another output may be a view of the same one.
        self.direct = [n for n, (_, r) in enumerate(program.outputs) if r == Ref(OUTPUT, n)]
        self._staged = {
            INPUT: [Form(s).fresh() for s in program.inputs],
            OUTPUT: [Form(s).fresh() if n in self.direct else _NOWHERE for n, (s, _) in enumerate(program.outputs)],
        }
        self._entries: dict[str, list[list[int]]] = {space: [[] for _ in a] for space, a in self._staged.items()}
        steps, place = [], 0
        for call in program.calls:
            frame = []
            for r in call.frame:
                if r.space in self._entries:
                    self._entries[r.space][r.offset].append(place)
                    frame.append(self._staged[r.space][r.offset][1])
                else:
                    frame.append(base + r.offset if r.space == ARENA else constants.address(r.offset))
                place += 1
            place += 1  # the barrier, which the plan appends
            steps.append(Step(kernels[call.object], frame))
        self.plan = Plan(self.pool, [steps], keep=[self.arena, constants, self._staged, *keep])
        self._go = self.pool.runner(self.plan)
        self._astray = False  # whether an output is written elsewhere than into memory of ours
        self._frames = self.plan.frames.data
        self._current = {space: [address for _, address in found] for space, found in self._staged.items()}
        self._reading, self._read_by = self._current[INPUT], self._entries[INPUT]
        self._odd = [DType(s.dtype).numpy.itemsize - 1 for s in program.inputs]  # bits of a misplaced element's address
        # Where the other outputs lie, but for inputs passed through: made once, copied in every run.
        self.outputs = [self._view(s, r, constants) if r.space in (ARENA, CONSTANTS) else None
                        for s, r in program.outputs]  # fmt: skip
        self._checks = [(self._view(_FLAG, c.ref, constants), c.complaint) for c in program.checks]
        # What is copied out of memory of ours; None where an output is none of that in every run.
        found = (self.own(n) if n in self.direct and Form(s).small else self.outputs[n]
                 for n, (s, _) in enumerate(program.outputs))  # fmt: skip
        copied = [view for view in found if view is not None]
        self.copied = copied if len(copied) == len(program.outputs) else None

    def read_from(self, arrays: Sequence[Array]) -> None:
        """Let the kernels read the inputs: contiguous ones where they are, others from a copy."""
        for n, array in enumerate(arrays):
            self.read_one(n, array)

    def read_one(self, number: int, array: Array) -> None:
        """Let the kernels read an input where it is, or, unless it is contiguous, from a copy."""
        place = place_of(array)
        if place is None or place & self._odd[number]:
            staged, place = self._staged[INPUT][number]
            np.copyto(staged, array)
        self.read_at(number, place)

    def read_at(self, number: int, place: int) -> None:
        """Let the kernels read an input at an address."""
        if self._reading[number] != place:
            for entry in self._read_by[number]:
                self._frames[entry] = place
            self._reading[number] = place

    def place_read(self, number: int) -> int:
        """Where the kernels read an input: in the array of the run, or a copy of it."""
        return self._reading[number]

    def is_read(self, number: int) -> bool:
        """Whether a kernel reads an input."""
        return bool(self._entries[INPUT][number])

    def own(self, output: int) -> Array:
        """The memory that belongs to an output that kernels write straight, as long as nobody gave another."""
        return self._staged[OUTPUT][output][0]

    def run(self) -> None:
        """Run the kernels on what was pointed to. Raises InputError as `check`."""
        if self.plan.num_steps:
            self._go()
        if self._checks:
            self.check()

    def check(self) -> None:
        """Raises InputError when the run that is done had impossible values."""
        for flag, complaint in self._checks:
            if flag[()]:
                raise InputError(complaint)

    def write_to(self, output: int, address: int) -> None:
        """Let the kernels write an output straight into memory of the caller."""
        self._point(OUTPUT, output, address)
        self._astray = True

    def write_to_own(self) -> None:
        """Let the kernels write all outputs into the memory that is `own`."""
        if self._astray:
            for n in self.direct:
                self._point(OUTPUT, n, self._staged[OUTPUT][n][1])
            self._astray = False

    def entries(self, space: str, number: int) -> list[int]:
        """Addresses of the frame entries that point to an input or an output, for somebody who changes them."""
        self._current[space][number] = -1
        first = address_of(self.plan.frames)
        return [first + 8 * entry for entry in self._entries[space][number]]

    def flags(self) -> list[int]:
        """Addresses of what `check` looks at."""
        return [address_of(flag) for flag, _ in self._checks]

    def own_buffers(self) -> None:
        """Read and write nobody else's memory: for timing and profiling between the runs."""
        for space, staged in self._staged.items():
            for n, (_, address) in enumerate(staged):
                self._point(space, n, address)

    def _view(self, spec: TensorSpec, ref: Ref, constants: Constants) -> Array:
        """The tensor that lies in the arena or among the constants."""
        nbytes, at = _bytes(spec), ref.offset
        memory = self.arena[at : at + nbytes] if ref.space == ARENA else constants.view(at, nbytes)
        found: Array = memory.view(DType(spec.dtype).numpy)
        return found.reshape(spec.shape)

    def _point(self, space: str, number: int, address: int) -> None:
        if self._current[space][number] != address:
            for entry in self._entries[space][number]:
                self._frames[entry] = address
            self._current[space][number] = address


class Executor:
    """A loaded program. `run` may be called from several Python threads at once; each call has an arena of its own.

    Args:
        objects: relocatable objects, each with a function `kernel`.
        constants: packed weights.
        runtime: the runtime's object; None compiles this version's.

    Raises:
        TargetError: this CPU cannot run the program.
        CodegenError: an object does not link.
    """

    def __init__(
        self, program: Program, objects: Sequence[bytes], constants: Constants, runtime: bytes | None = None
    ) -> None:
        Target.from_json(program.target).require_host()
        self.program = program
        self.constants = constants
        self._runtime = native_runtime() if runtime is None else load_runtime(runtime)
        self._libraries = link_kernels(objects, self._runtime)
        self._kernels = [library.address("kernel") for library in self._libraries]
        make = functools.partial(Context, program, self._kernels, constants, self._libraries, self._runtime)
        self._contexts = Lender(make, MAX_CONTEXTS)
        self.forms = [Form(spec) for spec, _ in program.outputs]
        self._updates = frozenset(program.updates)
        self._specs = {s.name: (n, s, DType(s.dtype).numpy) for n, s in enumerate(program.inputs)}
        self._fitting = [(name, dtype, spec.shape) for name, (_, spec, dtype) in self._specs.items()]

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """In the program's order."""
        return self.program.inputs

    def run(
        self, feeds: Mapping[str, object], into: Mapping[str, Array] | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """Outputs in the program's order, as new arrays or those given.

        Args:
            feeds: one array per input, of its dtype and shape.
            into: C-contiguous arrays for some outputs, by name; large ones are written without a copy. They may be
                feeds, but must not overlap parts of them; where the program updates that very input, it is updated in
                place.
            trace: told when each kernel ran; reading the clock between kernels takes a little time.

        Raises:
            InputError: a feed is missing, unknown, or of another dtype or shape, or holds an index that is out of
                range; or an array of `into` does not fit.
            MemoryLimitError: there is no room for intermediate values or outputs.
        """
        return self.run_checked(self._checked(feeds), self._given(into) if into else None, trace)

    def run_checked(
        self, arrays: Sequence[Array], into: Mapping[int, Array] | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """`run` for arrays that are known to fit, in the order of the inputs.

        Args:
            into: arrays that are known to fit, by number of the output.
            trace: as for `run`.

        Raises:
            InputError: an index is out of range.
            MemoryLimitError: there is no room for intermediate values or outputs.
        """
        try:
            context = self._contexts.take()
            try:
                return self.run_in(context, arrays, into or NOTHING, trace)
            finally:
                self._contexts.give(context)
        except MemoryError as error:
            raise self.too_large() from error

    def too_large(self) -> MemoryLimitError:
        """What to raise where there is no memory for a run."""
        outputs = output_bytes(self.program)
        return MemoryLimitError(
            f"a run needs {self.program.arena_bytes} bytes for intermediate values and {outputs} for outputs,"
            " more than there is: use smaller shapes, or a machine with more memory"
        )

    def run_in(
        self,
        context: Context,
        arrays: Sequence[Array],
        given: Mapping[int, Array] = NOTHING,
        trace: RunTrace | None = None,
    ) -> list[Array]:
        """`run_checked` in a context that is the caller's, see `bound`; MemoryError where there is no memory."""
        context.read_from(arrays)
        if context.copied is not None and trace is None and not given:  # a small model's
            context.write_to_own()
            context.run()
            return [array.copy() for array in context.copied]
        direct: dict[int, Array] = {}
        late = self._read_still(arrays, given) if given else ()
        for n in context.direct:
            if n in given and n not in late:
                direct[n], address = given[n], address_of(given[n])
            else:
                direct[n], address = self.forms[n].lent()
            context.write_to(n, address)
        if self.program.calls and trace is not None:
            start = trace.now()
            times = context.pool.trace_plan(context.plan)
            trace.kernels((call.label for call in self.program.calls), start, times)
            context.check()
        else:
            context.run()
        results = []
        for n, (spec, ref) in enumerate(self.program.outputs):
            source = direct.get(n)
            if source is None or n in late:
                if source is None:
                    source = context.outputs[n]
                if source is None:
                    source = (arrays if ref.space == INPUT else direct)[ref.offset].reshape(spec.shape)
                if n in given:
                    np.copyto(given[n], source)
                    source = given[n]
                else:
                    source = source.copy()
            results.append(source)
        return results

    def _read_still(self, arrays: Sequence[Array], given: Mapping[int, Array]) -> set[int]:
        """Outputs whose arrays are also an input that kernels read after they have begun to write the output."""
        outputs: dict[int, list[int]] = {}
        for output, array in given.items():
            outputs.setdefault(address_of(array), []).append(output)
        found = set[int]()
        for n, array in enumerate(arrays):
            found.update(m for m in outputs.get(address_of(array), ()) if (n, m) not in self._updates)
        return found

    def pool(self) -> ThreadPool:
        """Threads that run such a program, for contexts of somebody's own."""
        return ThreadPool(self.program.num_threads, native=self._runtime)

    def bound(self, pool: ThreadPool, arena: Array) -> Context:
        """A context that belongs to the caller and runs on these threads, in u8 memory with `ALIGN` bytes to spare."""
        return Context(self.program, self._kernels, self.constants, self._libraries, self._runtime, pool, arena)

    def context(self) -> Context:
        """A context for benchmarks and profiling; give it back with `release`."""
        context = self._contexts.take()
        context.own_buffers()
        return context

    def lent(self) -> Context:
        """A context for a run of somebody who looks at the outputs where they are; give it back with `release`."""
        context = self._contexts.take()
        context.write_to_own()
        return context

    def release(self, context: Context) -> None:
        self._contexts.give(context)

    def _given(self, into: Mapping[str, Array]) -> dict[int, Array]:
        found: dict[int, Array] = {}
        names = {spec.name: n for n, (spec, _) in enumerate(self.program.outputs)}
        for name, array in into.items():
            if name not in names:
                raise InputError(f"no output named {name!r}; the model has {', '.join(names)}")
            form = self.forms[names[name]]
            require_fit(name, array, form.shape, form.dtype)
            found[names[name]] = array
        return found

    def _checked(self, feeds: Mapping[str, object]) -> list[Array]:
        if len(feeds) == len(self._fitting):
            arrays: list[Any] = []
            for name, dtype, shape in self._fitting:
                array = feeds.get(name)
                if not isinstance(array, np.ndarray) or array.dtype is not dtype or array.shape != shape:
                    break
                arrays.append(array)
            else:
                return arrays
        return self._converted(feeds)

    def _converted(self, feeds: Mapping[str, object]) -> list[Array]:
        """Feeds that are something else than just the arrays that there should be."""
        if len(feeds) != len(self._specs) or any(name not in feeds for name in self._specs):
            wanted = ", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in self.program.inputs)
            raise InputError(f"the model takes {wanted or 'no inputs'}; got {', '.join(map(str, feeds)) or 'nothing'}")
        arrays: list[Array] = []
        for name, (_, spec, dtype) in self._specs.items():
            array = as_feed(name, feeds[name], dtype)
            if array.shape != spec.shape or array.dtype != dtype:
                raise InputError(
                    f"input {name!r} must be {spec.dtype}{list(spec.shape)}, got {array.dtype}{list(array.shape)}"
                )
            arrays.append(array)
        return arrays


def as_feed(name: str, value: object, dtype: np.dtype[Any]) -> Array:
    """What was given for an input as an array; what only DLPack hands out is shared. Lists and numbers have no dtype of
    their own: they get the input's.

    Raises:
        InputError: no array can be made of it.
    """
    if isinstance(value, np.ndarray):
        return value
    foreign = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        array: Array = np.from_dlpack(value) if foreign else np.asarray(value)  # type: ignore[arg-type]
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"input {name!r} is no array: {' '.join(str(error).split())}") from error
    if foreign or hasattr(value, "dtype") or array.dtype == dtype:
        return array
    if array.dtype.kind in "biuf" and np.can_cast(array.dtype, dtype, "same_kind"):
        return array.astype(dtype)
    if array.dtype.kind in "iu" and dtype.kind in "iu" and (array.astype(dtype) == array).all():
        return array.astype(dtype)
    return array


def dtype_name(array: Array) -> str:
    """What an array's dtype is called; one that no tensor has fits no input."""
    try:
        return DType.of(array.dtype).value
    except KeyError:
        return str(array.dtype)


def require_fit(name: str, array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise InputError unless an output of that form can be written into what the caller gave."""
    fits = isinstance(array, np.ndarray) and array.shape == shape and array.dtype == dtype
    if not fits or not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        form = f"{DType.of(dtype)}{list(shape)}"
        raise InputError(f"the array for output {name!r} must be {form}, C-contiguous and writeable")
