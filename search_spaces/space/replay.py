"""Replay: the schedule of a record from its stored steps, for when its template is gone or has changed.

Steps stand on the ComputeDef of an algorithm. That they still mean what was measured is not believed but seen: the code
they give has the stored IR hash, or they are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autotune.errors import CodegenError, ConfigError, LoweringError, ScheduleError, WorkloadError
from autotune.ops.registry import algorithms, compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.space.interface import Interface
from autotune.tensor.layout import Layout


@dataclass(frozen=True, slots=True)
class Recorded:
    """A schedule as a record holds it.

    Attributes:
        steps: canonical JSON.
        algorithm: what they stand on; empty where nobody noted it, which older versions did not.
        ir_hash: of the code that was measured.
    """

    steps: str
    algorithm: str
    ir_hash: str

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        values = {"algorithm": self.algorithm, "ir_hash": self.ir_hash, "steps": self.steps}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Recorded:
        """The inverse of `to_json`; ConfigError for anything else."""
        try:
            values = json.loads(text)
            return Recorded(str(values["steps"]), str(values["algorithm"]), str(values["ir_hash"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"not a recorded schedule: {text[:80]!r} ({error})") from None

    def schedule(self, workload: Workload, interface: Interface | None = None) -> Schedule:
        """The steps on the algorithm's definition, for operands in their own layouts or in those of an interface.

        Raises:
            ConfigError: the interface has another number of operands.
            ScheduleError: a step is unknown or illegal now, or there is no such algorithm.
        """
        try:
            compute = compute_def(workload, self.algorithm)
        except WorkloadError as error:
            raise ScheduleError(str(error)) from error
        schedule = Schedule.replay(compute, self.steps)
        return schedule if interface is None else in_layouts(schedule, interface)


def confirm(workload: Workload, recorded: Recorded, hash_of: Callable[[Schedule], str]) -> Recorded:
    """`recorded`, with its algorithm, when its steps still give the code that was measured.

    Args:
        hash_of: lowers a schedule: the IR hash of its code.

    Raises:
        ScheduleError: they do not replay, or give other code; in one line.
    """
    reason = "it has no steps or no IR hash"
    for found in _with_algorithms(workload, recorded) if recorded.ir_hash else ():
        try:
            if hash_of(found.schedule(workload)) == recorded.ir_hash:
                return found
            reason = "its steps give other code now"
        except (ScheduleError, LoweringError, CodegenError) as error:
            reason = f"its steps do not replay: {' '.join(str(error).split())}"
    raise ScheduleError(reason)


def in_layouts(schedule: Schedule, interface: Interface) -> Schedule:
    """The same steps for operands in the layouts of an interface; constant ones keep theirs, as part of the kernel.

    Raises:
        ConfigError: the interface has another number of operands.
        ScheduleError: a step is illegal in these layouts.
    """
    operands = [*schedule.compute.inputs, *(schedule.state.tensor(name) for name in schedule.compute.outputs)]
    if len(operands) != len(interface.layouts):
        raise ConfigError(f"the interface has {len(interface.layouts)} layouts, the kernel {len(operands)} operands")
    chosen = dict(schedule.state.layouts)
    wanted = {t.name: layout for t, layout in zip(operands, interface.layouts, strict=True) if not t.constant}
    plain = {t.name: Layout.row_major(len(t.shape)) for t in operands}
    if all(chosen.get(name, plain[name]) == layout for name, layout in wanted.items()):
        return schedule
    steps = json.loads(schedule.steps_json())
    first = next((n for n, (name, tensor, *_) in enumerate(steps) if name == "layout" and tensor in plain), 0)
    laid = [["layout", name, layout.to_json()] for name, layout in wanted.items() if layout != plain[name]]
    rest = [step for step in steps[first:] if step[0] != "layout" or step[1] not in wanted]
    return Schedule.replay(schedule.compute, json.dumps([*steps[:first], *laid, *rest]))


def _with_algorithms(workload: Workload, recorded: Recorded) -> Iterator[Recorded]:
    """The record with its algorithm, or with each that it may stand on."""
    if recorded.algorithm:
        yield recorded
        return
    anchor = workload.anchor
    for name in algorithms(anchor.op) if anchor is not None else ("direct",):
        yield replace(recorded, algorithm=name)
