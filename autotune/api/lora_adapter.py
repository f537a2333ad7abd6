"""LoraAdapter, AdapterFormat: weights that a run of ONNX Runtime adds. Here they are part of the compiled program."""

from __future__ import annotations

from typing import NoReturn

from autotune.errors import UnsupportedError


class LoraAdapter:
    """Not supported: `Load` says what to do instead."""

    def Load(self, adapter_file_path: object) -> NoReturn:  # ONNX Runtime's name
        """Raises UnsupportedError: its weights would change the compiled program."""
        raise _no_adapters(f"LoraAdapter.Load({str(adapter_file_path)!r})")


class AdapterFormat:
    """Not supported: it makes files for `LoraAdapter`."""

    def __init__(self, adapter: object = None) -> None:
        """Raises UnsupportedError: weights are compiled in."""
        raise _no_adapters("AdapterFormat")

    @staticmethod
    def read_adapter(file_path: object) -> NoReturn:
        """Raises UnsupportedError: weights are compiled in."""
        raise _no_adapters(f"AdapterFormat.read_adapter({str(file_path)!r})")


def _no_adapters(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: weights are compiled in; merge the adapter's before the export, or export them as inputs of the model"
    )
