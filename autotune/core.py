"""`Core`: what one core can do in a cycle, as data. Everything that chooses a schedule asks this and nothing else.

The figures are those that compilers' machine models have (Agner Fog's tables, uops.info): how many vector operations of
each kind start in a cycle and how long one takes, what is loaded and stored in a cycle, and how many bytes each level
of the memory delivers. Where they are from is `autotune.cores`' business.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace

from autotune.errors import TargetError

WIDTHS = (128, 256, 512)
"""Bits of a vector, all that x86 has."""

KINDS = ("fma.f32", "fma.f64", "fma.f16", "dot.u8", "dot.bf16", "tile.u8", "tile.bf16", "tile.f16")
"""Of instructions that multiply and add; see `Pipe`."""

LINE = 64
"""Bytes of a cache line."""

PAGE = 4096
"""Bytes that one entry of the translation buffer covers, and after which addresses share lines of the first cache."""

FOLLOWED = 16
"""Runs of memory, read a little of each in turn, that CPUs are sure to fetch ahead by themselves. Zen 3 follows 16 to
24: of more of them a quarter as many bytes come from L3. Intel's manuals say one or two in each of 32 pages."""

TILE_DEPTH = {"tile.u8": 64, "tile.bf16": 32, "tile.f16": 32}
"""Products that an instruction of tiles adds to every lane."""

_BESIDE = frozenset({"source", "peaks"})  # fields of a core that say nothing of what it is
_AVX512 = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq"})
_KEPT = 0.8  # of a step that a figure may be away from an earlier one that is kept; without one, half a step
_STEPS_PER_OCTAVE = 2  # of bytes per cycle: 1, 1.41, 2, 2.83, 4, ...; one where others may share what is measured
_BARRIER_OCTAVES = 2  # from one figure to the next: barriers vary most from one measurement to another


