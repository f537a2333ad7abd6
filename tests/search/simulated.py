"""A pipeline without kernels: what a config takes comes from a function, so the tuning loop is tested exactly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from autotune.codegen.kernel import KernelObject
from autotune.measure.failure import Failure
from autotune.measure.pipeline import Measurement
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops.parse import parse_workload
from autotune.search.task import TuningTask
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import ConfigSpace, Member, TaskSpace
from autotune.target import Target

Cost = Callable[[MeasureInput], float | Failure]


@dataclass
class SimulatedPipeline:
    """Draws `ahead` candidates before it answers the first, as a real pipeline does.

    `cost` is what a trial takes, `true_cost` (the same unless given) what a comparison finds, `code` the IR hash of a
    config. `replays`: whether stored steps still give the code that was measured. Every trial takes one second of the
    clock. `disturbed` tells which trials are marked so; comparisons are not. Ctrl-C comes when `interrupt_after` trials
    are done.
    """

    cost: Cost
    true_cost: Cost | None = None
    code: Callable[[Config], str] = lambda config: config.key
    ahead: int = 4
    interrupt_after: int | None = None
    now: float = 0.0
    measured: list[MeasureInput] = field(default_factory=list)
    compared: list[list[str]] = field(default_factory=list)
    built: list[Config] = field(default_factory=list)
    incumbents: list[float] = field(default_factory=list)
    closed: bool = False
    replays: bool = False
    disturbed: Callable[[Config], bool] = lambda config: False
    _config_of: dict[str, Config] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now

    def measure(self, candidates: Iterable[MeasureInput]) -> Iterator[Measurement]:
        source, queue = iter(candidates), deque[MeasureInput]()
        try:
            while True:
                queue.extend(islice(source, self.ahead - len(queue)))
                if not queue:
                    return
                if len(self.measured) == self.interrupt_after:
                    raise KeyboardInterrupt
                self.now += 1.0
                candidate = queue.popleft()
                self.measured.append(candidate)
                result = _result(self.cost(candidate))
                if isinstance(result, MeasureResult):
                    result = replace(result, disturbed=self.disturbed(candidate.config))
                failed = isinstance(result, Failure) and result.kind in ("schedule", "lower", "compile")
                yield Measurement(candidate, None if failed else self._build(candidate), result)
        finally:
            self.closed = True

    def build(self, candidates: Sequence[MeasureInput]) -> list[BuildResult | Failure]:
        self.built += [candidate.config for candidate in candidates]
        builds = [self._rebuilt(candidate) for candidate in candidates]
        for candidate, build in zip(candidates, builds, strict=True):
            if isinstance(build, BuildResult):
                self._config_of[build.kernel.ir_hash] = candidate.config
        return builds

    def compare(
        self, candidate: MeasureInput, builds: Sequence[BuildResult], rounds: int = 20
    ) -> list[MeasureResult | Failure]:
        self.compared.append([build.kernel.ir_hash for build in builds])
        cost = self.true_cost or self.cost
        return [
            _result(
                cost(
                    MeasureInput(
                        candidate.workload, self._config_of[build.kernel.ir_hash], candidate.interface, candidate.target
                    )
                )
            )
            for build in builds
        ]

    def incumbent(self, seconds: float, candidate: MeasureInput) -> None:
        self.incumbents.append(seconds)

    def _rebuilt(self, candidate: MeasureInput) -> BuildResult | Failure:
        if candidate.recorded is None:
            return self._build(candidate)
        if not self.replays:
            return Failure("schedule", "its steps give other code now")
        return self._build(candidate, candidate.recorded.ir_hash)

    def _build(self, candidate: MeasureInput, code: str = "") -> BuildResult:
        kernel = KernelObject("kernel", b"", code or self.code(candidate.config), (), 0, 0, 0, 0)
        return BuildResult(kernel, "[]", "direct", 0.25)


def _result(cost: float | Failure) -> MeasureResult | Failure:
    if isinstance(cost, Failure):
        return cost
    return MeasureResult(cost, 0.0, 8, 10, 100.0, 0.0, 0.0, 1e-5, wall_seconds=0.5)


def make_task(space: ConfigSpace, channels: int = 8, weight: float = 1.0, ideal_seconds: float = 0.0) -> TuningTask:
    """A task over a synthetic space; the number of channels tells workloads apart."""
    workload = parse_workload(LINE.replace("8,8,8", f"{channels},8,8").replace("8,8,3", f"8,{channels},3"))
    union = TaskSpace({"synthetic": Member(space, space.default())})
    return TuningTask(workload, TARGET, union, weight=weight, ideal_seconds=ideal_seconds)


LINE = "conv2d data=1,8,8,8 weight=8,8,3,3 pad=1"
TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
