"""What must hold between the stages of a state after a step changed who reads what, or where."""

from __future__ import annotations

from autotune.errors import ScheduleError
from autotune.schedule.region import Regions
from autotune.schedule.registry import check
from autotune.schedule.state import StageState, State


def consistent(state: State, step: str) -> State:
    """The state itself.

    Raises:
        ScheduleError: when a stage that each thread computes would read what they compute together; when a stage that
            was placed at a loop would be read outside of it, or the part of it that is needed there would no longer be
            the one its loops were made for.
    """
    regions = Regions(state)
    names = {t.name for s in state.stages for t in s.stage.outputs}
    own = {t.name for t in state.inputs} | {t.name for s in state.stages if s.replicated for t in s.stage.outputs}
    for s in state.stages:
        if s.at is None:
            others = sorted({r.tensor.name for r in s.reads()} - own) if s.replicated else []
            check(not others, f"{step}: each thread computes {s.name}, but they have {', '.join(others)} together")
            continue
        host, loop = s.at
        check(host in names, f"{step}: {s.name} is computed inside {host}; {step.split()[0]} before compute_at")
        c = state.stage(host)
        position = c.position(loop)
        for reader in {reader.name: reader for reader, _ in regions.readers(s)}.values():
            check(
                is_inside(state, reader, c, position),
                f"{step}: {s.name} is computed at {host}.{loop}, where {reader.name} cannot read it; "
                f"{step.split()[0]} before compute_at",
            )
        if regions.of(s).extent != s.extents:
            raise ScheduleError(
                f"{step}: it changes which part of {s.name} is needed at {host}.{loop}; compute_at {s.name} afterwards"
            )
    return state


def is_inside(state: State, reader: StageState, c: StageState, position: int) -> bool:
    """`reader` runs within the loop at `position` of stage `c`."""
    while reader.name != c.name:
        if reader.at is None:
            return False
        host, loop = reader.at
        reader_host = state.stage(host)
        if reader_host.name == c.name:
            return c.position(loop) >= position
        reader = reader_host
    return True
