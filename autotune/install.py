"""What an install may lack: compiled files run with NumPy alone; all else needs the packages that pip brings along."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.errors import IncompleteInstallError

PACKAGES = frozenset("jinja2 llvmlite ml_dtypes onnx rich sqlite_utils tomli typer xgboost".split())
"""The modules of the required packages, beside NumPy."""


def lacking(package: str, what: str) -> IncompleteInstallError:
    """The error for something that needs a package that is not there."""
    return IncompleteInstallError(
        f"{what} needs the package {package}, which is not installed: pip install autotune-compiler brings it"
    )


@contextmanager
def needing_all(what: str) -> Iterator[None]:
    """Imports for something that a runtime-only install cannot do.

    Python looks for no cycles meanwhile: modules stay, and looking at them again and again takes a sixth of the time.

    Args:
        what: begins the message, e.g. "compiling a model".

    Raises:
        IncompleteInstallError: a required package is not there.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        raise lacking(package, what) from error
    finally:
        if enabled:
            gc.enable()
