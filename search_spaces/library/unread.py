"""Work for elements beyond an end that the run decides, as the length of a cache: left out wherever nobody looks."""

from __future__ import annotations

from autotune.schedule import Schedule
from autotune.schedule.skip import looked_at


def skip_what_nobody_reads(schedule: Schedule) -> Schedule:
    """A finished schedule whose stages compute no elements that all their readers leave out."""
    for s in reversed(schedule.state.stages):  # readers first: what they leave out, they read nothing for
        if looked_at(schedule.state, s):
            schedule = schedule.skip_unread(s.name)
    return schedule
