"""What there is to tune in a model: the distinct kernels that the compiler would build."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from autotune.codegen.beside import Beside
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import asked
from autotune.compiler.choose import Chooser
from autotune.compiler.costs import Costs
from autotune.compiler.defaults import Defaults
from autotune.compiler.layouts import assign
from autotune.compiler.slots import Assignment, KernelStep
from autotune.compiler.wishes import bare, leads_layouts
from autotune.graph import Graph, Group, partition
from autotune.ops.workload import Workload
from autotune.records import Database
from autotune.search_spaces import Interface
from autotune.target import Target
from autotune.tensor.layout import Layout

WORTH = 0.03
MOST = 16
"""How many kernels in other layouts to propose."""


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to tune.

    Attributes:
        workload: what it computes.
        interface: the layouts it has in the model; None when its template leads and chooses them itself.
        uses: how often the model runs it per inference, on average over its shapes.
        origins: for each use, the names of the ONNX nodes that the kernel computes, the anchor's first.
    """

    workload: Workload
    interface: Interface | None
    uses: float
    origins: tuple[tuple[str, ...], ...] = ()


def model_key(groups: Iterable[Group]) -> str:
    """Identity of what a model computes, whatever its weights and names: 16 hex digits."""
    keys = sorted(group.workload.key for group in groups)
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]


def kernel_tasks(
    graph: Graph,
    target: Target,
    database: Database | None = None,
    cache: ObjectCache | None = None,
    *,
    strict_fp: bool = False,
) -> tuple[KernelTask, ...]:
    """The kernels of an optimised graph, transforms included, in the order in which they first run.

    The layouts are those that the default schedules lead to, or, given a database, the best known ones.

    Raises:
        WorkloadError: no template can compute some group.
    """
    _, assignment = _assigned(graph, target, database, cache, strict_fp)
    return merged(KernelTask(step.workload, step.asked, 1, (step.origins,)) for step in assignment.steps)


def merged(tasks: Iterable[KernelTask]) -> tuple[KernelTask, ...]:
    """Tasks of several programs: equal ones are one, with the uses of all."""
    found: dict[tuple[Workload, Interface | None], KernelTask] = {}
    for task in tasks:
        before = found.get((task.workload, task.interface), KernelTask(task.workload, task.interface, 0))
        uses, origins = before.uses + task.uses, before.origins + task.origins
        found[task.workload, task.interface] = replace(before, uses=uses, origins=origins)
    return tuple(found.values())


def alternative_tasks(
    graph: Graph,
    target: Target,
    database: Database | None = None,
    cache: ObjectCache | None = None,
    *,
    strict_fp: bool = False,
) -> tuple[KernelTask, ...]:
    """Kernels whose templates lead, in layouts that would save the transforms beside them, the dearest ones first.

    Measured, they are what layout assignment chooses among. A transform is worth saving when it takes at least
    `WORTH` of its neighbour's time.
    """
    chooser, assignment = _assigned(graph, target, database, cache, strict_fp)
    costs = Costs(chooser)
    copies = {step.outputs[0]: step for step in assignment.steps if step.workload.nodes[0].op == "layout"}
    readers: Counter[int | str] = Counter(slot for step in assignment.steps for slot in step.inputs)
    readers.update(assignment.outputs.values())
    copied_once = {step.inputs[0]: step for step in copies.values() if readers[step.inputs[0]] == 1}
    saved: dict[tuple[Workload, Interface], _Proposal] = {}
    for step in assignment.steps:
        if not leads_layouts(step.workload):
            continue
        layouts, gain = list(step.interface.layouts), 0.0
        before = {n: copies[slot] for n, slot in enumerate(step.inputs) if isinstance(slot, int) and slot in copies}
        for number, copy in before.items():
            layouts[number] = _with_halo(assignment, copy, step.interface.layouts[number])
            gain += costs.step(copy)
        proposals = [(tuple(layouts), gain)] if before else []
        after = copied_once.get(step.outputs[0])
        if after is not None:
            written = bare(after.interface.layouts[1])
            proposals += [
                ((*given[:-1], written), found + costs.step(after))
                for given, found in ((step.interface.layouts, 0.0), *proposals)
            ]
        for given, found in proposals:
            if found >= WORTH * (step.choice.seconds or 0.0):
                proposal = saved.setdefault((step.workload, Interface(given)), _Proposal())
                proposal.gain += found
                proposal.origins.append(step.origins)
    best = sorted(saved.items(), key=lambda item: -item[1].gain)[:MOST]
    return tuple(
        KernelTask(workload, interface, len(proposal.origins), tuple(proposal.origins))
        for (workload, interface), proposal in best
    )


def _assigned(
    graph: Graph, target: Target, database: Database | None, cache: ObjectCache | None, strict_fp: bool
) -> tuple[Chooser, Assignment]:
    """The layouts of all values as a compiler would choose them, on all cores."""
    groups = partition(graph)
    with Beside([asked.MODULE]) as beside:
        defaults = Defaults(cache, target, beside, database)
        chooser = Chooser(target, database, strict_fp=strict_fp, untuned=defaults)
        defaults.ahead(chooser.without_record(group.workload for group in groups if not group.is_view))
        return chooser, assign(graph, groups, chooser, cache)


@dataclass(slots=True)
class _Proposal:
    """A kernel in other layouts: seconds that they save, and the nodes of each kernel that would have them."""

    gain: float = 0.0
    origins: list[tuple[str, ...]] = field(default_factory=list)


def _with_halo(assignment: Assignment, copy: KernelStep, wanted: Layout) -> Layout:
    """The layout that a transform reads, with the halo of the one that it writes, where its producer can leave one."""
    source = copy.inputs[0]
    assert isinstance(source, int)
    form = bare(copy.interface.layouts[0])
    slot = assignment.slots[source]
    if slot.part_of is not None or slot.value in assignment.inputs:
        return form
    blocked = {d for d, block in form.order if block}
    return form.with_halo([(0, 0) if d in blocked else pair for d, pair in enumerate(wanted.halo)], wanted.fill)
