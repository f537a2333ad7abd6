"""What extends autotune: installed packages with operators, templates and converters of their own, found by their entry
points, and what a program registers by itself."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from autotune import packages
from autotune.errors import ExtensionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint  # slow to import

GROUP = "autotune.plugins"
"""The group of entry points; each names a module, which registers what it has when it is imported."""

_registered: list[Callable[..., object]] = []


def is_ours(what: Callable[..., object]) -> bool:
    """Whether a function or a class comes with autotune."""
    while isinstance(what, functools.partial):
        what = what.func
    return what.__module__.startswith("autotune.")


def registered(what: Callable[..., object]) -> None:
    """For registries: they have taken this function or class."""
    if not is_ours(what):
        _registered.append(what)


def extended() -> bool:
    """Whether what is not ours may decide how a model is compiled: a plugin, or what this process has registered."""
    return bool(_registered or plugin_modules())


def plugin_modules() -> tuple[str, ...]:
    """The modules that plugins name, imported or not."""
    return _modules(tuple(sys.path))


@functools.cache
def _modules(_: tuple[str, ...]) -> tuple[str, ...]:
    """Once for the folders that packages are in: all of them are opened, and every compiled program asks."""
    return tuple(sorted(entry.module for entry in _entries()))


def _entries() -> Iterable[EntryPoint]:
    if not packages.may_have_entry_points(GROUP):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


@functools.cache
def load_plugins() -> tuple[str, ...]:
    """Import every plugin, the first time that something is looked up which one may have.

    Returns:
        their names.

    Raises:
        ExtensionError: one cannot be imported; the message says which, from where, and why.
    """
    found = sorted(_entries(), key=lambda entry: entry.name)
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
