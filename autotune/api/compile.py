"""`autotune.compile` and `autotune.tasks`: models in, programs and task lists out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.api.locate import DatabaseLike, object_cache, reading
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.tasks import KernelTask, kernel_tasks
from autotune.graph import load_model, optimize
from autotune.target import Target

Shapes = Mapping[str, Sequence[int]]


def compile(
    model: str | Path | bytes,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    shapes: Shapes | None = None,
    strict_fp: bool = False,
    max_memory: int | None = None,
) -> CompiledModel:
    """Compile an ONNX model with the best schedules in a database; kernels without a record get defaults.

    Nothing is measured: use `tune` first.

    Args:
        model: a file, or its contents.
        target: "x86", "native", "x86 -mcpu=haswell -num-cores=2"; None for this machine.
        database: a file, an open Database, None for the user's default file, False for none.
        shapes: dimensions of inputs by name, where the model leaves them open.
        strict_fp: no algorithm with larger rounding errors than the operators' definitions, that is no Winograd.
        max_memory: bytes that packed weights and the memory of a run may take together.

    Raises:
        ModelError, UnsupportedError: the model is damaged, uses what autotune has not, or needs more than `max_memory`.
        TargetError, DatabaseError: as their names say.
    """
    graph = optimize(load_model(model, shapes))
    with reading(database) as opened:
        return compile_graph(
            graph, Target.parse(target), opened, object_cache(), strict_fp=strict_fp, max_memory=max_memory
        )


def tasks(
    model: str | Path | bytes, target: str | Target | None = None, *, shapes: Shapes | None = None
) -> tuple[KernelTask, ...]:
    """What there is to tune in a model: its distinct kernels, their layouts, and how often each is used.

    Raises:
        ModelError, UnsupportedError, TargetError: as for `compile`.
    """
    return kernel_tasks(optimize(load_model(model, shapes)), Target.parse(target))
