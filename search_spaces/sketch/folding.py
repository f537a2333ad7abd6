"""Instructions that add up neighbours of a sum, and what they ask of where its factors lie."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.schedule.dot_products import DOT_PRODUCTS, LANES, TILE_LANES, DotProduct
from autotune.schedule.state import StageState
from autotune.search_spaces.sketch.factor import Factor
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast
from autotune.tensor.stage import Axis as StageAxis


@dataclass(frozen=True, slots=True)
class Folding:
    """The use of an instruction.

    Attributes:
        dot: folds neighbours.
        axis: number of the reduce axis along which they are.
        lanes: that it may have.
        extent: of that axis with what is added to it, zeros, to be a multiple of what is folded.
        panels: per factor, whether it must lie in panels, since its memory ends where the axis does.
        zeros: per factor, whether its own memory goes on with zeros there. A copy of it does not.
        upright: of an instruction of tiles, per spatial axis along which vectors lie, the axis along which rows do;
            -1 where there is none.
    """

    dot: DotProduct
    axis: int
    lanes: tuple[int, ...]
    extent: int
    panels: tuple[bool, ...]
    zeros: tuple[bool, ...]
    upright: tuple[int, ...] = ()

    def height(self, extent: int) -> int:
        """Rows of a tile along an axis: all tiles have about as many."""
        return -(-extent // -(-extent // self.dot.rows))


def has_tiles(target: Target, *types: DType) -> bool:
    """Whether the CPU has instructions on tile registers; if types are given, one that multiplies these two."""
    known = (d for d in DOT_PRODUCTS.values() if d.tiled and (not types or d.multiplies(*types)))
    return any(d.runs(target.features, TILE_LANES) for d in known)


def folding_of(s: StageState, dot: DotProduct, factors: list[Factor], target: Target) -> Folding | None:
    """How an instruction folds the terms of a stage: along the last axis of which it can."""
    body, most = s.stage.body[0], target.lanes(dot.total.bytes)
    lanes = tuple(n for n in LANES if n <= most and dot.runs(target.features, n))
    if not lanes or body.dtype is not dot.total or not isinstance(body, Binary) or body.op != "mul":
        return None
    if not dot.multiplies(*(e.a.dtype if isinstance(e, Cast) else None for e in (body.a, body.b))):
        return None
    upright = tuple(_upright(s, a, factors) for a in s.stage.axes) if dot.tiled else ()
    if dot.tiled and max(upright) < 0:
        return None
    found = []
    for n, a in enumerate(s.stage.reduce_axes):
        if not all(a.name in f.axes() for f in factors):
            continue
        extent = -(-a.extent // dot.extent) * dot.extent
        panels = tuple(f.room(a.name) < extent for f in factors)
        # Whatever an integer is, zero times it is zero; a float may be infinite.
        zeros = tuple(dot.total.is_int and f.plain and (f.constant or not ends) for f, ends in zip(factors, panels))
        beside = all(_beside(f, a.name, dot, ends) for f, ends in zip(factors, panels))
        if beside and (extent == a.extent or any(zeros)):
            found.append(Folding(dot, n, lanes, extent, panels, zeros, upright))

    def cost(f: Folding) -> tuple[int, float]:
        axis = s.stage.reduce_axes[f.axis]
        return sum(x.stride(axis.name) or 0 for x in factors if not x.plain), f.extent / axis.extent

    return min(found, key=cost, default=None)


def _upright(s: StageState, vector: StageAxis, factors: list[Factor]) -> int:
    """The axis along which rows of tiles lie where vectors lie along another: the longest that leads evenly through
    the one factor that stays in place along that, and not through the other."""
    still, moving = ([f for f in factors if (vector.name in f.axes()) is along] for along in (False, True))
    if len(still) != 1 or len(moving) != 1 or not moving[0].plain:
        return -1
    (left,), (right,) = still, moving
    fitting = [
        n
        for n, a in enumerate(s.stage.axes)
        if a.extent > 1 and a.name in left.axes() and a.name in left.even and a.name not in right.axes()
    ]
    return max(fitting, key=lambda n: (s.stage.axes[n].extent, n), default=-1)


def _beside(f: Factor, axis: str, dot: DotProduct, panels: bool) -> bool:
    """Groups of neighbours along the axis lie evenly apart, or can be laid side by side, as they must with `panels`.

    Instructions of tiles read memory as it is: there the neighbours must be neighbours.
    """
    if dot.tiled:
        return (f.stride(axis) == 1 and not panels) or f.plain
    return (f.stride(axis) is not None and dict(f.runs)[axis] % dot.extent == 0 and not panels) or f.plain
