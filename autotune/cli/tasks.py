"""`autotune tasks`: what there is to tune in a model."""

from __future__ import annotations

from typing import Any

from autotune.cli.asked import Asked
from autotune.cli.options import (
    JsonOption,
    ModelArgument,
)
from autotune.cli.status import working
from autotune.cli.text import cell, percents, print_json, print_prose, print_table, table
from autotune.report.text import counted, duration, work


def tasks(
    model: ModelArgument,
    *,
    asked: Asked,
    as_json: JsonOption = False,
) -> None:
    """List the distinct kernels of a model: how much of it they are, and what is known about them."""
    with working("starting"):
        from autotune.api.compile import tasks as find_tasks
        from autotune.api.locate import reading
        from autotune.compiler.choose import Chooser
        from autotune.report.naming import task_name
        from autotune.search_spaces import templates_for

        parsed = asked.parsed_target()
    with working(f"finding the kernels of {model}"):
        found = find_tasks(
            model, parsed, shapes=asked.shapes, inputs=asked.arrays(),
            precision=asked.precision, max_error=asked.max_error, database=asked.database,
        )  # fmt: skip
    total = sum(task.uses * task.workload.flops for task in found)
    rows: list[dict[str, Any]] = []
    with reading(asked.database) as database:
        choose = Chooser(parsed, database)
        for task in found:
            choice = choose(task.workload, task.interface)
            rows.append(
                {
                    "workload": task.workload.key,
                    "operator": task.workload.describe(),
                    "nodes": task.origins,
                    "uses": task.uses,
                    "flops": task.workload.flops,
                    "share": task.uses * task.workload.flops / (total or 1),
                    "templates": [template.name for template in templates_for(task.workload, parsed)],
                    "tier": choice.tier.value,
                    "reason": choice.reason,
                    "seconds": choice.seconds,
                }
            )
    rows.sort(key=lambda row: -row["share"])
    if as_json:
        print_json({"model": str(model), "target": str(parsed), "flops": total, "tasks": rows})
        return
    shown = table(
        "share", "uses", "MFLOP each", "record", "time", "node", "operator", "templates",
        right=("share", "uses", "MFLOP each", "time"), long=("operator", "node"), ends=("node",),
        spare=("templates", "MFLOP each", "time", "uses", "record"),
    )  # fmt: skip
    for row, share in zip(rows, percents([row["share"] for row in rows])):
        shown.add_row(
            share,
            str(row["uses"]),
            f"{row['flops'] / 1e6:.2f}",
            row["tier"],
            duration(row["seconds"]),
            cell(task_name(row["nodes"])),
            row["operator"],
            " ".join(row["templates"]),
        )
    print_table(shown)
    uses = sum(row["uses"] for row in rows)
    print_prose(f"{counted(len(rows), 'task')}, {counted(uses, 'kernel')}, {work(total)}; share: of the model's FLOP")
