"""Compare: engines loaded side by side, called in turn (A B C C B A ...), their answers checked against one another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from autotune.engines.engine import Array, Engine, Feeds
from autotune.measure.peaks import FmaPeak, doubt_of
from autotune.measure.quiet import Watch
from autotune.measure.ratio import Ratio
from autotune.measure.timing import interleave, latency, spread
from autotune.runtime.difference import max_error
from autotune.target import Target

_TURN_SECONDS = 0.02
_PAUSE_SECONDS = 0.06  # threads of the engine before spin on, those of ONNX Runtime for 40 ms
ALLOWED_ERROR = 1e-3
"""Of the range of an output, between two fp32 engines; a wrong kernel is far outside, another order of sums inside."""


@dataclass(frozen=True, slots=True)
class EngineResult:
    """One engine of a comparison.

    Attributes:
        seconds: latency, the median of the rounds.
        spread: (median - minimum) / minimum of the rounds.
        gflops: 1e9 operations of the model per second; `peak_share`: of the FMA peak, which ran in the same rounds.
        max_error: largest difference from the right outputs, relative to each output's range; None for the engine that
            they are of, or without any.
        samples: seconds of each round.
    """

    name: str
    version: str
    seconds: float
    spread: float
    gflops: float
    peak_share: float
    max_error: float | None
    samples: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    Attributes:
        results: in the order of the engines.
        peak_gflops: the best FMA probe of the same rounds, on all threads.
        peak_doubt: why it is likely too low, in words; empty when nothing speaks against it.
        disturbance: what other programs took of the cores meanwhile, in words; empty when it was quiet.
    """

    results: tuple[EngineResult, ...]
    peak_gflops: float
    rounds: int
    peak_doubt: str = ""
    disturbance: str = ""

    def to_dict(self) -> dict[str, object]:
        """All of it, as JSON can hold it: an error that is not finite is None."""
        return {
            "rounds": self.rounds,
            "peak_gflops": self.peak_gflops,
            "peak_doubt": self.peak_doubt,
            "disturbance": self.disturbance,
            "engines": [
                {
                    **asdict(one),
                    "max_error": one.max_error if one.max_error is not None and math.isfinite(one.max_error) else None,
                    "speedup": self.speedup(one).median,
                    "speedup_interval": self.speedup(one).interval,
                }
                for one in self.results
            ],
        }

    def speedup(self, peer: EngineResult) -> Ratio:
        """How many times faster than the peer the first engine is, round by round."""
        return Ratio.of(self.results[0].samples, peer.samples)


def compare(
    engines: Sequence[Engine],
    feeds: Feeds,
    target: Target,
    *,
    flops: int,
    rounds: int = 20,
    reference: str = "onnxruntime",
    right: Sequence[Array] | None = None,
) -> Comparison:
    """Time engines that are loaded, on the same inputs.

    Args:
        target: says how many threads the peak is measured on; the engines were loaded with as many.
        flops: of one inference.
        reference: name of the engine whose outputs are right; nothing is checked without it.
        right: the right outputs, instead of an engine's.
    """
    outputs = {engine.name: [np.array(array) for array in engine.run(feeds)] for engine in engines}
    probe, watch = FmaPeak(target), Watch(target.num_threads)
    samples = interleave([*(_turn(engine, feeds) for engine in engines), probe.run], rounds)
    disturbance = watch.look().describe()
    peak = max(samples.pop())
    wanted = outputs.get(reference) if right is None else right
    results = []
    for engine, rounds_of_one in zip(engines, samples, strict=True):
        seconds = latency(rounds_of_one)
        gflops = flops / seconds * 1e-9
        error = None if wanted is None or wanted is outputs[engine.name] else max_error(outputs[engine.name], wanted)
        results.append(
            EngineResult(
                engine.name,
                engine.version,
                seconds,
                spread(rounds_of_one),
                gflops,
                gflops / peak,
                error,
                tuple(rounds_of_one),
            )
        )
    return Comparison(tuple(results), peak, rounds, doubt_of(target, peak), disturbance)


def _turn(engine: Engine, feeds: Feeds) -> Callable[[], float]:
    """One turn: a call that is not timed, since the others have used the caches, then calls for some milliseconds."""

    def turn() -> float:
        time.sleep(_PAUSE_SECONDS)
        engine.run(feeds)
        calls, start = 0, time.perf_counter()
        while True:
            engine.run(feeds)
            calls += 1
            spent = time.perf_counter() - start
            if spent >= _TURN_SECONDS:
                return spent / calls

    return turn
