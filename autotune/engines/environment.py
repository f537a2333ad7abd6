"""Where a figure comes from: machine, versions, load. Every published result carries it."""

from __future__ import annotations

import os
import platform

from autotune.engines.engine import installed
from autotune.machine import this_machine

_DISTRIBUTIONS = ("autotune-compiler", "llvmlite", "numpy", "onnx", "xgboost-cpu", "onnxruntime", "openvino")


def describe_environment() -> dict[str, object]:
    """Plain data: CPU, cores allowed, caches, 1-minute load, and the versions of what takes part."""
    here = this_machine()
    return {
        "cpu": here.cpu,
        "model": here.model,
        "allowed_cores": here.allowed_cores,
        "quota": here.quota,
        "l1_bytes": here.caches.l1_bytes,
        "l2_bytes": here.caches.l2_bytes,
        "l3_bytes": here.caches.l3_bytes,
        "memory_bytes": here.memory_bytes,
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: found for name in _DISTRIBUTIONS if (found := installed(name))},
    }
