"""autotune: makes ONNX models run as fast as this CPU allows, and proves it.

import autotune
session = autotune.InferenceSession("resnet50.onnx")
(logits,) = session.run(None, {"data": image})
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.api.best import BestSchedule, best_schedule
    from autotune.api.compile import compile, tasks
    from autotune.api.session import InferenceSession
    from autotune.api.tune import TuneReport, tune
    from autotune.compiler.compile import CompiledModel
    from autotune.errors import AutotuneError
    from autotune.ops.workload import Workload
    from autotune.records import Database
    from autotune.target import Target

# Name -> module; loaded on first use, so that a compiled model starts without ONNX, XGBoost or SQLite.
_PUBLIC = {
    "AutotuneError": "autotune.errors",
    "BestSchedule": "autotune.api.best",
    "CompiledModel": "autotune.compiler.compile",
    "Database": "autotune.records",
    "InferenceSession": "autotune.api.session",
    "Target": "autotune.target",
    "TuneReport": "autotune.api.tune",
    "Workload": "autotune.ops.workload",
    "best_schedule": "autotune.api.best",
    "compile": "autotune.api.compile",
    "tasks": "autotune.api.compile",
    "tune": "autotune.api.tune",
}

__all__ = [
    "AutotuneError",
    "BestSchedule",
    "CompiledModel",
    "Database",
    "InferenceSession",
    "Target",
    "TuneReport",
    "Workload",
    "best_schedule",
    "compile",
    "tasks",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("autotune.version").installed_version() or "unknown"
    if name not in _PUBLIC:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, "__version__"])
