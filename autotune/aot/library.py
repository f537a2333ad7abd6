"""Shared libraries: kernels, runtime, weights and driver linked by the system's C compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.aot.driver import Variant, driver_source
from autotune.aot.interface import Interface, require_same
from autotune.compiler.compile import CompiledModel
from autotune.errors import CodegenError, CompiledModelError, InputError
from autotune.machine import environment

PAGE = 4096
MOST_EMBEDDED = 1 << 30
"""Bytes of weights that code reaches by 32-bit distances, with room for the code."""


def save_library(
    path: str | Path,
    variants: Sequence[CompiledModel],
    prefix: str,
    header: str | Path | None = None,
    weights: str | Path | None = None,
    title: str = "",
) -> None:
    """Write a shared library that runs a model without Python.

    Args:
        path: the file.
        variants: the model compiled for one CPU or several, the preferred ones first; what runs is the first whose
            features the CPU has.
        prefix: what every symbol begins with.
        header: where the C header goes; None writes none.
        weights: a file in the library's folder for the weights, which are then mapped when a model is made, and must
            stay beside it; None keeps them in the library.
        title: what the header says of the model.

    Raises:
        InputError: no C compiler, a prefix that is no identifier, weights that are too large or in another folder,
            or variants of different models.
        TargetError: a variant's CPU has features that a library cannot check.
        CompiledModelError: a file cannot be written.
        CodegenError: the linker refused the objects.
    """
    path = Path(path)
    numbered = [Variant(n, model.program) for n, model in enumerate(variants)]
    interface = require_same([Interface.of(v.program, prefix) for v in numbered])
    threads = max(v.program.num_threads for v in numbered)
    total = sum(model.constants.nbytes for model in variants)
    if weights is None and total > MOST_EMBEDDED:
        raise InputError(f"{total} bytes of weights are too many for a library: put them beside it (--weights FILE)")
    if weights is not None and Path(weights).resolve().parent != path.resolve().parent:
        raise InputError(f"the weights must lie in the library's folder, {path.resolve().parent}: name a file there")
    source = driver_source(interface, numbered, None if weights is None else Path(weights).name)
    declared = interface.header(title or f"{prefix}: a compiled model", threads)
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        made = _linked(Path(folder), interface, numbered, variants, declared + source, embed=weights is None)
        try:
            if weights is not None:
                _write_weights(Path(weights), variants)
            if header is not None:
                Path(header).write_text(declared)
            _move(made, path)
        except OSError as error:
            raise CompiledModelError(
                f"cannot write {error.filename2 or error.filename or path}: {error.strerror}"
            ) from error


def _linked(
    folder: Path,
    interface: Interface,
    numbered: Sequence[Variant],
    models: Sequence[CompiledModel],
    source: str,
    embed: bool,
) -> Path:
    """The library, in a folder of its own."""
    compiler, copier = _tool("CC", "cc", "gcc", "clang"), _tool("OBJCOPY", "objcopy", "llvm-objcopy")
    parts: list[str] = ["driver.c", "runtime.o"]
    (folder / "driver.c").write_text(source)
    (folder / "runtime.o").write_bytes(models[0].runtime)
    for variant, model in zip(numbered, models):
        for index in sorted({call.object for call in model.program.calls}):
            name = f"{variant.kernel(index)}.o"
            (folder / name).write_bytes(model.objects[index])
            _call([*copier, f"--redefine-sym=kernel={variant.kernel(index)}", name], folder)
            parts.append(name)
        if embed:
            with (folder / f"{variant.weights}.bin").open("wb") as file:
                file.writelines(chunk.data for chunk in model.constants.chunks())
            (folder / f"{variant.weights}.S").write_text(_weights_source(variant.weights))
            parts.append(f"{variant.weights}.S")
    (folder / "exports").write_text(f"{{ global: {' '.join(f'{name};' for name in interface.exports)} local: *; }};\n")
    # The source begins with the header: the compiler checks that they agree.
    flags = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-O2",
        "-fPIC",
        "-shared",
        "-Wl,--version-script=exports",
        "-Wl,-z,noexecstack",
        "-Wl,-s",
    ]
    _call([*compiler, *flags, "-o", "library.so", *parts, "-lm", "-lpthread", "-ldl"], folder)
    return folder / "library.so"


def _weights_source(symbol: str) -> str:
    return (
        f'.section .rodata.weights, "a"\n.balign {PAGE}\n.hidden {symbol}\n.global {symbol}\n'
        f'{symbol}:\n.incbin "{symbol}.bin"\n.byte 0\n.section .note.GNU-stack, "", @progbits\n'
    )


def _write_weights(path: Path, models: Sequence[CompiledModel]) -> None:
    with path.open("wb") as file:
        for model in models:
            file.writelines(chunk.data for chunk in model.constants.chunks())
            file.write(b"\0" * (-file.tell() % PAGE))


def _move(made: Path, path: Path) -> None:
    """Copy beside the goal, then replace it: a program that has the old library mapped keeps it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, beside)
        beside.chmod(0o755)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _tool(variable: str, *names: str) -> list[str]:
    """A command: what the environment says, or the first that is installed."""
    chosen = shlex.split(environment().get(variable, ""))
    found = chosen if chosen and shutil.which(chosen[0]) else next(([n] for n in names if shutil.which(n)), None)
    if not found or (chosen and found != chosen):
        raise InputError(
            f"a library is linked by the system's tools, and {' or '.join(chosen[:1] or names)} is not there:"
            f" install gcc or clang with binutils, or set {variable}"
        )
    return found


def _call(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CodegenError(f"{command[0]} failed: {' '.join((lines or ['no message'])[0].split())}")
