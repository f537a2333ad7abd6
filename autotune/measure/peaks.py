"""The limits of this machine as measured: multiply-add throughput, and read bandwidth from each cache level.

Every percentage "of peak" that autotune prints refers to these, or to an FMA probe run beside the measurement.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import final

from autotune import machine
from autotune.measure.probes import Kernel, Probe, bf16_kernel, fma_kernel, int8_kernel, read_kernel
from autotune.target import Target

_ROUNDS = 16
_SECONDS = 0.005  # of one round: long against waking a thread, short against a time slice
_MAX_DRAM_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Rate:
    """Throughput in units of 1e9 per second: of one core alone, and of all threads of the target together."""

    one_core: float
    all_cores: float


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured limits of a target on this machine.

    Attributes:
        fp32, int8, bf16: GFLOP/s or GOP/s, counting a multiply-add as two; None where no such instruction exists.
        l1, l2, l3, dram: GB/s read from a buffer of half that cache, or of four times the L3. All threads share the
            L3 and DRAM buffers' sizes and have L1 and L2 buffers of their own.
    """

    fp32: Rate
    int8: Rate | None
    bf16: Rate | None
    l1: Rate
    l2: Rate
    l3: Rate
    dram: Rate


@final
class FmaPeak:
    """fp32 FMA throughput of all threads of a target at this moment: run between timings, it is their yardstick.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """

    def __init__(self, target: Target) -> None:
        self._probes = [Probe(fma_kernel(target), target) for _ in range(target.num_threads)]
        self._repeats = self._probes[0].repeats_for(_SECONDS)

    def run(self) -> float:
        """GFLOP/s of all threads together."""
        return sum(probe.work(self._repeats) for probe in self._probes) / _span(self._probes, self._repeats) * 1e-9


def measure_peaks(target: Target) -> Peaks:
    """Measure the limits of `target` on this machine; takes about two seconds.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """
    threads = target.num_threads
    # Half of a cache is safely inside it; four times the last level is safely outside.
    dram = min(4 * target.l3_bytes, _MAX_DRAM_BYTES, machine.memory_bytes() // 8)

    def optional(kernel: Kernel | None) -> Rate | None:
        return _rate(kernel, target) if kernel else None

    read = read_kernel(target)
    return Peaks(
        fp32=_rate(fma_kernel(target), target),
        int8=optional(int8_kernel(target)),
        bf16=optional(bf16_kernel(target)),
        l1=_rate(read, target, target.l1_bytes // 2, target.l1_bytes // 2),
        l2=_rate(read, target, target.l2_bytes // 2, target.l2_bytes // 2),
        l3=_rate(read, target, target.l3_bytes // 2, target.l3_bytes // 2 // threads),
        dram=_rate(read, target, dram, dram // threads),
    )


def _rate(kernel: Kernel, target: Target, one_size: int = 1024, each_size: int = 1024) -> Rate:
    """The rate of a kernel with a buffer of `one_size` bytes on one core, of `each_size` per thread on all."""
    one = Probe(kernel, target, _whole(one_size))
    one_core = _best([one])
    if target.num_threads == 1:
        return Rate(one_core, one_core)
    return Rate(one_core, _best([Probe(kernel, target, _whole(each_size)) for _ in range(target.num_threads)]))


def _whole(size: int) -> int:
    return max(1024, size // 1024 * 1024)


def _best(probes: list[Probe]) -> float:
    """Units of 1e9 per second of the best round; a round lasts from the first start to the last end."""
    repeats = probes[0].repeats_for(_SECONDS)
    spans = [_span(probes, repeats) for _ in range(_ROUNDS)]
    return sum(probe.work(repeats) for probe in probes) / min(spans) * 1e-9


def _span(probes: list[Probe], repeats: int) -> float:
    """Seconds in which all probes ran, each in a thread of its own: the call into compiled code frees Python's lock."""
    if len(probes) == 1:
        return probes[0].seconds(repeats)
    starts = [0] * len(probes)
    ends = [0] * len(probes)
    gate = threading.Barrier(len(probes))

    def work(number: int) -> None:
        gate.wait()
        starts[number] = time.perf_counter_ns()
        probes[number].seconds(repeats)
        ends[number] = time.perf_counter_ns()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(probes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (max(ends) - min(starts)) * 1e-9
