"""The untuned choice of a sketch: the best of many tilings by what models expect of them, no kernel built.

A closed form looks at thousands; what it likes, and some that chance likes, a trained model looks at more closely, and
at what is near the best of those.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.sketch.batch import Batch, Decoder, Integers

SAMPLES = 4000
TRIES = 6
LIKED, CHANCE = 192, 64
ROUNDS = 6
PARENTS, CHILDREN = 12, 16

Cost = Callable[[Batch], NDArray[np.float64]]
"""What is expected of tilings, lower is faster."""


def foreseen(decoder: Decoder, rough: Cost, careful: Cost, seed: str) -> Integers:
    """(rows, knobs) the values of the best tilings that sampling and local descent find, best first.

    Args:
        decoder: of the space.
        rough: a model that takes next to no time. `careful`: one that has learned.
        seed: of the sample; the same for the same seed.
    """
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))
    sample, tilings = _sampled(decoder, rng)
    order = np.argsort(rough(tilings), kind="stable")
    first = np.concatenate([order[:LIKED], rng.permutation(order[LIKED:])[:CHANCE]])
    known, costs = sample[first], careful(tilings.take(first))
    seen = {row.tobytes() for row in known}
    for _ in range(ROUNDS):
        best = np.argsort(costs, kind="stable")[:PARENTS]
        children = np.repeat(known[best], CHILDREN, axis=0)
        for _ in range(2):  # one knob, or two
            knob = rng.integers(0, len(decoder.sizes), len(children))
            children[np.arange(len(children)), knob] = rng.integers(0, decoder.sizes[knob])
        tilings = decoder.batch(children)
        valid = np.flatnonzero(decoder.valid(tilings))
        fresh = _new(children, valid[_distinct(children[valid], decoder.sizes)], seen)
        if len(fresh):
            known = np.concatenate([known, children[fresh]])
            costs = np.concatenate([costs, careful(tilings.take(fresh))])
    return np.asarray(known[np.argsort(costs, kind="stable")])


def _sampled(decoder: Decoder, rng: np.random.Generator) -> tuple[Integers, Batch]:
    """Valid tilings, at least a share of `SAMPLES` where there are so many, as numbers of values, and what they say."""
    found = np.empty((0, len(decoder.sizes)), np.int64)
    for _ in range(TRIES):
        drawn = decoder.draw(rng, SAMPLES)
        tilings = decoder.batch(drawn)
        valid = np.flatnonzero(decoder.valid(tilings))
        if len(found):  # those of before, too
            drawn = np.concatenate([found, drawn[valid]])
            tilings, valid = decoder.batch(drawn), np.arange(len(drawn))
        kept = valid[_distinct(drawn[valid], decoder.sizes)]
        found, tilings = drawn[kept], tilings.take(kept)
        if len(found) >= SAMPLES // TRIES:
            break
    return found, tilings


def _distinct(rows: Integers, sizes: Integers) -> Integers:
    """The places of the rows, sorted, each once; `sizes` are above the numbers of each column."""
    if math.prod(sizes.tolist()) > np.iinfo(np.int64).max:
        return np.asarray(np.unique(rows, axis=0, return_index=True)[1])
    steps = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)  # rows as one number each, which sort as the rows do
    return np.asarray(np.unique(rows @ steps, return_index=True)[1])


def _new(rows: Integers, places: Integers, seen: set[bytes]) -> Integers:
    """Of the places of distinct rows those that nobody has seen; they are seen now."""
    texts = [rows[place].tobytes() for place in places]
    fresh = [place for place, text in zip(places.tolist(), texts) if text not in seen]
    seen.update(texts)
    return np.array(fresh, np.int64)
