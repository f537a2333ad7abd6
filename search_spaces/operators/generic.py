"""The schedule of last resort, and a good one: any workload, any layouts, no knowledge of the operator.

Everything follows from the stages: cheap ones are inlined, the others computed inside the loops of the outputs wherever
these run along them in step (a softmax is one loop over rows), sums in registers. The output's memory decides the
order of loops and the vector. What cannot be analysed is refused: the compiler says so, and uses plain loops.
"""

from __future__ import annotations

from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.library.access import innermost
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.library.fusion import cones, inline_cheap, same_point
from autotune.search_spaces.library.nests import ConeScheduler, Options
from autotune.search_spaces.library.turns import turns_schedule
from autotune.search_spaces.library.unread import skip_what_nobody_reads
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, flag
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target
from autotune.tensor.expr import Var, walk

UNROLL = (1, 2, 4, 8)
PARTIALS = (1, 2, 4, 8)
GRAIN = (1, 4, 16)
ROWS = (1, 2, 4, 8)


@template("generic", op=None, weight=0.1, priority=-10.0)
class Generic:
    """Every workload that has a definition."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return True

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        return ConfigSpace(
            (
                Choice("unroll", UNROLL, 4),
                Choice("partials", PARTIALS, 4),
                Choice("grain", GRAIN, 4),
                Choice("rows", ROWS, 4),
                flag("half"),
            )
        )

    def default(self, workload: Workload, target: Target) -> Config:
        return self.space(workload, target).default()

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        if any(s.recurrence is not None for s in compute_def(workload).stages):
            return turns_schedule(workload, target, interface)
        return generic_schedule(workload, target, options_of(config), interface)


def options_of(config: Config) -> Options:
    """What a config says, as the scheduler takes it."""
    return Options(
        half=config.get_bool("half"),
        unroll=config.get_int("unroll"),
        partials=config.get_int("partials"),
        grain=config.get_int("grain"),
        rows=config.get_int("rows"),
    )


def generic_schedule(workload: Workload, target: Target, options: Options, interface: Interface | None) -> Schedule:
    """A schedule for any workload.

    Raises:
        ConfigError: when the interface has another number of operands than the workload.
        ScheduleError: a case that the analysis does not see through; known from no test.
    """
    schedule = inline_cheap(with_layouts(Schedule(compute_def(workload)), interface, {}))
    schedule = _separate_sums(_staged(schedule))
    reader = _readers(schedule)
    for cone in reversed(cones(schedule.state, frozenset(reader))):
        schedule = ConeScheduler(schedule, cone, reader, target, options).run()
    return skip_what_nobody_reads(schedule, workload)


def _staged(schedule: Schedule) -> Schedule:
    """Copy what is read across the blocks of a blocked dimension, so that neighbours become neighbours again."""
    for s in schedule.state.stages:
        if s.stage.reducer is None:
            continue
        for r in {r.tensor.name: r for r in s.reads()}.values():
            form = schedule.state.layout(r.tensor)
            for d, index in enumerate(r.indices):
                shifted = not isinstance(index, Var) and any(isinstance(x, Var) for x in walk(index))
                if form.block(d) > 1 and shifted and d == innermost(form, r.tensor.shape):
                    schedule = schedule.cache_read(r.tensor.name, s.name)
                    break
    return schedule


def _separate_sums(schedule: Schedule) -> Schedule:
    """Give sums that are written to memory a copy of their own to accumulate in."""
    for name in [s.name for s in schedule.state.stages]:
        s = schedule.state.stage(name)
        if s.stage.reducer is None or len(s.stage.outputs) > 1 or not s.stage.axes:
            continue
        rows: set[str] = set()
        for cone in cones(schedule.state, frozenset(_readers(schedule))):
            if name in cone.below:
                rows = {own for own, x in cone.maps[name].items() if x in cone.rows}
        if name in _readers(schedule) or all(a.extent == 1 or a.name in rows for a in s.stage.axes):
            if name not in schedule.compute.outputs:
                continue
        schedule = schedule.cache_write(name)
    return schedule


def _readers(schedule: Schedule) -> dict[str, str]:
    """Sums that one stage reads, each only where it is itself: they live in registers inside its loops."""
    found: dict[str, str] = {}
    for s in schedule.state.stages:
        consumers = schedule.state.consumers(s)
        inside = s.stage.reducer is not None and s.stage.axes and s.name not in schedule.compute.outputs
        if inside and len(consumers) == 1 and same_point(schedule.state, consumers[0].name, s.name):
            found[s.name] = consumers[0].name
    return found
