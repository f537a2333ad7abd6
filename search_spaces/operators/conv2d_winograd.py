"""Winograd convolution with tiles of 2 to 6 outputs a side: a batch of small matrix products between transforms.

Transformed weights are prepared at compile time. Tiles are taken in blocks of rows, so that what lies between the
transforms stays in L2 (Jia et al., PPoPP'18; register tiling as in the direct template). Transformed inputs are made
either per block (few channels) or once for all output channels, shared by the threads (few tiles).

Of bytes, transformed numbers have 16 bits, of which one instruction multiplies pairs: channels that lie side by side.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

from autotune.ops import winograd, winograd_exact
from autotune.ops.registry import lookup
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS, PAIRS
from autotune.schedule.state import LOCAL, REGISTER
from autotune.search_spaces.library.afar import comes_from_afar, near
from autotune.search_spaces.library.anchored import anchored, divisors, with_layouts
from autotune.search_spaces.library.register_tile import unrolled_steps
from autotune.search_spaces.operators.conv2d_shape import halo, image_layout, operand_layouts, sizes
from autotune.search_spaces.operators.conv2d_winograd_cost import Blocking, Cost, pairs
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, flag
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Derived
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

TILE, ROW, COLUMN = 3, 4, 5
"""Axes of tiles: those of a row, and the rows and columns of each."""
AHEAD = 4
"""Tiles by which an image that is not in L2 is fetched there before its use. Fewer, and into L1: up to 8 % slower."""
WIDEST = 28
Sizes = tuple[int, ...]


class Places(NamedTuple):
    """Loops of the output in which the other steps are: transformed inputs (empty: before all of it), products, and
    what is made of these, tile by tile and there row by row."""

    inputs: str
    products: str
    tile: str
    row: str


class Winograd:
    """The rules of one tile size; `algorithm` names its ComputeDef."""

    algorithm: str

    @property
    def exact(self) -> bool:
        """Whether it is one of bytes."""
        return self.algorithm in winograd_exact.TILES

    @property
    def tile(self) -> winograd.Tile:
        return (winograd_exact.TILES if self.exact else winograd.TILES)[self.algorithm]

    def cost(self, workload: Workload, target: Target) -> Cost:
        return Cost(winograd.apart(sizes(workload)), self.tile, target, self.exact)

    def applies(self, workload: Workload, target: Target) -> bool:
        anchor = workload.anchor
        if anchor is None or anchor.op not in winograd.OPERATORS:
            return False
        types = workload.types()
        p = sizes(workload)
        lanes = target.lanes(DType.f32.bytes)
        whole = p.c % lanes == 0 and p.k % lanes == 0 and min(p.oh, p.ow) >= 2 and min(p.n, p.c) > 0
        others = all(n is anchor or lookup(n.op).elementwise for n in workload.nodes)
        data, weight = (DType(types[i].dtype) for i in anchor.inputs)
        if self.exact:
            known = workload.is_constant(anchor.inputs[1])
            return whole and others and known and winograd_exact.applies_exactly(p, self.tile, data, weight)
        return whole and others and winograd.applies(p, self.tile) and {data, weight} == {DType.f32}

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        cost = self.cost(workload, target)
        vectors, widths, heights, blocks = _choices(cost)
        most = target.num_vector_registers + 2
        knobs = (
            Choice("rows", blocks),
            Choice("oc_vectors", vectors),
            Choice("tw_tile", widths),
            Choice("th_tile", heights),
            Choice("ic_unroll", (1, 2, 4)),
            Choice("transform", ("block", "once")),
            flag("stream"),
        )

        def needed(c: Config) -> int:
            return registers(c.get_int("oc_vectors"), c.get_int("tw_tile") * c.get_int("th_tile"))

        def nested(c: Config) -> bool:
            return c.get_int("rows") % c.get_int("th_tile") == 0

        def body(c: Config) -> int:
            return c.get_int("oc_vectors") * c.get_int("tw_tile") * c.get_int("th_tile") * c.get_int("ic_unroll")

        return ConfigSpace(
            knobs,
            (
                Constraint(
                    "registers", lambda c: needed(c) <= most, "the tile needs more vector registers than there are"
                ),
                Constraint("rows", nested, "th_tile must divide rows"),
                Constraint(
                    "code size", lambda c: body(c) <= 256, "the unrolled body would not fit the instruction cache"
                ),
            ),
            (
                Derived("cycles", lambda c: cost.cycles(_blocking(c))),
                Derived("live_vectors", needed),
                Derived("body", body),
            ),
        )

    def default(self, workload: Workload, target: Target) -> Config:
        cost = self.cost(workload, target)
        best = cheapest(cost)
        return Config.of(
            rows=best.block,
            oc_vectors=best.vectors,
            tw_tile=best.width,
            th_tile=best.height,
            ic_unroll=unrolled_steps(registers(best.vectors, best.pixels), target),
            transform="once" if best.once else "block",
            stream=comes_from_afar(cost.weights, target),
        )

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        lanes = target.lanes(DType.f32.bytes)
        a = anchored(workload, self.algorithm)
        _, columns = self.cost(workload, target).tiles
        s = with_layouts(a.schedule, interface, layouts_of_tiles(workload, self.tile, target))
        # As the products read them, panel after panel, so that the next ones lie behind those that are read.
        terms = s.state.stage("wino_m").stage.reduce_axes
        beside = [(len(terms) + 2, DOT_PRODUCTS[PAIRS].extent)] if self.exact else []
        panel = (2, config.get_int("oc_vectors") * lanes)
        panels = Layout.blocked(len(terms) + 3, [panel, *beside], order=(2, 0, 1, *range(3, len(terms) + 3)))
        s = s.precompute("wino_u").layout("wino_u", panels)
        s = s.cache_write("wino_m")
        s, places = self._output(s, a.output, a.axes(a.output), config, lanes)
        s = made_outputs(s, a.output, places.tile, places.row, lanes, target.num_vector_registers)
        s = self._products(s, a.output, places.products, config, lanes, columns, target)
        return self._input_transform(s, a.output, places.inputs, config, columns, distant(workload, target), target)

    def _output(
        self, s: Schedule, out: str, axes: tuple[str, ...], config: Config, lanes: int
    ) -> tuple[Schedule, Places]:
        """Loops of the output, and where in them all else is computed."""
        n, k, *deep, oh, ow = axes
        s = s.split(out, oh, self.tile.rows).split(out, f"{oh}.0", config.get_int("rows"))
        s = s.split(out, ow, self.tile.columns)
        s = s.split(out, k, config.get_int("oc_vectors") * lanes).split(out, f"{k}.1", lanes)
        once = config.get_str("transform") == "once"
        first, second = (f"{k}.0", f"{oh}.0.0") if once else (f"{oh}.0.0", f"{k}.0")
        # Along a row, products and outputs follow each other in memory; a channel's vectors lie planes apart.
        inner = (f"{oh}.0.1", f"{k}.1.0", f"{ow}.0", f"{oh}.1", f"{ow}.1", f"{k}.1.1")
        s = s.reorder(out, n, *deep, first, second, *inner)
        s = s.unroll(out, f"{ow}.1").vectorize(out, f"{k}.1.1")
        shared, tile = n, (f"{ow}.0", f"{oh}.1")
        for loop in (*deep, first):
            s = s.fuse(out, shared, loop)
            shared = f"{shared}*{loop}"
        if once:
            s = s.fuse(out, shared, second)
            shared = f"{shared}*{second}"
            return s.parallel(out, shared), Places("", shared, *tile)
        return s.parallel(out, shared), Places(shared, second, *tile)

    def _input_transform(
        self, s: Schedule, out: str, block: str, config: Config, columns: int, image: str, target: Target
    ) -> Schedule:
        """Transformed tiles, in `block` of the output's loops or, if empty, all at once; `image` is fetched ahead."""
        v, lanes = "wino_v", target.lanes(DType.f32.bytes)
        if block:
            s = s.compute_at(v, out, block)
        s = s.layout(v, _as_multiplied(config, lanes, columns))
        n, c, th, tw, xi, nu = (x.name for x in s.state.stage(v).stage.axes)
        (j,) = (x.name for x in s.state.stage(v).stage.reduce_axes)
        s = s.split(v, c, lanes).reorder(v, n, f"{c}.0", th, tw, xi, nu, j, f"{c}.1")
        if not block:
            s = s.fuse(v, n, f"{c}.0").parallel(v, f"{n}*{c}.0")
        s = s.unroll(v, nu).unroll(v, j).vectorize(v, f"{c}.1")
        return made_inputs(s, tw, xi, lanes, image, target.num_vector_registers)

    def _products(
        self, s: Schedule, out: str, block: str, config: Config, lanes: int, columns: int, target: Target
    ) -> Schedule:
        """The sums over channels; of bytes by an instruction that folds several."""
        m, acc, dot = "wino_m", "wino_m.c", pairs(target) if self.exact else ""
        s = s.compute_at(m, out, block).layout(m, _planes(lanes))
        n, k, th, tw, xi, nu = (x.name for x in s.state.stage(m).stage.axes)
        width, height = config.get_int("tw_tile"), config.get_int("th_tile")
        s = s.split(m, th, height).split(m, tw, width).split(m, k, lanes)
        s = s.reorder(m, xi, nu, n, f"{th}.0", f"{tw}.0", f"{k}.0", f"{th}.1", f"{tw}.1", f"{k}.1")
        s = s.compute_at(acc, m, f"{tw}.0", REGISTER).layout(acc, Layout.blocked(6, [(1, lanes)]))
        for loop in (f"{k}.0", f"{th}.1", f"{tw}.1"):
            s = s.unroll(m, loop)
        s = s.vectorize(m, f"{k}.1")
        if columns % width:
            s = s.partition(m, f"{tw}.0")
        *deep, c = (x.name for x in s.state.stage(acc).stage.reduce_axes)
        folded = DOT_PRODUCTS[dot].extent if dot else 1
        s = s.split(acc, c, config.get_int("ic_unroll") * folded).split(acc, k, lanes)
        turns, pair = f"{c}.1", ""
        if dot:
            s = s.split(acc, turns, folded)
            turns, pair = f"{c}.1.0", f"{c}.1.1"
        s = s.reorder(acc, xi, nu, n, *deep, f"{c}.0", turns, th, tw, f"{k}.0", f"{k}.1", *([pair] if dot else []))
        for loop in (turns, th, tw, f"{k}.0"):
            s = s.unroll(acc, loop)
        if config.get_bool("stream"):
            s = s.stream(acc, "wino_u", f"{c}.0", near=near(target))
        s = s.vectorize(acc, f"{k}.1")
        return s.tensorize(acc, pair, dot) if dot else s


