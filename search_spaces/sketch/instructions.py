"""What the instructions of tilings do: how many products one adds up, and how many start in a cycle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.rules import folded
from autotune.target import Target

Array = NDArray[np.float64]
INTEGER_STEPS = 3
"""Instructions that multiply 32-bit integers, two on most CPUs, and add the product."""


def throughput(c: Contraction, target: Target, kind: str, b: Batch) -> tuple[Array, Array]:
    """(operations per cycle, latency) of the instruction that each tiling sums with.

    Args:
        kind: of the pipe that multiplies and adds without folding.
    """
    many = len(b.vector)
    rates, latencies, height = np.ones(many), np.full(many, 4.0), b.height.astype(np.float64)
    kinds = (kind, *(f.dot.pipe for f in c.foldings))
    sums_integers = bool(c.total) and c.schedule.state.stage(c.total).stage.outputs[0].dtype.is_int
    plain = INTEGER_STEPS if sums_integers else 1
    for lanes, dot in {(int(w), int(d)) for w, d in zip(b.lanes, b.dot)}:
        pipe = target.core.pipe(kinds[dot], target.vector_bits * lanes // c.lanes)
        chosen = (b.lanes == lanes) & (b.dot == dot)
        if pipe is None:
            continue
        folding = c.foldings[dot - 1] if dot else None
        if folding and folding.dot.tiled:
            # Row after row, so that a chain of them waits for nothing, but none takes less than `latency`.
            rates[chosen] = 1 / np.maximum(height[chosen] / pipe.per_cycle, pipe.latency)
            latencies[chosen] = 1 / rates[chosen]
        else:
            steps = folding.dot.steps if folding else plain
            rates[chosen], latencies[chosen] = pipe.per_cycle / steps, pipe.latency
    return rates, latencies


def gains(c: Contraction, target: Target, kind: str) -> Array:
    """How many times as fast as without it each instruction of vectors multiplies at best; 1 where it is slower.

    Those of tiles count as 1, too: they do not take the steps of a tile of accumulators one by one.
    """
    plain, found = target.core.lane_rate(kind, target.vector_bits), [1.0]
    for folding in c.foldings:
        bits = [target.vector_bits * lanes // c.lanes for lanes in folding.lanes]
        best = max(target.core.lane_rate(folding.dot.pipe, width) for width in bits) / folding.dot.steps
        found.append(1.0 if folding.dot.tiled else max(best * folding.dot.extent / plain, 1.0))
    return np.array(found)


def folded_products(c: Contraction, b: Batch) -> Array:
    """Products of a sum that one instruction adds up; some are of zeros that are added to fill it."""
    found = np.ones(len(b.vector))
    for n, folding in enumerate(c.foldings, 1):
        used = c.reduce[folding.axis].extent / folding.extent
        for depth in np.unique(b.depth[b.dot == n]):
            each = np.array([max(folded(c, folding, x, int(depth)), 1) * used for x in c.terms()])
            found = np.where((b.dot == n) & (b.depth == depth), each[b.terms[:, -1]], found)
    return found
