"""`autotune check`: whether a model can be compiled, and everything that stands in the way, at once."""

from __future__ import annotations

from autotune.cli.options import JsonOption, ModelArgument, ShapeOption, TargetOption, parse_shapes
from autotune.cli.text import facts, print_json, print_table


def check(
    model: ModelArgument, target: TargetOption = "native", shape: ShapeOption = None, as_json: JsonOption = False
) -> None:
    """Check that a model can be compiled; every unsupported operator is named at once."""
    from autotune.compiler.outline import outline
    from autotune.compiler.tasks import kernel_tasks
    from autotune.graph import open_model, optimize
    from autotune.graph.frontend import require_static
    from autotune.target import Target

    parsed = open_model(model, parse_shapes(shape))
    require_static(parsed.inputs)
    found = outline(parsed)
    tasks = kernel_tasks(optimize(found.graph), Target.parse(target)) if found.graph is not None else ()
    kernels = sum(task.uses for task in tasks)
    flops = sum(task.uses * task.workload.flops for task in tasks)
    values = (
        {} if found.open or found.graph is None else {o.name: found.graph.values[o.value] for o in found.graph.outputs}
    )
    inputs = {declared.name: f"{declared.dtype}{list(declared.dims or ())}" for declared in parsed.inputs}
    outputs = {
        name: f"{values[name].dtype}{list(values[name].shape)}" if name in values else "decided by the run"
        for name in parsed.outputs
    }
    if as_json:
        print_json(
            {"model": str(model), "inputs": inputs, "outputs": outputs, "tasks": len(tasks), "kernels": kernels,
             "flops": flops, "segments": found.segments, "segments_open": found.open, "host_nodes": found.host_nodes}
        )  # fmt: skip
        return
    print_table(
        facts(
            ("model", f"{model}: every operator is supported"),
            ("inputs", ", ".join(f"{name}: {form}" for name, form in inputs.items()) or "none"),
            ("outputs", ", ".join(f"{name}: {form}" for name, form in outputs.items())),
            ("kernels", f"{kernels} of {len(tasks)} kinds, {flops / 1e9:.2f} GFLOP"),
            ("programs", f"{found.segments}{' at least: values of the run decide the shapes' if found.open else ''}"),
            ("on the host", ", ".join(found.host_nodes) or "nothing"),
        )
    )
