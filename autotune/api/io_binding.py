"""IOBinding: inputs and outputs of a session that are named once and used in every run."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from autotune.api.ort_device import OrtDevice
from autotune.api.ort_memory import CPU_DEVICE, require_cpu
from autotune.api.ort_value import OrtValue, contents_of, numpy_dtype
from autotune.errors import InputError
from autotune.runtime.executor import Array

if TYPE_CHECKING:
    from autotune.api.session import InferenceSession


class IOBinding:
    """What a run reads and where it writes. Bound memory is used as it is, never copied.

    Args:
        session: whose inputs and outputs are bound.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}  # arrays, or what a value holds
        self._outputs: dict[str, Array | None] = {}  # None: a new array for each run
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Read an input from an array."""
        self._inputs[self._known(name, "input")] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read an input from a value."""
        self._inputs[self._known(name, "input")] = contents_of([ortvalue])[0]

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: object, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read an input from memory at an address, C-contiguous. Raises InputError for another device or dtype."""
        require_cpu(device_type)
        self._inputs[self._known(name, "input")] = _at(buffer_ptr, element_type, shape)

    def bind_output(
        self,
        name: str,
        device_type: str = CPU_DEVICE,
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output; with an address it is written there. Raises InputError as `bind_input`."""
        require_cpu(device_type)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise InputError(f"output {name!r}: an address needs a dtype and a shape")
        memory = None if buffer_ptr is None else _at(buffer_ptr, element_type, shape or ())
        self._outputs[self._known(name, "output")] = memory

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output into a value."""
        contents_of([ortvalue])
        self._outputs[self._known(name, "output")] = ortvalue.numpy()

    def synchronize_inputs(self) -> None:
        """Nothing: there is one memory."""

    def synchronize_outputs(self) -> None:
        """Nothing: there is one memory."""

    def run(self) -> None:
        """What `InferenceSession.run_with_iobinding` does. Raises InputError as `run`, and when nothing is bound."""
        if not self._outputs:
            raise InputError("no output is bound: bind_output(NAME) says which are wanted")
        given = {name: memory for name, memory in self._outputs.items() if memory is not None}
        found = self._session.run_named(list(self._outputs), self._inputs, given)
        self._results = [OrtValue(array) for array in found]

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return self._results

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same: a list is what holds values here."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The same as arrays of their own."""
        return [deepcopy(cast(Array, value.content)) for value in self._results]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results = []

    def _known(self, name: str, kind: str) -> str:
        args = self._session.get_inputs() if kind == "input" else self._session.get_outputs()
        names = [arg.name for arg in args]
        if name not in names:
            raise InputError(f"no {kind} named {name!r}; the model has {', '.join(names) or 'none'}")
        return name


class SessionIOBinding(IOBinding):
    """`IOBinding` in the words of ONNX Runtime's inner one, which names devices by `OrtDevice`.

    Args:
        session: whose inputs and outputs are bound.
    """

    def bind_input(self, name: str, *where: Any) -> None:
        """Read an input from an array, or from memory: `OrtDevice`, dtype, shape, address."""
        if len(where) == 1:
            self.bind_cpu_input(name, where[0])
        else:
            _, dtype, shape, address = _in_main_memory(name, where, (4,))
            super().bind_input(name, CPU_DEVICE, 0, dtype, shape, address)

    def bind_output(self, name: str, *where: Any) -> None:
        """Ask for an output, on an `OrtDevice`; with dtype, shape and address it is written there."""
        found = _in_main_memory(name, where, (1, 4))
        super().bind_output(name, CPU_DEVICE, 0, *found[1:])


def _in_main_memory(name: str, where: tuple[Any, ...], lengths: tuple[int, ...]) -> tuple[Any, ...]:
    if len(where) not in lengths or not isinstance(where[0], OrtDevice):
        raise InputError(f"{name!r} is bound to OrtDevice.make('{CPU_DEVICE}', 0), with dtype, shape and address")
    return where


def _at(address: int, element_type: object, shape: Sequence[int]) -> Array:
    """The memory at an address as an array, which does not keep it alive."""
    dtype = numpy_dtype(element_type)
    if not isinstance(shape, Sequence) or not all(isinstance(extent, int) for extent in shape):
        raise InputError(f"a shape is a list of numbers, not {shape!r}")
    nbytes = math.prod(shape) * dtype.itemsize
    if address <= 0 or any(extent < 0 for extent in shape):
        raise InputError(f"no tensor of shape {list(shape)} lies at address {address}")
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memory, dtype).reshape(tuple(shape))
