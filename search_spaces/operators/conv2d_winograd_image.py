"""Winograd for strided convolutions of few channels, a network's first layer: F(4x4, r x r), vectors of tiles.

The image is taken apart (see ops.winograd) into rows whose elements lie as tiles read them: an element of neighbouring
tiles is a vector, where the channels are too few to fill one. With short sums over channels the transforms weigh as
much as the products, so sums never leave the registers: all products of a column of points are made for some tiles, and
what is stored is already transformed down the tile. A row of tiles goes through all steps before the next.
"""

from __future__ import annotations

from autotune.ops import winograd
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import LOCAL, REGISTER
from autotune.search_spaces.library.anchored import anchored, divisors, with_layouts
from autotune.search_spaces.library.register_tile import unrolled_steps
from autotune.search_spaces.operators.conv2d_shape import operand_layouts, plain_conv, sizes
from autotune.search_spaces.operators.conv2d_winograd import small
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

ALGORITHM = "winograd_f4"
OUTPUTS = winograd.TILES[ALGORITHM]
M = OUTPUTS.rows
CHANNEL, TILE, ROW, COLUMN = 1, 3, 4, 5
"""Axes of what is transformed: channels, tiles of a row, rows and columns of a tile."""

MAX_CHANNELS = 64
"""Channels of the image taken apart: of a row of tiles, all their points should stay in L2."""