def layouts_of_tiles(workload: Workload, tile: winograd.Tile, target: Target) -> dict[str, Layout]:
    """Images in blocks of channels, with as wide a border as all tiles reach beyond the one that is read."""
    p, anchor = sizes(workload), workload.anchor
    assert anchor is not None
    images = winograd.flat(p)
    bottom, right = (
        ((-(-count // m) - 1) * m + edge) * p.stride[-1] - before - extent
        for count, m, edge, before, extent in zip(
            (p.oh, p.ow), tile, winograd.edges(p, tile), images.pad, images.image, strict=False
        )
    )
    types = {f"in{n}": i.type for n, i in enumerate(workload.inputs)}
    types["out0"] = workload.types()[workload.outputs[0]]
    lanes = target.lanes(DType.f32.bytes)
    layouts = {name: image_layout(types[name], target) for name in operand_layouts(workload, lanes, p.k)}
    across = halo(p)[:-2]  # of a volume, and before and behind it
    border = (*across, (images.pad[0], max(bottom, 0)), (images.pad[1], max(right, 0)))
    source = workload.source(anchor.inputs[0])
    layouts[f"in{source}"] = image_layout(workload.types()[source], target).with_halo(border, p.pad_value)
    return layouts


def _planes(lanes: int) -> Layout:
    """(n, channel, th, tw, xi, nu) as one plane of blocked channels per point (xi, nu) of the transformed tile."""
    outer = tuple((d, 0) for d in (4, 5, 0, 1, 2, 3))
    return Layout((*outer, (1, lanes)), ((0, 0),) * 6)


def _as_multiplied(config: Config, lanes: int, columns: int) -> Layout:
    """The same dimensions with what a tile of the products reads of a channel together, channel after channel.

    A tile then reads one run of memory, or the rows of one where its width does not divide them. Where blocks of
    channels lie a plane apart, it reads a little of each, and a CPU fetches only so many runs ahead: tiles from behind
    L2 took up to 1.7 times as long (Zen 3).
    """
    height, width = config.get_int("th_tile"), config.get_int("tw_tile")
    divided = columns % width == 0
    tile = [(d, size) for d, size in ((2, height), (3, width if divided else 1)) if size > 1]
    whole = (0, 2, 3, 1) if divided else (0, 2, 1)
    rest = [] if divided else [(3, 0)]
    return Layout((*((d, 0) for d in (4, 5, *whole)), *tile, *rest, (1, lanes)), ((0, 0),) * 6)


def made_inputs(s: Schedule, tile: str, row: str, lanes: int, image: str, registers: int) -> Schedule:
    """What comes before the last transform of tiles: unrolled in registers where they hold a tile, else in loops over
    its rows and columns. Unrolled, tiles of 8 x 8 are 3,000 instructions with 200 spills, as fast as loops of 60 with
    none.

    Args:
        tile, row: the loops of `wino_v` over tiles and over rows of one. `image`: what is fetched ahead, if any.
        registers: vectors that they hold.
    """
    whole = _points(s, "wino_t") <= registers
    s = s.unroll("wino_v", row) if whole else s
    s = small(s.compute_at("wino_vp", "wino_v", row, REGISTER), "wino_vp", ROW, lanes)
    s = s.compute_at("wino_t", "wino_v", tile, REGISTER if whole else LOCAL)
    s = small(s, "wino_t", COLUMN, lanes, unrolled=whole)
    s = small(s.compute_at("wino_tp", "wino_t", _axis(s, "wino_t", COLUMN), REGISTER), "wino_tp", COLUMN, lanes)
    return s.prefetch("wino_tp", image, _axis(s, "wino_tp", TILE), AHEAD, 2) if image else s


def made_outputs(s: Schedule, out: str, tile: str, row: str, lanes: int, registers: int) -> Schedule:
    """What is made of products, in the loops of the output over tiles and over rows of one; as `made_inputs`."""
    whole = _points(s, "wino_s") <= registers
    s = s.unroll(out, row) if whole else s
    s = small(s.compute_at("wino_y", out, tile if whole else row, REGISTER), "wino_y", ROW, lanes)
    s = small(s.compute_at("wino_yp", "wino_y", _axis(s, "wino_y", ROW), REGISTER), "wino_yp", ROW, lanes)
    at, scope = (("wino_y", _axis(s, "wino_y", 0)), REGISTER) if whole else ((out, tile), LOCAL)
    s = small(s.compute_at("wino_s", *at, scope), "wino_s", COLUMN, lanes, unrolled=whole)
    return small(s.compute_at("wino_sp", "wino_s", _axis(s, "wino_s", COLUMN), REGISTER), "wino_sp", COLUMN, lanes)


def _points(s: Schedule, stage: str) -> int:
    """Elements of a tile of one channel."""
    axes = s.state.stage(stage).stage.axes
    return axes[ROW].extent * axes[COLUMN].extent


def distant(workload: Workload, target: Target) -> str:
    """The image, where it comes from behind the second cache; empty where it does not."""
    p, anchor = sizes(workload), workload.anchor
    assert anchor is not None
    source = workload.source(anchor.inputs[0])
    size = p.n * p.c * math.prod(p.image) * DType(workload.types()[source].dtype).bytes
    return f"in{source}" if size > target.l2_bytes else ""


def _axis(s: Schedule, stage: str, number: int) -> str:
    return s.state.stage(stage).stage.axes[number].name


def small(s: Schedule, stage: str, along: int, lanes: int, vector: int = 1, *, unrolled: bool = True) -> Schedule:
    """A transform of one tile: one vector (of channels), a column (or row) after the other, each of them unrolled.

    Args:
        unrolled: all of them, too.
    """
    state = s.state.stage(stage)
    channel, first = (state.stage.axes[n].name for n in (vector, along))
    s = s.layout(stage, Layout.blocked(6, [(vector, lanes)]))
    outer = [state.stage.axes[n].name for n in range(4) if n != vector] + [first]
    others = [*outer, *(x.name for x in state.loops if x.name not in (*outer, channel))]
    s = s.reorder(stage, *others, channel)
    for loop in others:
        if s.state.stage(stage).loop(loop).extent > 1 and (unrolled or loop != first):
            s = s.unroll(stage, loop)
    return s.vectorize(stage, channel)


def _choices(cost: Cost) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    """Values of oc_vectors, tw_tile, th_tile and rows."""
    rows, columns = cost.tiles
    vectors = divisors(cost.p.k // cost.target.lanes(DType.f32.bytes), 4)
    widths = tuple(sorted({-(-columns // groups) for groups in range(-(-columns // WIDEST), columns + 1)}))
    return vectors, widths, divisors(rows, 4), divisors(rows, 28)


def _blocking(c: Config) -> Blocking:
    vectors, width, height, block = (c.get_int(name) for name in ("oc_vectors", "tw_tile", "th_tile", "rows"))
    return Blocking(vectors, width, height, block, c.get_str("transform") == "once")


def registers(vectors: int, pixels: int) -> int:
    """Vector registers that the products need: accumulators, a vector of filters each, one for a pixel."""
    return vectors * (pixels + 1) + 1


@functools.lru_cache(maxsize=256)
def cheapest(cost: Cost) -> Blocking:
    """The blocking that should need the fewest cycles; of equals, that which reads transformed inputs least often."""
    available = cost.target.num_vector_registers
    blockings = itertools.starmap(Blocking, itertools.product(*_choices(cost), (False, True)))
    fitting = (b for b in blockings if b.block % b.height == 0 and registers(b.vectors, b.pixels) <= available)
    return min(fitting, key=lambda b: (cost.cycles(b), -b.vectors, -b.block, -b.width, b))


def _rules(name: str) -> type[Winograd]:
    class Rules(Winograd):
        algorithm = name

    return Rules


for _op, _name in itertools.product(winograd.OPERATORS, winograd.TILES):
    template(f"{_op}.{_name}", op=_op, strict=False)(_rules(_name))
for _op, _name in itertools.product(winograd.OPERATORS, winograd_exact.TILES):
    template(f"{_op}.{_name}", op=_op)(_rules(_name))
