"""What the cost model is told of a convolution's loops beside its knobs: products that trees learn slowly.

They follow from the knobs in microseconds; scheduling and lowering a candidate to count the same takes thousands.
What they bring was measured on stored trials: docs/concepts/search.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from autotune.ops.conv import Conv
from autotune.search_spaces.operators.conv2d_winograd_cost import Blocking, Cost
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Derived
from autotune.target import Target

LANE_BYTES = 4


def direct_numbers(p: Conv, target: Target, cycles: Callable[[Config], float]) -> tuple[Derived, ...]:
    """For tiles of `oh_tile` × `ow_tile` pixels and `oc_vectors` vectors of `lanes` output channels.

    Args:
        cycles: an estimate of the whole, as the untuned choice makes it.
    """

    def block(c: Config) -> int:
        return c.get_int("oc_vectors") * c.get_int("lanes")

    def window(c: Config) -> int:
        """Pixels of the image that a tile reads."""
        tile = (c.get_int("oh_tile"), c.get_int("ow_tile"))[-p.rank :]
        sides = zip(tile, p.stride[-2:], p.dilation[-2:], p.window[-2:], strict=True)
        return math.prod((n - 1) * stride + (taps - 1) * dilation + 1 for n, stride, dilation, taps in sides)

    def shares(c: Config) -> float:
        rows = p.n * -(-p.k // block(c)) * math.prod(p.out[:-1]) / c.get_int("oh_tile")
        return rows / target.num_threads

    def body(c: Config) -> int:
        taps = p.window[-1] if c.get_bool("unroll_kw") else 1
        return _pixels(c, "oh_tile", "ow_tile") * c.get_int("oc_vectors") * c.get_int("ic_unroll") * taps

    per_group = p.c // p.groups
    return (
        *_tile("oh_tile", "ow_tile", p.ow),
        Derived("cycles", cycles),
        Derived("weight_bytes", lambda c: per_group * p.taps * block(c) * LANE_BYTES),
        Derived("image_bytes", lambda c: window(c) * per_group * LANE_BYTES),
        Derived("body", body),
        Derived("balance", lambda c: shares(c) / math.ceil(shares(c))),
        Derived("channels_used", lambda c: p.k / (-(-p.k // block(c)) * block(c))),
    )


def winograd_numbers(cost: Cost, blocking: Callable[[Config], Blocking]) -> tuple[Derived, ...]:
    """For Winograd in blocks of `rows` rows of tiles, multiplied `th_tile` × `tw_tile` tiles at a time."""
    p, target, points = cost.p, cost.target, cost.points
    lanes, (along, columns) = target.lanes(LANE_BYTES), cost.tiles

    def once(c: Config) -> bool:
        return c.get_str("transform") == "once"

    def scratch(c: Config) -> int:
        channels = (0 if once(c) else p.c) + c.get_int("oc_vectors") * lanes
        return points * columns * c.get_int("rows") * channels * LANE_BYTES

    def shares(c: Config) -> float:
        outer = p.k / (c.get_int("oc_vectors") * lanes) if once(c) else along / c.get_int("rows")
        return p.n * outer / target.num_threads

    return (
        *_tile("th_tile", "tw_tile", columns),
        Derived("cycles", lambda c: cost.cycles(blocking(c))),
        Derived("scratch_bytes", scratch),
        Derived("weight_bytes", lambda c: points * p.c * c.get_int("oc_vectors") * lanes * LANE_BYTES),
        Derived("image_bytes", lambda c: p.c * _pixels(c, "th_tile", "tw_tile") * LANE_BYTES),
        Derived("body", lambda c: _pixels(c, "th_tile", "tw_tile") * c.get_int("oc_vectors") * c.get_int("ic_unroll")),
        Derived("balance", lambda c: shares(c) / math.ceil(shares(c))),
    )


def _tile(height: str, width: str, columns: int) -> tuple[Derived, ...]:
    """Of the register tile: its sums, the registers alive, multiply-adds per load, and how it divides the columns."""

    def sums(c: Config) -> int:
        return c.get_int("oc_vectors") * _pixels(c, height, width)

    def loads(c: Config) -> int:
        return c.get_int("oc_vectors") + _pixels(c, height, width)

    return (
        Derived("sums", sums),
        Derived("live_vectors", lambda c: sums(c) + min(c.get_int("oc_vectors"), _pixels(c, height, width)) + 1),
        Derived("reuse", lambda c: sums(c) / loads(c)),
        Derived("columns_used", lambda c: columns / (-(-columns // c.get_int(width)) * c.get_int(width))),
        Derived("columns_left", lambda c: columns % c.get_int(width)),
    )


def _pixels(c: Config, height: str, width: str) -> int:
    return c.get_int(height) * c.get_int(width)
