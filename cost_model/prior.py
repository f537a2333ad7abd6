"""The prior: what is known of loop nests before anything was measured here; shipped, or trained from own records."""

from __future__ import annotations

import functools
import logging
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.features import Features, check_same
from autotune.cost_model.forest import Forest, starting_score
from autotune.cost_model.prior_files import OF_TILES, SHIPPED, files_of, own_path
from autotune.errors import CostModelError
from autotune.schedule.dot_products import DOT_PRODUCTS

_log = logging.getLogger(__name__)
FOLDED = "folds"
"""The feature that tells them: octaves of products that an instruction adds up in a lane."""
LIFT = 0.75
"""By how much, in logarithms, trees may expect more of a nest than the closed form does. They say next to nothing about
nests that nobody measured, and a search for what they like best finds those about which they are most wrong: tiles of
10 rows by one vector that thrash both caches, say. Of the 504 tasks of the lessons all but three have their best, and
all have their first choice, within it. That of matrix registers has lessons of its own, and lifts them further."""
VECTORS_FOLD = math.log2(max(dot.extent for dot in DOT_PRODUCTS.values() if not dot.tiled))
"""What instructions of vectors do at most; one of tiles of so few is taken for such."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of nests: of vectors, and of matrix registers.

    Attributes:
        nests: the model of all nests. `tiles`: that of those whose sums are in matrix registers; None without one.
    """

    nests: Forest
    tiles: Forest | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.nests.names

    @property
    def version(self) -> int:
        return self.nests.version

    def predict(self, features: Features) -> NDArray[np.float64]:
        """(rows,) scores, higher is faster; of tiles without a model of their own, what the closed form says.

        Raises:
            CostModelError: the features are not those that it was trained on.
        """
        check_same(Features(self.names, features.values[:0], self.version), features)
        found, tiled = np.empty(len(features)), on_tiles(features)
        of_tiles = self.closed if self.tiles is None else self.tiles.predict
        for rows, predict in ((~tiled, self._of_nests), (tiled, of_tiles)):
            if rows.any():
                found[rows] = predict(Features(features.names, features.values[rows], features.version))
        return found

    def _of_nests(self, features: Features) -> NDArray[np.float64]:
        return np.minimum(self.nests.predict(features), self.closed(features) + LIFT)

    def closed(self, features: Features) -> NDArray[np.float64]:
        """(rows,) scores by the closed form alone."""
        return starting_score(features, self.nests.start, self.nests.weight)


def on_tiles(features: Features) -> NDArray[np.bool_]:
    """(rows,) whether sums are in matrix registers."""
    found: NDArray[np.bool_] = features.column(FOLDED) > VECTORS_FOLD
    return found


def prior(names: tuple[str, ...], version: int) -> Prior | None:
    """The models of nests with these features; None when none fits."""
    found = in_use(names, version)
    if found is None:
        return None
    kept = (_read(path, stamp) for path, stamp in files_of(OF_TILES))
    tiles = (one for one in kept if one is not None and (one.names, one.version) == (names, version))
    return Prior(found[0], next(tiles, None))


def in_use(names: tuple[str, ...], version: int) -> tuple[Forest, Path] | None:
    """One's own model where it fits, else the shipped one, with its file; None when neither fits.

    A file that is damaged, or was trained on other features, is passed over with a warning of one line.
    """
    for path, stamp in files_of(own_path(), SHIPPED):
        found = _read(path, stamp)
        if found is not None and (found.names, found.version) == (names, version):
            return found, path
        if found is not None:
            _warn(path, "it was trained on other features")
    return None


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
    mend = "`autotune model train` makes a new one" if path == own_path() else "install autotune again"
    _log.warning("the cost model %s is not used: %s; %s", path, why, mend)
