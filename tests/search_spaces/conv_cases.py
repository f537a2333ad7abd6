"""Convolution workloads with epilogues, random interfaces, and the check that a config of one computes it."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

from autotune.codegen.kernel import build_kernel
from autotune.errors import WorkloadError
from autotune.measure.bench import Bench, TaskData
from autotune.measure.builder import algorithm_of
from autotune.measure.failure import Failure
from autotune.measure.reference import Errors, allowance, make_reference
from autotune.measure.verify import verify
from autotune.ops import parse_workload
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import lookup, make_schedule
from autotune.target import Target
from autotune.tensor.layout import Layout

TARGETS = ("native", "x86 -mcpu=haswell")
CHANNELS = (2, 3, 5, 7, 8, 16, 17, 24, 31, 32, 48)
EPILOGUES: tuple[tuple[str, ...], ...] = (
    (), ("bias",), ("bias", "relu6"), ("bias", "residual", "relu"), ("sigmoid",), ("bias", "hard_swish"),
)  # fmt: skip


def conv(
    c: int, h: int, w: int, k: int, r: int = 3, s: int | None = None, *, n: int = 1,
    stride: tuple[int, int] = (1, 1), pad: tuple[int, int, int, int] = (1, 1, 1, 1), dilation: tuple[int, int] = (1, 1),
    groups: int = 1, epilogue: Sequence[str] = (),
) -> Workload:  # fmt: skip
    """conv2d with constant weights, followed by "bias", "residual", "relu6" or operators without attributes."""
    s = r if s is None else s
    anchor = WorkloadNode.make("conv2d", (0, 1), stride=stride, pad=pad, dilation=dilation, groups=groups)
    inputs = [
        WorkloadInput(TensorType("f32", (n, c, h, w)), False),
        WorkloadInput(TensorType("f32", (k, c // groups, r, s)), True),
    ]
    shape = Workload(tuple(inputs), (anchor,), (2,)).types()[2].shape
    others = {"bias": ((1, k, 1, 1), True), "residual": (shape, False)}
    inputs += [WorkloadInput(TensorType("f32", others[e][0]), others[e][1]) for e in epilogue if e in others]
    nodes, extra = [WorkloadNode.make("conv2d", (0, 1), **dict(anchor.attrs))], 2
    for e in epilogue:
        last = len(inputs) + len(nodes) - 1
        if e in others:
            nodes.append(WorkloadNode.make("add", (last, extra)))
            extra += 1
        elif e == "relu6":
            nodes.append(WorkloadNode.make("clip", (last,), min=0.0, max=6.0))
        else:
            nodes.append(WorkloadNode.make(e, (last,)))
    return Workload(tuple(inputs), tuple(nodes), (len(inputs) + len(nodes) - 1,))


def random_conv(rng: random.Random, kind: str) -> Workload:
    """Awkward sizes and attributes; `kind` is dense, depthwise, grouped, or rows: depthwise without strides."""
    rows = kind == "rows"
    r, s = rng.choice((2, 4, 3, 3, 5) if rows else (1, 2, 3, 3, 5)), rng.choice((1, 3, 3, 5, 7))
    dilation = (1, 1) if rows else (rng.choice((1, 1, 2)), rng.choice((1, 1, 1, 3)))
    stride = (1, 1) if rows else (rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3)))
    pad = tuple(rng.choice((0, 1, 1, 2)) for _ in range(4))
    h = max((r - 1) * dilation[0] + 1 - pad[0] - pad[2], 1) + rng.choice((0, 1, 4, 6, 9))
    w = max((s - 1) * dilation[1] + 1 - pad[1] - pad[3], 1) + rng.choice((0, 1, 3, 7, 15, 18))
    c = rng.choice((1, *CHANNELS)) if kind == "dense" else rng.choice(CHANNELS)
    k, groups = rng.choice((1, *CHANNELS)), 1
    if kind == "depthwise":
        groups, k = c, c * rng.choice((1, 1, 1, 2, 3, 16))
    elif rows:
        c = k = groups = rng.choice((16, 17, 24, 32, 48))
    elif kind == "grouped":
        groups = rng.choice((2, 3, 4, 8))
        c, k = groups * rng.choice((2, 3, 4, 16, 17)), groups * rng.choice((1, 2, 4, 7, 16, 32))
    return conv(
        c, h, w, k, r, s, n=rng.choice((1, 1, 2)), stride=stride, pad=(pad[0], pad[1], pad[2], pad[3]),
        dilation=dilation, groups=groups, epilogue=rng.choice(EPILOGUES),
    )  # fmt: skip


def random_ranked(rng: random.Random, op: str) -> Workload:
    """A convolution of any rank, or a transposed one, of small awkward sizes."""
    rank = int(op[-2])

    def each(*values: int, count: int = rank) -> str:
        return ",".join(str(rng.choice(values)) for _ in range(count))

    groups = rng.choice((1, 1, 1, 2, 3))
    c, k = groups * rng.choice((1, 2, 8, 16, 17)), groups * rng.choice((1, 3, 8, 16, 24))
    weight = f"{c},{k // groups}" if "transpose" in op else f"{k},{c // groups}"
    text = f"{op} data={rng.choice((1, 2))},{c},{each(5, 6, 9)} weight={weight},{each(1, 2, 3, 4)} groups={groups}"
    text += f" stride={each(1, 1, 2, 3)} dilation={each(1, 1, 2)} pad={each(0, 1, 2, count=2 * rank)}"
    try:
        return parse_workload(text + rng.choice(("", " bias", " bias relu", " bias residual sigmoid")))
    except WorkloadError:  # the window does not fit
        return random_ranked(rng, op)


def random_interface(rng: random.Random, workload: Workload, lanes: int) -> Interface:
    """Row-major and blocked operands with and without halos."""
    layouts = []
    types = workload.types()
    for n in (*range(len(workload.inputs)), *workload.outputs):
        block, rank = rng.choice((1, lanes, lanes, lanes, 8, 4)), len(types[n].shape)
        form = Layout.blocked(rank, [(1, block)]) if block > 1 and rank > 1 else Layout.row_major(rank)
        if rng.random() < 0.6 and max(types[n].shape[2:], default=1) > 1:
            sides = ((rng.choice((0, 1, 2)), rng.choice((0, 1, 3))) for _ in range(rank - 2))
            form = form.with_halo(((0, 0), (0, 0), *sides))
        layouts.append(form)
    return Interface(tuple(layouts))


@functools.lru_cache(maxsize=4)
def _data(workload: Workload) -> TaskData:
    return TaskData(make_reference(workload))


@functools.lru_cache(maxsize=2)
def _pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


def check(workload: Workload, config: Config, target: Target, interface: Interface | None = None) -> None:
    """The config's kernel computes the workload, run by one and by two threads."""
    found = _found(workload, make_schedule(workload, config, target, interface), target)
    where = f"{workload.to_json()} {config.to_json()} {interface} {target.cpu}"
    assert not isinstance(found, Failure), f"{found}: {where}"


def check_schedule(workload: Workload, schedule: Schedule, target: Target) -> None:
    """The schedule's kernel computes the workload, as in `check`."""
    found = _found(workload, schedule, target)
    assert not isinstance(found, Failure), f"{found}: {workload.to_json()} {schedule.steps_json()} {target.cpu}"


def _found(workload: Workload, schedule: Schedule, target: Target) -> Errors | Failure:
    factor = allowance(workload, algorithm_of(workload, schedule))
    with Bench(build_kernel(schedule, target), _data(workload), 2) as bench:
        return verify(bench, [_pool(1), _pool(2)], factor)


def check_random(rng: random.Random, name: str, kind: str, target: Target) -> None:
    """One random workload of a kind in random layouts, by the template's default or by random knobs."""
    ranked = kind.startswith("conv")
    workload = random_ranked(rng, kind) if ranked else random_conv(rng, kind)
    if not lookup(name).applies(workload, target):
        return
    config = lookup(name).default(workload, target)
    if rng.random() < 0.7:
        config = lookup(name).space(workload, target).sample(rng)
    interface = None if rng.random() < 0.4 else random_interface(rng, workload, target.lanes(4))
    check(workload, config.replace(template=name), target, interface)
