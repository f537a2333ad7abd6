"""What the instructions of tilings do: how many products one adds up, and how many start in a cycle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.dot_products import BF16_WIDENING, FOR_ALL_LANES, WIDENING, DotProduct
from autotune.search_spaces.library.register_tile import Steps
from autotune.search_spaces.sketch.batch import Batch, Flags
from autotune.search_spaces.sketch.contraction import Contraction
from autotune.search_spaces.sketch.folding import Folding
from autotune.search_spaces.sketch.rules import folded, narrow
from autotune.target import Target
from autotune.tensor.dtype import DType

Array = NDArray[np.float64]
INTEGER_STEPS = 3
"""Instructions that multiply 32-bit integers, two on most CPUs, and add the product."""


def throughput(c: Contraction, target: Target, kind: str, b: Batch) -> tuple[Array, Array]:
    """(operations per cycle, latency) of the instruction that each tiling sums with.

    Args:
        kind: of the pipe that multiplies and adds without folding.
    """
    many = len(b.vector)
    rates, latencies, height = np.ones(many), np.full(many, Steps.of(target).pipe.latency), b.height.astype(np.float64)
    kinds = (kind, *(f.dot.pipe for f in c.foldings))
    sums_integers = bool(c.total) and c.schedule.state.stage(c.total).stage.outputs[0].dtype.is_int
    plain = INTEGER_STEPS if sums_integers else 1
    for lanes, dot in set(zip(b.lanes.tolist(), b.dot.tolist())):
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
            steps = turns(folding.dot, target) if folding else plain
            rates[chosen], latencies[chosen] = pipe.per_cycle / steps, pipe.latency
    return rates, latencies


def turns(dot: DotProduct, target: Target) -> int:
    """Instructions that take turns of its pipe: those that multiply, and those that add where the same units do."""
    return dot.steps * (1 if dot.adds or target.core.adds_beside_multiplies else 2)


def gains(c: Contraction, target: Target, kind: str) -> Array:
    """How many times as fast as without it each instruction of vectors multiplies at best; 1 where it is slower.

    Those of tiles count as 1, too: they do not take the steps of a tile of accumulators one by one.
    """
    plain, found = target.core.lane_rate(kind, target.vector_bits), [1.0]
    for x in c.foldings:
        found.append(1.0 if x.dot.tiled else max(_lane_products(x, c, target) / plain, 1.0))
    return np.array(found)


def outrun(c: Contraction, target: Target, kind: str) -> bool:
    """Whether there are instructions that fold, and one that does not multiplies faster than each of them.

    Those of tiles are never outrun.
    """
    plain = target.core.lane_rate(kind, target.vector_bits)
    return bool(c.foldings) and all(not x.dot.tiled and _lane_products(x, c, target) < plain for x in c.foldings)


def _lane_products(x: Folding, c: Contraction, target: Target) -> float:
    """Bits of vector in whose lanes an instruction adds up, per cycle at best, times the products of a lane."""
    best = max(target.core.lane_rate(x.dot.pipe, target.vector_bits * lanes // c.lanes) for lanes in x.lanes)
    return best * x.dot.extent / turns(x.dot, target)


def dominated(c: Contraction, target: Target, kind: str) -> frozenset[str]:
    """Instructions beside which there is a faster one that multiplies the same elements as they lie."""
    known = [(x, gain) for x, gain in zip(c.foldings, gains(c, target, kind)[1:]) if not x.dot.tiled]
    return frozenset(
        x.dot.name for x, gain in known for y, other in known
        if other > gain and (x.axis, x.dot.extent) == (y.axis, y.dot.extent) and set(x.lanes) <= set(y.lanes)
    )  # fmt: skip


def interleaving(dot: DotProduct) -> int:
    """Instructions that make a vector of as many rows as one folds: they are joined two by two, turned, and merged."""
    return 2 * dot.extent - 1


def preparing(c: Contraction, target: Target, b: Batch, packs: Flags, left: Sequence[Array]) -> Array:
    """Instructions of a step of a tile that make what is multiplied: numbers widened, vectors interleaved.

    Args:
        packs: per tiling and factor, whether it lies in panels.
        left: per factor that is read, the share of its loads that are left: what is loaded once is widened once.
    """
    total = np.zeros(len(b.vector))
    widened = narrow(c, target)
    for f, share in ((f, share) for f, share in zip(c.reads, left, strict=True) if f in widened):
        moves = np.array([a.name in f.axes() for a in c.spatial])
        vector = BF16_WIDENING if c.schedule.state.tensor(f.tensor).dtype is DType.bf16 else 1
        each = np.where(moves[b.vector], vector, FOR_ALL_LANES)
        total += np.where(b.dot == 0, share * each * np.where(moves[None, :], b.tile, 1.0).prod(1), 0.0)
    for n, x in enumerate(c.foldings, 1):
        for k, f in enumerate(c.factors):
            moves = np.array([a.name in f.axes() for a in c.spatial])
            step = f.stride(c.reduce[x.axis].name)
            shuffles = np.where(b.lanes == step, 1.0, interleaving(x.dot))
            apart = (step != 1) & ~packs[:, k] & moves[b.vector]
            each = np.where(apart, shuffles, 0.0) + (WIDENING if x.dot.widened else 0.0)
            total += np.where(b.dot == n, each * np.where(moves[None, :], b.tile, 1.0).prod(1), 0.0)
    return total


def folded_products(c: Contraction, b: Batch) -> Array:
    """Products of a sum that one instruction adds up; some are of zeros that are added to fill it."""
    found = np.ones(len(b.vector))
    for n, folding in enumerate(c.foldings, 1):
        used = c.reduce[folding.axis].extent / folding.extent
        for depth in np.unique(b.depth[b.dot == n]):
            each = np.array([max(folded(c, folding, x, int(depth)), 1) * used for x in c.terms()])
            found = np.where((b.dot == n) & (b.depth == depth), each[b.terms[:, -1]], found)
    return found
