"""LoraAdapter: ONNX Runtime's weights that a run adds to a model. Here weights are part of the compiled program."""

from __future__ import annotations

from typing import NoReturn

from autotune.errors import UnsupportedError


class LoraAdapter:
    """Not supported: `Load` says what to do instead."""

    def Load(self, adapter_file_path: object) -> NoReturn:  # ONNX Runtime's name
        """Raises UnsupportedError: its weights would change the compiled program."""
        raise UnsupportedError(
            f"LoraAdapter.Load({str(adapter_file_path)!r}): weights are compiled in; merge the adapter's before the"
            " export, or export them as inputs of the model"
        )
