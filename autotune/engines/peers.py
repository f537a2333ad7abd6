"""Other engines, set up for the lowest latency they can reach with a given number of threads, in fp32 unless named."""

from __future__ import annotations

import copy
import ctypes
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from autotune.engines.engine import Array, Engine, Feeds, installed
from autotune.engines.streams import Streams
from autotune.errors import EngineError

Shapes = Mapping[str, Sequence[int]]
AnyEngine = TypeVar("AnyEngine", bound=Engine)


class OnnxRuntime:
    """ONNX Runtime: all graph optimisations, spinning threads, denormals flushed."""

    name = "onnxruntime"

    def __init__(self, model: Path, threads: int, shapes: Shapes) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        options.log_severity_level = 3
        self.version: str = ort.__version__
        self._session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run(self, feeds: Feeds) -> Sequence[Array]:
        found: list[Array] = self._session.run(None, dict(feeds))
        return found


class OpenVino:
    """OpenVINO: latency hint, fp32 (its default may be bf16). Its threads are one pool, so streams are its own."""

    name, precision = "openvino", "f32"

    def __init__(self, model: Path, threads: int, shapes: Shapes, streams: int = 1) -> None:
        import openvino as ov

        core = ov.Core()
        read = core.read_model(str(model))
        if shapes:
            read.reshape({name: list(shape) for name, shape in shapes.items()})
        self.version = installed("openvino") or str(ov.__version__).split("-")[0]
        self._compiled: Any = core.compile_model(
            read,
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                "NUM_STREAMS": str(streams),
                "INFERENCE_NUM_THREADS": str(threads * streams),
                "INFERENCE_PRECISION_HINT": self.precision,
            },
        )
        self._request: Any = self._compiled.create_infer_request()
        self._outputs = range(len(read.outputs))

    def another(self) -> OpenVino:
        """A further request of the same model, for another of its streams."""
        found = copy.copy(self)
        found._request = self._compiled.create_infer_request()
        return found

    def run(self, feeds: Feeds) -> Sequence[Array]:
        # Without copies on either side: its own latency, not that of the binding.
        found = self._request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return [found[number] for number in self._outputs]


class OpenVinoBf16(OpenVino):
    """OpenVINO with products in bf16 where it has them, as it chooses by itself on CPUs with instructions for it."""

    name, precision = "openvino-bf16", "bf16"


class OpenVinoF16(OpenVino):
    """OpenVINO with products in f16 where it has them."""

    name, precision = "openvino-f16", "f16"


class Mnn:
    """MNN: the CPU backend at high precision, which is fp32. Shapes must be fixed in the model."""

    name = "mnn"

    def __init__(self, model: Path, threads: int, shapes: Shapes) -> None:
        import MNN as mnn

        self.version = installed("MNN")
        self._mnn = mnn
        with tempfile.TemporaryDirectory(prefix="autotune-mnn-") as folder:
            converted = str(Path(folder) / "model.mnn")
            # The converter itself: MNN.tools.mnnconvert around it installs an analytics package by pip, and reports.
            converter = importlib.import_module("_tools")
            arguments = ["-f", "ONNX", "--modelFile", str(model.resolve()), "--MNNModel", converted]
            here = Path.cwd()
            os.chdir(folder)  # it leaves a file of large weights in the current folder
            try:
                converter.mnnconvert(["mnnconvert", *arguments, "--bizCode", "autotune"])
            finally:
                os.chdir(here)
            self._net = mnn.Interpreter(converted)
        self._session = self._net.createSession({"numThread": threads, "precision": "high", "backend": "CPU"})
        self._outputs = list(self._net.getSessionOutputAll(self._session).values())

    def run(self, feeds: Feeds) -> Sequence[Array]:
        for name, array in feeds.items():
            self._net.getSessionInput(self._session, name).copyFrom(self._tensor(array))
        self._net.runSession(self._session)
        return [self._taken(output) for output in self._outputs]

    def _taken(self, output: Any) -> Array:
        array: Array = np.zeros(output.getShape(), np.float32)
        held = self._tensor(array)
        output.copyToHostTensor(held)
        return np.array(held.getNumpyData()).reshape(array.shape)

    def _tensor(self, array: Array) -> Any:
        kind, order = self._mnn.Halide_Type_Float, self._mnn.Tensor_DimensionType_Caffe
        return self._mnn.Tensor(array.shape, kind, array, order)


PEERS: dict[str, type[OnnxRuntime] | type[OpenVino] | type[Mnn]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "openvino-bf16": OpenVinoBf16,
    "openvino-f16": OpenVinoF16,
    "mnn": Mnn,
}


def peer_names(text: str) -> list[str]:
    """The engines of a comma-separated list; "none" and nothing are none.

    Raises:
        EngineError: one of them is unknown.
    """
    names = [name for part in text.split(",") if (name := part.strip()) and name != "none"]
    for name in names:
        if name not in PEERS:
            raise EngineError(f"unknown engine {name!r}; known: {', '.join(PEERS)}")
    return names


def load_peer(name: str, model: Path, threads: int, shapes: Shapes) -> Engine:
    """
    Raises:
        EngineError: it is not installed, or refuses the model; the message says which.
    """
    return _loaded(name, lambda: PEERS[name](model, threads, shapes))


def load_streams(name: str, model: Path, threads: int, shapes: Shapes, cores: Sequence[Sequence[int]]) -> Streams:
    """Several sessions of a peer at once.

    Args:
        threads: of each.
        cores: the logical CPUs of each.

    Raises:
        EngineError: as for `load_peer`.
    """
    kind = PEERS[name]
    if not issubclass(kind, OpenVino):
        return Streams(lambda number: load_peer(name, model, threads, shapes), cores)
    whole = _loaded(name, lambda: kind(model, threads, shapes, len(cores)))
    return Streams(lambda number: whole.another(), cores)


def _loaded(name: str, load: Callable[[], AnyEngine]) -> AnyEngine:
    try:
        with _chatter_to_stderr():
            return load()
    except ImportError:
        raise EngineError(f"{name} is not installed; pip install {name.partition('-')[0]}") from None
    except Exception as error:  # engines raise what they like, RuntimeError above all
        raise EngineError(f"{name} cannot load the model: {type(error).__name__}: {str(error)[:200]}") from error


@contextmanager
def _chatter_to_stderr() -> Iterator[None]:
    """Compiled code of others prints on file descriptor 1, which is for results alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # theirs is kept back when it goes into a pipe
        os.dup2(kept, 1)
        os.close(kept)
