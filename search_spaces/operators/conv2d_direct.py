"""Direct convolution on channel-blocked activations: register tiles of output pixels times output channels.

The innermost loops are those of NeoCPU (Liu et al., ATC'19) and oneDNN: for one input channel, one broadcast per
pixel is multiplied with one weight vector per block of output channels. The window loops stay outside the channel loop,
so that no broadcast is shared between taps (it would have to be kept in a register).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from autotune.ops.conv import Conv
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.afar import TILES_AHEAD, comes_from_afar, is_lost_sight_of, near, turns_ahead
from autotune.search_spaces.library.anchored import Anchored, anchored, divisors, with_layouts
from autotune.search_spaces.library.register_tile import Steps, registers, tiles
from autotune.search_spaces.operators.conv2d_shape import (
    WORTH_SKIPPING,
    blocked_activations,
    halo,
    has_room,
    operand_layouts,
    padded_share,
    padded_tiles,
    plain_conv,
    sizes,
)
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, flag, tile
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Derived
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

MAX_FMAS = 512
"""Vector multiply-adds in an unrolled body: what fits the instruction cache, and LLVM's patience."""

Halo = tuple[tuple[int, int], ...]

CROWDED = 1.1
"""Time of loads by what it would be if two a cycle were possible all the time."""

NARROW = 1.1
"""Time of narrow vectors by what units take for them: there are twice the instructions."""

FROM_L2 = 1.5
"""Time of weights from L2 that the image's vectors are loaded between, by that of reading L2 from end to end."""

OF_LOADS, OF_ROWS = 0.01, 0.03
"""Multiply-adds' worth of a load and of a row of the tile that nothing hides: among equal tiles, those with fewer."""

BODY = 64
"""Multiply-adds between two jumps that are enough to hide them."""


