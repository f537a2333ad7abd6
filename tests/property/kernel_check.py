"""One property case: does the compiled kernel of a random schedule compute what its definition says?"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping

import numpy as np

from autotune.codegen.kernel import build_kernel
from autotune.errors import AutotuneError, CodegenError, LoweringError
from autotune.lower import lower, print_program
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.reference import Allowance, Array, Reference, reference_of, sample
from autotune.measure.verify import verify
from autotune.ops.registry import lookup_algorithm
from autotune.ops.workload import TensorType
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, DType
from tests.property.random_compute import random_compute
from tests.property.random_schedule import random_schedule

THREADS = (1, 2, 3)


def case(seed: int) -> tuple[str, Schedule]:
    """(kind, schedule) number `seed`: the same on every machine."""
    rng = random.Random(seed)
    kind, definition = random_compute(rng)
    return kind, random_schedule(rng, definition)


def check(schedule: Schedule, target: Target, seed: int = 0, special: bool = False) -> str | None:
    """What is wrong with the kernel of `schedule`; None when it is right, "refused: ..." when it has no kernel."""
    try:
        kernel = build_kernel(schedule, target)
    except LoweringError as error:
        if str(error).startswith("pad "):
            return f"refused: {error}"
        raise
    except CodegenError as error:
        if "tensorize" in schedule.steps_json():  # guards, or elements that are not neighbours
            return f"refused: {error}"
        raise
    with Bench(kernel, TaskData(_reference(schedule.compute, seed, special)), max(THREADS)) as bench:
        found = verify(bench, [_pool(n) for n in THREADS], Allowance(_factor(schedule)))
        return found.message if isinstance(found, Failure) else None


def _factor(schedule: Schedule) -> float:
    """Winograd's algorithm is known by the edge of its tiles of outputs."""
    edges = [s.outputs[0].shape[-2] for s in schedule.compute.stages if s.name == "wino_s"]
    return lookup_algorithm("conv2d", f"winograd_f{edges[0]}" if edges else "direct").error


@functools.lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPool:
    return ThreadPool(threads, 1)


@functools.lru_cache(maxsize=8)
def _reference(definition: ComputeDef, seed: int, special: bool) -> Reference:
    rng = np.random.default_rng(seed)
    return reference_of(definition, tuple(_values(t.dtype, t.shape, rng, special) for t in definition.inputs))


def _values(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, special: bool) -> Array:
    values = sample(TensorType(dtype.value, shape), rng)
    if special and dtype.is_float and values.size:
        for odd in (np.nan, np.inf, -np.inf, -0.0, 0.0):
            values[tuple(rng.integers(0, n) for n in shape)] = odd
    return values


def worker(init: Mapping[str, Json]) -> Callable[[Message], Message]:
    """Entry point of an isolated process.

    Answers {"seeds": [...]} with {"bad": {seed: message}, "refused": n}, and
    {"schedule": JSON, "special": bool, "target": text} with {"found": message or null}.
    """
    target = Target.parse(str(init["target"]))

    def handle(request: Message) -> Message:
        if "schedule" in request.body:
            schedule = Schedule.from_json(str(request.body["schedule"]))
            own = Target.parse(str(request.body["target"]))
            return Message({"found": check(schedule, own, 0, bool(request.body["special"]))})
        bad: dict[str, Json] = {}
        refused = 0
        seeds = request.body["seeds"]
        assert isinstance(seeds, list)
        for seed in seeds:
            message = run(int(str(seed)), target)
            if message is not None and message.startswith("refused: "):
                refused += 1
            elif message is not None:
                bad[str(seed)] = message
        return Message({"bad": bad, "refused": refused})

    return handle


def run(seed: int, target: Target) -> str | None:
    """Case `seed`: None when right, else what happened."""
    kind, schedule = case(seed)
    try:
        return check(schedule, target, seed, special=kind == "pointwise" and seed % 2 == 0)
    except AutotuneError as error:
        return f"{type(error).__name__}: {error}"


def describe(seed: int) -> str:
    """The case as text."""
    kind, schedule = case(seed)
    try:
        nest = print_program(lower(schedule, check=False))
    except AutotuneError as error:
        nest = f"{type(error).__name__}: {error}"
    return f"# {kind}\n{schedule.compute}\n\n{schedule}\n\n{nest}"
