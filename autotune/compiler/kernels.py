"""The kernels of a program: each distinct one is built once, on all cores."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from autotune.codegen.beside import Beside
from autotune.codegen.helper import Helper
from autotune.codegen.kernel import KernelObject
from autotune.codegen.kernel_json import kernel_from_json
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import asked
from autotune.compiler.choose import Chooser
from autotune.compiler.kernel_cache import kept_kernel, kernel_name, kernel_of
from autotune.compiler.slots import KernelStep
from autotune.errors import CodegenError, LoweringError, ScheduleError
from autotune.ops.workload import Workload
from autotune.plugins import extended
from autotune.records import Tier
from autotune.target import Target

_log = logging.getLogger(__name__)

Built = tuple[KernelStep, KernelObject]
_Refusal = (ScheduleError, LoweringError, CodegenError)


class Kernels:
    """Builds each distinct kernel once.

    Args:
        beside: where others are built meanwhile.

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
        self._extended = extended()  # a helper has not what users have registered here

    def foresee(self, step: KernelStep) -> None:
        """Begin a kernel that will be built, as a rule, where a process has nothing else to do."""
        if (key := key_of(step)) not in self._built and kept_kernel(self.cache, self._name(step)) is None:
            self._built[key] = self._beside.perhaps(functools.partial(self._made, step))

    def build(self, steps: Sequence[KernelStep]) -> list[Built]:
        """The kernels of the steps. A record gives way to the default when it does not build in the layouts of this
        model, or when its code has changed since it was measured.

        Raises:
            ScheduleError, LoweringError, CodegenError: no template builds for some step.
        """
        self._beside.settle()
        self._built = {key: future for key, future in self._built.items() if not future.cancelled()}
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
        return self._built[key_of(step)].result()

    def _begin(self, steps: Sequence[KernelStep]) -> None:
        """Find the kernels of the steps, or build them, whichever have not been."""
        missing: dict[tuple[str, str, str], KernelStep] = {}
        for step in steps:
            if (key := key_of(step)) not in self._built and key not in missing:
                kernel = kept_kernel(self.cache, self._name(step))
                if kernel is None:
                    missing[key] = step
                else:
                    self._built[key] = Future()
                    self._built[key].set_result(kernel)
                    _log.debug("the cache has the kernel for %s", step.workload.describe())
        self._beside.expect(len(missing))
        for key, step in missing.items():
            self._built[key] = self._beside.submit(functools.partial(self._made, step))
        self._beside.finish()

    def _made(self, step: KernelStep, helper: Helper | None) -> KernelObject:
        """The kernel, built over there where that can be: all of it, or what is left where its code is known here."""
        start = time.perf_counter()
        scheduled = functools.cache(lambda: step.choice.schedule(step.workload, self.target, step.interface))
        known = self.chooser.generated(scheduled()) if self.chooser.has_generated else None
        kernel = None if helper is None or known is not None else self._asked(step, helper)
        if kernel is None:
            kernel = kernel_of(scheduled(), self.target, self.cache, self._name(step), known, helper)
        _log.debug("%.3f s to build the kernel for %s", time.perf_counter() - start, step.workload.describe())
        return kernel

    def _asked(self, step: KernelStep, helper: Helper) -> KernelObject | None:
        """What a helper answers; None where it cannot build it: who builds it here finds out why."""
        if self._extended:
            return None
        folder = None if self.cache is None or self.cache.directory is None else str(self.cache.directory)
        choice, name = step.choice, self._name(step)
        facts = step.workload.to_json(), choice.origin, choice.recorded is not None, step.interface.to_json()
        reply = helper.call(f"{asked.MODULE}:kernel", *facts, self.target.to_json(), folder, name)
        return None if reply is None or "error" in reply[0] else kernel_from_json(*reply)

    def _name(self, step: KernelStep) -> str | None:
        """What the cache calls the kernel."""
        return kernel_name(step.workload, step.choice, step.interface, self.target)


def key_of(step: KernelStep) -> tuple[str, str, str]:
    """Equal for steps that one kernel serves."""
    return step.workload.key, step.choice.origin, step.interface.to_json()
