"""What there is to tune in a model: the distinct kernels that the compiler would build."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.choose import Chooser
from autotune.compiler.slots import assign, leads_layouts
from autotune.graph import Graph, Group, partition
from autotune.ops.workload import Workload
from autotune.records import Database
from autotune.search_spaces import Interface
from autotune.target import Target


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to tune.

    Attributes:
        workload: what it computes.
        interface: the layouts it has in the model; None when its template leads and chooses them itself.
        uses: how often the model runs it per inference.
    """

    workload: Workload
    interface: Interface | None
    uses: int


def model_key(groups: Iterable[Group]) -> str:
    """Identity of what a model computes, whatever its weights and names: 16 hex digits."""
    keys = sorted(group.workload.key for group in groups)
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]


def kernel_tasks(
    graph: Graph, target: Target, database: Database | None = None, cache: ObjectCache | None = None
) -> tuple[KernelTask, ...]:
    """The kernels of an optimised graph, transforms included, in the order in which they first run.

    The layouts are those that the default schedules lead to, or, given a database, the best known ones.

    Raises:
        WorkloadError: no template can compute some group.
    """
    counts: dict[tuple[Workload, Interface | None], int] = {}
    for step in assign(graph, partition(graph), Chooser(target, database), cache).steps:
        key = (step.workload, None if leads_layouts(step.workload) else step.interface)
        counts[key] = counts.get(key, 0) + 1
    return tuple(KernelTask(workload, interface, uses) for (workload, interface), uses in counts.items())
