"""What scripts for ONNX Runtime call of its module before they make a session, and after: versions, settings."""

from __future__ import annotations

from autotune.api.session_options import tell_once
from autotune.errors import InputError
from autotune.version import installed_version


def get_version_string() -> str:
    """autotune's version: `autotune.__version__`."""
    return installed_version() or "unknown"


def get_build_info() -> str:
    """autotune and its version, as one text."""
    return f"autotune {get_version_string()}"


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


def enable_telemetry_events() -> None:
    """Has no effect: autotune reports to nobody."""
    tell_once("enable_telemetry_events", "it reports to nobody")


def disable_telemetry_events() -> None:
    """Nothing: autotune reports to nobody."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Nothing: libraries of other devices are not used."""
