"""One property case of quantised work: a graph of bytes compiled, or a tiling of one product, for one instruction set.

All that both say is exact, so results are compared without a tolerance but for sums in f32 that nobody quantises.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping

import numpy as np

from autotune.codegen.kernel import build_kernel
from autotune.compiler.compile import compile_graph
from autotune.errors import CodegenError, LoweringError
from autotune.graph import evaluate_graph, optimize
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.reference import Reference, make_reference, reference_of
from autotune.measure.verify import verify
from autotune.ops.registry import compute_def
from autotune.ops.workload import Workload
from autotune.runtime.threads import ThreadPool
from autotune.search_spaces import lookup
from autotune.target import Target
from autotune.tensor import DType
from tests.graph.quantized_graphs import WIDE, random_quantized
from tests.property.graph_check import handler
from tests.search_spaces.bytes_cases import TARGETS, random_bytes
from tests.search_spaces.generic_cases import random_interface

F32 = 1e-6
"""Of the largest value of an output: the rounding of a sum of a hundred terms that nobody quantises. A wrong quantum is
many times as much."""


@functools.cache
def _targets() -> tuple[Target, ...]:
    """Those that this CPU runs, or LLVM's plain x86-64 where there is none."""
    found = tuple(target for target in map(Target.parse, TARGETS) if target.runs_on_host())
    return found or (Target.parse("x86 -mcpu=x86-64 -num-cores=2"),)


def run(seed: int) -> str | None:
    """Case `seed`: None when right, else what is wrong."""
    rng = random.Random(seed)
    target = rng.choice(_targets())
    return _graph(seed // 2, target) if seed % 2 else _product(rng, target)


def _graph(seed: int, target: Target) -> str | None:
    graph, feeds = random_quantized(seed, *(WIDE if seed % 2 else ()))
    wanted = evaluate_graph(graph, feeds, DType.f64)
    compiled = compile_graph(optimize(graph), target)
    for _ in range(2):  # the second run finds the arena dirty
        for spec, found in zip(compiled.program.outputs, compiled.run(feeds), strict=True):
            array = wanted[spec[0].name]
            off = np.abs(found.astype(np.float64) - array).max(initial=0.0)
            if found.shape != array.shape or not off <= F32 * np.abs(array).max(initial=1.0):
                return f"graph {seed} for {target}: {spec[0].name} is off by {off:.3g}"
    return None


def _product(rng: random.Random, target: Target) -> str | None:
    workload, template = random_bytes(rng), lookup("sketch.contraction")
    if not template.applies(workload, target):
        return None
    config = template.space(workload, target).sample(rng)
    interface = random_interface(workload, rng) if rng.random() < 0.2 else None
    try:
        kernel = build_kernel(template.schedule(workload, config, target, interface), target)
    except (CodegenError, LoweringError):  # layouts in which what is folded lies apart, or has no room for zeros
        if interface is None:
            raise
        return None
    with Bench(kernel, TaskData(_exact(workload, rng)), 2) as bench:
        found = verify(bench, [_pool(1), _pool(2)])
    if not isinstance(found, Failure):
        return None
    return f"{workload.to_json()} {config.to_json()} {interface and interface.to_json()} for {target}: {found}"


def _exact(workload: Workload, rng: random.Random) -> Reference:
    """Data and result of a workload of bytes: what sums are scaled by are powers of two, so that f32 has no ties of its
    own. Sums beyond its digits are beyond every byte, too."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    inputs = tuple(
        np.exp2(numbers.integers(-9, -5, array.shape)).astype(np.float32) if array.dtype == np.float32 else array
        for array in make_reference(workload).inputs
    )
    return reference_of(compute_def(workload), inputs)


@functools.lru_cache(maxsize=2)
def _pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


def worker(init: Mapping[str, Json]) -> Callable[[Message], Message]:
    """Entry point of an isolated process, as that of `graph_check`; cases name their targets themselves."""
    return handler(run)
