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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


MODULES = {
    "autotune": "autotune", "mnn": "MNN", "onnxruntime": "onnxruntime", "openvino": "openvino",
    "openvino-bf16": "openvino", "openvino-f16": "openvino",
}  # fmt: skip


class Runnable(Protocol):
    """A loaded model in some engine."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """One inference through the engine's Python interface: outputs in the model's order."""


class Autotune:
    """Our session. Options: database (a path; false for none), target (its text, instead of the number of threads),
    precision."""

    def __init__(self, model: str, threads: int, options: Mapping[str, Any]) -> None:
        import autotune

        target = options.get("target", f"native -num-cores={threads}")
        self._session = autotune.InferenceSession(
            model,
            target=target,
            database=options.get("database", False),
            precision=options.get("precision", "f32"),
        )

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        return self._session.run(None, feeds)


def load(kind: str, model: str, threads: int, options: Mapping[str, Any]) -> Runnable:
    """A model in an engine; raises whatever the engine does."""
    if kind == "autotune":
        return Autotune(model, threads, options)
    from autotune.engines.peers import load_peer

    return load_peer(kind, Path(model), threads, {})


class Host:
    """Answers requests about one engine."""

    def __init__(self, kind: str, threads: int) -> None:
        self._kind, self._threads = kind, threads
        self._loaded: Runnable | None = None
        self._feeds: dict[str, Array] = {}
        start = time.perf_counter()
        module = importlib.import_module(MODULES[kind])
        if kind == "autotune":  # names load what they need when they are first used; other engines load it all at once
            for name in ("InferenceSession", "compile"):
                getattr(module, name)
        self._import_seconds = time.perf_counter() - start
        self._baseline = status_bytes("VmRSS")
        # From here on the peak is the engine's work, not its import.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def load(self, model: str, options: dict[str, Any]) -> dict[str, Any]:
        """Make a session; seconds."""
        start = time.perf_counter()
        self._loaded = load(self._kind, model, self._threads, options)
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
        now, peak = status_bytes("VmRSS"), status_bytes("VmHWM")  # which the kernel notes a few pages late
        return {"baseline": self._baseline, "peak": max(now, peak), "now": now}

    def _session(self) -> Runnable:
        if self._loaded is None:
            raise RuntimeError("no model was loaded")
        return self._loaded


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
