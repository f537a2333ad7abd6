"""`autotune.compile` and `autotune.tasks`: models in, programs and task lists out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.api.feeds import as_arrays
from autotune.api.locate import DatabaseLike, reading
from autotune.api.observe import observe
from autotune.arguments import checked
from autotune.codegen.object_cache import object_cache
from autotune.compiler.compile import CompiledModel
from autotune.compiler.precise import compile_precisely
from autotune.compiler.precision import Precision
from autotune.compiler.tasks import kernel_tasks, merged
from autotune.graph import load_model
from autotune.graph.optimizer import Optimizer
from autotune.report.task_list import TaskList
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource

Shapes = Mapping[str, Sequence[int]]


@checked
def compile(
    model: ModelSource,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    shapes: Shapes | None = None,
    fixed: Mapping[str, object] | None = None,
    strict_fp: bool = False,
    max_memory: int | None = None,
    skip_passes: Collection[str] = (),
    dump_graph: str | Path | None = None,
    precision: str = "model",
    max_error: float | None = None,
) -> CompiledModel:
    """Compile an ONNX model with the best schedules in a database; kernels without a record get defaults.

    Nothing is measured: use `tune` first.

    Args:
        model: a file, or its contents.
        target: "x86", "native", "x86 -mcpu=haswell -num-cores=2"; None for this machine.
        database: a file, an open Database, None for the user's default file, False for none.
        shapes: dimensions of inputs by name, where the model leaves them open.
        fixed: arrays by name: inputs that become constants of the program. So a model becomes one program though the
            value of an input decides shapes.
        strict_fp: no algorithm with larger rounding errors than the operators' definitions: no Winograd, no
            Strassen, no pieces of bf16.
        max_memory: bytes that packed weights and the memory of a run may take together.
        skip_passes: graph passes to leave out (`autotune passes` lists them).
        dump_graph: a folder for the graph before the passes and after each that changed it, as text and Graphviz.
        precision: floats that products are computed in: "model" (as it says), "f32", "bf16", "f16", or "auto" for bf16
            where it is faster. Sums, norms and softmax are f32 always.
        max_error: how far outputs may be off on sample inputs, of their range: in f32 from those in float64 (None: no
            matter how far), in 16 bits, by "auto" and "model", from those in f32 ("auto": 0.01).

    Raises:
        ModelError, UnsupportedError: the model is damaged, uses what autotune has not, needs more than `max_memory`, or
            errs more than `max_error`.
        TargetError, DatabaseError: as their names say.
        InputError: `dump_graph` cannot be written, or there is no such precision.
    """
    wish = Precision.parse(precision, max_error)
    graph = Optimizer(skip_passes, dump_graph)(load_model(model, shapes, as_arrays(fixed)))
    with reading(database) as opened:
        return compile_precisely(
            graph, Target.parse(target), opened, object_cache(),
            precision=wish, strict_fp=strict_fp, max_memory=max_memory,
        )  # fmt: skip


@checked
def tasks(
    model: ModelSource,
    target: str | Target | None = None,
    *,
    shapes: Shapes | None = None,
    inputs: Mapping[str, object] | None = None,
    precision: str = "model",
    max_error: float | None = None,
    database: DatabaseLike = None,
) -> TaskList:
    """What there is to tune in a model: its distinct kernels, their layouts, and how often each is used.

    A model whose shapes depend on values is run once, for the kernels of its programs.

    Args:
        inputs: arrays by name for that run; the others are drawn.
        precision, max_error: as for `compile`; `database`: what "auto" knows of times.

    Raises:
        ModelError, UnsupportedError, TargetError: as for `compile`.
        InputError: an input is unknown, of another form, or of an open shape and not given.
    """
    wanted = Target.parse(target)
    wish = Precision.parse(precision, max_error)
    with reading(database if wish.name == "auto" else False) as opened:
        found = observe(model, wanted, opened, shapes=shapes, inputs=inputs, precision=wish)
    return TaskList(merged(task for program in found for task in kernel_tasks(program.graph, wanted)))
