"""What templates of one heavy operator with elementwise work around it have in common."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import ConfigError
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import StageState
from autotune.search_spaces.space.interface import Interface
from autotune.tensor.layout import Layout


@dataclass(frozen=True, slots=True)
class Anchored:
    """A schedule in which only the anchor's stages and the output are left.

    Attributes:
        schedule: with prologue and epilogue inlined.
        anchor: name of the stage that the anchor's result is in, not the output itself.
        output: name of the output stage.
    """

    schedule: Schedule
    anchor: str
    output: str

    def axes(self, stage: str) -> tuple[str, ...]:
        """Spatial axis names of a stage."""
        return tuple(a.name for a in self.schedule.state.stage(stage).stage.axes)

    def extent(self, axis: str) -> int:
        """Extent of an axis of the output."""
        return self.schedule.state.stage(self.output).stage.axis(axis).extent

    def reduce_axes(self, stage: str) -> tuple[str, ...]:
        return tuple(a.name for a in self.schedule.state.stage(stage).stage.reduce_axes)


def anchored(workload: Workload, algorithm: str = "direct", *packed: str) -> Anchored:
    """Inline everything elementwise but the stages `packed`, so that it happens while accumulators are in registers.

    The last stage that cannot be inlined is the anchor; when it is the output itself, a copy is put behind it.
    """
    schedule = Schedule(compute_def(workload, algorithm))
    (output,) = schedule.compute.outputs
    heavy = [s.name for s in schedule.state.stages if not elementwise(s)]
    for s in schedule.state.stages:
        if elementwise(s) and s.name not in (output, *packed):
            schedule = schedule.inline(s.name)
    if heavy[-1] == output:
        schedule = schedule.cache_write(output)
        return Anchored(schedule, f"{output}.c", output)
    return Anchored(schedule, heavy[-1], output)


def elementwise(s: StageState) -> bool:
    return s.stage.reducer is None and unordered(s)


def unordered(s: StageState) -> bool:
    """One result, whose elements may be computed in any order."""
    ordered = s.stage.scan_axis is not None or s.stage.extern is not None or s.stage.recurrence is not None
    return not ordered and len(s.stage.outputs) == 1


def with_layouts(schedule: Schedule, interface: Interface | None, chosen: dict[str, Layout]) -> Schedule:
    """Apply the interface's layouts, or the template's own choice where there is none.

    Constant operands always take the template's choice: their packing is part of the kernel.

    Raises:
        ConfigError: when the interface has another number of operands.
    """
    state = schedule.state
    operands = [*schedule.compute.inputs, *(state.tensor(n) for n in schedule.compute.outputs)]
    if interface is not None and len(interface.layouts) != len(operands):
        raise ConfigError(f"the interface has {len(interface.layouts)} layouts, the kernel {len(operands)} operands")
    read = {t.name for t in (*state.inputs, *operands[len(schedule.compute.inputs) :])}
    for n, t in enumerate(operands):
        if t.name not in read:  # a constant of which something else was prepared
            continue
        layout = chosen.get(t.name)
        if interface is not None and not (t.constant and layout is not None):
            layout = interface.layouts[n]
        if layout is not None and layout != Layout.row_major(len(t.shape)):
            schedule = schedule.layout(t.name, layout)
    return schedule


def divisors(n: int, limit: int) -> tuple[int, ...]:
    """Divisors of n up to a limit, ascending."""
    return tuple(d for d in range(1, min(n, limit) + 1) if n % d == 0)
