"""Matrix product workloads with epilogues, and the check that a config of one computes it."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

from autotune.codegen.kernel import build_kernel
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import make_reference
from autotune.measure.verify import verify
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import lookup, make_schedule
from autotune.target import Target

EXTENTS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 48, 61, 64, 97)
TARGETS = ("native", "x86 -mcpu=haswell")


def matmul(
    m: int, n: int, k: int, *, batch: tuple[int, ...] = (), batch_b: tuple[int, ...] = (), trans_a: bool = False,
    trans_b: bool = False, constant: bool = True, epilogue: Sequence[str] = (), dtype: str = "f32",
) -> Workload:  # fmt: skip
    """a @ b followed by `epilogue`: "bias", "residual", "scale" or elementwise operators without attributes."""
    shapes = ((*batch, *((k, m) if trans_a else (m, k))), (*batch_b, *((n, k) if trans_b else (k, n))))
    inputs = [
        WorkloadInput(TensorType(dtype, shapes[0]), False),
        WorkloadInput(TensorType(dtype, shapes[1]), constant),
    ]
    others = {"bias": ((n,), True, "add"), "residual": ((*batch, m, n), False, "add"), "scale": ((), True, "mul")}
    inputs += [WorkloadInput(TensorType(dtype, others[e][0]), others[e][1]) for e in epilogue if e in others]
    nodes = [WorkloadNode.make("matmul", (0, 1), trans_a=trans_a, trans_b=trans_b)]
    extra = 2
    for e in epilogue:
        last = len(inputs) + len(nodes) - 1
        if e in others:
            nodes.append(WorkloadNode.make(others[e][2], (last, extra)))
            extra += 1
        elif e == "gelu":
            nodes.append(WorkloadNode.make("gelu", (last,), approximate="none"))
        else:
            nodes.append(WorkloadNode.make(e, (last,)))
    return Workload(tuple(inputs), tuple(nodes), (len(inputs) + len(nodes) - 1,))


def random_matmul(rng: random.Random, *, constant: bool, depths: Sequence[int] = EXTENTS) -> Workload:
    """Awkward sizes, transposes, batches that broadcast, epilogues."""
    batch: tuple[int, ...] = rng.choice([(), (), (), (3,), (2, 3), (1, 2)])
    batch_b = rng.choice([(), batch, tuple(rng.choice((1, n)) for n in batch)])
    epilogue = rng.choice([(), (), ("bias", "relu"), ("bias", "residual"), ("scale", "gelu"), ("residual", "sigmoid")])
    m, n, k = rng.choice(EXTENTS), rng.choice(EXTENTS), rng.choice(depths)
    return matmul(
        m, n, k, batch=batch, batch_b=batch_b, trans_a=rng.random() < 0.3, trans_b=rng.random() < 0.3,
        constant=constant, epilogue=epilogue, dtype=rng.choice(("f32", "f32", "f64")),
    )  # fmt: skip


@functools.lru_cache(maxsize=4)
def _data(workload: Workload) -> TaskData:
    return TaskData(make_reference(workload))


@functools.lru_cache(maxsize=2)
def _pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


def wrong(workload: Workload, schedule: Schedule, target: Target) -> Failure | None:
    """Why the kernel of a schedule is wrong, run by one and by two threads; None when it is right."""
    with Bench(build_kernel(schedule, target), _data(workload), 2) as bench:
        result = verify(bench, [_pool(1), _pool(2)])
    return result if isinstance(result, Failure) else None


def check(workload: Workload, config: Config, target: Target, interface: Interface | None = None) -> None:
    failure = wrong(workload, make_schedule(workload, config, target, interface), target)
    assert failure is None, f"{workload.to_json()} {config.to_json()} {target}: {failure}"


def check_drawn(name: str, workload: Workload, target: Target, rng: random.Random) -> None:
    """One config of a template where it applies: its default or, more often, any."""
    template = lookup(name)
    if not template.applies(workload, target):
        return
    space = template.space(workload, target)
    config = template.default(workload, target) if rng.random() < 0.3 else space.sample(rng)
    failure = wrong(workload, template.schedule(workload, config, target, None), target)
    assert failure is None, f"{workload.to_json()} {config.to_json()} {target}: {failure}"
