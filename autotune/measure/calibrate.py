"""Measures a `Core`: what this machine does in a cycle, by probes that run in turn until each has its quiet moment.

A neighbour makes probes slower and never faster, so the best of many short rounds counts. What no two rounds agree
on, or what no CPU has (1.3 multiply-adds a cycle), was disturbed: it is measured again, and named if that is no help.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from autotune.codegen.jit import compile_ir
from autotune.codegen.link import load_objects
from autotune.core import KINDS, WIDTHS, Core, Pipe, has_instruction
from autotune.measure.core_probes import (
    BESIDE_ADDS,
    clock_kernel,
    latency_kernel,
    load_kernel,
    mixed_kernel,
    store_kernel,
    throughput_kernel,
)
from autotune.measure.peaks import FmaPeak, Limit, Sweepable, read_limits, settle
from autotune.measure.probes import Kernel, Probe, read_kernel
from autotune.runtime.threads import Plan, Step, ThreadPool
from autotune.target import Target

_SECONDS = 1e-3  # of a round: short against a time slice, so that some are undisturbed
_ROUNDS = 3  # of a probe before the next one's turn
_SWEEPS, _MOST_SWEEPS, _MOST_LEVEL_SWEEPS = 6, 16, 4
_AGREE = 0.03  # the two best rounds, relative
_NEAR_HALVES = 0.12  # a rate from the multiple of a half that it should be, relative
_PEAK_ROUNDS = 2000
_STORED_BYTES = 4096
_LEAST_BYTES = 1.0  # per cycle, of any level
_BARRIERS, _BARRIER_BATCHES, _BARRIERS_AGREE = 8, 400, 0.1
_LONG_BARRIER = 4e-6  # seconds: somebody slept
_APART, _SHARED = 1.12, 1.25
"""Times of the mixed probe by the plain one: up to the first, additions have units of their own; from the second, they
share (1.4 by the count of instructions)."""

_EMPTY = "define void @empty(ptr %frame, i64 %thread, i64 %threads) {\n  ret void\n}\n"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured.

    Attributes:
        core: in full precision.
        doubts: figures that other programs seem to have disturbed.
    """

    core: Core
    doubts: tuple[str, ...]


