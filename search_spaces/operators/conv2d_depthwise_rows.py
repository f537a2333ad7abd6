"""Depthwise convolution by F(2, 3) down columns: two rows of outputs share multiplications, see ops.winograd_rows.

One tile is two rows by some columns of one vector of channels. Its four sums are made one after another, each from
combinations of input rows that neighbouring columns share, and each is added to the two outputs as soon as it is
complete: three vectors per column are alive at a time. Nothing leaves the registers between the transforms.
"""

from __future__ import annotations

from autotune.ops import winograd_rows
from autotune.ops.conv import Conv
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.anchored import anchored, with_layouts
from autotune.search_spaces.operators.conv2d_depthwise import channel_vector
from autotune.search_spaces.operators.conv2d_shape import (
    halo,
    has_room,
    operand_layouts,
    padded_share,
    plain_conv,
    sizes,
)
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, tile
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

MAX_FMAS = 768
"""Vector multiply-adds in the body of a tile."""


TRANSFORMS = 1.1
"""Time of a tile by the time of its multiplications alone, or of its additions where these are more."""

LIKE_ADDITIONS = {"add": 1, "sub": 1, "min": 1, "max": 1, "relu": 1, "clip": 2}
"""Operators behind the convolution that take the units for additions, and how many instructions they are."""

MAX_LOADS = 192
"""Elements that a tile may load where channels do not lie side by side: up to a hundred instructions each."""

BORDER = 4.5
"""What a vector of a zero border costs whoever writes it, in multiply-adds: it passes through the caches too."""

USUAL_WIDTH = 5
"""Columns of a tile, about."""

BALANCED = 0.95
"""Share of the threads' time that may not be lost when they share channels only."""

MAX_WINDOW = 9
"""Rows of a window: each piece of three adds a transform of its own to the code."""


