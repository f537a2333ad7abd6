"""Direct 2-D convolution on channel-blocked activations: register tiles of output pixels times output channels.

The innermost loops are those of NeoCPU (Liu et al., ATC'19) and oneDNN: for one input channel, one broadcast per
pixel is multiplied with one weight vector per block of output channels. The window loops stay outside the channel loop,
so that no broadcast is shared between taps (it would have to be kept in a register).
"""

from __future__ import annotations

from autotune.ops.registry import lookup
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER
from autotune.search_spaces.anchored import anchored, divisors, with_layouts
from autotune.search_spaces.config import Config
from autotune.search_spaces.conv2d_shape import ConvShape, blocked_activations, operand_layouts
from autotune.search_spaces.interface import Interface
from autotune.search_spaces.knobs import Choice, flag, tile
from autotune.search_spaces.registry import template
from autotune.search_spaces.space import ConfigSpace, Constraint
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout


@template("conv2d.direct", op="conv2d")
class DirectConv2d:
    """Dense convolution, any stride, padding and dilation."""

    def applies(self, workload: Workload, target: Target) -> bool:
        anchor = workload.anchor
        if anchor is None or anchor.op != "conv2d" or anchor.attr("groups") != 1:
            return False
        types = workload.types()
        dtypes = {types[i].dtype for i in anchor.inputs}
        others = all(n is anchor or lookup(n.op).elementwise for n in workload.nodes)
        return others and dtypes == {"f32"} and min(types[-1].shape) > 0

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = ConvShape.of(workload)
        lanes = target.lanes(DType.f32.bytes)
        registers = target.num_vector_registers
        blocks = -(-p.k // lanes)
        knobs = (
            Choice("oc_vectors", divisors(blocks, 4)),
            tile("ow_tile", p.ow, limit=28, default=14),
            Choice("oh_tile", divisors(p.oh, 7)),
            Choice("ic_unroll", divisors(lanes if p.c >= lanes else p.c, 4)),
            Choice("order", ("khw", "hkw", "hwk")),
            flag("unroll_kw"),
        )

        def fits(c: Config) -> bool:
            vectors, pixels = c.get_int("oc_vectors"), c.get_int("ow_tile") * c.get_int("oh_tile")
            return vectors * pixels + vectors + 1 <= registers + registers // 4

        def code_size(c: Config) -> bool:
            body = c.get_int("oc_vectors") * c.get_int("ow_tile") * c.get_int("oh_tile") * c.get_int("ic_unroll")
            return body * (p.s if c.get_bool("unroll_kw") else 1) <= 512

        return ConfigSpace(
            knobs,
            (
                Constraint("registers", fits, "the tile needs more vector registers than there are"),
                Constraint("code size", code_size, "the unrolled body would not fit the instruction cache"),
            ),
        )

    def default(self, workload: Workload, target: Target) -> Config:
        space = self.space(workload, target)
        p = ConvShape.of(workload)
        registers = target.num_vector_registers
        best, chosen = -1.0, space.default()
        for vectors in space.knob("oc_vectors").values:
            for width in space.knob("ow_tile").values:
                for height in space.knob("oh_tile").values:
                    assert isinstance(vectors, int) and isinstance(width, int) and isinstance(height, int)
                    used = vectors * width * height + vectors + 1
                    if used > registers:
                        continue
                    # FMAs per load, times the share of the last tile in a row that is really used.
                    intensity = vectors * width * height / (vectors + width * height)
                    full = p.ow / (-(-p.ow // width) * width)
                    score = intensity * (0.5 + 0.5 * full) + 0.01 * vectors - 0.05 * height
                    if score > best:
                        best = score
                        chosen = chosen.replace(oc_vectors=vectors, ow_tile=width, oh_tile=height)
        unroll = max(u for u in space.knob("ic_unroll").values if isinstance(u, int) and u <= 3)
        return chosen.replace(ic_unroll=unroll, order="hkw" if p.r * p.s == 1 else "khw")

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = ConvShape.of(workload)
        lanes = target.lanes(DType.f32.bytes)
        a = anchored(workload)
        anchor = workload.anchor
        assert anchor is not None
        vectors, width, height = config.get_int("oc_vectors"), config.get_int("ow_tile"), config.get_int("oh_tile")
        channel_block = lanes if p.c >= lanes else p.c
        layouts = operand_layouts(workload, lanes, p.k)
        layouts[f"in{anchor.inputs[0]}"] = blocked_activations(p.c, lanes).with_halo(p.halo())
        weight = Layout.blocked(4, [(1, channel_block), (0, vectors * lanes)])
        layouts[f"in{anchor.inputs[1]}"] = weight
        s = with_layouts(a.schedule, interface, layouts)
        out, conv = a.output, a.anchor
        n, k, oh, ow = a.axes(out)
        s = s.split(out, k, vectors * lanes).split(out, f"{k}.1", lanes)
        s = s.split(out, oh, height).split(out, ow, width)
        outer = {"k": f"{k}.0", "h": f"{oh}.0", "w": f"{ow}.0"}
        order = [outer[x] for x in config.get_str("order")]
        s = s.reorder(out, n, *order, f"{oh}.1", f"{k}.1.0", f"{ow}.1", f"{k}.1.1")
        for loop in (f"{oh}.1", f"{k}.1.0", f"{ow}.1"):
            s = s.unroll(out, loop)
        s = s.vectorize(out, f"{k}.1.1")
        inner = order[-1]
        s = s.compute_at(conv, out, inner, REGISTER)
        if p.ow % width:
            s = s.partition(out, f"{ow}.0")
        shared = [n, *order[: 2 if order[0] != f"{ow}.0" else 1]]
        # Loops over rows and channel blocks are shared among threads; the partitioned one stays apart.
        shared = [x for x in shared if x != f"{ow}.0"]
        fused = shared[0]
        for loop in shared[1:]:
            s = s.fuse(out, fused, loop)
            fused = f"{fused}*{loop}"
        s = s.parallel(out, fused)
        state = s.state
        if blocked_channels(state.layout(state.tensor(out))) == lanes:
            s = s.pad(out, k)
        return self._accumulate(s, a.axes(conv), a.reduce_axes(conv), conv, config, lanes, p, channel_block)

    def _accumulate(
        self, s: Schedule, axes: tuple[str, ...], folded: tuple[str, ...], conv: str, config: Config, lanes: int,
        p: ConvShape, channel_block: int,
    ) -> Schedule:  # fmt: skip
        n, k, oh, ow = axes
        c, kr, ks = folded
        s = s.layout(conv, Layout.blocked(4, [(1, lanes)]))
        s = s.split(conv, k, lanes).split(conv, c, channel_block).split(conv, f"{c}.1", config.get_int("ic_unroll"))
        s = s.reorder(conv, n, f"{c}.0", kr, ks, f"{c}.1.0", f"{c}.1.1", oh, f"{k}.0", ow, f"{k}.1")
        for loop in (f"{c}.1.1", oh, f"{k}.0", ow):
            s = s.unroll(conv, loop)
        if config.get_bool("unroll_kw"):
            s = s.unroll(conv, ks)
        if p.c % channel_block:
            s = s.partition(conv, f"{c}.0")
        return s.vectorize(conv, f"{k}.1").pad(conv, k)


def blocked_channels(layout: Layout) -> int:
    return layout.block(1)
