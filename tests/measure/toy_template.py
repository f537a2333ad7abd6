"""A user's own template: workers import this file, and it can go wrong on demand."""

from __future__ import annotations

import ctypes
import time

from autotune.errors import CodegenError, LoweringError, ScheduleError
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule.schedule import Schedule
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target

TROUBLE = ("none", "schedule", "lower", "compile", "crash", "hang", "bomb", "surprise")


@template("toy.rows", op="matmul")
class Rows:
    """Splits the rows of a matrix product."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return True

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        return ConfigSpace((Choice("rows", (1, 2, 4)), Choice("trouble", TROUBLE)))

    def default(self, workload: Workload, target: Target) -> Config:
        return Config.of(rows=2, trouble="none")

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        match config.get_str("trouble"):
            case "schedule":
                raise ScheduleError("no such loop: q")
            case "lower":
                raise LoweringError("a region is unbounded")
            case "compile":
                raise CodegenError("LLVM refused the IR")
            case "crash":
                ctypes.string_at(0)
            case "hang":
                time.sleep(600)
            case "bomb":
                blocks = []
                while True:
                    blocks.append(bytearray(8 << 20))
            case "surprise":
                raise ZeroDivisionError("of all things")
        schedule = Schedule(compute_def(workload))
        stage = schedule.compute.stages[0]
        schedule = schedule.split(stage.name, stage.axes[0].name, config.get_int("rows"))
        return schedule.parallel(stage.name, f"{stage.axes[0].name}.0")


if __name__ == "__main__":
    raise SystemExit("importing this file by its path must not run it as a script")
