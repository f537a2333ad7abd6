"""Features: a matrix of numbers whose columns have names and a version.

A model remembers the names and the version it was trained on and refuses anything else, so a change in
what a column means can never be learned around silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.errors import CostModelError

FEATURES_VERSION = 1
"""Raise this when the meaning of any column changes while its name stays."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """One row per candidate.

    Args:
        names: what the columns are, all different.
        values: float32 (rows, columns); NaN where a feature does not apply to a row.
        version: of the meaning of the columns.
    """

    names: tuple[str, ...]
    values: NDArray[np.float32]
    version: int = FEATURES_VERSION

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise CostModelError(
                f"two features have one name: {sorted(n for n in self.names if self.names.count(n) > 1)}"
            )
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise CostModelError(f"{len(self.names)} features are named, but the matrix is {self.values.shape}")
        if np.isinf(self.values).any():
            column = self.names[int(np.argwhere(np.isinf(self.values))[0][1])]
            raise CostModelError(f"feature {column!r} is infinite; use NaN for what does not apply")

    @staticmethod
    def of(names: Sequence[str], rows: Sequence[NDArray[np.float32]]) -> Features:
        """Stacks vectors, such as `Space.encode` returns."""
        values = np.stack(rows) if rows else np.empty((0, len(names)), np.float32)
        return Features(tuple(names), values.astype(np.float32, copy=False))

    def column(self, name: str) -> NDArray[np.float32]:
        if name not in self.names:
            raise CostModelError(f"there is no feature {name!r}; there are {', '.join(self.names)}")
        return self.values[:, self.names.index(name)]

    def __len__(self) -> int:
        return len(self.values)


def check_same(trained: Features, given: Features) -> None:
    """CostModelError, naming the first difference, unless both have the same columns and version."""
    if trained.version != given.version:
        raise CostModelError(
            f"the model was trained on features version {trained.version}, not {given.version}; retrain"
        )
    if trained.names == given.names:
        return
    lacking = sorted(set(trained.names) - set(given.names))
    extra = sorted(set(given.names) - set(trained.names))
    difference = f"lacks {lacking[0]!r}" if lacking else f"adds {extra[0]!r}" if extra else "has another order"
    raise CostModelError(
        f"the model was trained on {len(trained.names)} features, this candidate has {len(given.names)} "
        f"and {difference}; retrain the model"
    )
