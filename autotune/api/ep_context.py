"""What ONNX Runtime exchanges with other devices and their compilers: as types, for a script that names them."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class OrtExternalInitializerInfo:
    """Where a tensor lies in a file beside a model: path, and offset and size in bytes."""

    filepath: str
    file_offset: int
    byte_size: int


class _OfAnotherDevice:
    """Made by ONNX Runtime alone, and here by nobody."""

    def __init__(self, *_: object) -> None:
        """Raises UnsupportedError: autotune runs on the CPU."""
        raise UnsupportedError(f"{type(self).__name__} is of another device: autotune runs on the CPU")


class OrtSyncStream(_OfAnotherDevice):
    """The order of work on a device."""


class OrtEpContextData(_OfAnotherDevice):
    """Code of a device's compiler, which is handed out."""


class OrtEpContextDataBuffer(_OfAnotherDevice):
    """Memory for code of a device's compiler, which is handed in."""


class OrtEpAssignedNode(_OfAnotherDevice):
    """A node that a provider runs."""


class OrtEpAssignedSubgraph(_OfAnotherDevice):
    """Nodes that a provider runs."""
