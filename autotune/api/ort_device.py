"""OrtDevice: where a tensor of ONNX Runtime lies. Here that is main memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from autotune.api.ort_memory import CPU_DEVICE, require_cpu
from autotune.errors import InputError


class OrtDeviceVendorId(IntEnum):
    """Who makes devices in ONNX Runtime, by their numbers on the PCI bus; of the CPU that says no more."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


@dataclass(frozen=True, slots=True)
class OrtDevice:
    """The CPU: `OrtDevice.make("cpu", 0)`."""

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of that name. Raises InputError for another one than the CPU."""
        require_cpu(str(ort_device_name).lower())
        if device_id:
            raise InputError(f"there is no device '{CPU_DEVICE}' with the number {device_id}: the CPU's is 0")
        return OrtDevice()

    def device_id(self) -> int:
        return 0

    def device_type(self) -> int:
        """ONNX Runtime's number of CPUs."""
        return 0

    def device_vendor_id(self) -> int:
        return 0

    def device_mem_type(self) -> int:
        """ONNX Runtime's number of ordinary memory."""
        return 0
