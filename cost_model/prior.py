"""The prior: what is known of loop nests before anything was measured here; shipped, or trained from own records."""

from __future__ import annotations

import functools
import hashlib
import logging
from contextlib import suppress
from pathlib import Path

from autotune.cost_model.forest import Forest
from autotune.errors import CostModelError
from autotune.machine import environment, user_cache

_log = logging.getLogger(__name__)
SHIPPED = Path(__file__).with_name("nests.forest")
OF_TILES = Path(__file__).with_name("tiles.forest")
"""Of nests whose sums are in matrix registers; what is known of other nests misleads there, and is the larger part."""


def own_path() -> Path | None:
    """Where a user's own model lies (`autotune model train`); None without a home folder."""
    folder = user_cache(environment())
    return None if folder is None else folder / "nests.forest"


def prior(names: tuple[str, ...], version: int) -> Forest | None:
    """The model of nests with these features; None when none fits."""
    found = in_use(names, version)
    return None if found is None else found[0]


def prior_of_tiles(names: tuple[str, ...], version: int) -> Forest | None:
    """The model of nests of matrix registers; None where it was trained on other features."""
    for path, stamp in _files(OF_TILES):
        found = _read(path, stamp)
        if found is not None and (found.names, found.version) == (names, version):
            return found
    return None


def prior_key() -> str:
    """What names the models that there are: other files, another key."""
    return " ".join(_key(path, stamp) for path, stamp in _files(own_path(), SHIPPED, OF_TILES))


def in_use(names: tuple[str, ...], version: int) -> tuple[Forest, Path] | None:
    """One's own model where it fits, else the shipped one, with its file; None when neither fits.

    A file that is damaged, or was trained on other features, is passed over with a warning of one line.
    """
    for path, stamp in _files(own_path(), SHIPPED):
        found = _read(path, stamp)
        if found is not None and (found.names, found.version) == (names, version):
            return found, path
        if found is not None:
            _warn(path, "it was trained on other features")
    return None


def _files(*paths: Path | None) -> list[tuple[Path, int]]:
    """Those of the files that are there, and when each was changed."""
    found = []
    for path in paths:
        with suppress(OSError):  # there is none
            if path is not None:
                found.append((path, path.stat().st_mtime_ns))
    return found


@functools.lru_cache(maxsize=8)
def _key(path: Path, _changed: int) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


@functools.lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> Forest | None:
    try:
        return Forest.read(path)
    except CostModelError as error:
        _warn(path, str(error))
        return None


@functools.lru_cache(maxsize=8)
def _warn(path: Path, why: str) -> None:
    """Once per file and reason."""
    _log.warning("the cost model %s is not used: %s; `autotune model train` makes a new one", path, why)
