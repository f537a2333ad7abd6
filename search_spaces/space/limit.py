"""`limit`: the least time that a target can take for a workload, by arithmetic and by bytes.

No schedule is behind it, so it bounds all of them. Where it is not sure it errs to the low side: what padding spares
is not counted, the algorithm is the one with the fewest multiplications, and nothing is waited for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core import TILE_DEPTH, Core
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.registry import compute_def, fewer_multiplications
from autotune.ops.workload import TensorType, Workload
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.stage import Tensor

_BITS = 32  # of a lane, in which instructions add up


@dataclass(frozen=True, slots=True)
class Speed:
    """What all threads of a target do in a second.

    Attributes:
        clock: cycles.
        l1, l2, l3, dram: bytes read.
    """

    clock: float
    l1: float
    l2: float
    l3: float
    dram: float

    @staticmethod
    def of(target: Target) -> Speed:
        """By what is known of the core."""
        core, threads = target.core, target.num_threads
        hertz = core.ghz * 1e9
        return Speed(
            hertz,
            hertz * threads * max(core.l1, core.loads * target.vector_bits / 8),
            hertz * threads * core.l2,
            hertz * core.from_l3(threads),
            hertz * core.from_dram(threads),
        )

    def at_peak(self, target: Target, fp32: float) -> Speed:
        """The same with the clock at which all threads together do so many fp32 operations a second, if that is higher:
        what is measured beside other programs is no limit."""
        clock = fp32 / (2 * target.num_threads * products_per_cycle(target.core, "f32"))
        return replace(self, clock=max(self.clock, clock))


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds for the arithmetic alone and for moving every byte once; neither waits for the other.

    Attributes:
        reading: of `memory`, the time in which the weights are read.
        others: that of all else.
    """

    arithmetic: float
    memory: float
    reading: float
    others: float

    @property
    def seconds(self) -> float:
        return max(self.arithmetic, self.memory)


def limit(
    workload: Workload,
    target: Target,
    speed: Speed | None = None,
    *,
    residency: str = "",
    strict_fp: bool = False,
    own: bool = False,
) -> Limit:
    """The least time for a workload on all threads of a target.

    Args:
        speed: as measured; by default what is known of the target's core.
        residency: where the weights are: "L2", "L3" or "DRAM"; "" where the other operands are.
        strict_fp: without algorithms whose rounding errors are larger than those of the plain sum.
        own: without those that multiply numbers of another type than the operands'.
    """
    speed = speed or Speed.of(target)
    weights, others = moved(workload)
    rate = _rate(speed, target, weights + others)
    far, near = rate, rate
    memory = (weights + others) / rate
    if residency:
        far, near = {"L2": speed.l2, "L3": speed.l3, "DRAM": speed.dram}[residency], _rate(speed, target, others)
        memory = max(weights / far, others / near)
    cycles = min(multiplying(workload, target.core, strict_fp=strict_fp, own=own))
    return Limit(cycles / (speed.clock * target.num_threads), memory, weights / far, others / near)


def moved(workload: Workload) -> tuple[int, int]:
    """Bytes of constants, and of all else, that a run moves at least: of a table in which rows are looked up, no more
    than these."""
    touched = [
        (min(math.prod(i.type.shape), reads) * DType(i.type.dtype).bytes, i.constant)
        for i, reads in zip(workload.inputs, _reads(workload), strict=True)
    ]
    results = sum(_bytes(type_) for type_ in _results(workload))
    return sum(n for n, constant in touched if constant), results + sum(n for n, constant in touched if not constant)


def writing(workload: Workload, target: Target) -> float:
    """Seconds in which the results are written where nothing else is done: lines are read, then written; in memory
    where the cores' own caches do not hold them."""
    speed, results = Speed.of(target), sum(_bytes(type_) for type_ in _results(workload))
    own = results <= target.l2_bytes * target.num_threads
    return 2 * results / (_rate(speed, target, results) if own else speed.dram)


