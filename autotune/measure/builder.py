"""Builders: a config becomes machine code. `build` in this process, `Builder` in isolated ones.

LLVM compiles only in processes: llvmlite holds one global lock, and an instruction that the target cannot
select ends the process that asked for it.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from autotune.codegen.jit import compile_ir
from autotune.codegen.kernel import CompileIr, compile_source, generate
from autotune.errors import CodegenError, ConfigError, LoweringError, ScheduleError, WorkloadError
from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.types import BuildResult, MeasureInput
from autotune.measure.worker import HasWorkers, WorkerPool, WorkerSpec, mapped
from autotune.ops.registry import algorithms, compute_def
from autotune.ops.workload import Workload
from autotune.schedule.schedule import Schedule
from autotune.search_spaces.space import templates  # noqa: F401  registers the built-in templates
from autotune.search_spaces.space.registry import make_schedule
from autotune.search_spaces.space.replay import confirm

_REMEMBERED = 64
"""Kernels whose code is not compiled again: one in eight candidates gives what another of its task gave (ResNet-50)."""


def build(candidate: MeasureInput, compile_text: CompileIr = compile_ir) -> BuildResult | Failure:
    """Schedule, lower and compile one candidate in this process.

    Args:
        compile_text: may remember.
    """
    start = time.monotonic()
    workload, target = candidate.workload, candidate.target
    try:
        schedule = _schedule(candidate)
        kernel = compile_source(generate(schedule, target), target, compile_text)
    except (ScheduleError, ConfigError, WorkloadError) as error:
        return Failure("schedule", str(error))
    except LoweringError as error:
        return Failure("lower", str(error))
    except CodegenError as error:
        return Failure("compile", str(error))
    return BuildResult(kernel, schedule.steps_json(), algorithm_of(workload, schedule), time.monotonic() - start)


def _schedule(candidate: MeasureInput) -> Schedule:
    """Of the config; or of stored steps, when they still give the code that was measured."""
    workload, target = candidate.workload, candidate.target
    if candidate.recorded is None:
        return make_schedule(workload, candidate.config, target, candidate.interface)
    found = confirm(workload, candidate.recorded, lambda schedule: generate(schedule, target, check=False).ir_hash)
    return found.schedule(workload)


def algorithm_of(workload: Workload, schedule: Schedule) -> str:
    """The name of the algorithm that a schedule computes the workload by; "unknown" for a definition of its own."""
    anchor = workload.anchor
    for name in algorithms(anchor.op) if anchor is not None else ("direct",):
        try:
            if schedule.compute == compute_def(workload, name):
                return name
        except WorkloadError:  # another algorithm, and not for these sizes
            continue
    return "unknown"


class AskedBuilder(ABC):
    """Builds candidates wherever its messages go. What `serve` handles is written and read here."""

    @abstractmethod
    def ask(self, request: Message, decode: Callable[[Message], BuildResult]) -> Future[BuildResult | Failure]:
        """Queue a request; the future holds what `decode` makes of the reply, or a `Failure`."""

    def submit(self, candidate: MeasureInput) -> Future[BuildResult | Failure]:
        """Queue a candidate; at once back."""
        return self.ask(Message({"do": "build", **candidate.to_json()}), BuildResult.from_message)

    def build(self, candidate: MeasureInput) -> BuildResult | Failure:
        """Build one candidate and wait for it."""
        return self.submit(candidate).result()


class Builder(HasWorkers, AskedBuilder):
    """Builds candidates in `count` worker processes."""

    def __init__(
        self,
        count: int = 1,
        *,
        timeout: float = 30.0,
        memory_bytes: int = 2 << 30,
        recycle_after: int = 500,
        imports: tuple[str, ...] = (),
    ) -> None:
        """
        Args:
            count: processes that build at the same time.
            timeout: seconds per candidate.
            memory_bytes: resident memory allowed to each process.
            recycle_after: candidates per process; LLVM keeps memory that it once took.
            imports: modules or Python files that register the user's own operators and templates.
        """
        self.slots = count
        super().__init__(
            WorkerPool(
                WorkerSpec(f"{__name__}:serve", {}, timeout, memory_bytes, recycle_after, imports=imports), count
            )
        )

    def ask(self, request: Message, decode: Callable[[Message], BuildResult]) -> Future[BuildResult | Failure]:
        return mapped(self.request(request), decode)

    def request(self, request: Message) -> Future[Message | Failure]:
        """Queue a request as it came."""
        return self._pool.submit(request)


def serve(init: Mapping[str, Json]) -> Callable[[Message], Message | Failure]:
    """The worker's side."""
    compile_text: CompileIr = functools.lru_cache(_REMEMBERED)(compile_ir)

    def handle(request: Message) -> Message | Failure:
        result = build(MeasureInput.from_json(request.body), compile_text)
        return result if isinstance(result, Failure) else result.to_message()

    return handle
