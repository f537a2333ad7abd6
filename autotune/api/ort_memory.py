"""Memory in ONNX Runtime's terms: where a tensor lies, and what allocates it. Here all of it is main memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from autotune.api.session_options import tell_once
from autotune.errors import InputError

CPU_MEMORY_NAME = "Cpu"
CPU_DEVICE = "cpu"


class OrtAllocatorType(IntEnum):
    """What allocates in ONNX Runtime; here memory is planned when the model is compiled."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """What memory is for in ONNX Runtime; here there is one kind."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(IntEnum):
    """Who can read a device's memory in ONNX Runtime; main memory is ordinary to the CPU."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(IntEnum):
    """Devices in ONNX Runtime that have memory; here that is the CPU."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


@dataclass(frozen=True, slots=True)
class OrtMemoryInfo:
    """Main memory, and how a script wants to have it allocated.

    Raises:
        InputError: it is the memory of another device.
    """

    name: str
    allocator_type: OrtAllocatorType
    device_id: int
    mem_type: OrtMemType

    def __post_init__(self) -> None:
        if self.name != CPU_MEMORY_NAME:
            raise InputError(
                f"there is no memory {self.name!r}: autotune runs on the CPU, whose is {CPU_MEMORY_NAME!r}"
            )

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Main memory in more words, which say no more. Raises InputError for another device."""
        if device_type != OrtMemoryInfoDeviceType.CPU:
            raise InputError(f"there is no memory of a {device_type!r}: autotune runs on the CPU")
        return OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT)

    @property
    def device_mem_type(self) -> OrtDeviceMemoryType:
        return OrtDeviceMemoryType.DEFAULT

    @property
    def device_vendor_id(self) -> int:
        """ONNX Runtime's number of no vendor in particular."""
        return 0


CPU_MEMORY = OrtMemoryInfo(CPU_MEMORY_NAME, OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
"""Where inputs and outputs lie."""


@dataclass(slots=True)
class OrtArenaCfg:
    """How ONNX Runtime's arena grows; here memory is planned when the model is compiled.

    Args:
        max_mem: bytes; or all of it as a dictionary, of which what is missing is left to ONNX Runtime (-1).
        arena_extend_strategy: 0 by powers of two, 1 as asked for.

    Raises:
        InputError: a dictionary has another key, or a value is no number.
    """

    max_mem: int | Mapping[str, int] = 0
    arena_extend_strategy: int = -1
    initial_chunk_size_bytes: int = -1
    max_dead_bytes_per_chunk: int = -1
    initial_growth_chunk_size_bytes: int = -1
    max_power_of_two_extend_bytes: int = -1

    def __post_init__(self) -> None:
        given = self.max_mem if isinstance(self.max_mem, Mapping) else {"max_mem": self.max_mem}
        self.max_mem = 0
        for name, value in given.items():
            if name not in self.__slots__:
                raise InputError(f"OrtArenaCfg has no {name!r}; it has {', '.join(self.__slots__)}")
            setattr(self, name, value)
        for name in self.__slots__:
            if not isinstance(getattr(self, name), int):
                raise InputError(f"OrtArenaCfg.{name} is a number, not {getattr(self, name)!r}")


def create_and_register_allocator(memory_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None = None) -> None:
    """Has no effect: memory is planned when the model is compiled. Raises InputError for what is no OrtMemoryInfo."""
    _check_allocator(memory_info, arena_cfg)
    tell_once("create_and_register_allocator", _PLANNED)


def create_and_register_allocator_v2(
    provider_type: str, memory_info: OrtMemoryInfo, provider_options: Mapping[str, str], arena_cfg: OrtArenaCfg
) -> None:
    """Has no effect, as `create_and_register_allocator`. Raises InputError for what is no OrtMemoryInfo, or no
    OrtArenaCfg."""
    _check_allocator(memory_info, arena_cfg)
    tell_once(f"create_and_register_allocator_v2 for {provider_type}", _PLANNED)


def require_cpu(device_type: str) -> None:
    """Raises InputError for another device than the CPU."""
    if device_type != CPU_DEVICE:
        raise InputError(f"there is no device {device_type!r}: autotune runs on the CPU")


def _check_allocator(memory_info: object, arena_cfg: object) -> None:
    if not isinstance(memory_info, OrtMemoryInfo):
        raise InputError(f"an allocator is for an OrtMemoryInfo, not for {memory_info!r}")
    if arena_cfg is not None and not isinstance(arena_cfg, OrtArenaCfg):
        raise InputError(f"arena_cfg is an OrtArenaCfg, not {arena_cfg!r}")


_PLANNED = "memory is planned when the model is compiled"
