"""Kernels by the choice that they come from, so that a second build of a model neither schedules nor lowers.

A hash of the sources that decide what a config becomes is part of every key, so a change to a template or to the
compiler makes every entry a miss. Kernels of the user's own operators and templates are never kept.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING

from autotune.codegen.helper import Helper
from autotune.codegen.jit import compile_uncounted
from autotune.codegen.kernel import CompileIr, KernelObject, KernelSource, compile_source, generate
from autotune.codegen.kernel_json import kernel_from_json, kernel_to_json
from autotune.codegen.object_cache import ObjectCache
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces import Interface
from autotune.search_spaces.space.code_version import code_version
from autotune.target import Target
from autotune.tensor.layout import Layout

if TYPE_CHECKING:
    from autotune.compiler.choose import Choice


def compiler(cache: ObjectCache | None, helper: Helper | None = None) -> CompileIr:
    """What turns IR into objects: the cache, where there is one, and what compiles, over there if there is a helper."""
    by = compile_uncounted if helper is None else helper.compile
    return by if cache is None else functools.partial(cache.compile, by=by)


def kernel_of(
    schedule: Schedule,
    target: Target,
    cache: ObjectCache | None,
    name: str | None = None,
    generated: KernelSource | None = None,
    helper: Helper | None = None,
) -> KernelObject:
    """Compile a schedule, or take its object from the cache; the kernel is put there under a name, where it has one.

    Args:
        generated: what the schedule becomes, where that is known.
        helper: who compiles what it becomes; None for this process.

    Raises:
        LoweringError, CodegenError: it does not build.
    """
    kernel = compile_source(generated or generate(schedule, target, check=False), target, compiler(cache, helper))
    keep_kernel(cache, name, kernel)
    return kernel


def kernel_name(workload: Workload, choice: Choice, interface: Interface, target: Target) -> str | None:
    """What the kernel of a choice is kept under; None where it must not be kept."""
    return _name("kernel", workload, choice, target, interface.to_json())


def kept_kernel(cache: ObjectCache | None, name: str | None) -> KernelObject | None:
    """The kernel from the cache, where it is there."""
    found = None if cache is None or name is None else cache.recall(name)
    if found is None:
        return None
    header, _, object_code = found.tobytes().partition(b"\n")
    return kernel_from_json(json.loads(header), object_code)


def keep_kernel(cache: ObjectCache | None, name: str | None, kernel: KernelObject) -> None:
    """Put a kernel into the cache, where it may be kept."""
    if cache is not None and name is not None:
        cache.remember(name, json.dumps(kernel_to_json(kernel)).encode() + b"\n" + kernel.object_code)


def kept_layouts(
    cache: ObjectCache | None, workload: Workload, choice: Choice, target: Target
) -> tuple[Layout, ...] | None:
    """The layouts that a choice has by itself from the cache, where they are there."""
    name = _name("layouts", workload, choice, target)
    found = None if cache is None or name is None else cache.recall(name)
    return None if found is None else Interface.from_json(found.tobytes().decode()).layouts


def keep_layouts(
    cache: ObjectCache | None, workload: Workload, choice: Choice, target: Target, layouts: tuple[Layout, ...]
) -> None:
    """Put the layouts that a choice has by itself into the cache, where they may be kept."""
    name = _name("layouts", workload, choice, target)
    if cache is not None and name is not None:
        cache.remember(name, Interface(layouts).to_json().encode())


def _name(kind: str, workload: Workload, choice: Choice, target: Target, *more: str) -> str | None:
    """The entry's name; None where it must not be kept."""
    version = code_version(workload, choice.config if choice.recorded is None else None)
    if version is None:
        return None
    parts = (kind, version, workload.to_json(), choice.origin, target.to_json(), *more)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