@template("conv2d.winograd_image", op="conv2d", strict=False)
class WinogradImage:
    """Strided, square windows, fewer channels than a vector has lanes."""

    algorithm = ALGORITHM

    def applies(self, workload: Workload, target: Target) -> bool:
        anchor = workload.anchor
        if not plain_conv(workload) or anchor is None or anchor.op != "conv2d":
            return False
        p, lanes = sizes(workload), target.lanes(DType.f32.bytes)
        few = p.c < lanes and winograd.channels(p) <= MAX_CHANNELS
        constant = workload.inputs[anchor.inputs[1]].constant
        return constant and few and p.k % lanes == 0 and p.stride[0] > 1 and winograd.applies(p, OUTPUTS)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p, lanes = sizes(workload), target.lanes(DType.f32.bytes)
        inner, edge = winograd.channels(p), winograd.edges(p, OUTPUTS)[0]
        knobs = (
            Choice("tiles", divisors(lanes, 8)),
            Choice("oc_vectors", divisors(p.k // lanes, 4)),
            Choice("ic_unroll", divisors(inner, 4)),
            Choice("image", ("whole", "row")),
        )

        def fits(c: Config) -> bool:
            return edge * c.get_int("tiles") <= target.num_vector_registers

        return ConfigSpace(
            knobs, (Constraint("registers", fits, "the tiles need more vector registers than there are"),)
        )

    def default(self, workload: Workload, target: Target) -> Config:
        space = self.space(workload, target)
        plain = space.default()
        tiles = max(t for t in divisors(target.lanes(DType.f32.bytes), 8) if space.satisfies(plain.replace(tiles=t)))
        vectors = 2 if 2 in space.knob("oc_vectors").values else 1
        p = sizes(workload)
        held = winograd.edges(p, OUTPUTS)[0] * tiles + 2
        unroll = unrolled_steps(held, target) if 2 in space.knob("ic_unroll").values else 1
        apart = p.n * winograd.channels(p) * p.oh * p.ow * DType.f32.bytes
        image = "whole" if apart <= target.l2_bytes else "row"
        return Config.of(tiles=tiles, oc_vectors=vectors, ic_unroll=unroll, image=image)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p, lanes = sizes(workload), target.lanes(DType.f32.bytes)
        a = anchored(workload, self.algorithm, "wino_x")
        s = with_layouts(a.schedule, interface, operand_layouts(workload, lanes, p.k))
        s = s.precompute("wino_u").layout("wino_u", Layout.blocked(4, [(2, lanes)], (1, 2, 3, 0)))
        out, (n, k, oh, ow) = a.output, a.axes(a.output)
        s = s.split(out, oh, M).split(out, ow, M)
        s = s.split(out, k, config.get_int("oc_vectors") * lanes).split(out, f"{k}.1", lanes)
        s = s.reorder(out, n, f"{oh}.0", f"{k}.0", f"{k}.1.0", f"{ow}.0", f"{oh}.1", f"{ow}.1", f"{k}.1.1")
        s = s.unroll(out, f"{ow}.1").vectorize(out, f"{k}.1.1")
        row = f"{n}*{oh}.0"
        s = s.fuse(out, n, f"{oh}.0").parallel(out, row)
        s = small(s.compute_at("wino_y", out, f"{oh}.1", REGISTER), "wino_y", ROW, lanes)
        s = small(s.compute_at("wino_yp", "wino_y", _axis(s, "wino_y", ROW), REGISTER), "wino_yp", ROW, lanes)
        s = self._products(s.compute_at("wino_s", out, f"{k}.0"), config, lanes)
        s = self._input_transform(s.compute_at("wino_v", out, row), lanes)
        return self._image(s, row if config.get_str("image") == "row" else "", out)

    def _products(self, s: Schedule, config: Config, lanes: int) -> Schedule:
        """Products of a column of points and their transform down the tile, for all tiles of a row."""
        half, m = "wino_s", "wino_m"
        s = s.layout(half, Layout.blocked(6, [(1, lanes)]))
        n, k, th, tw, i, nu, xi = (x.name for x in s.state.stage(half).loops)
        s = s.split(half, tw, config.get_int("tiles")).split(half, k, lanes)
        s = s.reorder(half, n, th, nu, f"{k}.0", f"{tw}.0", f"{tw}.1", i, xi, f"{k}.1")
        for loop in (f"{tw}.1", i, xi):
            s = s.unroll(half, loop)
        s = s.vectorize(half, f"{k}.1").partition(half, f"{tw}.0")
        s = small(s.compute_at("wino_sp", half, f"{tw}.1", REGISTER), "wino_sp", COLUMN, lanes)
        s = s.compute_at(m, half, f"{tw}.0", REGISTER).layout(m, Layout.blocked(6, [(1, lanes)]))
        n, k, th, tw, xi, nu, c = (x.name for x in s.state.stage(m).loops)
        s = s.split(m, c, config.get_int("ic_unroll"))
        s = s.reorder(m, n, th, nu, f"{c}.0", f"{c}.1", xi, tw, k)
        for loop in (f"{c}.1", xi, tw):
            s = s.unroll(m, loop)
        return s.vectorize(m, k)

    def _input_transform(self, s: Schedule, lanes: int) -> Schedule:
        """A row of transformed tiles; the last vector is filled up, as storing a part of one is slow."""
        v = "wino_v"
        s = s.layout(v, Layout.blocked(6, [(TILE, lanes)], (0, 2, COLUMN, TILE, CHANNEL, ROW)))
        n, c, th, tw, xi, nu, j = (x.name for x in s.state.stage(v).loops)
        s = s.split(v, tw, lanes).reorder(v, n, c, th, f"{tw}.0", xi, nu, j, f"{tw}.1")
        s = s.unroll(v, nu).unroll(v, j).vectorize(v, f"{tw}.1")
        s = small(s.compute_at("wino_vp", v, xi, REGISTER), "wino_vp", ROW, lanes, TILE)
        s = small(s.compute_at("wino_t", v, f"{tw}.0", LOCAL), "wino_t", COLUMN, lanes, TILE, unrolled=False)
        # Else a part of the last vector is stored and read back at once: a CPU forwards no such store to the load.
        s = s.pad("wino_t", _axis(s, "wino_t", TILE))
        s = s.compute_at("wino_tp", "wino_t", _axis(s, "wino_t", COLUMN), REGISTER)
        return small(s, "wino_tp", COLUMN, lanes, TILE).partition(v, f"{tw}.0").pad(v, tw)

    def _image(self, s: Schedule, at: str, out: str) -> Schedule:
        """The image taken apart, at a row of tiles or once, by who needs most of it; what M apart lies side by side."""
        x = "wino_x"
        s = s.compute_at(x, out, at) if at else s
        s = s.layout(x, Layout(((0, 0), (1, 0), (2, 0), (3, M), (3, 0)), ((0, 0),) * 4))
        n, q, i, j = (x.name for x in s.state.stage(x).loops)
        s = s.split(x, j, M).reorder(x, n, i, q, f"{j}.0", f"{j}.1").unroll(x, f"{j}.1").partition(x, f"{j}.0")
        return s if at else s.fuse(x, n, i).parallel(x, f"{n}*{i}")


def _axis(s: Schedule, stage: str, number: int) -> str:
    return s.state.stage(stage).stage.axes[number].name
