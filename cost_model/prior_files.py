"""The files that a prior is read from, and what names them; models themselves are `cost_model.prior`.

Apart from it since each start asks for the name, and most need no model: what they would ask it is remembered.
"""

from __future__ import annotations

import functools
import hashlib
from contextlib import suppress
from pathlib import Path

from autotune.machine import environment, user_cache

SHIPPED = Path(__file__).with_name("nests.forest")
OF_TILES = Path(__file__).with_name("tiles.forest")
"""Of nests whose sums are in matrix registers; what is known of other nests misleads there, and is the larger part."""


def own_path() -> Path | None:
    """Where a user's own model lies (`autotune model train`); None without a home folder."""
    folder = user_cache(environment())
    return None if folder is None else folder / "nests.forest"


def prior_key() -> str:
    """What names the models that `prior` may return: other files, another key."""
    return " ".join(_key(path, stamp) for path, stamp in files_of(own_path(), SHIPPED, OF_TILES))


def files_of(*paths: Path | None) -> list[tuple[Path, int]]:
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
