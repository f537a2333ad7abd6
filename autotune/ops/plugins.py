"""Plugins: installed packages with operators, templates and converters of their own, found by their entry points."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

from autotune.errors import ExtensionError

GROUP = "autotune.plugins"
"""The group of entry points; each names a module, which registers what it has when it is imported."""


def plugin_modules() -> tuple[str, ...]:
    """The modules that plugins name, imported or not."""
    return tuple(sorted(entry.module for entry in entry_points(group=GROUP)))


@functools.cache
def load_plugins() -> tuple[str, ...]:
    """Import every plugin, the first time that something is looked up which one may have.

    Returns:
        their names.

    Raises:
        ExtensionError: one cannot be imported; the message says which, from where, and why.
    """
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            owner = entry.dist.name if entry.dist is not None else entry.value
            reason = " ".join(str(error).split())
            raise ExtensionError(
                f"plugin {entry.name} cannot be imported: {type(error).__name__}: {reason};"
                f" repair it, or pip uninstall {owner}"
            ) from error
    return tuple(entry.name for entry in found)