def _prefer(workload: Workload, target: Target) -> float:
    """Untuned, where additions have units of their own, there are registers for a tile of some width, and the time
    saved is worth a zero border, beside the plain sum that skips padding, needs no border and adds for free."""
    if not (target.core.adds_beside_multiplies and target.num_vector_registers >= 32):
        return 0.5
    p = sizes(workload)
    inside = 1.0 - padded_share(p)
    plain = p.oh * p.ow * p.r * p.s * inside**2
    apart = _edges(p, target) == "apart"
    multiplications = winograd_rows.products(p.r) * p.s * (inside if apart else 1.0)
    width = min(USUAL_WIDTH, p.ow)
    behind = sum(LIKE_ADDITIONS.get(node.op, 0) for node in workload.nodes)
    combinations = winograd_rows.additions(p.r) * (width + p.s - 1) / width
    additions = combinations + winograd_rows.SUMS + winograd_rows.ROWS * behind
    ours = TRANSFORMS * -(-p.oh // winograd_rows.ROWS) * p.ow * max(multiplications, additions)
    if not apart:
        (_, _, (top, bottom), (left, right)) = _halo(p)
        ours += BORDER * ((top + p.h + bottom) * (left + p.w + right) - p.h * p.w)
    return 2.0 if ours < plain else 0.5


def _edges(p: Conv, target: Target) -> str:
    """Tiles at the image's edges as code of their own: no zero border has to be written, nothing has to be tested. The
    loop over rows is cut up for it, so threads share blocks of channels only."""
    blocks = p.n * -(-p.c // target.lanes(DType.f32.bytes))
    turns = -(-blocks // target.num_threads)
    return "apart" if blocks >= BALANCED * turns * target.num_threads else "border"


@template("conv2d.depthwise_rows", op="conv2d", priority=_prefer, strict=False)
class DepthwiseRows:
    """Stride 1, one channel per group, windows of 2 rows or more."""

    def applies(self, workload: Workload, target: Target) -> bool:
        if not plain_conv(workload):
            return False
        anchor = workload.anchor
        assert anchor is not None
        p = sizes(workload)
        blocked = p.c >= target.lanes(DType.f32.bytes) and p.oh >= winograd_rows.ROWS
        small = p.r <= MAX_WINDOW and winograd_rows.products(p.r) * p.s <= MAX_FMAS
        return workload.inputs[anchor.inputs[1]].constant and winograd_rows.applies(p) and blocked and small

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = sizes(workload)
        registers = target.num_vector_registers
        products = winograd_rows.products(p.r) * p.s
        knobs = (
            tile("ow_tile", p.ow, limit=14),
            Choice("taps", ("outside", "inside")),
            Choice("order", ("khw", "hkw")),
            Choice("edges", ("border", "apart")),
        )

        def fits(c: Config) -> bool:
            return 3 * c.get_int("ow_tile") + 4 <= registers + registers // 4

        def code_size(c: Config) -> bool:
            return c.get_int("ow_tile") * products <= MAX_FMAS

        def whole(c: Config) -> bool:
            return c.get_str("edges") == "border" or c.get_str("order") == "khw"

        return ConfigSpace(
            knobs,
            (
                Constraint("registers", fits, "the tile needs more vector registers than there are"),
                Constraint("code size", code_size, "the unrolled body would not fit the instruction cache"),
                Constraint("edges", whole, "with edges apart, all rows of a block of channels come together"),
            ),
        )

    def default(self, workload: Workload, target: Target) -> Config:
        space = self.space(workload, target)
        p = sizes(workload)
        tiles = [c for c in space.knob("ow_tile").values if isinstance(c, int)]
        registers = target.num_vector_registers
        fitting = [t for t in tiles if space.satisfies(space.default().replace(ow_tile=t))]
        # Narrower ones would combine more columns of inputs than they make outputs.
        wide = [t for t in fitting if t >= min(p.s - 1, p.ow) and 3 * t + 4 <= registers]

        def cost(t: int) -> float:
            """In columns: a tile costs a quarter more than its own, the tail of a row is code of its own, and with
            the combinations of a tile's input rows beside its sums and outputs some are spilled."""
            crowded = 4 * t + 3 * p.s > registers
            return (p.ow + -(-p.ow // t) / 4) * (1.15 if crowded else 1.0) + (p.ow % t > 0)

        width = min(wide or fitting[:1], key=lambda t: (cost(t), -t))
        return space.default().replace(ow_tile=width, edges=_edges(p, target))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = sizes(workload)
        lanes = target.lanes(DType.f32.bytes)
        a = anchored(workload, "winograd_rows")
        anchor = workload.anchor
        assert anchor is not None
        x, out = f"in{anchor.inputs[0]}", a.output
        layouts = operand_layouts(workload, lanes, p.k)
        apart = config.get_str("edges") == "apart"
        layouts[x] = Layout.blocked(4, [(1, lanes)])
        if not apart:
            layouts[x] = layouts[x].with_halo(_halo(p))
        s = with_layouts(a.schedule, interface, layouts)
        narrow = channel_vector(s, (x, out), lanes)
        lanes = narrow if narrow > 1 else lanes  # a vector across blocks would be a load per channel, in nine copies
        columns = config.get_int("ow_tile")
        if s.state.layout(s.state.tensor(x)).block(1) % lanes:
            columns, lanes = _small_tile(p, columns, lanes)
        s = s.precompute("wino_u").layout("wino_u", Layout.blocked(4, [(0, lanes)]))
        n, k, oh, ow = a.axes(out)
        s = s.split(out, k, lanes).split(out, oh, winograd_rows.ROWS).split(out, ow, columns)
        shared = [f"{k}.0", f"{oh}.0"] if config.get_str("order") == "khw" else [f"{oh}.0", f"{k}.0"]
        tile_loops = (f"{oh}.1", f"{ow}.1")
        s = s.reorder(out, n, *shared, f"{ow}.0", *tile_loops, f"{k}.1")
        for loop in tile_loops:
            s = s.unroll(out, loop)
        s = s.vectorize(out, f"{k}.1").compute_at("wino_y", out, f"{ow}.0", REGISTER)
        s = self._transforms(s, config, lanes)
        s = s.partition(out, f"{ow}.0")
        if apart:
            s = s.partition(out, f"{oh}.0")
            shared = [f"{k}.0"]
        fused = n
        for loop in shared:
            s = s.fuse(out, fused, loop)
            fused = f"{fused}*{loop}"
        s = s.parallel(out, fused)
        if has_room(s, p, x, "wino_u", lanes):
            for stage in ("wino_v", "wino_m", "wino_y", out):
                s = s.pad(stage, s.state.stage(stage).stage.axes[1].name)
        return s

    def _transforms(self, s: Schedule, config: Config, lanes: int) -> Schedule:
        """From the outputs back to the inputs, in registers."""
        y, m, v = "wino_y", "wino_m", "wino_v"
        n, k, t, q, ow, g = _loops(s, y)
        s = _unrolled(s, y, (n, t, g, q, ow), k, lanes).compute_at(m, y, g, REGISTER)
        n, k, t, g, ow, e, tap = _loops(s, m)
        last = (ow, tap) if config.get_str("taps") == "inside" else (tap, ow)
        s = _unrolled(s, m, (n, t, g, e, *last), k, lanes).compute_at(v, m, e, REGISTER)
        n, c, t, e, g, w, i = _loops(s, v)
        return _unrolled(s, v, (n, t, e, g, w, i), c, lanes)


def _small_tile(p: Conv, columns: int, lanes: int) -> tuple[int, int]:
    """(columns, lanes) of a tile whose channels are loaded one by one: as much of it as the code has room for."""

    def loads() -> int:
        return winograd_rows.products(p.r) * (columns + p.s - 1) * lanes

    while columns > 1 and loads() > MAX_LOADS:
        columns -= 1
    while lanes > 1 and loads() > MAX_LOADS:
        lanes //= 2
    return columns, lanes


def _halo(p: Conv) -> tuple[tuple[int, int], ...]:
    """Of the input; the last tile of an odd number of rows reads one more."""
    *other, (top, bottom), columns = halo(p)
    return (*other, (top, bottom + p.oh % winograd_rows.ROWS), columns)


def _loops(s: Schedule, stage: str) -> tuple[str, ...]:
    return tuple(x.name for x in s.state.stage(stage).stage.all_axes)


def _unrolled(s: Schedule, stage: str, loops: tuple[str, ...], channel: str, lanes: int) -> Schedule:
    """One vector of channels in registers, everything else unrolled in this order."""
    rank = len(s.state.stage(stage).stage.axes)
    s = s.layout(stage, Layout.blocked(rank, [(1, lanes)])).reorder(stage, *loops, channel)
    for loop in loops:
        if s.state.stage(stage).loop(loop).extent > 1:
            s = s.unroll(stage, loop)
    return s.vectorize(stage, channel)
