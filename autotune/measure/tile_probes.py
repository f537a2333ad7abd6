"""Kernels of products of tiles (AMX), like `probes`: how fast whole tiles are multiplied, and the shortest."""

from __future__ import annotations

from autotune.codegen.tiles import configuration
from autotune.core import TILE_DEPTH, has_instruction
from autotune.measure.probes import Kernel
from autotune.schedule.dot_products import DOT_PRODUCTS, TILE_GROUPS, TILE_LANES, TILE_ROWS
from autotune.target import Target

_SUMS, _LEFT, _RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)
"""Registers: each sum has a left and a right factor, two of either."""


def tile_kernel(kind: str, rows: int = TILE_ROWS) -> Kernel:
    """Products of as many tiles as there are registers for, of some rows; operations are rows.

    Args:
        kind: of `autotune.core.Pipe`, one of tiles.
    """
    symbol = f"@{next(d for d in DOT_PRODUCTS.values() if d.pipe == kind).symbol(TILE_LANES)}"
    shapes = dict.fromkeys((*_SUMS, *_LEFT), (rows, 64)) | dict.fromkeys(_RIGHT, (TILE_GROUPS, 64))
    loads = [f"  call void @llvm.x86.tileloadd64(i8 {n}, ptr %data, i64 64)" for n in (*_SUMS, *_LEFT, *_RIGHT)]
    calls = [f"  call void {symbol}(i8 {n}, i8 {_LEFT[n // 2]}, i8 {_RIGHT[n % 2]})" for n in _SUMS]
    ir = "\n".join(
        [
            f'@tiles = private unnamed_addr constant [64 x i8] c"{configuration(shapes)}", align 64',
            "declare void @llvm.x86.ldtilecfg(ptr)",
            "declare void @llvm.x86.tilerelease()",
            "declare void @llvm.x86.tileloadd64(i8, ptr, i64)",
            f"declare void {symbol}(i8, i8, i8)",
            "define void @probe(ptr noalias %data, i64 %size, i64 %repeats) {",
            "entry:",
            "  call void @llvm.x86.ldtilecfg(ptr @tiles)",
            *loads,
            "  br label %loop",
            "loop:",
            "  %r = phi i64 [ 0, %entry ], [ %rnext, %loop ]",
            *calls,
            "  %rnext = add i64 %r, 1",
            "  %again = icmp ult i64 %rnext, %repeats",
            "  br i1 %again, label %loop, label %exit",
            "exit:",
            "  call void @llvm.x86.tilerelease()",
            "  ret void",
            "}",
            "",
        ]
    )
    return Kernel(ir, len(_SUMS) * rows)


def tile_peaks(target: Target) -> dict[str, Kernel]:
    """By kind of pipe, kernels at the limits of what a target has; operations as `Peaks` counts them."""
    kinds = [kind for kind in TILE_DEPTH if has_instruction(kind, target.vector_bits, target.features)]
    kernels = {kind: tile_kernel(kind) for kind in kinds}
    return {kind: Kernel(k.ir, 2 * k.operations * TILE_LANES * TILE_DEPTH[kind]) for kind, k in kernels.items()}
