"""Engines side by side: each in a process of its own, pinned to its cores, loaded together and timed in turn."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import machine
from autotune.measure.timing import interleave, latency
from benchmarks.engine_process import MODULES
from benchmarks.report import ROOT

Array = NDArray[Any]
PEERS = ("onnxruntime", "openvino", "mnn")
_PAUSE_SECONDS = 0.06  # between turns: threads of the engine before spin on, those of ONNX Runtime for 40 ms


class EngineError(Exception):
    """An engine refused a model, or its process ended; one line."""


def available(kind: str) -> bool:
    """Whether the engine is installed."""
    return importlib.util.find_spec(MODULES[kind]) is not None


class Engine:
    """One engine's process. The model is loaded when this returns.

    Args:
        kind: "autotune", or one of `PEERS`.
        model: an ONNX file (for autotune also a compiled one).
        threads: the engine's threads; it is pinned to as many of the allowed CPUs.
        label: what tables call it.
        options: for autotune, see `engine_process.Autotune`.
        environment: variables of the process besides our own.

    Raises:
        EngineError: not installed, or the model does not load.
    """

    def __init__(
        self, kind: str, model: Path, threads: int = 1, *, label: str | None = None,
        options: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        if kind not in MODULES or not available(kind):
            raise EngineError(f"{kind} is not installed: pip install 'autotune-compiler[bench]'")
        self.kind, self.label, self.threads = kind, label or kind, threads
        self._folder = tempfile.TemporaryDirectory(prefix="autotune-engine-")
        cores = ",".join(str(core) for core in machine.affinity()[:threads])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engine_process", kind, str(threads), cores],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            # An install has its bytecode: what Python compiles counts in no load but the first.
            env={n: v for n, v in machine.environment().items() if n != "PYTHONDONTWRITEBYTECODE"}
            | dict(environment or {}),
        )  # fmt: skip
        try:
            loaded = self._ask("load", model=str(model.resolve()), options=dict(options or {}))
        except EngineError:
            self.close()
            raise
        self.load_seconds = float(loaded["seconds"])
        self.import_seconds = float(loaded["import_seconds"])

    def feed(self, feeds: Mapping[str, Array]) -> None:
        """The inputs of all further runs."""
        path = Path(self._folder.name) / "feeds.npz"
        np.savez(path, allow_pickle=False, **feeds)
        self._ask("feed", path=str(path))

    def run(self) -> list[Array]:
        """The outputs of one run."""
        path = Path(self._folder.name) / "outputs.npz"
        count = self._ask("run", path=str(path))["outputs"]
        with np.load(path) as arrays:
            return [arrays[f"arr_{n}"] for n in range(count)]

    def time(self, runs: int, warmup: int = 1) -> list[float]:
        """Seconds of each of `runs` runs."""
        return [float(seconds) for seconds in self._ask("time", runs=runs, warmup=warmup)["seconds"]]

    def memory(self) -> dict[str, int]:
        """Resident bytes: `baseline` after the import, `peak` since, `now`."""
        return {name: int(value) for name, value in self._ask("memory").items()}

    def close(self) -> None:
        """End the process. Idempotent."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, do: str, **arguments: object) -> dict[str, Any]:
        sender, receiver = self._process.stdin, self._process.stdout
        assert sender is not None and receiver is not None
        try:
            sender.write(json.dumps({"do": do, **arguments}) + "\n")
            sender.flush()
            line = receiver.readline()
        except OSError:
            line = ""
        if not line:
            raise EngineError(f"{self.label} ended in '{do}' with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.label}: {' '.join(str(answer['error']).split())[:300]}")
        return answer


def time_in_turn(engines: Sequence[Engine], rounds: int, runs: int) -> list[list[float]]:
    """Seconds per engine: in each round every engine has a turn of one warm-up run and `runs` that count.

    Neighbours in a round change order from round to round, and between turns everybody rests.
    """

    def turn(engine: Engine, found: list[float]) -> float:
        time.sleep(_PAUSE_SECONDS)
        samples = engine.time(runs)
        found.extend(samples)
        return latency(samples)

    samples: list[list[float]] = [[] for _ in engines]
    interleave([lambda e=e, s=s: turn(e, s) for e, s in zip(engines, samples)], rounds)  # type: ignore[misc]
    return samples


def runs_per_turn(engine: Engine, seconds: float = 0.05) -> int:
    """How many runs fill a turn."""
    return max(1, round(seconds / max(min(engine.time(2)), 1e-6)))
