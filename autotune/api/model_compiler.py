"""ModelCompiler: what ONNX Runtime calls compiling a model ahead of its sessions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from enum import IntFlag
from pathlib import Path
from typing import Any

from autotune.api.load import load
from autotune.api.session_options import SessionOptions, check_loading, tell_once, with_threads
from autotune.compiler.compile import CompiledModel
from autotune.errors import InputError
from autotune.target import Target

_ONE_FILE = "one file holds code and weights"


class OrtCompileApiFlags(IntFlag):
    """What compiling complains of. Some nodes are compiled always."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class ModelCompiler:
    """Compiles a model for this machine with the best schedules of the user's database; `autotune.compile` says more.

    Args:
        sess_options: its threads and open dimensions are heeded.
        input_model_path_or_bytes: an ONNX model.
        embed_compiled_data_into_model, external_initializers_file_path, external_initializers_size_threshold,
            get_initializer_location_func: one file holds code and weights; to want weights elsewhere warns, once.
        flags: `OrtCompileApiFlags`.
        graph_optimization_level: all passes run.
    """

    def __init__(
        self,
        sess_options: Any,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: object = None,
        get_initializer_location_func: object = None,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        check_loading(self._options)
        self._model = input_model_path_or_bytes
        if not isinstance(flags, int):
            raise InputError(f"flags are OrtCompileApiFlags, not {flags!r}")
        self._flags = OrtCompileApiFlags(int(flags))
        for name, elsewhere in (
            ("external_initializers_file_path", external_initializers_file_path),
            ("get_initializer_location_func", get_initializer_location_func),
        ):
            if elsewhere:
                tell_once(f"ModelCompiler's {name}", _ONE_FILE)

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write a compiled model, which a session opens.

        Args:
            output_model_path: None for the model's path with `_ctx.onnx` at its end, as in ONNX Runtime.

        Raises:
            InputError: dimensions are open; there is no path; or the file exists, where the flags say so.
            ModelError, TargetError, DatabaseError, CompiledModelError: as for `autotune.compile` and its `save`.
        """
        path = _beside(self._model) if output_model_path is None else Path(output_model_path)
        if OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS in self._flags and path.exists():
            raise InputError(f"{path} exists already")
        self._compiled().save(path)

    def compile_to_bytes(self) -> bytes:
        """The contents of such a file. Raises as `compile_to_file`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.at"
            self._compiled().save(path)
            return path.read_bytes()

    def compile_to_stream(self, write_function: Callable[[bytes], object]) -> None:
        """Have a function told of those bytes. Raises as `compile_to_file`, and InputError where it is none."""
        if not callable(write_function):
            raise InputError(f"compile_to_stream needs a function of bytes, not {write_function!r}")
        write_function(self.compile_to_bytes())

    def set_ep_context_binary_information(self, output_directory: str | os.PathLike[str], model_name: str) -> None:
        """Has no effect: one file holds code and weights. Raises InputError where either is empty."""
        if not str(output_directory) or not model_name:
            raise InputError("set_ep_context_binary_information needs a directory and a name of the model")
        tell_once("set_ep_context_binary_information", _ONE_FILE)

    def set_ep_context_data_write_func(self, write_func: object) -> None:
        """Has no effect: one file holds code and weights."""
        tell_once("set_ep_context_data_write_func", _ONE_FILE)

    def clear_ep_context_data_write_func(self) -> None:
        """Nothing: no such function is called."""

    def _compiled(self) -> CompiledModel:
        found = load(
            self._model, with_threads(Target.parse(None), self._options),
            extents=getattr(self._options, "extents", None), denoted=getattr(self._options, "denoted", None),
        )  # fmt: skip
        if not isinstance(found, CompiledModel):
            raise InputError(
                "the model's shapes are open: bind them by SessionOptions.add_free_dimension_override_by_name, or use"
                " autotune.compile_staged"
            )
        return found


def _beside(model: str | os.PathLike[str] | bytes) -> Path:
    if isinstance(model, bytes):
        raise InputError("a model of bytes needs output_model_path")
    return Path(f"{Path(model).with_suffix('')}_ctx.onnx")
