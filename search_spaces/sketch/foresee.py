"""The untuned choice of a sketch: the best of many tilings by what a model expects of them, no kernel built."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.sketch.batch import Batch, Decoder, Integers

SAMPLES = 4000
ROUNDS = 8
PARENTS = 24
CHILDREN = 24
TRIES = 6

Cost = Callable[[Batch], NDArray[np.float64]]
"""What is expected of tilings, lower is faster."""


def foreseen(decoder: Decoder, cost: Cost, seed: str) -> Integers:
    """(rows, knobs) the values of the best tilings that sampling and local descent find, best first.

    Args:
        decoder: of the space.
        cost: a model.
        seed: of the sample; the same for the same seed.
    """
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))
    known, costs = _sampled(decoder, rng), np.empty(0)
    costs = cost(decoder.batch(known))
    for _ in range(ROUNDS):
        best = np.argsort(costs, kind="stable")[:PARENTS]
        children = np.repeat(known[best], CHILDREN, axis=0)
        for _ in range(2):  # one knob, or two
            knob = rng.integers(0, len(decoder.sizes), len(children))
            children[np.arange(len(children)), knob] = rng.integers(0, decoder.sizes[knob])
        fresh = _new(children[decoder.valid(decoder.batch(children))], known)
        if len(fresh):
            known, costs = np.concatenate([known, fresh]), np.concatenate([costs, cost(decoder.batch(fresh))])
    return known[np.argsort(costs, kind="stable")]


def _sampled(decoder: Decoder, rng: np.random.Generator) -> Integers:
    found = np.empty((0, len(decoder.sizes)), np.int64)
    for _ in range(TRIES):
        drawn = rng.integers(0, decoder.sizes, (SAMPLES, len(decoder.sizes)))
        found = np.unique(np.concatenate([found, drawn[decoder.valid(decoder.batch(drawn))]]), axis=0)
        if len(found) >= SAMPLES // TRIES:
            break
    return found


def _new(rows: Integers, known: Integers) -> Integers:
    seen = {row.tobytes() for row in known}
    return np.array([row for row in np.unique(rows, axis=0) if row.tobytes() not in seen], np.int64).reshape(
        -1, known.shape[1]
    )
