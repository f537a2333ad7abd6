"""The kernels of a program: each distinct one is built once, on other cores than the one that generates the next."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from autotune.codegen.beside import Beside
from autotune.codegen.helper import Helper
from autotune.codegen.jit import compile_ir
from autotune.codegen.kernel import CompileIr, KernelObject, compile_source, generate
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.choose import Chooser
from autotune.compiler.kernel_cache import keep_kernel, kept_kernel, kernel_name
from autotune.compiler.slots import KernelStep
from autotune.errors import CodegenError, LoweringError, ScheduleError
from autotune.ops.workload import Workload
from autotune.records import Tier
from autotune.schedule import Schedule
from autotune.target import Target

_log = logging.getLogger(__name__)

Built = tuple[KernelStep, KernelObject]
_Refusal = (ScheduleError, LoweringError, CodegenError)


def compiler(cache: ObjectCache | None, by: CompileIr = compile_ir) -> CompileIr:
    """What turns IR into objects: the cache, where there is one, and what compiles."""
    return functools.partial(cache.compile, by=by) if cache is not None else by


def kernel_object(schedule: Schedule, target: Target, cache: ObjectCache | None) -> KernelObject:
    """Compile a schedule, or take its object from the cache."""
    return _generated(schedule, target, cache)(compile_ir)


def _generated(schedule: Schedule, target: Target, cache: ObjectCache | None) -> Callable[[CompileIr], KernelObject]:
    """The code of a schedule; what is called turns it into an object, unless the cache has that."""
    source = generate(schedule, target, check=False)
    return lambda by: compile_source(source, target, compiler(cache, by))


class Kernels:
    """Builds each distinct kernel once.

    Args:
        beside: where LLVM compiles kernels, while others are written here.

    Attributes:
        objects: code of the kernels, each once.
        number: of an object by the hash of its IR.
    """

    def __init__(self, target: Target, cache: ObjectCache | None, chooser: Chooser, beside: Beside) -> None:
        self.target, self.cache, self.chooser, self._beside = target, cache, chooser, beside
        self.objects: list[bytes] = []
        self.number: dict[str, int] = {}
        self._built: dict[tuple[str, str, str], Future[KernelObject]] = {}
        self._warned: set[Workload] = set()

    def build(self, steps: Sequence[KernelStep]) -> list[Built]:
        """The kernels of the steps. A record gives way to the default when it does not build in the layouts of this
        model, or when its code has changed since it was measured.

        Raises:
            ScheduleError, LoweringError, CodegenError: no template builds for some step.
        """
        self._begin(steps)
        return [self._of(step) for step in steps]

    def _of(self, step: KernelStep) -> Built:
        choice = step.choice
        try:
            kernel = self._build(step)
        except _Refusal as error:
            if not choice.tuned:
                return self._other(step, error)
            return self._default(step, f"the tuned schedule does not build in this model's layouts: {error}")
        if choice.ir_hash and choice.interface == step.interface.to_json() and kernel.ir_hash != choice.ir_hash:
            return self._default(step, "the same config now gives other code than was measured; tune again")
        return self._numbered(step, kernel)

    def _default(self, step: KernelStep, reason: str) -> Built:
        step = replace(step, choice=self.chooser.default(step.workload, reason, Tier.COMPATIBLE))
        try:
            return self._numbered(step, self._build(step))
        except _Refusal as error:
            return self._other(step, error)

    def _other(self, step: KernelStep, error: Exception) -> Built:
        """The default of another template, where that of the first does not build in these layouts; loudly."""
        for choice in self.chooser.others(step.workload, f"the first template's default does not build: {error}"):
            other = replace(step, choice=choice)
            try:
                kernel = self._build(other)
            except _Refusal:
                continue
            if step.workload not in self._warned:
                self._warned.add(step.workload)
                name = step.workload.describe()
                _log.warning("%s: %s; it uses the template %s", name, choice.reason, choice.config.template)
            return self._numbered(other, kernel)
        raise error

    def _numbered(self, step: KernelStep, kernel: KernelObject) -> Built:
        if kernel.ir_hash not in self.number:
            self.number[kernel.ir_hash] = len(self.objects)
            self.objects.append(kernel.object_code)
        return step, kernel

    def _build(self, step: KernelStep) -> KernelObject:
        """The kernel; why it cannot be built is raised each time that it is asked for."""
        self._begin([step])
        return self._built[_key(step)].result()

    def _begin(self, steps: Sequence[KernelStep]) -> None:
        """Find the kernels of the steps, or build them, whichever have not been."""
        missing: dict[tuple[str, str, str], KernelStep] = {}
        for step in steps:
            if (key := _key(step)) not in self._built and key not in missing:
                kernel = kept_kernel(self.cache, self._name(step))
                if kernel is None:
                    missing[key] = step
                else:
                    self._built[key] = _settled(kernel)
                    _log.debug("the cache has the kernel for %s", step.workload.describe())
        self._beside.expect(len(missing))
        for key, step in missing.items():
            self._built[key] = self._start(step)
        self._beside.finish()

    def _start(self, step: KernelStep) -> Future[KernelObject]:
        """Generate the code, and have it compiled."""
        start = time.perf_counter()
        try:
            compiled = _generated(
                step.choice.schedule(step.workload, self.target, step.interface), self.target, self.cache
            )
        except _Refusal as error:
            return _settled(error)
        generated = time.perf_counter() - start

        def compile(helper: Helper | None) -> KernelObject:
            start = time.perf_counter()
            kernel = compiled(compile_ir if helper is None else helper.compile)
            keep_kernel(self.cache, self._name(step), kernel)
            seconds = time.perf_counter() - start
            _log.debug(
                "%.3f s to write and %.3f s to compile the kernel for %s", generated, seconds, step.workload.describe()
            )
            return kernel

        return self._beside.submit(compile)

    def _name(self, step: KernelStep) -> str | None:
        """What the cache calls the kernel."""
        return kernel_name(step.workload, step.choice, step.interface, self.target)


def _key(step: KernelStep) -> tuple[str, str, str]:
    return step.workload.key, step.choice.origin, step.interface.to_json()


def _settled(result: KernelObject | Exception) -> Future[KernelObject]:
    """What is known already."""
    future: Future[KernelObject] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future
