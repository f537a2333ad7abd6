"""The user's own operators and templates: modules and scripts that register them when they are imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import ExtensionError


def load_extensions(names: Sequence[str]) -> None:
    """Import each, unless this process has done so: what they register is registered once.

    Args:
        names: modules, or paths of Python files; the `__main__` part of a script does not run.

    Raises:
        ExtensionError: there is no such module, or it fails; in one line, with its own reason.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                _run_script(Path(name).resolve())
            else:
                importlib.import_module(name)
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())
            raise ExtensionError(f"cannot import {name}: {type(error).__name__}: {reason}") from error


def source_of(name: str) -> bytes:
    """What an extension consists of: its file, or those of its package.

    Raises:
        ExtensionError: there is none.
    """
    try:
        spec = None if name.endswith(".py") else importlib.util.find_spec(name)
        path = Path(name) if spec is None else Path(spec.origin or name)
        package = spec is not None and spec.submodule_search_locations
        files = sorted(path.parent.rglob("*.py")) if package else [path]
        return b"".join(file.read_bytes() for file in files)
    except (OSError, ImportError, ValueError) as error:
        raise ExtensionError(f"cannot read {name}: {error}") from error


def _run_script(path: Path) -> None:
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    if str(path) in {str(Path(file).resolve()) for file in loaded if file and Path(file).name == path.name}:
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ExtensionError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module.__name__]
        raise
