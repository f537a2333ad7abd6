"""`autotune check`: whether a model can be compiled, and everything that stands in the way, at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.cli.asked_target import AskedTarget
from autotune.cli.options import (
    ImportOption,
    JsonOption,
    RunnableArgument,
    ShapeOption,
    load_imports,
    parse_shapes,
)
from autotune.cli.status import working
from autotune.cli.text import facts, print_json, print_table
from autotune.report.text import work

if TYPE_CHECKING:
    from autotune.tensor.declared import ModelInput, ModelOutput


def check(
    model: RunnableArgument,
    *,
    asked: AskedTarget,
    shape: ShapeOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a model can be compiled; every unsupported operator is named at once.

    Of a file that `autotune compile` wrote it checks the model in it, if it holds one.
    """
    with working("starting"):
        from autotune.api.staged import model_in
        from autotune.compiler.outline import outline
        from autotune.compiler.tasks import kernel_tasks
        from autotune.graph import open_model, optimize

        load_imports(imports)
        target = asked.parsed_target()
    with working(f"checking {model}"):
        parsed = open_model(model_in(model), parse_shapes(shape))
        found = outline(parsed)
        tasks = kernel_tasks(optimize(found.graph), target) if found.graph is not None else ()
    kernels = sum(task.uses for task in tasks)
    flops = sum(task.uses * task.workload.flops for task in tasks)
    values = (
        {} if found.open or found.graph is None else {o.name: found.graph.values[o.value] for o in found.graph.outputs}
    )
    inputs = {declared.name: _form(declared) for declared in parsed.inputs}
    unknown = [declared for declared in parsed.inputs if declared.is_tensor and declared.shape is None]
    outputs = {
        name: f"{values[name].dtype}{list(values[name].shape)}" if name in values else _form(declared)
        for name, declared in parsed.outputs.items()
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
            ("kernels", _kernels(unknown) if unknown else f"{kernels} of {len(tasks)} kinds, {work(flops)}"),
            ("programs", f"{found.segments}{' at least: the run decides the shapes' if found.open else ''}"),
            ("on the host", ", ".join(found.host_nodes) or "nothing"),
        )
    )


def _form(declared: ModelInput | ModelOutput) -> str:
    if declared.wraps:
        return f"{' '.join(declared.wraps)} of {declared.dtype or 'tensors'}"
    if declared.dtype is None or declared.dims is None:
        return f"{declared.dtype or ''} of a shape that the run decides".strip()
    return f"{declared.dtype}[{', '.join('?' if dim is None else str(dim) for dim in declared.dims)}]"


def _kernels(unknown: Sequence[ModelInput]) -> str:
    """What to give to see them."""
    shapes = (
        f"--shape {declared.name}={','.join(str(d) if isinstance(d, int) else '1' for d in declared.dims or ('...',))}"
        for declared in unknown
    )
    return f"made for each shape that a run brings; to see them, give for example {' '.join(shapes)}"
