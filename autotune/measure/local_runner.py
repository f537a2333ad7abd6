"""`LocalRunner`: verifies a built kernel, then times it, in this process. `Runner` does the same in a worker."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType

from autotune import machine
from autotune.codegen.kernel import KernelObject
from autotune.errors import CodegenError
from autotune.lower.ir import Operand
from autotune.measure.bench import Bench, TaskData
from autotune.measure.buffers import SpareBuffers
from autotune.measure.failure import Failure
from autotune.measure.gauge import Gauge
from autotune.measure.reference import Errors, allowance, make_reference
from autotune.measure.rounds import is_calm
from autotune.measure.timing import (
    Patience,
    TimedLoop,
    Timing,
    TimingPolicy,
    doubted,
    look_for_calm,
    patiently,
    settled,
    time_beside,
    time_in_turn,
    time_steadily,
)
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.measure.verify import verify
from autotune.measure.weights import WeightBlock
from autotune.measure.yardstick import Yardstick
from autotune.ops.workload import Workload
from autotune.runtime.threads import ThreadPool
from autotune.target import Target
from autotune.tensor.dtype import DType

_TASK_BYTES = 1 << 30  # references and packed inputs kept for later trials
_SPARE_BYTES = 1 << 28  # outputs and scratch
_YARDSTICKS = 256  # of the tasks tried last; each is the machine code of a kernel
_LOOKS = 50  # for a calm moment, before what seems to be the best is timed again: a tenth of a second
_L3_MULTIPLE = 4  # weights that total this many times the L3 come from DRAM


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the tuner knows about a trial.

    Attributes:
        incumbent: the best time so far in seconds; a kernel far slower is not timed to the end.
        weight_bytes: size of the model's weights; 0 measures with warm weights (a single operator).
    """

    incumbent: float | None = None
    weight_bytes: int = 0


STAND_ALONE = RunOptions()


