"""Ours beside ONNX Runtime on one exported model: does it compile, are the answers right, which is faster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import InferenceSession
from autotune.api.exact import exact_outputs
from autotune.engines.compare import compare
from autotune.engines.engine import Engine
from autotune.engines.peers import load_peer
from autotune.errors import AutotuneError
from autotune.runtime.difference import max_error
from autotune.target import Target
from benchmarks.breadth.conversation import is_conversation, talk

Array = NDArray[Any]
LIMIT = 1e-4
TARGET = "native -num-cores=1"
TOKENS = 32


class Session:
    """Our session as an engine."""

    name, version = "autotune", ""

    def __init__(self, model: Path) -> None:
        self._session = InferenceSession(model, target=TARGET, database=False)

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        return self._session.run(None, dict(feeds))


def check(folder: Path, axes: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Compile, and compare the answers on the example's shapes and, with open axes, on larger ones.

    Returns:
        seconds: of CPU until the first answers.
        errors: by shape, of the range, against ONNX Runtime or, beyond `LIMIT`, against float64 beside theirs.
        right: whether all are within `LIMIT` or no further from float64 than ONNX Runtime's.
    """
    path, feeds = folder / "model.onnx", dict(np.load(folder / "feeds.npz"))
    if is_conversation(axes):
        return talk(path, feeds, axes, TARGET, LIMIT)
    start = time.process_time()
    ours = Session(path)
    found = ours.run(feeds)
    seconds = time.process_time() - start
    peer = load_peer("onnxruntime", path, 1, {})
    errors = {"example": _errors(path, feeds, found, peer)}
    if axes:
        larger = grown(feeds, axes)
        try:
            wanted = [np.asarray(one) for one in peer.run(larger)]
        except Exception as error:  # noqa: BLE001  what the exporter fixed nevertheless
            errors["larger"] = {"refused": " ".join(str(error).split())[:200]}
        else:
            errors["larger"] = _errors(path, larger, ours.run(larger), peer, wanted)
    right = all(_right(one) for one in errors.values())
    return {"seconds": seconds, "errors": errors, "right": right}


def _right(error: Mapping[str, Any]) -> bool:
    if "refused" in error or error["peer"] <= LIMIT:
        return True
    return bool(error.get("ours to exact", np.inf) <= max(LIMIT, error.get("peer's to exact", 0.0)))


def _errors(
    path: Path, feeds: Mapping[str, Array], found: Sequence[Array], peer: Engine, wanted: Sequence[Array] | None = None
) -> dict[str, Any]:
    wanted = [np.asarray(one) for one in peer.run(feeds)] if wanted is None else wanted
    ours = max_error(found, wanted)
    errors: dict[str, Any] = {"peer": ours}
    if ours > LIMIT:
        try:
            exact = exact_outputs(path, feeds, {name: array.shape for name, array in feeds.items()})
        except AutotuneError as error:
            return {**errors, "no exact answer": str(error)[:200]}
        errors |= {"ours to exact": max_error(found, exact), "peer's to exact": max_error(wanted, exact)}
    return errors


def grown(feeds: Mapping[str, Array], axes: Mapping[str, Mapping[str, str]]) -> dict[str, Array]:
    """The inputs repeated along their open axes, so that every open dimension has another extent.

    A dimension grows by half, and by one where it is 1; "total" is one more than "past".
    """
    extents: dict[str, int] = {}
    for name, named in axes.items():
        for axis, label in named.items():
            if name in feeds:
                extent = feeds[name].shape[int(axis)]
                extents[label] = extent + max(1, extent // 2)
    if "past" in extents:
        extents["total"] = extents["past"] + 1
    larger = {}
    for name, array in feeds.items():
        shape = list(array.shape)
        for axis, label in axes.get(name, {}).items():
            shape[int(axis)] = extents[label]
        repeats = [-(-new // old) for new, old in zip(shape, array.shape)]
        larger[name] = np.ascontiguousarray(np.tile(array, repeats)[tuple(map(slice, shape))])
    return larger


class Decoding:
    """An engine that is given its caches back, as by who decodes, and begins again after `TOKENS`.

    Args:
        past, masks: the inputs that come out again behind the first output, and those that are as long, each with the
            axis of the tokens.
    """

    def __init__(self, engine: Engine, past: Mapping[str, int], masks: Mapping[str, int]) -> None:
        self._engine, self._past, self._masks = engine, past, masks
        self.name, self.version = engine.name, engine.version
        self._next: dict[str, Array] = {}
        self._tokens = TOKENS

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        if self._tokens >= TOKENS:
            self._next, self._tokens = dict(feeds), 0
        found = self._engine.run(self._next)
        name, axis = next(iter(self._past.items()))
        new = found[1].shape[axis] - self._next[name].shape[axis]
        self._tokens += new
        self._next.update(zip(self._past, found[1:], strict=True))
        for name, axis in self._masks.items():
            mask = self._next[name]
            self._next[name] = np.concatenate([mask, mask.take([-1] * new, axis)], axis)
        return found


def _along(label: str, feeds: Mapping[str, Array], axes: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """The inputs with an open dimension of this name, each with its axis."""
    return {name: int(n) for name in feeds for n, named in axes.get(name, {}).items() if named == label}


def race(folder: Path, axes: Mapping[str, Mapping[str, str]], rounds: int) -> dict[str, Any]:
    """Seconds of both on the example's inputs with one thread, taken in turn, and how many times faster ours is."""
    path, feeds = folder / "model.onnx", dict(np.load(folder / "feeds.npz"))
    engines: list[Engine] = [Session(path), load_peer("onnxruntime", path, 1, {})]
    past, masks = (_along(label, feeds, axes) for label in ("past", "total"))
    if past:
        engines = [Decoding(engine, past, masks) for engine in engines]
    for engine in engines:
        engine.run(feeds)
    found = compare(engines, feeds, Target.parse(TARGET), flops=0, rounds=rounds)
    ours, peer = found.results
    return {
        "ours": ours.seconds, "peer": peer.seconds, "speedup": found.speedup(peer).median,
        "interval": found.speedup(peer).interval, "disturbance": found.disturbance,
    }  # fmt: skip
