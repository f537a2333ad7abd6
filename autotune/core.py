"""`Core`: what one core can do in a cycle, as data. Everything that chooses a schedule asks this and nothing else.

The figures are those that compilers' machine models have (Agner Fog's tables, uops.info): how many vector operations of
each kind start in a cycle and how long one takes, what is loaded and stored in a cycle, and how many bytes each level
of the memory delivers. They are shipped for known CPUs and measured for others; what is neither follows from the
instruction set, carefully.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pipe:
    """The throughput of one kind of vector instruction.

    Attributes:
        kind: `fma.f32`, `fma.f64`, `fma.f16`, `dot.u8` (vpdpbusd: four products a lane), `dot.bf16` (vdpbf16ps: two).
        bits: of the vector.
        per_cycle: how many start in a cycle when none waits.
        latency: cycles until the result can be added to.
    """

    kind: str
    bits: int
    per_cycle: float
    latency: float

    @property
    def in_flight(self) -> float:
        """Independent instructions that keep the units busy."""
        return self.per_cycle * self.latency


@dataclass(frozen=True, slots=True)
class Core:
    """One core, and what several share.

    Attributes:
        ghz: cycles per nanosecond while vectors are multiplied.
        pipes: what is known of instructions; see `pipe`.
        loads, stores: vectors of the widest kind per cycle.
        adds_beside_multiplies: vector additions have units of their own and cost multiply-adds no time.
        l1, l2, l3, dram: bytes read per cycle by one thread whose data is there.
        l3_shared, dram_shared: by all threads together.
        barrier_cycles: for all threads to meet once.
        source: where the figures are from: `shipped`, `measured`, or `features`; no part of the identity.
    """

    ghz: float
    pipes: tuple[Pipe, ...]
    loads: float
    stores: float
    adds_beside_multiplies: bool
    l1: float
    l2: float
    l3: float
    dram: float
    l3_shared: float
    dram_shared: float
    barrier_cycles: float
    source: str = "features"

    def pipe(self, kind: str, bits: int) -> Pipe | None:
        """The pipe for instructions of a kind on vectors of `bits`; None when the CPU has no such instruction."""
        return next((p for p in self.pipes if p.kind == kind and p.bits == bits), None)

    def lane_rate(self, kind: str, bits: int) -> float:
        """Bits of vector that instructions of a kind work on per cycle; 0 when there are none."""
        found = self.pipe(kind, bits)
        return found.per_cycle * bits if found else 0.0


def core_of_features(features: Collection[str], bits: int) -> Core:
    """A careful guess for a CPU of which only the instruction set is known: two multiply-adds a cycle at any width."""
    widths = (128, 256, 512) if bits == 512 else (128, 256)
    pipes = [Pipe(kind, width, 2.0, 4.0) for kind in ("fma.f32", "fma.f64") for width in widths]
    if "avx512fp16" in features:
        pipes += [Pipe("fma.f16", width, 2.0, 4.0) for width in widths]
    if "avx512vnni" in features and "avx512vl" in features:
        pipes += [Pipe("dot.u8", width, 2.0, 5.0) for width in widths]
    elif "avxvnni" in features:
        pipes += [Pipe("dot.u8", width, 2.0, 5.0) for width in widths if width <= 256]
    if "avx512bf16" in features and "avx512vl" in features:
        pipes += [Pipe("dot.bf16", width, 1.0, 6.0) for width in widths]
    return Core(
        ghz=3.0,
        pipes=tuple(pipes),
        loads=2.0,
        stores=1.0,
        adds_beside_multiplies=False,
        l1=2 * bits / 8,
        l2=bits / 8 / 2,
        l3=8.0,
        dram=5.0,
        l3_shared=16.0,
        dram_shared=10.0,
        barrier_cycles=600.0,
    )
