"""Small kernels that run at a limit of the CPU: multiply-adds from registers, and reads of a buffer.

Written as IR text rather than through the compute language, because they measure the yardstick by which the
language is judged. Each has the signature `void probe(ptr data, i64 size, i64 repeats)`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from autotune.codegen.jit import compile_ir
from autotune.codegen.link import load_objects
from autotune.target import Target

# Enough chains to fill two FMA pipes of latency 4-5, few enough for AVX2's 16 registers beside the two operands.
CHAINS = 12
_READS = 8  # vectors read per iteration


@dataclass(frozen=True, slots=True)
class Kernel:
    """A probe's IR and what one repetition is worth: operations, or 0 for a read (worth the bytes of `size`)."""

    ir: str
    operations: int


def fma_kernel(target: Target) -> Kernel:
    """fp32 fused multiply-adds at the target's vector width."""
    lanes = target.lanes(4)
    vector = f"<{lanes} x float>"
    return _chains(vector, vector, f"@llvm.fma.v{lanes}f32", "{operand}, {operand}, {chain}", 2 * lanes)


def int8_kernel(target: Target) -> Kernel | None:
    """u8 x i8 dot products of four into i32 (vpdpbusd); None where the target has none."""
    if target.vector_bits == 512 and target.has("avx512vnni"):
        bits = 512
    elif target.has("avxvnni"):
        bits = 256
    else:
        return None
    function = f"@llvm.x86.avx512.vpdpbusd.{bits}"
    return _chains(f"<{bits // 32} x i32>", f"<{bits // 8} x i8>", function, "{chain}, {operand}, {operand}", bits // 4)


def bf16_kernel(target: Target) -> Kernel | None:
    """bf16 dot products of two into fp32 (vdpbf16ps); None where the target has none."""
    if not (target.vector_bits == 512 and target.has("avx512bf16")):
        return None
    function = "@llvm.x86.avx512bf16.dpbf16ps.512"
    return _chains("<16 x float>", "<32 x bfloat>", function, "{chain}, {operand}, {operand}", 64)


def read_kernel(target: Target) -> Kernel:
    """Reads all of the buffer, `size` bytes, a multiple of 1024, and combines what it read."""
    vector = f"<{target.lanes(8)} x i64>"
    width = target.vector_bits // 8
    names = range(_READS)
    phis = "\n".join(f"  %a{i} = phi {vector} [ zeroinitializer, %outer ], [ %n{i}, %inner ]" for i in names)
    body = "\n".join(
        f"  %o{i} = add i64 %at, {i * width}\n  %p{i} = getelementptr i8, ptr %data, i64 %o{i}\n"
        f"  %v{i} = load {vector}, ptr %p{i}, align {width}\n  %n{i} = or {vector} %a{i}, %v{i}"
        for i in names
    )
    folds = "\n".join(f"  %f{i} = or {vector} {'%n0' if i == 1 else f'%f{i - 1}'}, %n{i}" for i in names if i > 0)
    # What was read is stored once per repetition, behind the buffer: nothing is dead, nothing read is written.
    ir = f"""
define void @probe(ptr noalias %data, i64 %size, i64 %repeats) {{
entry:
  %result = getelementptr i8, ptr %data, i64 %size
  br label %outer
outer:
  %r = phi i64 [ 0, %entry ], [ %rnext, %done ]
  br label %inner
inner:
  %at = phi i64 [ 0, %outer ], [ %next, %inner ]
{phis}
{body}
  %next = add i64 %at, {_READS * width}
  %more = icmp ult i64 %next, %size
  br i1 %more, label %inner, label %done
done:
{folds}
  store {vector} %f{_READS - 1}, ptr %result, align {width}
  %rnext = add i64 %r, 1
  %again = icmp ult i64 %rnext, %repeats
  br i1 %again, label %outer, label %exit
exit:
  ret void
}}
"""
    return Kernel(ir, 0)


def _chains(chain: str, operand: str, function: str, arguments: str, operations: int) -> Kernel:
    """Independent chains `c = function(...)`; `size` is not used."""
    calls = [
        f"  %n{i} = call {chain} {function}({arguments.format(chain=f'{chain} %c{i}', operand=f'{operand} %x')})"
        for i in range(CHAINS)
    ]
    types = arguments.format(chain=chain, operand=operand)
    ir = loop_kernel(f"declare {chain} {function}({types})", operand, [chain] * CHAINS, calls)
    return Kernel(ir, CHAINS * operations)


def loop_kernel(declaration: str, operand: str, chains: Sequence[str], body: Sequence[str]) -> str:
    """IR of a loop over `body`, which makes `%n0`, `%n1`, ... from `%c0`, `%c1`, ... and the operand `%x`.

    Each chain starts from, and is stored to, a place of its own behind the operand: LLVM merges equal chains.

    Args:
        declaration: of the function that the body calls.
        operand: the type of `%x`.
        chains: their types.
    """
    phis = "\n".join(f"  %c{i} = phi {kind} [ %s{i}, %entry ], [ %n{i}, %loop ]" for i, kind in enumerate(chains))
    starts = "\n".join(
        f"  %p{i} = getelementptr i8, ptr %data, i64 {64 + 64 * i}\n  %s{i} = load {kind}, ptr %p{i}, align 8"
        for i, kind in enumerate(chains)
    )
    stores = "\n".join(f"  store {kind} %n{i}, ptr %p{i}, align 8" for i, kind in enumerate(chains))
    lines = "\n".join(body)
    return f"""
{declaration}
define void @probe(ptr noalias %data, i64 %size, i64 %repeats) {{
entry:
  %x = load {operand}, ptr %data, align 32
{starts}
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %rnext, %loop ]
{phis}
{lines}
  %rnext = add i64 %r, 1
  %again = icmp ult i64 %rnext, %repeats
  br i1 %again, label %loop, label %exit
exit:
{stores}
  ret void
}}
"""


@final
class Probe:
    """A kernel, compiled and loaded, with a buffer of its own: one per thread.

    Args:
        kernel: what runs.
        target: what it is compiled for; must run on this machine.
        size: bytes of the buffer that a read kernel covers; a multiple of 1024.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """

    def __init__(self, kernel: Kernel, target: Target, size: int = 1024) -> None:
        target.require_host()
        self.size = size
        self._operations = kernel.operations
        code = compile_ir(kernel.ir, cpu=target.cpu, features=target.llvm_features)
        self._library = load_objects([code.object_code])
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            self._library.address("probe")
        )
        # Written, so that each page is memory of its own and not the kernel's one page of zeros. Small normal floats
        # in every format: 0x3c3c3c3c is 0.011 as fp32, and x*x + c stays finite and normal.
        space = np.full(size + 2048, 0x3C, np.uint8)
        self._space = space[-space.ctypes.data % 64 :]

    def seconds(self, repeats: int) -> float:
        """The wall time of `repeats` repetitions."""
        data = self._space.ctypes.data
        start = time.perf_counter_ns()
        self._call(data, self.size, repeats)
        return (time.perf_counter_ns() - start) * 1e-9

    def repeats_for(self, seconds: float) -> int:
        """How many repetitions take about `seconds`; warms up on the way."""
        repeats = 1
        while (spent := self.seconds(repeats)) < min(seconds, 2e-4) / 2:
            repeats *= 2
        return max(1, round(repeats * seconds / spent))

    def work(self, repeats: int) -> int:
        """Operations, or bytes read, in `repeats` repetitions."""
        return repeats * (self._operations or self.size)
