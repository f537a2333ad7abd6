"""A program in f32 that is exact enough: where it errs too much, kernels give up algorithms that amplify rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.compile import CompiledModel, KernelReport, compile_graph
from autotune.compiler.precision import AS_IT_IS, Precise
from autotune.compiler.rounding import expected
from autotune.compiler.weights import PackedWeights
from autotune.errors import ModelError
from autotune.graph import Graph
from autotune.graph.evaluate import evaluate_graph
from autotune.ops.workload import Workload
from autotune.records import Database
from autotune.runtime.difference import max_error
from autotune.runtime.feeds import random_feeds
from autotune.runtime.program import TensorSpec
from autotune.target import Target
from autotune.tensor.dtype import DType

SEED = 0
AT_ONCE = 0.5
"""Share of what algorithms add to the square of the error that is given up before the program is looked at again."""


def compile_within(
    graph: Graph,
    target: Target,
    database: Database | None,
    cache: ObjectCache | None,
    allowed: float,
    *,
    strict_fp: bool = False,
    max_memory: int | None = None,
    weights: PackedWeights | None = None,
) -> tuple[CompiledModel, Precise]:
    """Compile a graph so that its outputs are off by `allowed` of their range at most; and how exact it is.

    It is compared with a float64 evaluation on seeded inputs where this machine can run it, else errors are those
    expected. What is given up first are algorithms of the kernels to whose errors they add the most.

    Raises:
        ModelError: the plain definitions err more than that.
    """
    feeds = random_feeds([TensorSpec(v.name, v.dtype, v.shape) for v in graph.inputs], SEED)
    foreign = bool(target.missing_features())
    right = [] if foreign else list(evaluate_graph(graph, feeds, DType.f64).values())
    plain: set[Workload] = set()
    while True:
        compiled = compile_graph(
            graph, target, database, cache,
            strict_fp=strict_fp, strict_workloads=plain, max_memory=max_memory, weights=weights,
        )  # fmt: skip
        error = compiled.expected_error if foreign else max_error(compiled.run(feeds), right)
        if error <= allowed:
            return compiled, replace(AS_IT_IS, error=error, note=_note(compiled.kernels, plain, foreign))
        more = _worst(compiled.kernels) - plain
        if not more:
            raise ModelError(
                f"in f32 the outputs are off by {error:.1e} of their range without Winograd and its like, too, more "
                f"than the {allowed:g} allowed; raise the largest error"
            )
        plain |= more


def _worst(kernels: Sequence[KernelReport]) -> set[Workload]:
    """The workloads whose algorithms add the most to the error, up to a share of all that algorithms add."""
    added: dict[Workload, float] = {}
    for kernel in kernels:
        more = kernel.error**2 - expected(kernel.workload) ** 2
        if more > 0:
            added[kernel.workload] = added.get(kernel.workload, 0.0) + more
    chosen, left = set[Workload](), AT_ONCE * sum(added.values())
    for workload in sorted(added, key=lambda w: (-added[w], w.key)):
        if left <= 0:
            break
        chosen.add(workload)
        left -= added[workload]
    return chosen


def _note(kernels: Sequence[KernelReport], plain: set[Workload], foreign: bool) -> str:
    count = sum(kernel.workload in plain for kernel in kernels)
    given_up = [f"{count} of {len(kernels)} kernels give up Winograd or its like for it"] if count else []
    return "; ".join([*given_up, *(["expected, not tried: made for another CPU"] if foreign else [])])
