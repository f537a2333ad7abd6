"""Installed packages, known by the names of the folders that describe them.

`importlib.metadata` takes 30 ms to import, and as long to open them all: a tenth of what a start takes whose program is
kept. Where packages lie in plain folders, as pip puts them, names tell what it would; elsewhere it is asked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder

_SEPARATORS = re.compile(r"[-_.]+")


def version(package: str) -> str | None:
    """The version of an installed package; None where it is not installed, or only copied somewhere."""
    folders = _folders(tuple(sys.path))
    wanted = _SEPARATORS.sub("-", package).lower()
    for folder in folders or ():  # the first is the one that is imported
        described, suffix = os.path.splitext(os.path.basename(folder))
        name, _, release = described.partition("-")
        if _SEPARATORS.sub("-", name).lower() == wanted:
            if suffix == ".dist-info" and release:
                return release
            break
    else:
        if folders is not None:
            return None
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def may_have_entry_points(group: str) -> bool:
    """False where surely no installed package has entry points of a group."""
    folders = _folders(tuple(sys.path))
    return folders is None or any(group.encode() in _contents(folder) for folder in folders)


@functools.cache
def _folders(path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The folders that describe packages, in the order in which these are found; None where only
    `importlib.metadata` finds all."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return None
    try:
        return tuple(found for place in path for found in _described(place))
    except NotADirectoryError:  # packages in a zip file
        return None


def _described(place: str) -> Iterator[str]:
    if place.endswith(".egg"):
        raise NotADirectoryError(place)
    try:
        entries = sorted(os.listdir(place or "."))
    except (FileNotFoundError, PermissionError):
        return
    yield from (os.path.join(place, entry) for entry in entries if entry.lower().endswith((".dist-info", ".egg-info")))


def _contents(folder: str) -> bytes:
    """The entry points of a package."""
    with contextlib.suppress(OSError), open(os.path.join(folder, "entry_points.txt"), "rb", buffering=0) as file:
        return file.read()
    return b""
