"""What goes into a measurement and what comes out: plain data, with a form for the pipe to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from autotune.codegen.kernel import KernelObject
from autotune.codegen.kernel_json import kernel_from_json, kernel_to_json
from autotune.errors import MeasureError
from autotune.measure.protocol import Json, Message
from autotune.ops.workload import Workload
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.replay import Recorded
from autotune.target import Target


@dataclass(frozen=True, slots=True)
class MeasureInput:
    """One candidate: what to compute, how, in which layouts (None: the template's own), and for which machine.

    `recorded`: stored steps that make the kernel in place of the config, which no longer gives its code.
    """

    workload: Workload
    config: Config
    interface: Interface | None
    target: Target
    recorded: Recorded | None = None

    def to_json(self) -> dict[str, Json]:
        return {
            "workload": self.workload.to_json(),
            "config": self.config.to_json(),
            "interface": self.interface.to_json() if self.interface else None,
            "target": self.target.to_json(),
            "recorded": self.recorded.to_json() if self.recorded else None,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MeasureInput:
        """Inverse of `to_json`; the parts raise their own errors."""
        return MeasureInput(
            Workload.from_json(data["workload"]),
            Config.from_json(data["config"]),
            Interface.from_json(data["interface"]) if data["interface"] is not None else None,
            Target.from_json(data["target"]),
            Recorded.from_json(data["recorded"]) if data["recorded"] is not None else None,
        )


@dataclass(frozen=True, slots=True)
class BuildResult:
    """A candidate as machine code.

    Attributes:
        kernel: object code and how to call it.
        steps: canonical JSON of the schedule; replays without the template.
        algorithm: which ComputeDef of the workload it is ("direct", ...); sets the tolerance.
        seconds: what building took, wall clock.
    """

    kernel: KernelObject
    steps: str
    algorithm: str
    seconds: float

    def to_message(self) -> Message:
        body: dict[str, Json] = {"steps": self.steps, "algorithm": self.algorithm, "seconds": self.seconds}
        return Message({**body, "kernel": kernel_to_json(self.kernel)}, (self.kernel.object_code,))

    @staticmethod
    def from_message(message: Message) -> BuildResult:
        body = cast("dict[str, Any]", message.body)
        kernel = kernel_from_json(body["kernel"], message.blobs[0])
        return BuildResult(kernel, body["steps"], body["algorithm"], body["seconds"])


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The time of a verified kernel.

    Attributes:
        seconds: per call, the minimum over batches.
        spread: (median - minimum) / minimum of the batches.
        batches, number: how many batches of how many calls.
        probe_gflops: best FMA probe between the batches: the clock at that time.
        max_abs_err, max_rel_err: of the worst output, relative to the output's range.
        tolerance: the absolute error that was allowed there.
        wall_seconds: what loading, verifying and timing took together.
        disturbed: the machine was busy with other things, each time it was timed: the kernel is likely faster.
    """

    seconds: float
    spread: float
    batches: int
    number: int
    probe_gflops: float
    max_abs_err: float
    max_rel_err: float
    tolerance: float
    wall_seconds: float = 0.0
    disturbed: bool = False

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @staticmethod
    def from_json(data: Json) -> MeasureResult:
        """Inverse of `to_json`.

        Raises:
            MeasureError: fields are missing or unknown.
        """
        names = {field.name for field in fields(MeasureResult)}
        if not isinstance(data, dict) or data.keys() != names:
            raise MeasureError(f"no measure result: {str(data)[:200]}")
        return MeasureResult(**cast("dict[str, Any]", data))