class RegisterTiles:
    """Knobs, default and loops of a convolution in which a vector of output channels shares its input channels."""

    filters = 0  # dimension of the weight that is an output channel
    packed = ""  # the stage of constants that the sum reads instead of the weight
    skipped: tuple[int, ...] = ()  # dimensions of the data in which terms that are zero are always left out

    def definition(self, config: Config) -> str:
        """Which definition of the convolution is scheduled."""
        return "direct"

    def vector_widths(self, p: Conv, lanes: int) -> tuple[int, ...]:
        """Numbers of output channels that one vector may hold, the default first."""
        # Narrower vectors where the last one would be half empty; some CPUs execute them twice as fast.
        narrow = lanes == 16 and 0 < p.k % lanes <= lanes // 2
        return (lanes, lanes // 2) if narrow else (lanes,)

    def most_vectors(self, p: Conv, lanes: int) -> int:
        """How many vectors of output channels a tile may hold; they share the input channels."""
        return min(-(-p.k // p.groups // lanes), 4)

    def bands(self, p: Conv, lanes: int) -> int:
        """How many groups the vectors of output channels read, all together."""
        return -(-p.k // lanes)

    def shape(self, workload: Workload) -> Conv:
        """Sizes of the sum that a tile computes."""
        return sizes(workload)

    def channels(self, p: Conv, lanes: int) -> int:
        """Input channels that the sum takes together: a block of activations, or what divides a group into them."""
        per_group = p.c // p.groups
        if p.groups == 1:
            return min(per_group, lanes)
        return math.gcd(per_group, lanes) if per_group > lanes else per_group

    def operands(self, workload: Workload, inputs: int, block: int) -> tuple[Layout, Halo]:
        """Layout of the weight, for blocks of input and output channels, and the border of the data."""
        p = sizes(workload)
        return Layout.blocked(p.rank + 2, [(1, inputs), (0, block)]), halo(p)

    def positions(
        self, s: Schedule, workload: Workload, out: str, axes: tuple[str, ...]
    ) -> tuple[Schedule, list[str], list[str]]:
        """Loops over positions of the output whose sums are alike, and loops over the kinds of positions."""
        return s, list(axes), []

    def padded_rows(self, workload: Workload) -> list[int]:
        """Spatial axes but the last along which windows overhang the image, into zeros."""
        p = sizes(workload)
        return [d for d in range(p.rank - 1) if any(p.sides[d]) and not p.pad_value]

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = self.shape(workload)
        most = target.num_vector_registers + target.num_vector_registers // 8
        widths = self.vector_widths(p, target.lanes(DType.f32.bytes))
        knobs = (
            Choice("lanes", widths),
            Choice("oc_vectors", tuple(range(1, self.most_vectors(p, widths[-1]) + 1))),
            tile("ow_tile", p.ow, limit=28),
            Choice("oh_tile", divisors(p.oh, 7)),
            Choice("ic_unroll", divisors(self.channels(p, widths[0]), 4)),
            Choice("order", ("khw", "hkw", "hwk") if p.rank > 1 else ("kw", "wk")),
            flag("unroll_kw"),
            Choice("skip_rows", (False, True) if self.padded_rows(workload) else (False,)),
        )

        def whole(c: Config) -> bool:
            vectors, block = -(-p.k // p.groups // c.get_int("lanes")), c.get_int("oc_vectors")
            rest = -vectors % block
            return rest == 0 or (p.groups == 1 and rest <= vectors // 10)

        def needed(c: Config) -> int:
            return registers(c.get_int("ow_tile") * c.get_int("oh_tile"), c.get_int("oc_vectors"))

        def body(c: Config) -> int:
            sums = c.get_int("oc_vectors") * c.get_int("ow_tile") * c.get_int("oh_tile")
            return sums * c.get_int("ic_unroll") * (p.s if c.get_bool("unroll_kw") else 1)

        def known(c: Config) -> bool:
            return not c.get_bool("skip_rows") or c.get_int("oh_tile") == 1

        return ConfigSpace(
            knobs,
            (
                Constraint("whole blocks", whole, "the last block of output channels would be too empty"),
                Constraint(
                    "registers", lambda c: needed(c) <= most, "the tile needs more vector registers than there are"
                ),
                Constraint(
                    "code size", lambda c: body(c) <= MAX_FMAS, "the unrolled body would not fit the instruction cache"
                ),
                Constraint("skip", known, "rows of taps can only be skipped for one row of pixels at a time"),
            ),
            (
                Derived("cycles", lambda c: self._cycles(p, target, c)),
                Derived("live_vectors", needed),
                Derived("body", body),
            ),
        )

    def _cycles(self, p: Conv, target: Target, config: Config) -> float:
        """Cycles of a thread per input channel and tap; threads take whole rows of tiles."""
        lanes, vectors, height = (config.get_int(name) for name in ("lanes", "oc_vectors", "oh_tile"))
        rows = p.n * -(-self.bands(p, lanes) // vectors) * math.prod(p.out[:-1]) // height
        return -(-rows // target.num_threads) * row_cost(p, target, lanes, vectors, config.get_int("ow_tile"), height)

    def estimate(self, p: Conv, target: Target, config: Config) -> float:
        """The same, and where weights come from."""
        lanes, vectors = config.get_int("lanes"), config.get_int("oc_vectors")
        cost = self._cycles(p, target, config)
        # Every tile reads the weights of its channels again, from farther away the more there are.
        near = p.c // p.groups * p.taps * vectors * lanes * DType.f32.bytes
        return cost * (1 + near / (2 * target.l2_bytes * config.get_int("ow_tile") * config.get_int("oh_tile")))

    def default(self, workload: Workload, target: Target) -> Config:
        space = self.space(workload, target)
        p = self.shape(workload)
        best, chosen = (math.inf, 0), space.default()
        knobs = [space.knob(name).values for name in ("lanes", "oc_vectors", "ow_tile", "oh_tile")]
        for lanes, vectors, width, height in itertools.product(*knobs):
            assert isinstance(lanes, int) and isinstance(vectors, int)
            assert isinstance(width, int) and isinstance(height, int)
            tried = chosen.replace(lanes=lanes, oc_vectors=vectors, ow_tile=width, oh_tile=height)
            if registers(width * height, vectors) > target.num_vector_registers or not space.satisfies(tried):
                continue
            cost = (self.estimate(p, target, tried), lanes)  # of equal ones the vectors that are not half empty
            if cost < best:
                best, chosen = cost, tried
        body = chosen.get_int("oc_vectors") * chosen.get_int("ow_tile") * chosen.get_int("oh_tile")
        unroll = max(u for u in space.knob("ic_unroll").values if isinstance(u, int) and (u == 1 or u * body <= BODY))
        skip = True in space.knob("skip_rows").values and chosen.get_int("oh_tile") == 1
        # With a stride fewer rows are left out than their loop costs; with 16 registers that loop spills.
        skip = skip and p.stride[0] == 1 and target.num_vector_registers > 16
        chosen = chosen.replace(skip_rows=skip and padded_share(p) >= WORTH_SKIPPING)
        order = "hkw" if p.rank > 1 and self._rowwise(p, target, chosen) else space.knob("order").default
        return chosen.replace(ic_unroll=unroll, order=order)

    def _rowwise(self, p: Conv, target: Target, config: Config) -> bool:
        """Whether fewer bytes come from behind a thread's second cache if rows of the image stay near while all weights
        go by than if a block of weights does while the image goes by."""
        block, height = config.get_int("oc_vectors") * config.get_int("lanes"), config.get_int("oh_tile")
        panel = p.c // p.groups * p.taps * block
        blocks, rows = -(-p.k // block), p.out[-2] // height
        image = p.c * math.prod(p.image[-2:]) * math.prod(p.window[:-2])
        near = image * min(1.0, ((height - 1) * p.stride[-2] + (p.window[-2] - 1) * p.dilation[-2] + 1) / p.image[-2])
        room = target.l2_bytes // DType.f32.bytes
        tiles = -(-rows * blocks // target.num_threads)
        across, down = min(blocks, tiles), -(-tiles // blocks)  # what a thread has: blocks of a row, then rows
        by_rows = max(image * down / rows, near) + panel * across * (down if near + panel * across > room else 1)
        down, across = min(rows, tiles), -(-tiles // rows)  # rows of a block, then blocks
        part = max(image * down / rows, near)
        by_blocks = panel * across + part * (across if part + panel > room else 1)
        near_anyway = not comes_from_afar(panel * blocks * DType.f32.bytes, target)
        return by_rows < by_blocks or (by_rows == by_blocks and near_anyway)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = self.shape(workload)
        anchor = workload.anchor
        assert anchor is not None
        x, weight = (f"in{i}" for i in anchor.inputs)
        lanes, block = config.get_int("lanes"), config.get_int("oc_vectors") * config.get_int("lanes")
        inputs = self.channels(p, lanes)
        a = anchored(workload, self.definition(config), self.packed)
        layouts = operand_layouts(workload, target.lanes(DType.f32.bytes), p.k)
        filters, border = self.operands(workload, inputs, block)
        layouts[x] = blocked_activations(p.c, target.lanes(DType.f32.bytes), p.rank + 2).with_halo(border)
        if self.packed:
            s = with_layouts(a.schedule, interface, layouts).precompute(self.packed).layout(self.packed, filters)
            weight = self.packed
        else:
            s = with_layouts(a.schedule, interface, {**layouts, weight: filters})
        weights, data = p.k * p.c // p.groups * p.taps, p.c * math.prod(p.image)
        afar = comes_from_afar(weights * DType.f32.bytes, target)
        # Requests for the next block cost more than they save where the image, which nobody asks for, comes late, too.
        apart = afar and target.num_threads == 1 and weights > data
        s = self._sum(self._output(s, a, config, workload, apart), a, config, inputs, p.rank)
        if afar:
            s = self._ask(s, a, config, weight, target, apart, p.n * math.prod(p.out))
        # With strides most of what lies ahead is never read, and few lines are read again.
        runs = (
            -(-p.c // p.groups // target.lanes(DType.f32.bytes)) * math.prod(p.window[:-1]) * config.get_int("oh_tile")
        )
        if p.stride[-1] == 1 and is_lost_sight_of(p.n * data * DType.f32.bytes, runs, target):
            s = s.prefetch(a.anchor, x, a.axes(a.anchor)[1 + p.rank], TILES_AHEAD * config.get_int("ow_tile"), 2)
        around = s.state.stage(a.anchor).at
        assert around is not None  # a tile's sum is computed inside of the output's loops
        for name in self._added(s, a, target):
            s = s.prefetch(a.output, name, around[1], 1)  # it comes while the next tile's sum is computed
        rows = self.padded_rows(workload) if config.get_bool("skip_rows") else []
        for d in (*self.skipped, *(2 + row for row in rows)):
            s = s.skip_padding(a.anchor, x, d)
        if config.get_bool("skip_rows") and padded_tiles(p, config.get_int("ow_tile")) >= WORTH_SKIPPING:
            s = s.skip_padding(a.anchor, x, 1 + p.rank, tiles=True)
        if self.packed:
            p = replace(p, groups=1)  # bands end at the last group
        if has_room(s, p, x, weight, block, self.filters):
            s = s.pad(a.output, a.axes(a.output)[1])
        if has_room(s, p, x, weight, block, self.filters, sum_only=True):
            s = s.pad(a.anchor, a.axes(a.anchor)[1])
        return s

    def _added(self, s: Schedule, a: Anchored, target: Target) -> list[str]:
        """What is added to the sum, as large as the result, and comes from afar."""
        stage = s.state.stage(a.output)
        (result,) = stage.stage.outputs
        read = {r.tensor.name: r.tensor for r in stage.reads() if r.tensor.name != a.anchor}
        large = [name for name, tensor in read.items() if tensor.shape == result.shape]
        size = math.prod(result.shape) * result.dtype.bytes
        return large if comes_from_afar(size, target) and a.output != a.anchor else []

    def _output(self, s: Schedule, a: Anchored, config: Config, workload: Workload, apart: bool) -> Schedule:
        """Loops over tiles, and writing a tile back; `apart` for nobody to share them with."""
        out, lanes = a.output, config.get_int("lanes")
        n, k, *axes = a.axes(out)
        s = s.split(out, k, config.get_int("oc_vectors") * lanes).split(out, f"{k}.1", lanes)
        s, (*rows, ow), kinds = self.positions(s, workload, out, tuple(axes))
        outer, inner, deep = {"k": f"{k}.0", "w": f"{ow}.0"}, [f"{k}.1.0", f"{ow}.1"], rows[:-1]
        if rows:
            s = s.split(out, rows[-1], config.get_int("oh_tile"))
            outer["h"] = f"{rows[-1]}.0"
            inner.insert(0, f"{rows[-1]}.1")
        s = s.split(out, ow, config.get_int("ow_tile"))
        order = [outer[x] for x in config.get_str("order") if x in outer]
        s = s.reorder(out, n, *deep, *order, *kinds, *inner, f"{k}.1.1")
        for loop in inner:
            s = s.unroll(out, loop)
        tile = [*order, *kinds][-1]
        s = s.vectorize(out, f"{k}.1.1").compute_at(a.anchor, out, tile, REGISTER).partition(out, f"{ow}.0")
        # Rows and channel blocks are shared among threads; columns, which are partitioned, stay apart.
        fused = n
        for loop in () if apart else (*deep, *order[: order.index(f"{ow}.0")]):
            s = s.fuse(out, fused, loop)
            fused = f"{fused}*{loop}"
        return s.parallel(out, fused)

    def _sum(self, s: Schedule, a: Anchored, config: Config, inputs: int, rank: int) -> Schedule:
        """The sum over input channels and window, for one tile."""
        conv, lanes = a.anchor, config.get_int("lanes")
        n, k, *axes = a.axes(conv)
        (*bands, c), (*taps, ks) = a.reduce_axes(conv)[:-rank], a.reduce_axes(conv)[-rank:]
        s = s.layout(conv, Layout.blocked(len(axes) + 2, [(1, lanes)]))
        pixels = axes[max(rank - 2, 0) : rank]
        deep = [x for x in axes if x not in pixels]
        s, inner = s.split(conv, k, lanes).split(conv, c, inputs), f"{c}.1"
        s = s.split(conv, inner, config.get_int("ic_unroll"))
        # What is shared stays in a register while it is used: few weights are kept for many pixels, or the reverse.
        few = config.get_int("oc_vectors") <= config.get_int("ow_tile") * config.get_int("oh_tile")
        shared = (*pixels, f"{k}.0") if few else (f"{k}.0", *pixels)
        terms = (*bands, f"{c}.0", *taps, ks, f"{inner}.0", f"{inner}.1")
        s = s.reorder(conv, n, *deep, *terms, *shared, f"{k}.1")
        for loop in (f"{inner}.1", *shared, *((ks,) if config.get_bool("unroll_kw") else ())):
            s = s.unroll(conv, loop)
        return s.partition(conv, f"{c}.0").vectorize(conv, f"{k}.1")

    def _ask(
        self, s: Schedule, a: Anchored, config: Config, weight: str, target: Target, stream: bool, pixels: int
    ) -> Schedule:
        """Weights that come from afar are asked for turns before they are used and, if loops are apart, a block before,
        while tiles read the one before it again and again."""
        channel = a.reduce_axes(a.anchor)[-1 - len(a.axes(a.output)[2:])]
        rows, vectors = config.get_int("ow_tile") * config.get_int("oh_tile"), config.get_int("oc_vectors")
        steps = Steps.of(target, lanes=config.get_int("lanes"))
        ahead = turns_ahead(rows, vectors, stream, target, steps, pixels // rows)
        s = s.prefetch(a.anchor, weight, f"{channel}.1.1", ahead) if ahead else s
        return s.stream(a.anchor, weight, f"{channel}.1.0", near=near(target)) if stream else s


def row_cost(p: Conv, target: Target, lanes: int, vectors: int, width: int, height: int) -> float:
    """Cycles of a row of tiles per input channel and tap. Weights that do not stay in L1 come more slowly."""
    steps, width_bytes = Steps.of(target, lanes=lanes), lanes * DType.f32.bytes
    near = p.c // p.groups * p.taps * vectors * width_bytes <= target.l1_bytes // 2
    weight = width_bytes / target.core.l2 * FROM_L2

    crowded = CROWDED if steps.loads >= 2 else 1.0
    more = NARROW if lanes < target.lanes(DType.f32.bytes) else 1.0

    def step(columns: int) -> float:
        sums, loads = vectors * columns * height, vectors + columns * height
        busy = max(steps.cycles(more * sums, more * crowded * loads), 0.0 if near else vectors * weight)
        beside = OF_LOADS * loads + OF_ROWS * height + sums * p.groups / (p.c * p.taps)
        return busy + beside / steps.pipe.per_cycle

    return sum(many * step(columns) for columns, many in tiles(p.ow, width))


@template("conv1d.direct", op="conv1d")
@template("conv2d.direct", op="conv2d")
@template("conv3d.direct", op="conv3d")
class DirectConv2d(RegisterTiles):
    """Dense convolution, any stride, padding and dilation."""

    algorithm = "direct"

    def applies(self, workload: Workload, target: Target) -> bool:
        return plain_conv(workload) and sizes(workload).groups == 1
