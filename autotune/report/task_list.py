"""The tasks of a model as a tuple that a notebook shows as a table."""

from __future__ import annotations

from autotune.compiler.tasks import KernelTask
from autotune.report.naming import task_name
from autotune.report.notebook import html_table
from autotune.report.text import counted, percent, work


class TaskList(tuple[KernelTask, ...]):
    """Kernels to tune; see `KernelTask`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<TaskList of {counted(len(self), 'task')}>"

    def _repr_html_(self) -> str:
        flops = [task.uses * task.workload.flops for task in self]
        order = sorted(range(len(self)), key=lambda n: -flops[n])
        rows = [
            (percent(flops[n] / (sum(flops) or 1)), str(self[n].uses), task_name(self[n].origins),
             self[n].workload.describe())
            for n in order
        ]  # fmt: skip
        title = f"{len(self)} tasks, {work(sum(flops))}"
        return html_table(title, ("share of FLOP", "uses", "node", "operator"), rows)
