"""Winograd's filtering as products of matrices (`autotune.ops.winograd_matrices`): tiles are transformed in a pass, the
products are a contraction as any other, of which the point is one more axis, and outputs are made of them in a pass.

What large images have of transformed tiles no cache holds. Then rows of tiles, or whole images, go through all three
one block after the other, and threads share the blocks.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import NamedTuple

from autotune.cost_model.expected import behind_caches
from autotune.errors import ScheduleError
from autotune.ops import winograd, winograd_matrices
from autotune.ops.conv import Conv
from autotune.ops.registry import lookup
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.editor import Editor
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.anchored import anchored
from autotune.search_spaces.operators.conv2d_shape import sizes
from autotune.search_spaces.operators.conv2d_winograd import distant, layouts_of_tiles, made_inputs, made_outputs
from autotune.search_spaces.operators.conv2d_winograd_cost import SCATTERED
from autotune.search_spaces.sketch.contraction import Contraction, analysed, with_one_output
from autotune.search_spaces.sketch.space import MOST_ROWS, MOST_VECTORS
from autotune.search_spaces.sketch.template import AMONG_ALGORITHMS, SketchedContraction
from autotune.search_spaces.sketch.tiling import Tiles
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

TILES, PRODUCTS, WINDOWS, UNROUNDED = "wino_v", "wino_m", "wino_u", "wino_vf"
HEIGHTS = range(4, MOST_ROWS + 1)
"""Rows of register tiles worth having: of a block, which has no code for the rest of one, some of them divides it."""
POINT, RESULT, TILE, FILTER = range(4)
"""Axes of the products: points of a tile, results, as images have them, tiles and filters."""


class Block(NamedTuple):
    """What goes through all passes at once: so many volumes, or images, and rows of tiles of each."""

    images: int
    rows: int


@functools.lru_cache(maxsize=512)
def _products(name: str, workload: Workload, target: Target) -> Contraction | None:
    """The contraction of the products; None where they are none that tiles of vectors fit, or no faster for bf16."""
    anchor, (tile, rounds) = workload.anchor, winograd_matrices.ALGORITHMS[name]
    if anchor is None or anchor.op not in winograd.OPERATORS or not workload.is_constant(anchor.inputs[1]):
        return None
    size, types = sizes(workload), workload.types()
    lanes = target.lanes(DType.f32.bytes)
    whole = size.c % lanes == 0 and size.k % lanes == 0 and min(size.oh, size.ow) >= 2 and min(size.n, size.c) > 0
    others = all(node is anchor or lookup(node.op).elementwise for node in workload.nodes)
    if not whole or not others or {DType(types[i].dtype) for i in anchor.inputs} != {DType.f32}:
        return None
    if not winograd.allowed(size, tile, rounds) or with_one_output(workload, name) is None:
        return None
    try:
        schedule = anchored(workload, name, TILES, WINDOWS).schedule.precompute(WINDOWS).cache_write(PRODUCTS)
    except ScheduleError:
        return None
    # As the result lies, so that vectors of either follow one another.
    schedule = schedule.layout(PRODUCTS, Layout.blocked(4, [(3, lanes)], order=(0, 1, 3, 2)))
    layouts = layouts_of_tiles(workload, tile, target)
    found = analysed(schedule, layouts, f"{PRODUCTS}.c", PRODUCTS, target, fixed=TILES)
    if found is None:
        return None
    vectors = tuple(x for x in found.foldings if not x.dot.tiled and target.core.folding(x.dot.pipe, x.dot.extent) > 1)
    if rounds is not None and (not vectors or len(vectors) < len(found.foldings)):
        return None  # tiles multiply so much faster that transforms would take longer
    block = block_of(size, tile, rounds, target)
    return _of_a_block(replace(found, foldings=vectors, folded=rounds is not None), size, tile, block)


def _of_a_block(c: Contraction, size: Conv, tile: winograd.Tile, block: Block | None) -> Contraction:
    """What of the products is computed at once, and what tiles divide: where a part ends is another place in each turn,
    which code for the rest of a tile would have to ask; and vectors of results that are left over would make a panel of
    their own for each point, which nobody asks for in time."""
    vectors = c.spatial[FILTER].extent // c.lanes
    divided = (FILTER,) if any(vectors % n == 0 for n in range(2, MOST_VECTORS + 1)) else ()
    if block is None:
        return replace(c, divided=divided)
    rows, _ = _grid(size, tile)
    parts = {RESULT: (block.images, size.n), TILE: (block.rows, rows)}

    def part(extent: int, dimension: int) -> int:
        some, of = parts.get(dimension, (1, 1))
        return extent * some // of

    spatial = tuple(replace(a, extent=part(a.extent, n)) for n, a in enumerate(c.spatial))
    factors = tuple(
        f if f.constant else replace(f, shape=tuple(part(n, d) for d, n in enumerate(f.shape))) for f in c.factors
    )
    return replace(c, spatial=spatial, factors=factors, inside=True, divided=(POINT, RESULT, TILE, *divided))


@functools.lru_cache(maxsize=512)
def block_of(size: Conv, tile: winograd.Tile, rounds: DType | None, target: Target) -> Block | None:
    """What should take the least time of all blocks; None for all at once, whose passes threads share.

    Time is what the caches do not hold: windows, which each block reads anew, and lines that passes write and read,
    each a matrix away from the one before; and of the products, what threads wait for the last block.
    """
    rows, columns = _grid(size, tile)
    points, threads = math.prod(winograd.edges(size, tile)), target.num_threads
    apart, results = winograd.apart(size), math.prod(size.out[:-2])
    factor = rounds or DType.f32
    windows = points * apart.c * size.k * factor.bytes
    row = points * columns * (apart.c * results * factor.bytes + size.k * results * DType.f32.bytes)
    pipe = target.core.pipe("dot.bf16" if factor is DType.bf16 else "fma.f32", target.vector_bits)
    lanes = target.lanes(DType.f32.bytes) * (2 if factor is DType.bf16 else 1)
    products = winograd.multiplications(size, tile) / (lanes * (pipe.per_cycle if pipe else 1.0))
    (_, _), (near, l3), (far, memory) = behind_caches(target)

    def again(used: int) -> float:
        """Cycles that a byte takes that was read when so many others were used between: none of it is left or all."""
        return 0.0 if used <= near else 1 / (l3 if used <= far else memory)

    def behind(used: int) -> float:
        """Cycles that a byte takes of so many that were just written."""
        return max(0.0, 1 - near / used) / l3 + max(0.0, 1 - far / used) / memory

    def cycles(block: Block | None) -> float:
        many = size.n * rows if block is None else block.images * block.rows
        count = size.n * rows // many
        lone = 1.0 if block is None else -(-count // threads) * threads / count
        passed = (1 + SCATTERED) * size.n * rows * row * behind(many * row)
        return lone * (products + (count - 1) * windows * again(windows + many * row) + passed) / threads

    parts = [Block(1, n) for n in range(1, rows) if rows % n == 0]
    parts += [Block(n, rows) for n in range(1, size.n) if size.n % n == 0]
    whole = [part for part in parts if any(part.rows * columns % n == 0 for n in HEIGHTS)]
    return min((None, *reversed(whole)), key=cycles)


def _grid(size: Conv, tile: winograd.Tile) -> tuple[int, int]:
    """Rows and columns of tiles of an image."""
    return -(-size.oh // tile.rows), -(-size.ow // tile.columns)


class _Winograd(SketchedContraction):
    """Rules of one tile: its products, and what is around, before and behind them."""

    tile: winograd.Tile
    rounds: DType | None

    def placed(self, schedule: Schedule, workload: Workload, target: Target) -> Schedule:
        """Loops of the output, and the products in those over blocks."""
        edit, size, lanes = Editor(schedule), sizes(workload), target.lanes(DType.f32.bytes)
        block = block_of(size, self.tile, self.rounds, target)
        (out,) = schedule.compute.outputs
        n, k, *deep, oh, ow = (a.name for a in edit.stage(out).stage.axes)
        row, i = edit.split(out, oh, self.tile.rows)
        column, j = edit.split(out, ow, self.tile.columns)
        over, lane = edit.split(out, k, lanes)
        shared, inside = [n, *deep, over, row], list[str]()
        if block is not None:
            images, n = edit.split(out, n, block.images)
            rows, row = edit.split(out, row, block.rows)
            shared, inside = [images, rows], [n, *deep, over, row]
        edit.order(out, [*shared, *inside, column, i, j, lane])
        edit.unroll(out, [j])
        edit.vectorize(out, lane)
        around = edit.fuse(out, shared)
        edit.parallel(out, around)
        edit.schedule = made_outputs(edit.schedule, out, column, i, lanes, target.num_vector_registers)
        if block is not None:
            edit.compute_at(PRODUCTS, out, around)
        return edit.schedule

    def finished(self, schedule: Schedule, nest: Tiles, workload: Workload, target: Target) -> Schedule:
        """Tiles transformed before they are multiplied, a vector of channels of each at a time."""
        edit, size, lanes = Editor(schedule), sizes(workload), target.lanes(DType.f32.bytes)
        if (at := edit.stage(PRODUCTS).at) is not None:
            edit.compute_at(TILES, *at)
        p, n, t, c = (a.name for a in edit.stage(TILES).stage.axes)
        over, lane = edit.split(TILES, c, lanes)
        xi, nu = edit.split(TILES, p, winograd.edges(size, self.tile)[1])
        row, column = edit.split(TILES, t, _grid(size, self.tile)[1])
        outside = [n, row, over]
        sums = [a.name for a in edit.stage(TILES).stage.reduce_axes]
        edit.order(TILES, [*outside, column, xi, nu, *sums, lane])
        edit.unroll(TILES, [nu, *sums])
        edit.vectorize(TILES, lane)
        if not sums:  # rounded, once they are added up
            edit.compute_at(UNROUNDED, TILES, nu, REGISTER)
            *still, along = (a.name for a in edit.stage(UNROUNDED).stage.axes)
            (few,) = (a.name for a in edit.stage(UNROUNDED).stage.reduce_axes)
            edit.layout(UNROUNDED, Layout.blocked(4, [(3, lanes)]))
            edit.order(UNROUNDED, [*still, few, along])
            edit.unroll(UNROUNDED, [few])
            edit.vectorize(UNROUNDED, along)
        if edit.stage(TILES).at is None:
            edit.parallel(TILES, edit.fuse(TILES, outside))
        image = distant(workload, target)
        return made_inputs(edit.schedule, column, xi, lanes, image, target.num_vector_registers)


def _rules(op: str, name: str) -> None:
    class Rules(_Winograd):
        algorithm = name
        tile, rounds = winograd_matrices.ALGORITHMS[name]
        look = staticmethod(functools.partial(_products, name))

    own = f"{op}.{name.removesuffix('_matrices')}" if Rules.rounds is None else ""
    template(f"{op}.{name}", op=op, priority=AMONG_ALGORITHMS, strict=False, lone=True, stands_in_for=own)(Rules)


for _op, _name in itertools.product(winograd.OPERATORS, winograd_matrices.ALGORITHMS):
    _rules(_op, _name)