def multiplying(workload: Workload, core: Core, *, strict_fp: bool = False, own: bool = False) -> tuple[float, float]:
    """Cycles of one core that the plain sum takes at least, and those of the algorithm that multiplies the least.

    Algorithms work on what conversions before them make; a sum may take what lies in memory.
    """
    anchor, types = workload.anchor, workload.types()
    plain = multiplications(workload, strict_fp=True) / products_per_cycle(core, *_factors(workload))
    if anchor is None:
        return plain, plain
    operands = [types[number].dtype for number in anchor.inputs[:2]]
    best = multiplications(workload, strict_fp=strict_fp) / products_per_cycle(core, *operands)
    others = [
        count / products_per_cycle(core, factor)
        for factor, count in fewer_multiplications(workload, strict_fp=strict_fp).items()
        if factor is not None and not own
    ]
    return plain, min([best, *others])


def multiplications(workload: Workload, *, strict_fp: bool = False) -> float:
    """How many of its operands the best algorithm takes at least; of other definitions half of the operations."""
    anchor = workload.anchor
    plain = workload.flops / 2
    if anchor is not None and anchor.op in CONVOLUTIONS:
        types = workload.types()
        x, weight = (types[i] for i in anchor.inputs[:2])
        plain = Conv.of(anchor.op, x.shape, weight.shape, dict(anchor.attrs)).multiplications
    fewer = fewer_multiplications(workload, strict_fp=strict_fp).get(None)
    return plain if fewer is None else min(fewer, plain)


def products_per_cycle(core: Core, *dtypes: str) -> float:
    """Products of such factors that one core adds up in a cycle, by the best of its instructions."""
    plain = core.best_lane_rate("fma.f32") / _BITS
    match max((DType(name) for name in dtypes), key=lambda dtype: (dtype.bytes, dtype.is_float)):
        case DType.f16:
            return max(core.best_lane_rate("fma.f16") / 16, _of_tiles(core, "tile.f16"), plain)
        case DType.bf16:
            return max(2 * core.best_lane_rate("dot.bf16") / _BITS, _of_tiles(core, "tile.bf16"), plain)
        case DType.f64:
            return core.best_lane_rate("fma.f64") / 64
        case DType.i8 | DType.u8 | DType.bool:  # without instructions of their own, two that are widened fill a lane
            return max(4 * core.best_lane_rate("dot.u8") / _BITS, 2 * plain, _of_tiles(core, "tile.u8"))
        case DType.i16:
            return core.pairs
        case other:
            return plain * 4 / other.bytes


def _of_tiles(core: Core, kind: str) -> float:
    return TILE_DEPTH[kind] * core.best_lane_rate(kind) / _BITS


def _factors(workload: Workload) -> Sequence[str]:
    """The dtypes that are multiplied: of the anchor's first two operands before conversions, else of the results."""
    types, anchor = workload.types(), workload.anchor
    numbers = [workload.source(n) for n in anchor.inputs[:2]] if anchor is not None else workload.outputs
    return [types[number].dtype for number in numbers]


def _reads(workload: Workload) -> list[int]:
    """How often elements of each input are read, at most: an upper bound of what is touched of it."""
    compute = compute_def(workload)
    found: dict[str, int] = {}
    for stage in compute.stages:
        points = math.prod(axis.extent for axis in stage.all_axes)
        for read in stage.reads():
            found[read.tensor.name] = found.get(read.tensor.name, 0) + points
    tensors: Sequence[Tensor] = compute.inputs
    return [found.get(tensor.name, 0) for tensor in tensors]


def _results(workload: Workload) -> list[TensorType]:
    types = workload.types()
    return [types[number] for number in workload.outputs]


def _bytes(type_: TensorType) -> int:
    return math.prod(type_.shape) * DType(type_.dtype).bytes


def _rate(speed: Speed, target: Target, size: int) -> float:
    """Bytes per second from the smallest level that holds so many."""
    levels = (
        (target.l1_bytes * target.num_threads, speed.l1),
        (target.l2_bytes * target.num_threads, speed.l2),
        (target.l3_bytes, speed.l3),
    )
    return next((rate for held, rate in levels if size <= held), speed.dram)
