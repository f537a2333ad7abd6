"""From LLVM IR text to object code.

Linking is elsewhere on purpose: builders run `compile_ir` in their own processes and ship plain bytes, whoever runs
kernels calls `link.load_objects` on those bytes, and needs no LLVM. Our loop nests are already tiled,
vectorised and unrolled, so LLVM only promotes the register tiles and allocates registers: `sroa` alone
reaches the speed of O2/O3 in half the time, and LLVM's own loop passes make kernels slower.

An instruction that the target cannot select ends the process inside LLVM; only builders compile
untrusted candidates, and they are separate processes for that reason.
"""

from __future__ import annotations

import functools
import re

import llvmlite.binding as llvm

from autotune.codegen.compiled_object import CompiledObject, ir_hash
from autotune.errors import CodegenError

# A vector instruction with a stack operand: a spill, a reload, or a reload folded into an operation.
# Only %rsp counts, because %rbp is an ordinary register in code without frame pointers.
_STACK_TRAFFIC = re.compile(r"^\t\w+\t(?=.*%[yz]mm).*\(%rsp[,)]", re.MULTILINE)
_FMA = re.compile(r"^\tv(?:fn?m(?:add|sub)\d+p[sdh]|pdp\w+|dpbf16ps)\t", re.MULTILINE)


def compile_ir(ir_text: str, *, cpu: str, features: str) -> CompiledObject:
    """Verify, optimise and compile IR text for a CPU (`features` in LLVM's form: "+avx2,+fma"), and count in it.

    Raises:
        CodegenError: the IR does not parse or verify.
    """
    text = assembly(ir_text, cpu=cpu, features=features)
    spills, fmas = count_spills(text)
    # Assembling LLVM's own output costs a fifth of generating code a second time for the object.
    escaped = text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
    module = _parse(f'module asm "{escaped}"')
    object_code = _target_machine(cpu, features).emit_object(module)
    return CompiledObject(object_code, ir_hash(ir_text), spills, fmas)


def compile_uncounted(ir_text: str, *, cpu: str, features: str) -> CompiledObject:
    """The same code in nine tenths of the time, for who runs it and does not ask what is in it.

    LLVM writes the object itself: no assembly in between that could be looked at.

    Raises:
        CodegenError: the IR does not parse or verify.
    """
    machine = _target_machine(cpu, features)
    return CompiledObject(machine.emit_object(_optimized(ir_text, machine)), ir_hash(ir_text))


def assembly(ir_text: str, *, cpu: str, features: str) -> str:
    """The optimised assembly (AT&T syntax) that `compile_ir` turns into an object."""
    machine = _target_machine(cpu, features)
    return str(machine.emit_assembly(_optimized(ir_text, machine)))


def _optimized(ir_text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    module = _parse(ir_text)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    # Not NewGVN: it is no faster, it has miscompiled nests, and an assertion of it can end the process (docs/adr/0006).
    passes.run(module, builder)
    return module


def count_spills(asm: str) -> tuple[int, int]:
    """`(spills, fmas)` of an assembly text: stack traffic of ymm/zmm registers, and vector multiply-adds.

    Candidates with spills/fmas above 0.3 are never among the best, so the ratio is a cheap filter.
    """
    return len(_STACK_TRAFFIC.findall(asm)), len(_FMA.findall(asm))


def _parse(ir_text: str) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(ir_text)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM refused the IR: {_one_line(error)}") from error
    return module


def _one_line(error: RuntimeError) -> str:
    return " ".join(str(error).split())


@functools.cache
def _initialize() -> None:
    # A third of the compile time for nothing: our addresses are reduced already (docs/adr/0006).
    llvm.set_option("autotune", "-disable-lsr")
    # Tiles have sums enough to wait for none; it makes sums of several products first, and then there is no register.
    llvm.set_option("autotune", "-x86-machine-combiner=false")
    # Where a jump lies across 32 bytes, cores of the Skylake family decode the loop anew in each turn (docs/adr/0006).
    llvm.set_option("autotune", "-x86-branches-within-32B-boundaries")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.lru_cache(maxsize=16)
def _target_machine(cpu: str, features: str) -> llvm.TargetMachine:
    _initialize()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="default")
