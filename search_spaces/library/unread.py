"""Work for elements beyond an end that the run decides, as the length of a cache: left out wherever nobody looks."""

from __future__ import annotations

from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.skip import looked_at, rests


def skip_what_nobody_reads(schedule: Schedule, workload: Workload) -> Schedule:
    """A finished schedule whose stages compute no elements that all their readers leave out, nor results that nobody
    reads."""
    for n, number in enumerate(workload.outputs):
        name = f"out{n}"
        for axis in _open_ends(workload, number):
            s = schedule.state.stage(name)
            if any(e.a == s.stage.axes[axis].var for e in rests(s)):
                schedule = schedule.leave_rest(name, axis)
    for s in reversed(schedule.state.stages):  # readers first: what they leave out, they read nothing for
        if looked_at(schedule.state, s):
            schedule = schedule.skip_unread(s.name)
    return schedule


def _open_ends(workload: Workload, number: int) -> list[int]:
    """Dimensions along which nobody reads the rest of a result."""
    found: list[int] = []
    while number >= len(workload.inputs):
        node = workload.nodes[number - len(workload.inputs)]
        if node.op != "until":
            break
        if ("rest", "any") in node.attrs:
            found.append(node.attr("axis"))
        number = node.inputs[0]
    return found
