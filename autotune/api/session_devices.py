"""What a session says of devices, tuning and graphs captured on them, in ONNX Runtime's terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from autotune.api.node_arg import NodeArg
from autotune.api.ort_memory import CPU_MEMORY, OrtMemoryInfo
from autotune.api.ort_value import OrtValue
from autotune.api.session_options import tell_once
from autotune.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from autotune.api.ep_devices import OrtEpDevice  # looks at the machine, which a run need not


class SessionDevices(ABC):
    """The part of a session that is the same for every model: it runs on the CPU, in main memory."""

    @abstractmethod
    def get_inputs(self) -> list[NodeArg]:
        """The inputs of the model."""

    @abstractmethod
    def get_outputs(self) -> list[NodeArg]:
        """The outputs of the model."""

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Main memory, for each input."""
        return [CPU_MEMORY for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Main memory, for each output."""
        return [CPU_MEMORY for _ in self.get_outputs()]

    def get_provider_graph_assignment_info(self) -> NoReturn:
        """Raises UnsupportedError: nodes are compiled into kernels."""
        raise UnsupportedError(
            "get_provider_graph_assignment_info: the CPU runs all nodes; autotune.explain(model) says in which kernels"
        )

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The CPU, for each input."""
        from autotune.api.ep_devices import get_ep_devices

        (cpu,) = get_ep_devices()
        return [cpu for _ in self.get_inputs()]

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: object, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """An uninitialised tensor. Raises InputError as `OrtValue.ortvalue_from_shape_and_type`."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Has no effect. Raises InputError when there are no options."""
        if not options or not isinstance(options, Mapping):
            raise InputError("set_ep_dynamic_options needs at least one option")
        for name in options:
            tell_once(f"the dynamic option {name!r}", "a compiled program has none")

    def get_tuning_results(self) -> list[dict[str, object]]:
        """None: what tuning found is in the database (`autotune.tune`)."""
        return []

    def set_tuning_results(self, results: Sequence[Mapping[str, object]], *, error_on_invalid: bool = False) -> None:
        """Has no effect: schedules come from the database. Raises InputError for any when `error_on_invalid`."""
        if results and error_on_invalid:
            raise InputError("tuning results of ONNX Runtime cannot be used: schedules come from the database")
        if results:
            tell_once("set_tuning_results", "schedules come from the database")

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:  # noqa: B027  # of no session is there one
        """Nothing: no graphs are captured."""
