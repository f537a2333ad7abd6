"""`best_schedule`: the best known schedule of a workload, as a value that builds a callable."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.api.locate import DatabaseLike, reading
from autotune.arguments import checked
from autotune.codegen.object_cache import object_cache
from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.kernel_cache import kernel_of
from autotune.errors import ScheduleError, WorkloadError
from autotune.ops import Workload, parse_workload
from autotune.records import Tier
from autotune.runtime.function import KernelFunction
from autotune.schedule import Schedule
from autotune.search_spaces import Config
from autotune.target import Target


@dataclass(frozen=True, slots=True)
class BestSchedule:
    """A schedule and how far it can be trusted.

    Attributes:
        tier: exact (measured on this target) or why not; only exact records are applied.
        reason: for people.
        config: template and knobs; the template's default when there is no exact record. Where the template has changed
            since, the record's stored steps make the schedule, and the reason says so.
        schedule: steps on the workload's ComputeDef.
        seconds: measured time, None for a default.
        workload, target: what it was asked for.
    """

    tier: Tier
    reason: str
    config: Config
    schedule: Schedule
    seconds: float | None
    workload: Workload
    target: Target

    def _repr_html_(self) -> str:
        from autotune.report.notebook import html_table
        from autotune.report.text import duration

        knobs = ", ".join(f"{name}={value}" for name, value in self.config.items())
        rows = [
            ("schedule", f"{self.tier.value}: {self.reason}"),
            ("measured", duration(self.seconds)),
            ("config", knobs or "none: stored steps"),
        ]
        return html_table(self.workload.describe(), ("what", "is"), rows, [f"for {self.target}"])

    def build(self) -> KernelFunction:
        """Compile and link: a function on ordinary NumPy arrays.

        Raises:
            TargetError: this machine cannot run the target's code.
        """
        kernel = kernel_of(self.schedule, self.target, object_cache())
        return KernelFunction(self.schedule.compute.inputs, kernel, self.target)


@checked
def best_schedule(
    workload: str | Workload, target: str | Target | None = None, database: DatabaseLike = None
) -> BestSchedule:
    """The best known schedule of a workload on a target; the template's default when none was measured here.

    Args:
        workload: a Workload, or text such as "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1".
        target: as for `autotune.compile`.
        database: as for `autotune.compile`.

    Raises:
        WorkloadError: malformed text, impossible shapes, or no template can compute it.
    """
    asked = parse_workload(workload) if isinstance(workload, str) else workload
    if not isinstance(asked, Workload):
        raise WorkloadError(f"a workload is a text or a Workload, not {workload!r}")
    wanted = Target.parse(target)
    with reading(database) as opened:
        chooser = Chooser(wanted, opened)
        choice, schedule = _made(asked, wanted, chooser, chooser(asked))
    return BestSchedule(choice.tier, choice.reason, choice.config, schedule, choice.seconds, asked, wanted)


def _made(workload: Workload, target: Target, chooser: Chooser, choice: Choice) -> tuple[Choice, Schedule]:
    """The choice with its schedule; where it cannot be made, another template's."""
    try:
        return choice, choice.schedule(workload, target)
    except ScheduleError as error:
        for other in chooser.others(workload, f"the first template's default does not build: {error}"):
            try:
                return other, other.schedule(workload, target)
            except ScheduleError:
                continue
        raise
