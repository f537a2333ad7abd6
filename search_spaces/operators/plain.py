"""The template of last resort: every stage as plain loops, the outermost shared among threads. Always correct."""

from __future__ import annotations

from autotune.errors import ScheduleError
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import flag
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target

PLAIN = "plain"


@template(PLAIN, op=None, priority=-100.0, weight=0.01)
class Plain:
    """Computes any workload in any layouts."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return True

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        return ConfigSpace((flag("shared", default=True),))

    def default(self, workload: Workload, target: Target) -> Config:
        return self.space(workload, target).default()

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        return plain_schedule(workload, interface, shared=config.get_bool("shared"))


def plain_schedule(workload: Workload, interface: Interface | None, *, shared: bool = True) -> Schedule:
    """Every stage as its own loops, in the order of its axes; `shared` among threads along the longest axis."""
    s = with_layouts(Schedule(compute_def(workload)), interface, {})
    if not shared:
        return s
    for stage in s.state.stages:
        widest = max((x for x in stage.loops if not x.reduce), key=lambda x: x.extent, default=None)
        if widest is None:
            continue
        try:
            others = [x.name for x in stage.loops if x is not widest]
            s = s.reorder(stage.name, widest.name, *others).parallel(stage.name, widest.name)
        except ScheduleError:  # a scan along the widest axis stays on one thread
            continue
    return s
