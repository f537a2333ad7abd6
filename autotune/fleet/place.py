"""A cluster as a workplace: its workers build and measure, for a target that need not be this machine's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from autotune.errors import ClusterError, TargetError
from autotune.fleet.engine import Fleet, Patience
from autotune.fleet.identity import Identity, run_resource
from autotune.fleet.workers import FleetBuilder, FleetRunner
from autotune.measure.pipeline import Pipeline, RunnerLike
from autotune.measure.spill_filter import SpillFilter
from autotune.target import Target


class FleetPlace:
    """See `api.workplace.Workplace`."""

    def __init__(self, fleet: Fleet, target: Target) -> None:
        self.target = target
        self._fleet = fleet

    def runner(self) -> AbstractContextManager[FleetRunner]:
        return nullcontext(FleetRunner(self._fleet, self.target))

    def pipeline(self, runner: RunnerLike, weight_bytes: int) -> AbstractContextManager[Pipeline]:
        builder = FleetBuilder(self._fleet)
        return nullcontext(Pipeline(builder, runner, weight_bytes=weight_bytes, spill_filter=SpillFilter()))

    def racer(self) -> AbstractContextManager[FleetRunner]:
        return self.runner()


@contextmanager
def open_fleet(
    scheduler: str, target: str | Target | None, imports: Sequence[str] = (), patience: Patience | None = None
) -> Iterator[FleetPlace]:
    """Connects to a cluster, and finds out which of its runners' targets is meant.

    Args:
        scheduler: its address.
        target: as for `Target.parse`, or the key of a runner's target, or the beginning of one.
        imports: the user's own operators, which the workers must have, too.

    Raises:
        ClusterError: no scheduler, or no worker that can work with this process.
        TargetError: no runner has such a target.
    """
    with Fleet(scheduler, Identity.here(imports), patience) as fleet:
        yield FleetPlace(fleet, choose_target(fleet, target))


def choose_target(fleet: Fleet, wanted: str | Target | None) -> Target:
    """The target of a runner that a text means: the one with this key; else that of this machine, or one with the same
    CPU and number of threads.

    Raises:
        ClusterError: there are no runners. TargetError: none of theirs is meant, or several are.
    """
    code = fleet.identity.code
    known = {
        target.key: target
        for member in fleet.members
        if member.identity is not None and not member.problem
        for target in member.identity.targets
        if member.offers(run_resource(target, code))
    }
    if not known:
        problems = [f"{member.name}: {member.problem}" for member in fleet.members if member.problem]
        why = f"; {len(problems)} workers cannot be used, such as {problems[0]}" if problems else ""
        raise ClusterError(
            f"{fleet.scheduler} has no runner{why}; start one by: autotune worker --cluster {fleet.scheduler} --run"
        )
    if isinstance(wanted, str):
        named = [target for key, target in known.items() if key.startswith(wanted)]
        if len(named) == 1:
            return named[0]
    parsed = Target.parse(wanted)
    if parsed.key in known:
        return known[parsed.key]
    alike = [t for t in known.values() if (t.cpu, t.num_threads) == (parsed.cpu, parsed.num_threads)]
    if len(alike) == 1 and not isinstance(wanted, Target):
        return alike[0]
    raise TargetError(
        f"no runner of {fleet.scheduler} has the target {parsed.key}; choose one of theirs by --target: "
        f"{', '.join(sorted(known))}"
    )
