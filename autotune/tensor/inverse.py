"""Value of the extern function `inverse`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.tensor.externs import Array, extern_value


@extern_value("inverse")
def _inverse(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """The inverse of each matrix, computed in float64; NaN where there is none."""
    (given,) = inputs
    matrices = given.astype(np.float64).reshape(-1, *given.shape[-2:])
    found = [_inverse_of(matrix) for matrix in matrices]
    return [np.asarray(found, np.float64).reshape(given.shape)]


def _inverse_of(matrix: Array) -> Array:
    try:
        return np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)