@dataclass(frozen=True, slots=True)
class Pipe:
    """The throughput of one kind of vector instruction.

    Attributes:
        kind: `fma.f32`, `fma.f64`, `fma.f16`, `dot.u8` (vpdpbusd: four products a lane), `dot.bf16` (vdpbf16ps: two),
            `tile.u8`, `tile.bf16`, `tile.f16` (AMX: `TILE_DEPTH` products for every lane of every row of a tile).
        bits: of the vector; of a tile, of a row.
        per_cycle: how many start in a cycle when none waits; of tiles, how many rows.
        latency: cycles until the result can be added to; of tiles, those that an instruction takes at least.
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
        l3_shared, dram_shared: by all threads together, at most.
        barrier_cycles: for all threads to meet once.
        source: where the figures are from: `measured`, `shipped`, `features`, or `given` with a target; no part of
            the identity.
        peaks: fp32 GFLOP/s of so many threads together, as measured in quiet and not rounded: what later measurements
            are held against; no part of the identity.
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
    source: str = field(default="features", compare=False)
    peaks: tuple[tuple[int, float], ...] = field(default=(), compare=False)

    def pipe(self, kind: str, bits: int) -> Pipe | None:
        """The pipe for instructions of a kind on vectors of `bits`; None when the CPU has no such instruction."""
        return next((p for p in self.pipes if p.kind == kind and p.bits == bits), None)

    def lane_rate(self, kind: str, bits: int) -> float:
        """Bits of vector that instructions of a kind work on per cycle; 0 when there are none."""
        found = self.pipe(kind, bits)
        return found.per_cycle * bits if found else 0.0

    def best_lane_rate(self, kind: str) -> float:
        """The same at the width that is best at it."""
        return max(self.lane_rate(kind, bits) for bits in WIDTHS)

    @property
    def pairs(self) -> float:
        """Products of 16-bit integers that are added up in a cycle, two in a lane of 32 bits."""
        return 2 * max(self.best_lane_rate("dot.u8"), self.best_lane_rate("fma.f32")) / 32

    def from_l3(self, threads: int) -> float:
        """Bytes a cycle that so many threads together read from L3."""
        return min(threads * self.l3, max(self.l3, self.l3_shared))

    def from_dram(self, threads: int) -> float:
        """Bytes a cycle that so many threads together read from memory."""
        return min(threads * self.dram, max(self.dram, self.dram_shared))

    def folding(self, kind: str, products: int) -> float:
        """How many products an instruction that adds up so many per lane of f32 does for each that multiply-adds of f32
        do; 0 where there is no such instruction."""
        return products * self.best_lane_rate(kind) / self.best_lane_rate("fma.f32")

    def rounded(self, before: Core | None = None) -> Core:
        """In steps so coarse that measuring the same machine again gives the same figures, nearly always.

        Args:
            before: an earlier result: what is about the same stays so, though it lies between two steps.
        """
        then = before or self

        def pipe(now: Pipe) -> Pipe:
            was = then.pipe(now.kind, now.bits) or now
            return replace(
                now, per_cycle=_halves(now.per_cycle, was.per_cycle), latency=_step(now.latency, was.latency, 1.0)
            )

        return replace(
            self,
            ghz=_halves(self.ghz, then.ghz),
            pipes=tuple(map(pipe, self.pipes)),
            loads=_halves(self.loads, then.loads),
            stores=_halves(self.stores, then.stores),
            l1=_geometric(self.l1, then.l1),
            l2=_geometric(self.l2, then.l2),
            l3=_geometric(self.l3, then.l3, 1),
            dram=_geometric(self.dram, then.dram, 1),
            l3_shared=_geometric(self.l3_shared, then.l3_shared, 1),
            dram_shared=_geometric(self.dram_shared, then.dram_shared, 1),
            barrier_cycles=_geometric(self.barrier_cycles, then.barrier_cycles, 1 / _BARRIER_OCTAVES),
        )

    def to_values(self) -> dict[str, object]:
        """What identifies it, as JSON has it."""
        values = {name: value for name, value in asdict(self).items() if name not in _BESIDE}
        values["pipes"] = [asdict(pipe) for pipe in self.pipes]
        return values

    @staticmethod
    def from_values(values: object, source: str) -> Core:
        """The core that `to_values` wrote.

        Raises:
            TargetError: fields missing or unknown, or figures that are none.
        """
        names = {field.name for field in fields(Core)} - _BESIDE
        if not isinstance(values, Mapping) or values.keys() != names or not isinstance(values["pipes"], list):
            raise TargetError(f"a core must be an object with exactly {', '.join(sorted(names))}; pipes is a list")
        figures = {name: values[name] for name in names - {"pipes", "adds_beside_multiplies"}}
        bad = sorted(name for name, value in figures.items() if not _is_figure(value))
        if not isinstance(values["adds_beside_multiplies"], bool):
            bad.append("adds_beside_multiplies")
        if bad:
            raise TargetError(f"a core's {', '.join(bad)}: positive numbers and true or false are expected")
        pipes = tuple(_pipe(pipe) for pipe in values["pipes"])
        numbers = {name: float(value) for name, value in figures.items()}
        return Core(
            pipes=pipes, adds_beside_multiplies=values["adds_beside_multiplies"], source=source, peaks=(), **numbers
        )


def vector_bits_of(features: Collection[str]) -> int:
    """Width of the widest vectors to use: 512 with AVX-512 F, VL, BW and DQ, else 256."""
    return 512 if set(features) >= _AVX512 else 256


def has_instruction(kind: str, bits: int, features: Collection[str]) -> bool:
    """Whether a CPU with AVX2, FMA and these features has instructions of a kind on vectors of `bits`."""
    widest = vector_bits_of(features)
    if kind == "dot.u8" and "avxvnni" in features and bits <= 256:
        return True
    tiles = {"tile.u8": "amx-int8", "tile.bf16": "amx-bf16", "tile.f16": "amx-fp16"}
    if kind in tiles:
        return bits == widest == 512 and {"amx-tile", tiles[kind]} <= set(features)
    needed = {"fma.f16": "avx512fp16", "dot.u8": "avx512vnni", "dot.bf16": "avx512bf16"}.get(kind)
    return bits <= widest and (needed is None or (needed in features and "avx512vl" in features))


def core_of_features(features: Collection[str], bits: int) -> Core:
    """A careful guess for a CPU of which only the instruction set is known: two multiply-adds a cycle at any width."""
    usual = {"dot.u8": (2.0, 5.0), "dot.bf16": (1.0, 6.0), **dict.fromkeys(TILE_DEPTH, (1.0, 16.0))}
    pipes = [
        Pipe(kind, width, *usual.get(kind, (2.0, 4.0)))
        for kind in KINDS
        for width in WIDTHS
        if has_instruction(kind, width, features)
    ]
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


def _step(value: float, before: float, step: float) -> float:
    """The nearest multiple that is positive; the one before, if it is the next nearest and not much farther."""
    near = max(round(before / step), 1)
    kept = abs(value / step - near) <= _KEPT
    return (near if kept else max(round(value / step), 1)) * step


def _halves(value: float, before: float) -> float:
    return _step(value, before, 0.5)


def _geometric(value: float, before: float, steps_per_octave: float = _STEPS_PER_OCTAVE) -> float:
    """The same of a geometric series, with three digits."""
    steps, near = steps_per_octave * math.log2(value), round(steps_per_octave * math.log2(before))
    kept = abs(steps - near) <= _KEPT
    return float(f"{2 ** ((near if kept else round(steps)) / steps_per_octave):.3g}")


def _is_figure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _pipe(values: object) -> Pipe:
    names = {field.name for field in fields(Pipe)}
    if not isinstance(values, Mapping) or values.keys() != names:
        raise TargetError(f"a pipe must be an object with exactly {', '.join(sorted(names))}")
    figures = _is_figure(values["per_cycle"]) and _is_figure(values["latency"])
    if values["kind"] not in KINDS or values["bits"] not in WIDTHS or not figures:
        raise TargetError(
            f"a pipe of kind {values['kind']!r} and {values['bits']!r} bits is none, or has no throughput"
        )
    return Pipe(values["kind"], values["bits"], float(values["per_cycle"]), float(values["latency"]))
