"""What scripts for ONNX Runtime call of its module before they make a session, and after: versions, settings."""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Callable

from autotune.api.session_options import set_default_logger_severity, tell_once
from autotune.errors import InputError
from autotune.version import installed_version

package_name = "autotune"
"""ONNX Runtime's name of itself says for which device it was made."""

cuda_version = ""
"""Of no CUDA: autotune runs on the CPU."""


def has_collective_ops() -> bool:
    """False: a model runs on one machine."""
    return False


def print_debug_info() -> None:
    """Print versions and the platform, for a report of a bug; `autotune machine` says more."""
    python = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    sys.stdout.write(f"autotune version: {get_version_string()}\nplatform: {platform.platform()}\npython: {python}\n")


def get_version_string() -> str:
    """autotune's version: `autotune.__version__`."""
    return installed_version() or "unknown"


def get_build_info() -> str:
    """autotune and its version, as one text."""
    return f"autotune {get_version_string()}"


LogCallback = Callable[[int, str, str, str, str], None]
"""Told of severity, category, who logs, where in the code, and the message."""


class _ToCallback(logging.Handler):
    def __init__(self, callback: LogCallback) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        where = f"{record.filename}:{record.lineno} {record.funcName}"
        try:
            severity = min(max(record.levelno // 10 - 1, 0), 4)
            self._callback(severity, "autotune", record.name, where, record.getMessage())
        except Exception:  # noqa: BLE001  # whatever the caller's code raises ends no run
            self.handleError(record)


def set_default_logger_callback(callback: LogCallback | None, severity: int = 2) -> None:
    """Have a function told of what the logger `autotune` says from `severity` on, in place of the one before; None for
    no function. Raises InputError for what is no severity from 0 (verbose) to 4 (fatal)."""
    logger = logging.getLogger("autotune")
    for handler in [found for found in logger.handlers if isinstance(found, _ToCallback)]:
        logger.removeHandler(handler)
    if callback is not None:
        set_default_logger_severity(severity)
        logger.addHandler(_ToCallback(callback))


def set_default_logger_verbosity(verbosity: int) -> None:
    """Has no effect: `set_default_logger_severity(0)` logs all there is. Raises InputError for what is no number."""
    if not isinstance(verbosity, int):
        raise InputError(f"a log verbosity is a number, not {verbosity!r}")
    if verbosity:
        tell_once("set_default_logger_verbosity", "set_default_logger_severity(0) logs all there is")


def set_seed(seed: int) -> None:
    """Nothing: what a model draws follows from its nodes, and is the same in every run. Raises InputError for what is
    no number."""
    if not isinstance(seed, int):
        raise InputError(f"a seed is a number, not {seed!r}")


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Has no effect: every session has threads of its own, as many as its `intra_op_num_threads`."""
    if intra_op_num_threads or inter_op_num_threads:
        tell_once("set_global_thread_pool_sizes", "every session has threads of its own")


def enable_telemetry_events() -> None:
    """Has no effect: autotune reports to nobody."""
    tell_once("enable_telemetry_events", "it reports to nobody")


def disable_telemetry_events() -> None:
    """Nothing: autotune reports to nobody."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Nothing: libraries of other devices are not used."""