class LocalRunner:
    """Runs kernels in this process, for code that is trusted: a bad kernel takes the process down."""

    def __init__(self, target: Target, policy: TimingPolicy | None = None, seed: int = 0) -> None:
        """
        Raises:
            TargetError: this machine cannot run code for `target`.
        """
        target.require_host()
        self._target = target
        self._policy = policy or TimingPolicy()
        self._seed = seed
        cores = machine.allowed_cores()
        self._pools = [ThreadPool(count, cores) for count in sorted({1, target.num_threads})]
        self._gauge = Gauge(target, self._pools[-1])
        self._patience = Patience()
        self._calmness = Patience()
        self._tasks: OrderedDict[str, TaskData] = OrderedDict()
        self._spare = SpareBuffers(_SPARE_BYTES)
        self._weights: dict[tuple[DType, int], WeightBlock] = {}
        self._yardsticks: OrderedDict[tuple[str, int], Yardstick] = OrderedDict()

    def close(self) -> None:
        for pool in self._pools:
            pool.close()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self, candidate: MeasureInput, build: BuildResult, options: RunOptions = STAND_ALONE
    ) -> MeasureResult | Failure:
        start = time.monotonic()
        with ExitStack() as stack:
            found = self._verified(candidate.workload, build, stack)
            if isinstance(found, Failure):
                return found
            bench, errors = found
            timing = self._timed(candidate.workload, bench, build, options)
        return _result(timing, errors, time.monotonic() - start)

    def _timed(self, workload: Workload, bench: Bench, build: BuildResult, options: RunOptions) -> Timing:
        """A trial's time, in turn with the task's yardstick; without one, or much faster, it is the next."""
        key = (workload.key, options.weight_bytes)
        yardstick, loop = self._yardsticks.pop(key, None), self._loop(bench, options.weight_bytes)
        if yardstick is None:
            timing = time_steadily(loop, self._gauge, self._policy, options.incumbent, patience=self._patience)
            slowed = not is_calm(timing.loads_a_cycle, self._gauge)  # by a neighbour: nobody knows how much yet
        else:
            reference = yardstick
            policy = self._policy if options.incumbent is not None else self._policy.without_incumbent()

            def once() -> Timing:
                with self._bench(workload, reference.build.kernel, bench) as other:
                    beside = self._loop(other, options.weight_bytes)
                    beside(1, 1)  # its buffers are others'
                    calm = reference.calm(self._gauge)
                    found, taken = time_beside(loop, beside, calm, self._gauge, policy, options.incumbent)
                reference.rounds.extend(taken)
                return found

            if options.incumbent is None:
                timing = settled(once, policy.max_seconds)
            else:
                timing = doubted(once, options.incumbent, self._gauge, self._await_calm)
            slowed = False
        if not timing.disturbed and (yardstick is None or yardstick.succeeded_by(timing.seconds, self._gauge)):
            yardstick = Yardstick.of(build, timing, yardstick)
        if yardstick is not None:
            self._yardsticks[key] = yardstick
            if len(self._yardsticks) > _YARDSTICKS:
                self._yardsticks.popitem(last=False)
        return replace(timing, disturbed=timing.disturbed or slowed)

    def _await_calm(self) -> None:
        """A moment without a neighbour, as long as that comes now and then."""
        if self._calmness.again():
            self._calmness.learn(look_for_calm(self._gauge, _LOOKS))

    def compare(
        self,
        candidate: MeasureInput,
        builds: Sequence[BuildResult],
        rounds: int = 20,
        options: RunOptions = STAND_ALONE,
    ) -> list[MeasureResult | Failure]:
        start = time.monotonic()
        with ExitStack() as stack:
            found = [self._verified(candidate.workload, build, stack) for build in builds]
            good = [entry for entry in found if not isinstance(entry, Failure)]
            loops = [self._loop(bench, options.weight_bytes) for bench, _ in good]
            timings = iter(self._time_steadily_in_turn(loops, rounds))
        wall = time.monotonic() - start
        return [e if isinstance(e, Failure) else _result(next(timings), e[1], wall) for e in found]

    def _time_steadily_in_turn(self, loops: Sequence[TimedLoop], rounds: int) -> list[Timing]:
        """`time_in_turn`, again while the fastest is disturbed; the quietest time counts, as a whole."""

        def over(timings: list[Timing]) -> bool:
            return not timings or not min(timings, key=lambda timing: timing.seconds).disturbed

        tries = patiently(
            lambda: time_in_turn(loops, self._gauge, self._policy, rounds), over, self._policy, patience=self._patience
        )
        return min(tries, key=lambda timings: (not over(timings), sum(timing.disturbed for timing in timings)))

    def _verified(self, workload: Workload, build: BuildResult, stack: ExitStack) -> tuple[Bench, Errors] | Failure:
        """The kernel on its bench, found right; `stack` closes it."""
        try:
            bench = stack.enter_context(self._bench(workload, build.kernel))
        except CodegenError as error:
            return Failure("compile", str(error))
        errors = verify(bench, self._pools, allowance(workload, build.algorithm))
        return errors if isinstance(errors, Failure) else (bench, errors)

    def _bench(self, workload: Workload, kernel: KernelObject, lender: Bench | None = None) -> Bench:
        return Bench(kernel, self._task(workload), self._target.num_threads, self._spare, lender)

    def _task(self, workload: Workload) -> TaskData:
        """Reference and packed inputs, made once per workload. The least recently used make room: all their packed
        inputs before any reference, which takes longest to make."""
        task = self._tasks.pop(workload.key, None)
        if task is None:
            task = TaskData(make_reference(workload, self._seed))
        self._tasks[workload.key] = task
        for others in list(self._tasks.values())[:-1]:
            if not self._too_much():
                break
            others.forget_packed()
        while len(self._tasks) > 1 and self._too_much():
            self._tasks.popitem(last=False)
        return task

    def _too_much(self) -> bool:
        return sum(kept.nbytes for kept in self._tasks.values()) > _TASK_BYTES

    def _loop(self, bench: Bench, weight_bytes: int) -> TimedLoop:
        pool = self._pools[-1]
        weights = cold_operands(bench.kernel)
        if not (weight_bytes and weights):
            return lambda number, batches: bench.time(pool, number, batches)
        size = min(weight_bytes, _L3_MULTIPLE * self._target.l3_bytes)
        dtype = weights[0].dtype
        if (dtype, size) not in self._weights:
            self._weights = {(dtype, size): WeightBlock(size, dtype.numpy)}
        block = self._weights[(dtype, size)]
        sizes = {operand.name: operand.bytes for operand in weights}
        return lambda number, batches: bench.time(pool, number, batches, block.take(sizes, number * batches))


def cold_operands(kernel: KernelObject) -> list[Operand]:
    """The operands to rotate through copies: the constants that have the dtype of the largest one.

    The other constants (scales beside int8 weights, indices) are small; they stay where they are.
    """
    constants = [operand for operand in kernel.operands if operand.constant]
    largest = max(constants, key=lambda operand: operand.bytes, default=None)
    return [operand for operand in constants if largest is not None and operand.dtype is largest.dtype]


def _result(timing: Timing, errors: Errors, wall: float) -> MeasureResult:
    return MeasureResult(
        timing.seconds,
        timing.spread,
        timing.batches,
        timing.number,
        timing.probe_gflops,
        errors.max_abs_err,
        errors.max_rel_err,
        errors.tolerance,
        wall,
        timing.disturbed,
    )
