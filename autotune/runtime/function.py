"""One kernel as a Python function on ordinary arrays: packs, runs, unpacks."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune import machine
from autotune.codegen.kernel import KernelObject
from autotune.codegen.link import load_objects
from autotune.errors import InputError
from autotune.lower.operands import fill_operand
from autotune.runtime.native import native_runtime
from autotune.runtime.threads import Plan, Step, ThreadPool
from autotune.target import Target
from autotune.tensor.aligned import aligned_empty
from autotune.tensor.layout import Array
from autotune.tensor.stage import Tensor


class KernelFunction:
    """Calls a kernel with logical arrays. Every call packs all its inputs, weights too: for trying a schedule, not
    for speed; a compiled model packs weights once and keeps activations in their layouts.

    Safe to call from several threads: each call has buffers of its own.
    """

    def __init__(self, inputs: Sequence[Tensor], kernel: KernelObject, target: Target) -> None:
        """
        Args:
            inputs: of the ComputeDef, in the order in which calls pass them.
            kernel: what `build_kernel` made.
            target: what it was made for; says how many threads run it.

        Raises:
            TargetError: this machine cannot run code for `target`.
            CodegenError: the object does not link.
        """
        self.inputs = tuple(inputs)
        self.kernel = kernel
        self._library = load_objects([kernel.object_code], native_runtime().imports, target)
        self._address = self._library.address(kernel.symbol)
        self._pool = ThreadPool(target.num_threads, machine.allowed_cores())

    def __call__(self, *arrays: npt.ArrayLike) -> tuple[Array, ...]:
        """The outputs, in the order of the ComputeDef.

        Raises:
            InputError: wrong number of arrays, or one of the wrong shape or dtype.
        """
        values = self._checked(arrays)
        buffers: list[npt.NDArray[Any]] = []
        outputs = []
        for operand in self.kernel.operands:
            buffer = aligned_empty(operand.bytes)
            if operand.role == "input":
                fill_operand(operand, values, buffer)
            else:
                outputs.append((operand, buffer))
            buffers.append(buffer)
        buffers.append(aligned_empty(self.kernel.shared_scratch))
        buffers.append(aligned_empty(self.kernel.thread_scratch * self._pool.num_threads))
        self._pool.run_plan(Plan(self._pool, [[Step(self._address, buffers)]]))
        return tuple(
            operand.layout.unpack(
                buffer.view(operand.dtype.numpy).reshape(operand.layout.physical_shape(operand.shape)), operand.shape
            )
            for operand, buffer in outputs
        )

    def close(self) -> None:
        """Join the threads and unload the code; the function cannot be called any more."""
        self._pool.close()
        self._library.close()

    def __enter__(self) -> KernelFunction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked(self, arrays: Sequence[npt.ArrayLike]) -> dict[str, Array]:
        if len(arrays) != len(self.inputs):
            names = ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs)
            raise InputError(f"the kernel takes {len(self.inputs)} arrays ({names}), got {len(arrays)}")
        values = {}
        for tensor, given in zip(self.inputs, arrays, strict=True):
            array = np.asarray(given)
            if array.shape != tensor.shape or array.dtype != tensor.dtype.numpy:
                wanted = f"{tensor.dtype.numpy}{list(tensor.shape)}"
                raise InputError(f"{tensor.name} must be {wanted}, got {array.dtype}{list(array.shape)}")
            values[tensor.name] = array
        return values
