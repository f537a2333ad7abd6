"""Instructions that fold neighbours: what each multiplies, what a CPU needs for it, and what LLVM calls it.

Data only: an instruction is an entry here and, where it has a throughput of its own, a pipe of the machine description
(`autotune.core`). Sketches offer every one that fits an operator's types and the target.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from autotune.tensor.dtype import DType


@dataclass(frozen=True, slots=True)
class Form:
    """An encoding of an instruction.

    Attributes:
        features: that the CPU needs, all of them.
        lanes: that it has.
        symbol: LLVM's intrinsic; `{bits}` stands for the width of the vector.
    """

    features: tuple[str, ...]
    lanes: tuple[int, ...]
    symbol: str


@dataclass(frozen=True, slots=True)
class DotProduct:
    """An instruction that adds, in every lane, a short dot product of neighbouring elements to an accumulator.

    One of tiles does it for up to `rows` vectors of lanes and for up to `groups` neighbourhoods, one after the other:
    it multiplies matrices, a row of accumulators by a row of the left and all of the right one.

    Attributes:
        name: the instruction, and the mark of the loop that it swallows; of tiles, the mark of the loop over rows.
        extent: products per lane.
        left, right: element types of the factors; `others`: further pairs of types.
        total: type of the accumulator.
        pipe: the kind of `autotune.core.Pipe` that says how fast it is.
        forms: its encodings. Those of as many lanes have the same symbol: LLVM picks what the CPU has.
        widened: whether it multiplies pairs of 16-bit integers, and bytes are made such before: every second byte of a
            lane, then those between.
        adds: whether it adds to the accumulator by itself; else another instruction does.
        steps: instructions that multiply, of its pipe.
        below: of an instruction that adds pairs of products in 16 bits, which saturate: what its first factor must be
            less than; 0 where any will do. Another one adds them up, once for as many as 16 bits hold.
        rows, groups: of an instruction of tiles, at most; 1 of one of vectors.
        swapped: of an instruction of tiles, LLVM's intrinsic where the rows are of the right type.
    """

    name: str
    extent: int
    left: DType
    right: DType
    total: DType
    pipe: str
    forms: tuple[Form, ...]
    others: tuple[tuple[DType, DType], ...] = ()
    widened: bool = False
    adds: bool = True
    steps: int = 1
    below: int = 0
    rows: int = 1
    groups: int = 1
    swapped: str = ""

    @property
    def tiled(self) -> bool:
        """Whether it multiplies tiles."""
        return self.rows > 1

    @property
    def depth(self) -> int:
        """Products per accumulator, at most."""
        return self.extent * self.groups

    def runs(self, features: Collection[str], lanes: int) -> bool:
        """Whether a CPU with these features has it for vectors of so many lanes."""
        return any(lanes in f.lanes and set(f.features) <= set(features) for f in self.forms)

    def symbol(self, lanes: int) -> str:
        """LLVM's intrinsic for vectors of so many lanes."""
        bits = lanes * self.total.bits
        return next(f.symbol for f in self.forms if lanes in f.lanes).format(bits=bits)

    def pair(self, below: int) -> int:
        """The most that two products come to whose first factors are less."""
        return 2 * (below - 1) << self.right.bits - 1

    def multiplies(self, left: DType | None, right: DType | None, *, below: int = 256) -> bool:
        """Whether factors of these types are what it multiplies, in this order or the other.

        Args:
            below: than which all bytes without a sign are less.
        """
        known = ((self.left, self.right), *self.others)
        return ((left, right) in known or (right, left) in known) and not 0 < self.below < below


LANES = (4, 8, 16)
TILE_LANES, TILE_ROWS, TILE_GROUPS, TILES = 16, 16, 16, 8
"""Of a tile register: accumulators in a row, rows of accumulators, rows of the right factor; and how many there are."""

TILE_STORE = "tilestored"
"""The mark of a loop over the rows of a tile that is copied to memory."""


def _tiles(name: str, extent: int, left: DType, right: DType, total: DType, feature: str, swapped: str) -> DotProduct:
    form = Form(("amx-tile", feature), (TILE_LANES,), f"llvm.x86.{name}")
    pipe = f"tile.{left.value}" if left.is_float else "tile.u8"
    return DotProduct(
        name, extent, left, right, total, pipe, (form,),
        rows=TILE_ROWS, groups=TILE_GROUPS, swapped=f"llvm.x86.{swapped or name}",
    )  # fmt: skip


WIDENING = 2.5
"""Instructions that make 16-bit integers of a vector of bytes: two where they are unsigned, else three."""

BF16_WIDENING = 2
"""Instructions that make f32 of a vector of bf16, a zero for every second half; of f16 there is one that does."""

FOR_ALL_LANES = 3
"""Instructions that bring a narrow number to a register, widen it, and copy it to all lanes."""

