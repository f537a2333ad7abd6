"""`autotune check`: whether a model can be compiled, and everything that stands in the way, at once."""

from __future__ import annotations

from autotune.cli.options import JsonOption, ModelArgument, ShapeOption, TargetOption, parse_shapes
from autotune.cli.text import facts, print_json, print_table


def check(
    model: ModelArgument, target: TargetOption = "native", shape: ShapeOption = None, as_json: JsonOption = False
) -> None:
    """Check that a model can be compiled; every unsupported operator is named at once."""
    from autotune.compiler.tasks import kernel_tasks
    from autotune.graph import load_model, optimize
    from autotune.target import Target

    graph = optimize(load_model(model, parse_shapes(shape)))
    tasks = kernel_tasks(graph, Target.parse(target))
    kernels = sum(task.uses for task in tasks)
    flops = sum(task.uses * task.workload.flops for task in tasks)
    inputs = {value.name: f"{value.dtype}{list(value.shape)}" for value in graph.inputs}
    outputs = {
        output.name: f"{graph.values[output.value].dtype}{list(graph.values[output.value].shape)}"
        for output in graph.outputs
    }
    if as_json:
        print_json(
            {"model": str(model), "inputs": inputs, "outputs": outputs, "tasks": len(tasks), "kernels": kernels,
             "flops": flops}
        )  # fmt: skip
        return
    print_table(
        facts(
            ("model", f"{model}: every operator is supported"),
            ("inputs", ", ".join(f"{name}: {form}" for name, form in inputs.items()) or "none"),
            ("outputs", ", ".join(f"{name}: {form}" for name, form in outputs.items())),
            ("kernels", f"{kernels} of {len(tasks)} kinds, {flops / 1e9:.2f} GFLOP"),
        )
    )
