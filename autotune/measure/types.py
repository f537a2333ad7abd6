"""What goes into a measurement and what comes out: plain data, with a form for the pipe to the workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from autotune.codegen.kernel import KernelObject
from autotune.codegen.kernel_json import kernel_from_json, kernel_to_json
from autotune.errors import AutotuneError, MeasureError
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
        """Inverse of `to_message`.

        Raises:
            MeasureError: it is no build.
        """
        body = cast("dict[str, Any]", message.body)
        try:
            kernel = kernel_from_json(body["kernel"], message.blobs[0])
            seconds = float(body["seconds"])
        except (KeyError, TypeError, ValueError, IndexError, AutotuneError) as error:
            raise MeasureError(f"no build: {type(error).__name__}: {error}") from error
        if not (isinstance(body.get("steps"), str) and isinstance(body.get("algorithm"), str)):
            raise MeasureError(f"no build: steps and algorithm are {body.get('steps')!r}, {body.get('algorithm')!r}")
        if not 0 <= seconds < math.inf:
            raise MeasureError(f"no build: it took {seconds} s")
        return BuildResult(kernel, body["steps"], body["algorithm"], seconds)


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The time of a verified kernel.

    Attributes:
        seconds: per call, at the usual clock; see `timing`.
        spread: (median - minimum) / minimum of the batches.
        batches, number: how many batches of how many calls.
        probe_gflops: best FMA probe between the rounds.
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
            MeasureError: fields are missing or unknown, or hold what no measurement gives.
        """
        names = {field.name for field in fields(MeasureResult)}
        if not isinstance(data, dict) or data.keys() != names or not _is_measured(data):
            raise MeasureError(f"no measure result: {str(data)[:200]}")
        return MeasureResult(**cast("dict[str, Any]", data))


def _is_measured(data: Mapping[str, Json]) -> bool:
    """Whether the seconds and counts are such as a clock gives, and the rest are numbers that make sense."""
    numbers = {name: value for name, value in data.items() if name != "disturbed"}
    return (
        isinstance(data["disturbed"], bool)
        and all(type(value) in (int, float) and 0 <= cast(float, value) < math.inf for value in numbers.values())
        and cast(float, data["seconds"]) > 0
        and all(type(data[name]) is int and cast(int, data[name]) >= 1 for name in ("batches", "number"))
    )