def measure_core(target: Target) -> Calibration:
    """Measure the core of this machine; takes some seconds, more beside busy neighbours.

    Args:
        target: this machine's. What cannot be measured with its one thread, a barrier, stays as its core has it.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """
    widest = target.vector_bits
    clocks = {bits: _Rate(clock_kernel(bits), target) for bits in WIDTHS if bits <= widest}
    kinds = [(kind, bits) for kind in KINDS for bits in WIDTHS if has_instruction(kind, bits, target.features)]

    def cycles(bits: int) -> float:
        return clocks[bits].best

    rates = {(k, bits): _Rate(throughput_kernel(k, bits), target, _of(clocks[bits])) for k, bits in kinds}
    chains = {(k, bits): _Rate(latency_kernel(k, bits), target) for k, bits in kinds}
    loads = _Rate(load_kernel(target), target, _of(clocks[widest]))
    stores = _Rate(store_kernel(target), target, _of(clocks[widest], target.lanes(1)), _STORED_BYTES)
    near = {
        name: _Rate(read_kernel(target), target, size=size // 2 // 1024 * 1024)
        for name, size in (("l1", target.l1_bytes), ("l2", target.l2_bytes))
    }
    alone, mixed = (_Rate(mixed_kernel(widest, adds), target) for adds in (0, BESIDE_ADDS))
    beside = _Beside(alone, mixed)
    barrier = _Barrier(target) if target.num_threads > 1 else None
    named: dict[str, Sweepable] = {
        **{f"clock with {bits}-bit vectors": clock for bits, clock in clocks.items()},
        **{f"{kind}, {bits} bits": rate for (kind, bits), rate in rates.items()},
        **{f"latency of {kind}, {bits} bits": chain for (kind, bits), chain in chains.items()},
        **{f"read bandwidth of {name}": rate for name, rate in near.items()},
        "loads": loads,
        "stores": stores,
        "additions beside multiply-adds": beside,
    }
    if barrier:
        named["the barrier"] = barrier
    settle(list(named.values()), sweeps=_SWEEPS, most=_MOST_SWEEPS)
    found = {name: limit for name, limit in read_limits(target).items() if name in ("l3", "dram")}
    levels = {name: _Level(limit, _of(clocks[widest])) for name, limit in found.items()}
    settle(list(levels.values()), most=_MOST_LEVEL_SWEEPS)
    named |= {f"read bandwidth of {name}": limit for name, limit in levels.items()}
    doubts = [name for name, figure in named.items() if not figure.plausible]

    pipes = [
        Pipe(k, bits, rates[k, bits].best / cycles(bits), cycles(bits) / chains[k, bits].best) for k, bits in kinds
    ]
    clock = cycles(widest)
    one = {name: limit.rate.one_core / clock for name, limit in found.items()}
    every = {name: max(limit.rate.one_core, limit.rate.all_cores) / clock for name, limit in found.items()}
    core = Core(
        ghz=clock,
        pipes=tuple(pipes),
        loads=loads.best / clock,
        stores=stores.best / target.lanes(1) / clock,
        adds_beside_multiplies=beside.ratio < math.sqrt(_APART * _SHARED),
        l1=near["l1"].best / clock,
        l2=near["l2"].best / clock,
        l3=one["l3"],
        dram=one["dram"],
        l3_shared=every["l3"],
        dram_shared=every["dram"],
        barrier_cycles=barrier.seconds * clock * 1e9 if barrier else target.core.barrier_cycles,
        source="measured",
        peaks=tuple((threads, _quiet_peak(target.with_threads(threads))) for threads in {1, target.num_threads}),
    )
    return Calibration(core, tuple(doubts))


def _quiet_peak(target: Target) -> float:
    probe = FmaPeak(target)
    return max(probe.run() for _ in range(_PEAK_ROUNDS))


@final
class _Rate:
    """Work per nanosecond of a kernel on one core: the best round.

    Args:
        unit: what the rate is a multiple of one half of, where it is; else None.
    """

    def __init__(
        self, kernel: Kernel, target: Target, unit: Callable[[], float] | None = None, size: int = 1024
    ) -> None:
        self._probe = Probe(kernel, target, size)
        self._repeats = self._probe.repeats_for(_SECONDS)
        self._unit = unit
        self._found: list[float] = []

    @property
    def best(self) -> float:
        return max(self._found)

    @property
    def plausible(self) -> bool:
        best, second = self._found[:2]
        if best - second > _AGREE * best:
            return False
        if self._unit is None:
            return True
        halves = 2 * best / self._unit()
        return abs(halves - max(round(halves), 1)) <= _NEAR_HALVES * halves

    def sweep(self) -> None:
        work = self._probe.work(self._repeats) * 1e-9
        rounds = [work / self._probe.seconds(self._repeats) for _ in range(_ROUNDS)]
        self._found = sorted([*self._found, *rounds], reverse=True)[:2]


def _of(clock: _Rate, times: float = 1.0) -> Callable[[], float]:
    return lambda: clock.best * times


@final
class _Level:
    """Bandwidth of a level. A core that gets no byte a cycle has to share it with somebody."""

    def __init__(self, limit: Limit, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock

    @property
    def plausible(self) -> bool:
        return self._limit.plausible and self._limit.rate.one_core >= _LEAST_BYTES * self._clock()

    def sweep(self) -> None:
        self._limit.sweep()


@final
class _Beside:
    """Whether additions slow multiply-adds down."""

    def __init__(self, alone: _Rate, mixed: _Rate) -> None:
        self._alone, self._mixed = alone, mixed

    @property
    def ratio(self) -> float:
        return self._alone.best / self._mixed.best

    @property
    def plausible(self) -> bool:
        steady = self._alone.plausible and self._mixed.plausible
        return steady and (self.ratio <= _APART or self.ratio >= _SHARED)

    def sweep(self) -> None:
        self._alone.sweep()
        self._mixed.sweep()


@final
class _Barrier:
    """Seconds for all threads of a target to meet once: steps that do nothing, of which each ends in a barrier."""

    def __init__(self, target: Target) -> None:
        code = compile_ir(_EMPTY, cpu=target.cpu, features=target.llvm_features)
        self._library = load_objects([code.object_code])
        pool = ThreadPool(target.num_threads)
        self._plan = Plan(pool, [[Step(self._library.address("empty"), [])] * _BARRIERS], keep=[self._library])
        self._found: list[float] = []

    @property
    def seconds(self) -> float:
        return self._found[0] / _BARRIERS

    @property
    def plausible(self) -> bool:
        best, second = self._found[:2]
        return self.seconds < _LONG_BARRIER and second - best <= _BARRIERS_AGREE * best

    def sweep(self) -> None:
        found = self._plan.pool.time_plan(self._plan, 1, _BARRIER_BATCHES)[1:]
        self._found = sorted([*self._found, *map(float, found)])[:2]
