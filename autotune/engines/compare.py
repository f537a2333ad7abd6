"""Compare: engines loaded side by side, called in turn (A B C C B A ...), their answers checked against one another."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from autotune.engines.engine import Array, Engine, Feeds
from autotune.engines.streams import Streams
from autotune.engines.turns import Percentiles, Turn, take_turn
from autotune.measure.peaks import FmaPeak, doubt_of
from autotune.measure.quiet import Watch
from autotune.measure.ratio import Ratio
from autotune.measure.timing import interleave, latency, spread
from autotune.runtime.difference import max_error
from autotune.target import Target

_TURN_SECONDS = 0.02
_STREAMS_SECONDS = 0.25  # long against the moment in which only some of the streams still run
_PAUSE_SECONDS = 0.06  # threads of the engine before spin on, those of ONNX Runtime for 40 ms
ALLOWED_ERROR = 1e-3
"""Of the range of an output, between two fp32 engines; a wrong kernel is far outside, another order of sums inside."""


@dataclass(frozen=True, slots=True)
class EngineResult:
    """One engine of a comparison.

    Attributes:
        seconds: latency, the median of the rounds; of several streams, of the calls.
        spread: (median - minimum) / minimum of the samples.
        gflops: 1e9 operations of the model per second; `peak_share`: of the FMA peak, which ran in the same rounds.
        max_error: largest difference from the right outputs, relative to each output's range; None for the engine that
            they are of, or without any.
        samples: seconds per call of each round; of several streams, of all together.
        calls: seconds of each single call.
    """

    name: str
    version: str
    seconds: float
    spread: float
    gflops: float
    peak_share: float
    max_error: float | None
    samples: tuple[float, ...] = field(repr=False)
    calls: tuple[float, ...] = field(default=(), repr=False)

    @property
    def percentiles(self) -> Percentiles:
        return Percentiles.of(self.calls or self.samples)

    @property
    def throughput(self) -> float:
        """Runs per second, of all streams together; the median of the rounds."""
        return 1 / latency(self.samples)

    def to_dict(self) -> dict[str, object]:
        """As JSON can hold it: an error that is not finite is None; of the calls, how many there were."""
        found = self.max_error
        return {
            **asdict(self),
            "max_error": found if found is not None and math.isfinite(found) else None,
            "calls": len(self.calls),
            **asdict(self.percentiles),
            "throughput": self.throughput,
        }


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
        """All of it but the single calls, as JSON can hold it."""
        return {
            "rounds": self.rounds,
            "peak_gflops": self.peak_gflops,
            "peak_doubt": self.peak_doubt,
            "disturbance": self.disturbance,
            "engines": [
                {
                    **one.to_dict(),
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
    seconds: float | None = None,
    warm_up: float = 0.0,
    reference: str = "onnxruntime",
    right: Sequence[Array] | None = None,
) -> Comparison:
    """Time engines that are loaded, on the same inputs.

    Args:
        engines: `Streams` among them run all of their sessions at once.
        target: says how many threads the peak is measured on; the engines were loaded with as many.
        flops: of one inference.
        seconds: how long, instead of `rounds`: a round that was begun is finished, so it takes a little longer.
        warm_up: seconds that each engine runs before the first round.
        reference: name of the engine whose outputs are right; nothing is checked without it.
        right: the right outputs, instead of an engine's.
    """
    outputs = {engine.name: [np.array(array) for array in engine.run(feeds)] for engine in engines}
    lanes = [_Lane(engine, feeds, alone=len(engines) == 1) for engine in engines]
    for lane in lanes if warm_up else ():
        lane.run(warm_up)
    probe, watch = FmaPeak(target), Watch(target.num_threads)
    samples = interleave([*(lane.turn for lane in lanes), probe.run], rounds, seconds)
    disturbance = watch.look().describe()
    peak = max(samples.pop())
    wanted = outputs.get(reference) if right is None else right
    results = []
    for lane, rounds_of_one in zip(lanes, samples, strict=True):
        engine = lane.engine
        gflops = flops / latency(rounds_of_one) * 1e-9
        error = None if wanted is None or wanted is outputs[engine.name] else max_error(outputs[engine.name], wanted)
        results.append(
            EngineResult(
                engine.name,
                engine.version,
                latency(lane.calls if isinstance(engine, Streams) else rounds_of_one),
                spread(rounds_of_one),
                gflops,
                gflops / peak,
                error,
                tuple(rounds_of_one),
                tuple(lane.calls),
            )
        )
    return Comparison(tuple(results), peak, len(samples[0]), doubt_of(target, peak), disturbance)


class _Lane:
    """An engine and the calls that it has made in its turns."""

    def __init__(self, engine: Engine, feeds: Feeds, alone: bool) -> None:
        self.engine, self._feeds, self._pause = engine, feeds, 0.0 if alone else _PAUSE_SECONDS
        self.calls: list[float] = []

    def turn(self) -> float:
        """One turn: a call that does not count, since the others have used the caches, then calls for a moment.

        Returns:
            seconds per call.
        """
        time.sleep(self._pause)
        self.run(0.0)
        found = self.run(_STREAMS_SECONDS if isinstance(self.engine, Streams) else _TURN_SECONDS)
        self.calls += found.calls
        return 1 / found.rate

    def run(self, seconds: float) -> Turn:
        if isinstance(self.engine, Streams):
            return self.engine.turn(self._feeds, seconds)
        return take_turn(self.engine, self._feeds, seconds)
