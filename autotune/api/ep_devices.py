"""What may run a model in ONNX Runtime's terms: providers with their devices. Here that is autotune, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

from autotune.api.ort_memory import CPU_MEMORY, OrtDeviceMemoryType, OrtMemoryInfo
from autotune.api.providers import CPU
from autotune.errors import UnsupportedError
from autotune.machine import model_name
from autotune.version import installed_version

_PCI_VENDORS = {"AMD": 0x1022, "Intel": 0x8086}


class OrtHardwareDeviceType(IntEnum):
    """Kinds of devices in ONNX Runtime."""

    CPU = 0
    GPU = 1
    NPU = 2


@dataclass(frozen=True, slots=True)
class OrtHardwareDevice:
    """A device: its kind, and who made it."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrtEpDevice:
    """A provider on a device."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ep_metadata: Mapping[str, str] = field(default_factory=dict)
    ep_options: Mapping[str, str] = field(default_factory=dict)

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Main memory."""
        return CPU_MEMORY

    def create_sync_stream(self) -> NoReturn:
        """Raises UnsupportedError: the CPU has none."""
        raise UnsupportedError("create_sync_stream: autotune runs on the CPU, which has no streams")


def get_ep_devices() -> list[OrtEpDevice]:
    """The CPU, under ONNX Runtime's name of its provider."""
    model = model_name()  # not the whole machine, which takes LLVM: a runtime-only install answers, too
    vendor = next((name for name in _PCI_VENDORS if model.startswith(name)), "unknown")
    device = OrtHardwareDevice(OrtHardwareDeviceType.CPU, vendor, _PCI_VENDORS.get(vendor, 0))
    return [OrtEpDevice(CPU, "autotune", device, {"version": installed_version() or "unknown"})]


def register_execution_provider_library(registration_name: str, library_path: object) -> None:
    """Raises UnsupportedError: its code is for ONNX Runtime."""
    raise UnsupportedError(
        f"register_execution_provider_library({registration_name!r}): autotune runs on the CPU alone"
    )


def unregister_execution_provider_library(registration_name: str) -> None:
    """Raises UnsupportedError: none can have been registered."""
    raise UnsupportedError(f"unregister_execution_provider_library({registration_name!r}): there is no such library")
