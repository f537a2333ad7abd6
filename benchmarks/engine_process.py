"""One engine in this process, told what to do by JSON lines on standard input: `benchmarks.engines` talks to it.

Nothing but NumPy is imported before the engine, so that the memory after its import is its own baseline.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Adapter(Protocol):
    """A loaded model in some engine."""

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """One inference through the engine's Python interface: outputs in the model's order."""


class Autotune:
    """Ours. Options: database (a path; false for none), target (its text, instead of the number of threads)."""

    modules = ("autotune",)

    def __init__(self, model: str, threads: int, options: Mapping[str, Any]) -> None:
        import autotune

        self._session = autotune.InferenceSession(
            model, target=options.get("target", f"native -num-cores={threads}"), database=options.get("database", False)
        )

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        return self._session.run(None, feeds)


class OnnxRuntime:
    """ONNX Runtime, all graph optimisations, spinning on (its defaults), `threads` intra-op threads."""

    modules = ("onnxruntime",)

    def __init__(self, model: str, threads: int, options: Mapping[str, Any]) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        settings.add_session_config_entry("session.set_denormal_as_zero", "1")
        self._session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        outputs: list[Array] = self._session.run(None, feeds)
        return outputs


class OpenVino:
    """OpenVINO's CPU plugin: one latency stream, precision forced to f32 (its default may be bf16)."""

    modules = ("openvino",)

    def __init__(self, model: str, threads: int, options: Mapping[str, Any]) -> None:
        import openvino

        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        core = openvino.Core()
        self._model = core.compile_model(core.read_model(model), "CPU", settings)
        self._request = self._model.create_infer_request()

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        results = self._request.infer(feeds, share_inputs=True, share_outputs=True)
        return [results[output] for output in self._model.outputs]


class Mnn:
    """MNN's CPU backend at high precision (f32)."""

    modules = ("MNN",)

    def __init__(self, model: str, threads: int, options: Mapping[str, Any]) -> None:
        import MNN

        converted = Path(options["folder"]) / (Path(model).stem + ".mnn")
        if not converted.exists():
            # The converter itself. MNN.tools.mnnconvert around it installs an analytics package with pip, and uses it.
            converter = importlib.import_module("_tools")
            arguments = ["mnnconvert", "-f", "ONNX", "--modelFile", model, "--MNNModel", str(converted)]
            converter.mnnconvert([*arguments, "--bizCode", "benchmark"])
        self._mnn = MNN
        self._interpreter = MNN.Interpreter(str(converted))
        self._session = self._interpreter.createSession({"numThread": threads, "precision": "high", "backend": "CPU"})
        self._outputs = self._interpreter.getSessionOutputAll(self._session)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        mnn = self._mnn
        for name, array in feeds.items():
            given = mnn.Tensor(array.shape, mnn.Halide_Type_Float, array, mnn.Tensor_DimensionType_Caffe)
            self._interpreter.getSessionInput(self._session, name).copyFrom(given)
        self._interpreter.runSession(self._session)
        results = []
        for output in self._outputs.values():
            shape = output.getShape()
            taken = mnn.Tensor(
                shape, mnn.Halide_Type_Float, np.zeros(shape, np.float32), mnn.Tensor_DimensionType_Caffe
            )
            output.copyToHostTensor(taken)
            results.append(np.array(taken.getNumpyData()).reshape(shape))
        return results


ADAPTERS: dict[str, Callable[[str, int, Mapping[str, Any]], Adapter]] = {
    "autotune": Autotune,
    "mnn": Mnn,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}


class Host:
    """Answers requests about one engine."""

    def __init__(self, kind: str, threads: int) -> None:
        self._kind, self._threads = kind, threads
        self._adapter: Adapter | None = None
        self._feeds: dict[str, Array] = {}
        start = time.perf_counter()
        for module in getattr(ADAPTERS[kind], "modules", ()):
            importlib.import_module(module)
        self._import_seconds = time.perf_counter() - start
        self._baseline = status_bytes("VmRSS")
        # From here on the peak is the engine's work, not its import.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def load(self, model: str, options: dict[str, Any]) -> dict[str, Any]:
        """Make a session; seconds."""
        start = time.perf_counter()
        self._adapter = ADAPTERS[self._kind](model, self._threads, options)
        return {"seconds": time.perf_counter() - start, "import_seconds": self._import_seconds}

    def feed(self, path: str) -> dict[str, Any]:
        """Take the inputs of all further runs from an .npz file."""
        with np.load(path) as arrays:
            self._feeds = dict(arrays)
        return {}

    def run(self, path: str) -> dict[str, Any]:
        """Run once; the outputs go to an .npz file, in order."""
        outputs = self._session().run(self._feeds)
        np.savez(path, *outputs)
        return {"outputs": len(outputs)}

    def time(self, runs: int, warmup: int) -> dict[str, Any]:
        """Seconds of each of `runs` runs, after `warmup` runs that do not count."""
        run, feeds = self._session().run, self._feeds
        for _ in range(warmup):
            run(feeds)
        samples = []
        for _ in range(runs):
            start = time.perf_counter()
            run(feeds)
            samples.append(time.perf_counter() - start)
        return {"seconds": samples}

    def memory(self) -> dict[str, Any]:
        """Resident bytes after the import, at the peak since then, and now."""
        return {"baseline": self._baseline, "peak": status_bytes("VmHWM"), "now": status_bytes("VmRSS")}

    def _session(self) -> Adapter:
        if self._adapter is None:
            raise RuntimeError("no model was loaded")
        return self._adapter


def status_bytes(name: str) -> int:
    """A memory figure of this process from /proc/self/status, in bytes."""
    found = re.search(rf"^{name}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    kind, threads, cores = sys.argv[1], int(sys.argv[2]), [int(core) for core in sys.argv[3].split(",")]
    os.sched_setaffinity(0, cores)
    # Engines print what they like; the answers go their own way.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    host: Host | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if host is None:
                host = Host(kind, threads)
            answer = getattr(host, request.pop("do"))(**request)
        except Exception as error:  # noqa: BLE001  whatever an engine raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
