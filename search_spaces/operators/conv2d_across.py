"""Convolution in groups whose input channels do not fill a vector: each lane has the channels of its own group.

Tap by tap, a vector of input channels, in another order where groups have several, is multiplied with a vector of
weights, while a tile of output pixels accumulates in registers. Windows of a single channel per filter, which lie side
by side, are sums that sketches know.
"""

from __future__ import annotations

import math

from autotune.ops.conv import Conv
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.anchored import Anchored, anchored, divisors, with_layouts
from autotune.search_spaces.operators.conv2d_shape import (
    WORTH_SKIPPING,
    blocked_activations,
    halo,
    has_room,
    operand_layouts,
    padded_share,
    plain_conv,
    sizes,
)
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, flag, tile
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

MAX_FMAS = 768
"""Vector multiply-adds in an unrolled body."""

MAX_INPUTS = 8
"""Input channels per group that are unrolled."""


def unrolled_inputs(p: Conv) -> int:
    return p.c // p.groups if p.c // p.groups <= MAX_INPUTS else 1


def lane_loads(p: Conv, lanes: int) -> int:
    """Loads for a vector of input channels: one, and one per lane where vectors and groups do not divide each other,
    or where channels are too few to lie in vectors."""
    filters = p.k // p.groups
    whole = lanes % filters == 0 or filters % lanes == 0
    return 1 if whole and p.c >= lanes else lanes


