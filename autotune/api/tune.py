"""`autotune.tune`, which starts the processes that it needs before it imports what it does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.arguments import checked
from autotune.measure.spawned import early

if TYPE_CHECKING:
    from autotune.api.locate import DatabaseLike
    from autotune.api.phase import TuneCallback
    from autotune.api.shapes import WantedShapes
    from autotune.api.tuning import TuneReport
    from autotune.graph.frontend import ModelSource
    from autotune.ops import Workload
    from autotune.search import Budget
    from autotune.target import Target

WORKERS = ("autotune.measure.runner:serve", "autotune.measure.builder:serve")
"""Of this machine, which every run needs; more builders start when it is known how many."""


@checked
def tune(
    model_or_op: ModelSource | Workload,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    budget: str | float | Budget | None = None,
    trials: int | None = None,
    strategy: str = "guided",
    effort: str = "default",
    seed: int = 0,
    shapes: WantedShapes | None = None,
    inputs: Mapping[str, object] | None = None,
    strict_fp: bool = False,
    precision: str = "model",
    max_error: float | None = None,
    verdict: str = "measured",
    imports: Sequence[str] = (),
    callbacks: Sequence[TuneCallback] = (),
    progress: bool | None = None,
    command: str = "",
    cluster: str | None = None,
) -> TuneReport:
    """Find fast schedules for a model's kernels, or for one operator, and store every trial.

    Trials in the database are not repeated, so a second call continues the first. For a model, the program that
    results is timed in turn with the untuned one; if that shows it to be slower, the model stays untuned.

    Args:
        model_or_op: an ONNX model as for `InferenceSession`; or a Workload, or text such as
            "matmul a=128,768 b=768,3072".
        target: as for `autotune.compile`.
        database: a file, created if need be; an open Database; None for the user's default file.
        budget: a time such as "5m" or 90.0 seconds; `trials`: how many, those found in the database included.
            Whichever is reached first ends the search; if neither is given, the effort says how long: "5m".
        strategy: a name among `autotune.search.STRATEGIES`: "guided", "evolution", "descent", "random" or "grid".
        effort: how thoroughly to spend the budget, a name among `autotune.search.EFFORTS`: "quick", "default" or
            "thorough".
        seed: of everything random.
        shapes: dimensions of a model's inputs by name, where it leaves them open; ranges, or several `ShapeRange`, for
            the programs that serve them, the more time for each the more often it runs.
        inputs: arrays by name, to time the model with; the others are drawn. A model whose shapes depend on values is
            run once with them, and the programs of that run are tuned.
        strict_fp, precision, max_error: as for `autotune.compile`.
        verdict: on a model: "measured", and the same one while nothing changes; measured "again"; or as the user wants,
            "tuned" or "untuned".
        imports: modules or .py files with the user's own operators and templates.
        callbacks: told of every event.
        progress: whether to show on stderr how far it is; None: at a terminal and in a notebook.
        command: what the user typed, for the session's row.
        cluster: address of a Dask scheduler, whose workers build and measure (docs/how-to/tune-on-several-machines.md);
            `target` may then be that of any of its runners, by its key.

    Raises:
        ModelError, UnsupportedError, WorkloadError, TargetError, DatabaseError, ConfigError, InputError,
            ExtensionError, ClusterError: as their names say.
    """
    started = time.monotonic()
    with early(*(WORKERS if cluster is None else ())):
        from autotune.api.tuning import run

        return run(
            model_or_op,
            target,
            database,
            budget=budget,
            trials=trials,
            strategy=strategy,
            effort=effort,
            seed=seed,
            shapes=shapes,
            inputs=inputs,
            strict_fp=strict_fp,
            precision=precision,
            max_error=max_error,
            verdict=verdict,
            imports=imports,
            callbacks=callbacks,
            progress=progress,
            command=command,
            cluster=cluster,
            started=started,
        )
