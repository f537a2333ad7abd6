"""A model that autotune refuses, run by ONNX Runtime: where the user asked for it, and never in silence."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.api.node_arg import NodeArg
from autotune.api.session_options import level_of_the_script
from autotune.errors import InputError, UnsupportedError
from autotune.metadata import ModelMetadata
from autotune.runtime.trace import RunTrace

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource
    from autotune.runtime.executor import Array

ONNX_RUNTIME = "onnxruntime"
REASON = "autotune.fallback"
"""Where `get_modelmeta().custom_metadata_map` says why another engine runs the model."""


class FallbackWarning(UserWarning):
    """A model runs on another engine, since autotune refused it."""


def check_fallback(name: str | None) -> None:
    """Raises InputError unless it names an engine, or none."""
    if name not in (None, ONNX_RUNTIME):
        raise InputError(f"fallback is {ONNX_RUNTIME!r} or None, not {name!r}")


class FallbackModel:
    """A model in ONNX Runtime, as a session wants one.

    Args:
        refusal: why autotune does not run it.
        threads: of a run.
        shapes: dimensions by name of an input or of a symbol. ONNX Runtime follows the inputs of each run, so those of
            symbols alone are told to it.

    Raises:
        UnsupportedError: it is not installed, or refuses the model, too.
    """

    engine = ONNX_RUNTIME
    host_nodes: tuple[str, ...] = ()
    segments = 0

    def __init__(
        self,
        source: ModelSource,
        refusal: UnsupportedError,
        threads: int,
        shapes: Mapping[str, Sequence[int]],
        denoted: Mapping[str, int],
    ) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise UnsupportedError(
                f"{refusal}; its fallback, onnxruntime, is not installed (pip install onnxruntime)",
                values=refusal.values,
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        for name, extents in shapes.items():
            if len(extents) == 1:
                options.add_free_dimension_override_by_name(name, int(extents[0]))
        for denotation, extent in denoted.items():
            options.add_free_dimension_override_by_denotation(denotation, extent)
        try:
            self._session: Any = onnxruntime.InferenceSession(
                _readable(source), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own classes, RuntimeError and others
            raise UnsupportedError(
                f"{refusal}; onnxruntime refuses the model, too: {' '.join(str(error).split())[:200]}",
                values=refusal.values,
            ) from error
        self._refusal = " ".join(str(refusal).split())
        warnings.warn(
            f"{ONNX_RUNTIME} runs the model, untuned: {self._refusal}",
            FallbackWarning,
            stacklevel=level_of_the_script(),
        )

    @property
    def inputs(self) -> list[NodeArg]:
        return [NodeArg(arg.name, arg.type, list(arg.shape)) for arg in self._session.get_inputs()]

    @property
    def outputs(self) -> list[NodeArg]:
        return [NodeArg(arg.name, arg.type, list(arg.shape)) for arg in self._session.get_outputs()]

    @property
    def metadata(self) -> ModelMetadata:
        """What the model says, and under `REASON` why it runs here."""
        found = self._session.get_modelmeta()
        texts = ("producer_name", "graph_name", "domain", "description", "graph_description", "version")
        known = ModelMetadata(**{name: getattr(found, name) for name in texts})
        return replace(known, custom_metadata_map={**found.custom_metadata_map, REASON: self._refusal})

    def run(self, feeds: Mapping[str, object], *, trace: RunTrace | None = None) -> list[Array]:
        """The outputs in order.

        Raises:
            InputError: ONNX Runtime does not take the inputs; in its words.
        """
        try:
            found: list[Array] = self._session.run(None, dict(feeds))
        except Exception as error:  # its own classes again
            raise InputError(f"onnxruntime: {' '.join(str(error).split())[:400]}") from error
        return found


def _readable(source: ModelSource) -> str | bytes:
    if isinstance(source, (str, os.PathLike)):
        return str(Path(source))
    return bytes(source) if isinstance(source, (bytes, bytearray, memoryview)) else source.SerializeToString()
