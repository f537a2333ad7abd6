"""Kernels that show what one core does in a cycle: chains of instructions that wait for each other, or do not.

Like `probes`, IR text with the signature `void probe(ptr data, i64 size, i64 repeats)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core import TILE_DEPTH
from autotune.measure.probes import CHAINS, Kernel, loop_kernel
from autotune.measure.tile_probes import tile_kernel
from autotune.target import Target

CLOCK_STEPS = 24
"""Cycles of a repetition of `clock_kernel`: its chain of additions, beside fewer multiply-adds than fit into them."""

BESIDE_MULTIPLIES, BESIDE_ADDS = 10, 4
"""Chains of `mixed_kernel`: enough multiply-adds for two units of latency 5, and additions that fill a third of the
time when they have to share them; with the operand they fit 16 registers."""

_STORES = 8  # vectors written per iteration
_LOADS, _FOLDS, _TURNS = 16, 8, 4  # vectors read per iteration, of each turn elsewhere, into so many registers


@dataclass(frozen=True, slots=True)
class _Instruction:
    """A multiply-add in IR: the types of the chain and of the other operand, and the call."""

    chain: str
    operand: str
    function: str
    arguments: str

    @property
    def declaration(self) -> str:
        types = self.arguments.format(chain=self.chain, operand=self.operand)
        return f"declare {self.chain} {self.function}({types})"

    def call(self, chain: str, result: str) -> str:
        arguments = self.arguments.format(chain=f"{self.chain} {chain}", operand=f"{self.operand} %x")
        return f"  {result} = call {self.chain} {self.function}({arguments})"


def throughput_kernel(kind: str, bits: int) -> Kernel:
    """As many instructions of a kind at once as keep the units busy; operations are instructions, of tiles rows."""
    if kind in TILE_DEPTH:
        return tile_kernel(kind)
    return _chains(_instruction(kind, bits), CHAINS)


def latency_kernel(kind: str, bits: int) -> Kernel:
    """One instruction of a kind after the other; of tiles, those of one row."""
    if kind in TILE_DEPTH:
        return tile_kernel(kind, rows=1)
    return _chains(_instruction(kind, bits), 1)


def mixed_kernel(bits: int, adds: int) -> Kernel:
    """`BESIDE_MULTIPLIES` chains of fp32 multiply-adds and `adds` chains of additions; operations are multiply-adds."""
    multiply = _instruction("fma.f32", bits)
    count = BESIDE_MULTIPLIES + adds
    body = [multiply.call(f"%c{n}", f"%n{n}") for n in range(BESIDE_MULTIPLIES)]
    body += [f"  %n{n} = fadd {multiply.chain} %c{n}, %x" for n in range(BESIDE_MULTIPLIES, count)]
    ir = loop_kernel(multiply.declaration, multiply.operand, [multiply.chain] * count, body)
    return Kernel(ir, BESIDE_MULTIPLIES)


def clock_kernel(bits: int) -> Kernel:
    """A chain of integer instructions of one cycle each, beside multiply-adds of a width: clocks depend on that.

    Operations are cycles.
    """
    multiply = _instruction("fma.f32", bits)
    chains, last = CLOCK_STEPS // 4, "%c0"
    # Two kinds of instructions in turn on numbers unknown to LLVM: nothing folds.
    body = []
    for step in range(CLOCK_STEPS):
        name = "%n0" if step == CLOCK_STEPS - 1 else f"%s{step}x"
        body.append(f"  {name} = {'add' if step % 2 else 'xor'} i64 {last}, {'%size' if step % 2 else '%repeats'}")
        last = name
    body += [multiply.call(f"%c{n}", f"%n{n}") for n in range(1, chains)]
    ir = loop_kernel(multiply.declaration, multiply.operand, ["i64", *[multiply.chain] * (chains - 1)], body)
    return Kernel(ir, CLOCK_STEPS)


def load_kernel(target: Target) -> Kernel:
    """Loads from the same few places, too few to wait for; operations are loads."""
    vector, width = f"<{target.lanes(8)} x i64>", target.vector_bits // 8
    body = [f"  %turn = and i64 %r, {_TURNS - 1}", f"  %place = mul i64 %turn, {width}"]
    body.append("  %base = getelementptr i8, ptr %data, i64 %place")  # which moves, so that no load leaves the loop
    for i in range(_LOADS):
        chain = i % _FOLDS
        before = f"%c{chain}" if i < _FOLDS else f"%m{i - _FOLDS}"
        name = f"%n{chain}" if i >= _LOADS - _FOLDS else f"%m{i}"
        body.append(f"  %q{i} = getelementptr i8, ptr %base, i64 {i * width}")
        body.append(f"  %v{i} = load {vector}, ptr %q{i}, align {width}")
        body.append(f"  {name} = or {vector} {before}, %v{i}")
    return Kernel(loop_kernel("", vector, [vector] * _FOLDS, body), _LOADS)


def store_kernel(target: Target) -> Kernel:
    """Writes all of the buffer, `size` bytes, a multiple of 1024; worth bytes."""
    vector, width = f"<{target.lanes(8)} x i64>", target.vector_bits // 8
    body = "\n".join(
        f"  %o{i} = add i64 %at, {i * width}\n  %p{i} = getelementptr i8, ptr %data, i64 %o{i}\n"
        f"  store {vector} %v, ptr %p{i}, align {width}"
        for i in range(_STORES)
    )
    ir = f"""
define void @probe(ptr noalias %data, i64 %size, i64 %repeats) {{
entry:
  %v = load {vector}, ptr %data, align {width}
  br label %outer
outer:
  %r = phi i64 [ 0, %entry ], [ %rnext, %done ]
  br label %inner
inner:
  %at = phi i64 [ 0, %outer ], [ %next, %inner ]
{body}
  %next = add i64 %at, {_STORES * width}
  %more = icmp ult i64 %next, %size
  br i1 %more, label %inner, label %done
done:
  %rnext = add i64 %r, 1
  %again = icmp ult i64 %rnext, %repeats
  br i1 %again, label %outer, label %exit
exit:
  ret void
}}
"""
    return Kernel(ir, 0)


def _instruction(kind: str, bits: int) -> _Instruction:
    accumulate = "{operand}, {operand}, {chain}"
    dot = "{chain}, {operand}, {operand}"
    if kind == "dot.u8":
        function = f"@llvm.x86.avx512.vpdpbusd.{bits}"
        return _Instruction(f"<{bits // 32} x i32>", f"<{bits // 8} x i8>", function, dot)
    if kind == "dot.bf16":
        function = f"@llvm.x86.avx512bf16.dpbf16ps.{bits}"
        return _Instruction(f"<{bits // 32} x float>", f"<{bits // 16} x bfloat>", function, dot)
    element, size = {"fma.f32": ("float", 32), "fma.f64": ("double", 64), "fma.f16": ("half", 16)}[kind]
    vector = f"<{bits // size} x {element}>"
    return _Instruction(vector, vector, f"@llvm.fma.v{bits // size}f{size}", accumulate)


def _chains(instruction: _Instruction, count: int) -> Kernel:
    body = [instruction.call(f"%c{n}", f"%n{n}") for n in range(count)]
    ir = loop_kernel(instruction.declaration, instruction.operand, [instruction.chain] * count, body)
    return Kernel(ir, count)
