"""From LLVM IR text to object code, and from object code to addresses in this process.

The two halves are apart on purpose: builders run `compile_ir` in their own processes and ship plain
bytes, whoever runs kernels calls `load_objects` on those bytes. Our loop nests are already tiled,
vectorised and unrolled, so LLVM only promotes the register tiles and allocates registers: `sroa` alone
reaches the speed of O2/O3 in half the time, and LLVM's own loop passes make kernels slower.

An instruction that the target cannot select ends the process inside LLVM; only builders compile
untrusted candidates, and they are separate processes for that reason.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import final

import llvmlite.binding as llvm

from autotune import machine
from autotune.errors import CodegenError
from autotune.target import Target

# A vector instruction with a stack operand: a spill, a reload, or a reload folded into an operation.
# Only %rsp counts, because %rbp is an ordinary register in code without frame pointers.
_STACK_TRAFFIC = re.compile(r"^\t\w+\t(?=.*%[yz]mm).*\(%rsp[,)]", re.MULTILINE)
_FMA = re.compile(r"^\tv(?:fn?m(?:add|sub)\d+p[sdh]|pdp\w+|dpbf16ps)\t", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CompiledObject:
    """A relocatable object and what its assembly tells about it.

    Attributes:
        object_code: the bytes of an ELF relocatable object.
        ir_hash: identity of the IR text it was compiled from.
        spills: vector instructions that touch the stack (static count).
        fmas: vector multiply-accumulate instructions (static count).
    """

    object_code: bytes
    ir_hash: str
    spills: int
    fmas: int


def ir_hash(ir_text: str) -> str:
    """The identity of an IR text: SHA-256, 64 hex digits."""
    return hashlib.sha256(ir_text.encode()).hexdigest()


def compile_ir(ir_text: str, *, cpu: str, features: str) -> CompiledObject:
    """Verify, optimise and compile IR text for a CPU (`features` in LLVM's form: "+avx2,+fma").

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


def assembly(ir_text: str, *, cpu: str, features: str) -> str:
    """The optimised assembly (AT&T syntax) that `compile_ir` turns into an object."""
    machine = _target_machine(cpu, features)
    module = _parse(ir_text)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    # Not NewGVN: it is no faster, it has miscompiled nests, and an assertion of it can end the process (docs/adr/0006).
    passes.run(module, builder)
    return str(machine.emit_assembly(module))


def count_spills(asm: str) -> tuple[int, int]:
    """`(spills, fmas)` of an assembly text: stack traffic of ymm/zmm registers, and vector multiply-adds.

    Candidates with spills/fmas above 0.3 are never among the best, so the ratio is a cheap filter.
    """
    return len(_STACK_TRAFFIC.findall(asm)), len(_FMA.findall(asm))


class Linker:
    """What links object code into this process: shared by libraries, since each costs a megabyte and milliseconds.

    It ends with the last of them. Symbols of one library are unknown to the others.
    """

    def __init__(self) -> None:
        _initialize()
        machine.allow_tiles()  # what is linked may use them
        # JITLink puts code and constants into one slab, so 32-bit relative references always reach.
        self.jit = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
        self._entered = self._left = 0

    def enter(self) -> str:
        """One more library; its name."""
        self._entered += 1
        return f"kernels{self._entered}"

    def leave(self) -> None:
        """The end of a library."""
        self._left += 1
        if self._left == self._entered:
            self.jit.close()


@final
class Library:
    """Objects linked into this process, with a symbol table of their own.

    Two libraries may define equal symbols. Addresses are valid until `close`; nothing checks that no
    thread still runs in the code.
    """

    def __init__(self, objects: Sequence[bytes], imports: Mapping[str, int], linker: Linker | None = None) -> None:
        builder = llvm.JITLibraryBuilder().add_current_process()
        for data in objects:
            builder.add_object_img(data)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        self._linker = linker or Linker()
        self._name = self._linker.enter()
        self._closed = False
        # One tracker per symbol looked up: LLVM unloads the code when a tracker dies.
        self._symbols: dict[str, llvm.ResourceTracker] = {}
        try:
            self._tracker = builder.link(self._linker.jit, self._name)
        except RuntimeError as error:
            self._linker.leave()
            raise CodegenError(f"cannot link object code: {_one_line(error)}") from error

    def address(self, symbol: str) -> int:
        """The address of a defined symbol.

        Raises:
            CodegenError: the symbol is not defined, an external symbol it needs is not, or the library is closed.
        """
        if self._closed:
            raise CodegenError(f"cannot look up {symbol!r}: the library is closed")
        if symbol not in self._symbols:
            try:
                self._symbols[symbol] = self._linker.jit.lookup(self._name, symbol)
            except RuntimeError as error:
                raise CodegenError(f"cannot resolve {symbol!r} in the linked objects: {_one_line(error)}") from error
        return int(self._symbols[symbol][symbol])

    def close(self) -> None:
        """Unload the code; calling an address afterwards is undefined."""
        if not self._closed:
            self._closed = True
            for tracker in (*self._symbols.values(), self._tracker):
                tracker.close()
            self._linker.leave()

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load_objects(
    objects: Sequence[bytes],
    imports: Mapping[str, int] | None = None,
    target: Target | None = None,
    linker: Linker | None = None,
) -> Library:
    """Link object code into this process.

    Undefined symbols resolve to the other objects, to `imports` (name to address, e.g. the runtime's
    barrier), then to the process (libc).

    Args:
        objects: relocatable objects.
        imports: symbols from elsewhere.
        target: what the objects were built for; None for code that every CPU can run.
        linker: shared with other libraries; None for one of its own.

    Raises:
        TargetError: this CPU lacks a feature of the target, so that running the code would end the process.
        CodegenError: not an object, or a symbol is defined twice.
    """
    if target is not None:
        target.require_host()
    return Library(objects, imports or {}, linker)


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
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.lru_cache(maxsize=16)
def _target_machine(cpu: str, features: str) -> llvm.TargetMachine:
    _initialize()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="default")
