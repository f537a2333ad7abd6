"""Value of the extern function `coupled_probabilities`: how likely classes are, by how likely they are in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.tensor.externs import Array, extern_value

ROUNDS = 100
"""At most, or as many as there are classes."""

CLOSE = 0.005
"""By the number of classes: how far a round's conditions may be from equal for it to be the last."""

NEVER = 1e-7
"""No probability of a pair is nearer to 0 or to 1."""


@extern_value("coupled_probabilities")
def coupled_probabilities(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """The second method of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise
    Coupling" (JMLR 5, 2004), as libsvm has it: rounds that better one probability after the other, in float64.

    Args:
        inputs: pairs (..., n, n), whose element (i, j) says how likely class i is where the class is i or j; the
            diagonal says nothing.
    """
    (pairs,) = inputs
    n = pairs.shape[-1]
    likely = np.clip(pairs.astype(np.float64), NEVER, 1 - NEVER)
    likely[..., range(n), range(n)] = 0
    q = -likely * likely.swapaxes(-1, -2)
    q[..., range(n), range(n)] = (likely**2).sum(-2)
    p = np.full(pairs.shape[:-1], 1 / n)
    for _ in range(max(ROUNDS, n)):
        product = (q @ p[..., None])[..., 0]
        total = (p * product).sum(-1, keepdims=True)
        far = abs(product - total).max(-1, keepdims=True, initial=0) >= CLOSE / n
        if not far.any():
            break
        p = np.where(far, _bettered(q, p, product, total), p)
    return [p.astype(pairs.dtype)]


def _bettered(q: Array, p: Array, product: Array, total: Array) -> Array:
    """One round: each p[t] by a step that solves its own condition, then all of them to the sum 1."""
    for t in range(p.shape[-1]):
        own, with_t = q[..., t, t, None], product[..., t, None]
        step = (total - with_t) / own
        total = (total + step * (step * own + 2 * with_t)) / (1 + step) ** 2
        product = (product + step * q[..., t, :]) / (1 + step)
        p = (p + step * (np.arange(p.shape[-1]) == t)) / (1 + step)
    return p
