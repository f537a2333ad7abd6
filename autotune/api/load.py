"""Any model made ready to run: one program where that is possible, else stages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Union

from autotune.api.early import helpers
from autotune.api.feeds import as_arrays
from autotune.api.locate import DatabaseLike, reading
from autotune.codegen.beside import Beside
from autotune.codegen.object_cache import object_cache
from autotune.compiler.adaptive import AdaptiveModel
from autotune.compiler.bucketed import BucketedModel
from autotune.compiler.compile import CompiledModel
from autotune.compiler.growing import GrowingModel
from autotune.compiler.heap import trim, without_collector
from autotune.compiler.precise import compile_precisely
from autotune.compiler.precision import Precision
from autotune.compiler.prepared import PreparedModel
from autotune.compiler.programs import Programs
from autotune.compiler.staged import StagedModel, compile_or_stage
from autotune.compiler.stages import MAX_LOOP_STEPS, Making
from autotune.compiler.weights import PackedWeights
from autotune.errors import InputError
from autotune.graph import Graph, open_model
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.cache_joints import with_joints
from autotune.graph.frontend.caches import caches_of
from autotune.graph.optimizer import Optimizer
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource
    from autotune.graph.frontend.source import Source

Runnable = Union[CompiledModel, StagedModel]
ON_NEW_SHAPE = ("auto", "compile", "bucket", "error")


def load(
    model: ModelSource | Source,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    extents: Mapping[str, int] | None = None,
    denoted: Mapping[str, int] | None = None,
    fixed: Mapping[str, object] | None = None,
    strict_fp: bool = False,
    max_memory: int | None = None,
    skip_passes: Collection[str] = (),
    dump_graph: str | Path | None = None,
    max_loop_steps: int | None = None,
    precision: str = "model",
    max_error: float | None = None,
    on_new_shape: str = "compile",
    keep: Callable[[CompiledModel], None] | None = None,
    beside: Beside | None = None,
    programs: Callable[[OnnxModel], Programs] | None = None,
    is_staged: bool = False,
) -> Runnable:
    """Like `compile`, but shapes may be open and may depend on values: such models are compiled while they run.

    Args:
        extents, denoted: open dimensions by symbol and by denotation; those that the model has not are passed over.
        max_loop_steps: a loop whose end the run decides and that goes on for longer is refused; None is 2**24 steps.
        on_new_shape: what a run does whose shape has no program: "compile" one for exactly that, "bucket" for one that
            serves others, too, "auto" for exactly that where it is the first or comes often, else as "bucket", "error".
        keep: told of a program that comes from the model alone, not from files that it names.
        beside: `helpers` that were started already.
        programs: gives those that are known of the parsed model.
        is_staged: it is known to be no single program.

    Raises:
        ModelError, UnsupportedError, TargetError, DatabaseError, InputError: as for `compile`.
    """
    if on_new_shape not in ON_NEW_SHAPE:
        raise InputError(f"on_new_shape is one of {', '.join(ON_NEW_SHAPE)}, not {on_new_shape!r}")
    wanted, cache, wish = Target.parse(target), object_cache(), Precision.parse(precision, max_error)

    idle: list[Beside] = []  # for the first program

    def compiled(graph: Graph, weights: PackedWeights | None = None) -> CompiledModel:
        with reading(database) as found, without_collector():
            return compile_precisely(
                graph, wanted, found, cache,
                precision=wish, strict_fp=strict_fp, max_memory=max_memory, weights=weights,
                beside=idle.pop() if idle else None,
            )  # fmt: skip

    steps = MAX_LOOP_STEPS if max_loop_steps is None else max_loop_steps
    making = Making(compiled, Optimizer(skip_passes, dump_graph), steps, max_memory, wanted)

    def staged(parsed: OnnxModel) -> StagedModel:
        sharing = replace(
            making,
            compile=functools.partial(compiled, weights=PackedWeights()),
            programs=None if programs is None else programs(parsed),
        )
        if on_new_shape == "error":
            return PreparedModel(parsed, sharing)
        written = with_joints(parsed)
        caches = caches_of(written)
        parsed = parsed if caches is None else written
        if on_new_shape == "compile":
            return StagedModel(parsed, sharing) if caches is None else GrowingModel(parsed, sharing, caches)
        looked_at = replace(sharing, looked_at=True)
        if on_new_shape == "bucket":
            usual = BucketedModel(parsed, sharing, wanted)
            bucketed = functools.partial(BucketedModel, making=looked_at, target=wanted)
            return usual if caches is None else GrowingModel(parsed, sharing, caches, usual, bucketed)
        if caches is None:
            return AdaptiveModel(parsed, sharing, wanted)
        adaptive = functools.partial(AdaptiveModel, making=looked_at, target=wanted, vary=True)
        return GrowingModel(parsed, sharing, caches, prompted=adaptive)

    with without_collector(), beside or helpers(model) as started:
        idle.append(started)
        opened = [open_model(model, shapes, as_arrays(fixed), extents, denoted)]
        alone = opened[0].folder is None
        # not held here, too
        found = staged(opened.pop()) if is_staged else compile_or_stage(opened.pop(), making, staged)
    idle.clear()
    trim()
    if keep is not None and alone and isinstance(found, CompiledModel):
        keep(found)
    return found
