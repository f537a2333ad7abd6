"""The front door of code generation: a schedule and a target in, a relocatable kernel out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autotune.codegen import byte_tables
from autotune.codegen.compiled_object import CompiledObject, ir_hash
from autotune.codegen.dot import check_instructions
from autotune.codegen.emit import emit, scratch_offsets
from autotune.codegen.jit import compile_ir
from autotune.codegen.tiles import check_tiles
from autotune.lower import lower
from autotune.lower.ir import LOCAL, SHARED, LoopProgram, Operand
from autotune.schedule.schedule import Schedule
from autotune.target import Target

SYMBOL = "kernel"


@dataclass(frozen=True, slots=True)
class KernelObject:
    """A compiled kernel: what builders return, runners link and compiled models store.

    Attributes:
        symbol: `void symbol(ptr frame, i64 thread_id, i64 num_threads)`.
        object_code: relocatable ELF object.
        ir_hash: identity of the LLVM IR it was compiled from.
        operands: in frame order.
        shared_scratch: bytes that all threads share.
        thread_scratch: bytes per thread.
        spills: vector instructions that touch the stack; 0 where nobody counted, as in what a model runs.
        fmas: vector multiply-accumulate instructions; likewise.
    """

    symbol: str
    object_code: bytes
    ir_hash: str
    operands: tuple[Operand, ...]
    shared_scratch: int
    thread_scratch: int
    spills: int
    fmas: int


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel before LLVM: its loops and its IR text."""

    program: LoopProgram
    ir: str

    @property
    def ir_hash(self) -> str:
        return ir_hash(self.ir)


def generate(schedule: Schedule, target: Target, name: str = SYMBOL, *, check: bool = True) -> KernelSource:
    """Lower a schedule and emit LLVM IR.

    Raises:
        LoweringError: the schedule cannot be lowered.
        CodegenError: the loop nest has no code on this target.
    """
    program = lower(schedule, name, check=check)
    check_instructions(program, target)
    check_tiles(program, target)
    text = emit(
        program,
        target.vector_bits,
        permutes_bytes=target.has(byte_tables.FEATURE),
        rounds_to_bf16=target.has("avx512bf16") and target.has("avx512vl"),
    )
    return KernelSource(program, text)


class CompileIr(Protocol):
    """`compile_ir`, or the object cache in front of it."""

    def __call__(self, ir_text: str, *, cpu: str, features: str) -> CompiledObject: ...


def compile_source(source: KernelSource, target: Target, compile_text: CompileIr = compile_ir) -> KernelObject:
    """Optimise and compile generated IR."""
    compiled = compile_text(source.ir, cpu=target.cpu, features=target.llvm_features)
    return KernelObject(
        symbol=source.program.name,
        object_code=compiled.object_code,
        ir_hash=compiled.ir_hash,
        operands=source.program.operands,
        shared_scratch=scratch_offsets(source.program, SHARED)[1],
        thread_scratch=scratch_offsets(source.program, LOCAL)[1],
        spills=compiled.spills,
        fmas=compiled.fmas,
    )


def build_kernel(schedule: Schedule, target: Target, name: str = SYMBOL) -> KernelObject:
    """Compile a schedule for a target: lower, emit, optimise, object code.

    Raises:
        LoweringError: the schedule cannot be lowered.
        CodegenError: LLVM refused the code.
    """
    return compile_source(generate(schedule, target, name), target)
