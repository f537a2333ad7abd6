"""A conversation with an exported decoder: a prompt, then turns of several and of single tokens behind it.

Two sequences at once, each engine with the caches that it gave before. What a model is given says `axes`: new tokens,
masks as long as all tokens ("total"), and caches ("past").
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import InferenceSession
from autotune.engines.peers import load_peer
from autotune.runtime.difference import max_error

Array = NDArray[Any]
Axes = Mapping[str, Mapping[str, str]]
TURNS = (9, 1, 1, 5, 7, 1, 12, 3, 6, 1, 2, 10)
"""New tokens of each run."""
SEQUENCES = 2
FEW = 8
"""Programs that may be made in all: of the prompt, of turns and single tokens, for each room that caches grow to."""


def is_conversation(axes: Axes) -> bool:
    """Whether the number of new tokens is open."""
    return any("new" in named.values() for named in axes.values())


def talk(path: Path, feeds: Mapping[str, Array], axes: Axes, target: str, limit: float) -> dict[str, Any]:
    """
    Returns:
        seconds: of CPU until the prompt was answered.
        errors: of each run, of the range, against ONNX Runtime.
        programs: that were made in all; `runs`: of how many.
        right: whether all errors are within the limit, in no more programs than `FEW`.
    """
    start = time.process_time()
    session = InferenceSession(path, target=target, database=False)
    ours = _Speaker(lambda given: session.run(None, dict(given)), feeds, axes)
    peer = _Speaker(load_peer("onnxruntime", path, 1, {}).run, feeds, axes)
    rng, errors, seconds = np.random.default_rng(0), dict[str, dict[str, float]](), 0.0
    (known,) = (feeds[name].reshape(-1) for name, named in axes.items() if "new" in named.values())
    for number, count in enumerate(TURNS):
        words = rng.choice(known, (SEQUENCES, count))
        found = ours.says(words)
        seconds = seconds or time.process_time() - start
        errors[f"run {number}, {count} tokens"] = {"peer": max_error(found, peer.says(words))}
    programs = len(session.shapes())
    right = programs <= FEW and all(one["peer"] <= limit for one in errors.values())
    return {"seconds": seconds, "errors": errors, "programs": programs, "runs": len(TURNS), "right": right}


class _Speaker:
    """An engine with its own caches, empty at first; masks hide the first token of the second sequence."""

    def __init__(self, run: Any, feeds: Mapping[str, Array], axes: Axes) -> None:
        self._run = run
        self._named = {name: {label: int(axis) for axis, label in axes.get(name, {}).items()} for name in feeds}
        self._caches = {}
        for name, array in feeds.items():
            if "past" in self._named[name]:
                self._caches[name] = np.zeros(self._shape(name, array, {"past": 0}), array.dtype)
        self._total = 0

    def says(self, words: Array) -> list[Array]:
        self._total += words.shape[1]
        mask = np.ones((SEQUENCES, self._total), np.int64)
        mask[1, 0] = 0
        given = {
            name: mask if "total" in named else words for name, named in self._named.items() if "past" not in named
        }
        found = [np.asarray(one) for one in self._run({**given, **self._caches})]
        self._caches = dict(zip(self._caches, found[1:], strict=True))
        return found

    def _shape(self, name: str, array: Array, extents: Mapping[str, int]) -> tuple[int, ...]:
        shape, named = list(array.shape), self._named[name]
        for label, extent in {"batch": SEQUENCES, **extents}.items():
            if label in named:
                shape[named[label]] = extent
        return tuple(shape)