@template("conv1d.grouped_across", op="conv1d")
@template("conv2d.grouped_across", op="conv2d")
@template("conv3d.grouped_across", op="conv3d")
class AcrossGroupsConv2d:
    """Any number of channels per group: a vector of output channels may belong to several groups."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return plain_conv(workload) and sizes(workload).groups > 1

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = sizes(workload)
        registers, lanes = target.num_vector_registers, target.lanes(DType.f32.bytes)
        knobs = (
            tile("ow_tile", p.ow, limit=28),
            Choice("oh_tile", divisors(p.oh, 7)),
            Choice("taps", ("outside", "inside")),
            flag("unroll_kh"),
            Choice("skip", ("none", "rows", "all")),
            Choice("order", ("khw", "hkw") if p.rank > 1 else ("kw",)),
        )

        def fits(c: Config) -> bool:
            return c.get_int("ow_tile") * c.get_int("oh_tile") + 2 <= registers + registers // 4

        def code_size(c: Config) -> bool:
            pixels, rows = c.get_int("ow_tile") * c.get_int("oh_tile"), p.r if c.get_bool("unroll_kh") else 1
            body = pixels * rows * p.s * unrolled_inputs(p) * lane_loads(p, lanes)
            return body <= MAX_FMAS or pixels == rows == 1

        def whole(c: Config) -> bool:
            return c.get_str("skip") != "all" or c.get_int("ow_tile") >= p.ow

        return ConfigSpace(
            knobs,
            (
                Constraint("registers", fits, "the tile needs more vector registers than there are"),
                Constraint("code size", code_size, "the unrolled body would not fit the instruction cache"),
                Constraint("skip", whole, "columns are known while compiling only if one tile has them all"),
            ),
        )

    def default(self, workload: Workload, target: Target) -> Config:
        space = self.space(workload, target)
        p = sizes(workload)
        # While a row of taps is folded, its weights and the pixels under them are in registers beside the tile.
        room = max(target.num_vector_registers - 2 * min(p.s, 4), 4)
        tiles = [c for c in space.knob("ow_tile").values if isinstance(c, int) and c <= min(room, 16)]
        # A tile costs as much as a pixel more than its pixels; the tail of a row is code of its own.
        tiles.sort(key=lambda t: (-(-p.ow // t) + 2 * (p.ow % t > 0), -t))
        heights = [h for h in reversed(space.knob("oh_tile").values) if isinstance(h, int)]
        shapes = [(w, h) for w in tiles for h in heights if h == 1 or h * w <= min(room, 14)]
        plain = space.default().replace(taps="inside")
        chosen = next(
            tried for tried in (plain.replace(ow_tile=w, oh_tile=h) for w, h in shapes) if space.satisfies(tried)
        )
        width, height = chosen.get_int("ow_tile"), chosen.get_int("oh_tile")
        body = width * height * p.r * p.s * unrolled_inputs(p) * lane_loads(p, target.lanes(DType.f32.bytes))
        skip = "none"
        if padded_share(p) >= WORTH_SKIPPING and height == 1:
            skip = "all" if width >= p.ow else "rows"
        return chosen.replace(unroll_kh=body <= MAX_FMAS // 2, skip=skip)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = sizes(workload)
        lanes = target.lanes(DType.f32.bytes)
        a = anchored(workload)
        anchor = workload.anchor
        assert anchor is not None
        x, weight = (f"in{i}" for i in anchor.inputs)
        layouts = operand_layouts(workload, lanes, p.k)
        own = blocked_activations(p.c, lanes, p.rank + 2)
        # One channel per group: tiles at the edges are code of their own anyway, and somebody has to write a border.
        bare = p.groups == p.c and own.block(1) > 1
        layouts[x] = own if bare else own.with_halo(_border(p, config.get_str("skip")))
        s = with_layouts(a.schedule, interface, layouts)
        width = channel_vector(s, (a.output, x), lanes)
        if s.state.tensor(weight).constant:
            s = s.layout(weight, Layout.blocked(p.rank + 2, [(0, width)]))
        s = self._output(s, a, config, width, lanes)
        skipped = {"none": 0, "rows": p.rank - 1, "all": p.rank - (width == 1)}[config.get_str("skip")]
        for d in range(skipped):
            if any(p.sides[d]):
                s = s.skip_padding(a.anchor, x, 2 + d)
        if has_room(s, p, x, weight, width):
            s = s.pad(a.output, a.axes(a.output)[1]).pad(a.anchor, a.axes(a.anchor)[1])
        return s

    def _output(self, s: Schedule, a: Anchored, config: Config, width: int, lanes: int) -> Schedule:
        """Loops over tiles, and the tile: vectors of `width` channels, or of pixels when channels are apart."""
        out, conv = a.output, a.anchor
        n, k, *deep, ow = a.axes(out)
        pixels = config.get_int("ow_tile")
        if width > 1:
            s = s.split(out, k, width).split(out, ow, pixels)
            blocks, columns, vector = f"{k}.0", f"{ow}.1", f"{k}.1"
        else:
            s = s.split(out, ow, min(pixels * lanes, -(-a.extent(ow) // lanes) * lanes)).split(out, f"{ow}.1", lanes)
            blocks, columns, vector = k, f"{ow}.1.0", f"{ow}.1.1"
        shared, tile = [blocks], [columns]
        if deep:
            row = deep.pop()
            s = s.split(out, row, config.get_int("oh_tile"))
            shared.insert(1 if config.get_str("order") == "khw" else 0, f"{row}.0")
            tile.insert(0, f"{row}.1")
        s = s.reorder(out, n, *deep, *shared, f"{ow}.0", *tile, vector)
        for loop in tile:
            s = s.unroll(out, loop)
        s = s.vectorize(out, vector).compute_at(conv, out, f"{ow}.0", REGISTER).partition(out, f"{ow}.0")
        fused = n
        for loop in (*deep, *shared):
            s = s.fuse(out, fused, loop)
            fused = f"{fused}*{loop}"
        s = s.parallel(out, fused)
        return self._window(s, a, config, width, lanes)

    def _window(self, s: Schedule, a: Anchored, config: Config, width: int, lanes: int) -> Schedule:
        """The sum over the window, for one tile."""
        conv = a.anchor
        _, k, *deep, ow = a.axes(conv)
        rank, oh = len(deep) + 1, deep[-1:]
        summed = a.reduce_axes(conv)
        channels, rows, ks = summed[:-rank], summed[-rank:-1], summed[-1]
        if width > 1:
            s = s.layout(conv, Layout.blocked(rank + 2, [(1, width)]))
            columns, vector = ow, k
        else:
            s = s.layout(conv, Layout.blocked(rank + 2, [(rank + 1, lanes)])).split(conv, ow, lanes)
            columns, vector = f"{ow}.0", f"{ow}.1"
        inside = config.get_str("taps") == "inside"
        s = s.reorder(conv, *rows, *channels, *((*oh, columns, ks) if inside else (ks, *oh, columns)), vector)
        # Which lane reads which input channel is known only when the channel is.
        constant = (*(c for c in channels if s.state.stage(conv).loop(c).extent <= MAX_INPUTS), ks, *oh, columns)
        for loop in (*(rows[-1:] if config.get_bool("unroll_kh") else ()), *constant):
            s = s.unroll(conv, loop)
        return s.vectorize(conv, vector)


def _border(p: Conv, skip: str) -> tuple[tuple[int, int], ...]:
    """Zeros around the input, on the sides whose taps are not skipped: whoever makes the input has to write them."""
    spared = {"none": 0, "rows": p.rank - 1, "all": p.rank}[skip]
    sides = halo(p)
    return (*sides[:2], *((0, 0) for _ in range(spared)), *sides[2 + spared :])


def channel_vector(s: Schedule, tensors: tuple[str, ...], lanes: int) -> int:
    """How many channels lie side by side, at most one vector; 1 when the tensors are row-major."""
    for name in tensors:
        block = s.state.layout(s.state.tensor(name)).block(1)
        if block > 1:
            return math.gcd(block, lanes)
    return 1