PAIRS = "vpmaddwd.pairs"
"""Multiplies pairs of 16-bit integers that lie as such in memory."""

ADDED_PAIRS = "vpdpwssd.pairs"
"""The same, and adds to the sum by itself."""

MOST_HALF = 2**15 - 1
"""The largest sum that 16 bits hold."""

DOT_PRODUCTS = {
    d.name: d
    for d in (
        DotProduct(
            "vpdpbusd", 4, DType.u8, DType.i8, DType.i32, "dot.u8",
            (Form(("avx512vnni", "avx512vl"), LANES, "llvm.x86.avx512.vpdpbusd.{bits}"),
             Form(("avxvnni",), (4, 8), "llvm.x86.avx512.vpdpbusd.{bits}")),
        ),
        DotProduct(
            "vpdpbssd", 4, DType.i8, DType.i8, DType.i32, "dot.u8",
            (Form(("avxvnniint8",), (4, 8), "llvm.x86.avx2.vpdpbssd.{bits}"),
             Form(("avx10.2",), (16,), "llvm.x86.avx10.vpdpbssd.{bits}")),
        ),
        DotProduct(
            "vpdpbuud", 4, DType.u8, DType.u8, DType.i32, "dot.u8",
            (Form(("avxvnniint8",), (4, 8), "llvm.x86.avx2.vpdpbuud.{bits}"),
             Form(("avx10.2",), (16,), "llvm.x86.avx10.vpdpbuud.{bits}")),
        ),
        DotProduct(
            "vpdpwssd", 4, DType.i8, DType.i8, DType.i32, "dot.u8",
            (Form(("avx512vnni", "avx512vl"), LANES, "llvm.x86.avx512.vpdpwssd.{bits}"),
             Form(("avxvnni",), (4, 8), "llvm.x86.avx512.vpdpwssd.{bits}")),
            others=((DType.u8, DType.u8),), widened=True, steps=2,
        ),
        DotProduct(
            "vpmaddwd", 4, DType.u8, DType.i8, DType.i32, "fma.f32",
            (Form(("avx2",), (4,), "llvm.x86.sse2.pmadd.wd"), Form(("avx2",), (8,), "llvm.x86.avx2.pmadd.wd"),
             Form(("avx512bw",), (16,), "llvm.x86.avx512.pmaddw.d.512")),
            others=((DType.i8, DType.i8), (DType.u8, DType.u8)), widened=True, adds=False, steps=2,
        ),
        DotProduct(
            "vpmaddubsw", 4, DType.u8, DType.i8, DType.i32, "fma.f32",
            (Form(("avx2",), (4,), "llvm.x86.ssse3.pmadd.ub.sw.128"),
             Form(("avx2",), (8,), "llvm.x86.avx2.pmadd.ub.sw"),
             Form(("avx512bw",), (16,), "llvm.x86.avx512.pmaddubs.w.512")),
            adds=False, below=128,
        ),
        DotProduct(
            PAIRS, 2, DType.i16, DType.i16, DType.i32, "fma.f32",
            (Form(("avx2",), (4,), "llvm.x86.sse2.pmadd.wd"), Form(("avx2",), (8,), "llvm.x86.avx2.pmadd.wd"),
             Form(("avx512bw",), (16,), "llvm.x86.avx512.pmaddw.d.512")),
            adds=False,
        ),
        DotProduct(
            ADDED_PAIRS, 2, DType.i16, DType.i16, DType.i32, "dot.u8",
            (Form(("avx512vnni", "avx512vl"), LANES, "llvm.x86.avx512.vpdpwssd.{bits}"),
             Form(("avxvnni",), (4, 8), "llvm.x86.avx512.vpdpwssd.{bits}")),
        ),
        DotProduct(
            "vdpbf16ps", 2, DType.bf16, DType.bf16, DType.f32, "dot.bf16",
            (Form(("avx512bf16", "avx512vl"), LANES, "llvm.x86.avx512bf16.dpbf16ps.{bits}"),),
        ),
        _tiles("tdpbusd", 4, DType.u8, DType.i8, DType.i32, "amx-int8", "tdpbsud"),
        _tiles("tdpbssd", 4, DType.i8, DType.i8, DType.i32, "amx-int8", ""),
        _tiles("tdpbuud", 4, DType.u8, DType.u8, DType.i32, "amx-int8", ""),
        _tiles("tdpbf16ps", 2, DType.bf16, DType.bf16, DType.f32, "amx-bf16", ""),
        _tiles("tdpfp16ps", 2, DType.f16, DType.f16, DType.f32, "amx-fp16", ""),
    )
}  # fmt: skip


def on_tiles(mark: str) -> bool:
    """Whether a loop of this mark, and all in it, is one instruction on tiles: a product, or the copy of one."""
    dot = DOT_PRODUCTS.get(mark)
    return mark == TILE_STORE or (dot is not None and dot.tiled)
