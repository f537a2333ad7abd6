"""`autotune.explain`: one kernel of a model, or one operator, laid open."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.api.compile import tasks
from autotune.api.locate import DatabaseLike, reading
from autotune.arguments import checked
from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.tasks import KernelTask
from autotune.errors import InputError
from autotune.ops import Workload, parse_workload
from autotune.records import Tier
from autotune.report.explain import Explanation
from autotune.search_spaces import Config, default_of
from autotune.search_spaces.space.limit import limit
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource


@checked
def explain(
    what: str | Workload | ModelSource,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    node: str | None = None,
    config: Config | None = None,
    template: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, object] | None = None,
    precision: str = "model",
    max_error: float | None = None,
) -> Explanation:
    """Why a kernel is as fast as it is: loops, footprints, code, and what the cost model makes of it.

    Args:
        what: an operator, as a Workload or as text ("matmul a=128,768 b=768,3072"); or a model, as for `compile`.
        target, database: as for `autotune.compile`.
        node: of a model: an ONNX node that the kernel computes, or the beginning of its workload's key; None for the
            kernel in which most of the model's least time is.
        config: explain this schedule instead of the one that would be used; `template`: that of this template, untuned.
        shapes, inputs, precision, max_error: as for `autotune.tasks`.

    Raises:
        InputError: the model has no such node; both a config and a template are given.
        ConfigError: there is no such template, or it cannot compute this.
        WorkloadError, ModelError, TargetError, DatabaseError, ScheduleError: as their names say.
    """
    if config is not None and template is not None:
        raise InputError("give a config or a template, not both: a config names its template")
    wanted = Target.parse(target)
    if isinstance(what, Workload) or (isinstance(what, str) and " " in what and not os.path.exists(what)):
        workload = parse_workload(what) if isinstance(what, str) else what
        task = KernelTask(workload, None, 1)
    else:
        found = tasks(
            what, wanted, shapes=shapes, inputs=inputs, precision=precision, max_error=max_error, database=database
        )
        task = _named(found, node) if node is not None else _heaviest(found, wanted)
    if template is not None:
        config = default_of(template, task.workload, wanted)
    if config is not None:
        choice = Choice(config, Tier.MISS, "asked for")
    else:
        with reading(database) as opened:
            choice = Chooser(wanted, opened)(task.workload, task.interface)
    return Explanation.of(task.workload, wanted, choice, task.interface)


def _named(found: Sequence[KernelTask], node: str) -> KernelTask:
    for task in found:
        if any(node in names for names in task.origins) or (len(node) >= 4 and task.workload.key.startswith(node)):
            return task
    known = [names[0] for task in found for names in task.origins if names]
    shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
    raise InputError(f"no kernel computes a node '{node}'; `autotune tasks` lists them: {shown or 'no names'}")


def _heaviest(found: Sequence[KernelTask], target: Target) -> KernelTask:
    if not found:
        raise InputError("the model has no kernels")
    return max(found, key=lambda task: task.uses * limit(task.workload, target).seconds)
