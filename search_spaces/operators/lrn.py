"""Local response normalisation of blocked images: windows of channels read from a row of pixels laid out by channel.

In channel blocks a window crosses block borders, which would be a gather. A copy of one row, channels innermost, makes
every window a plain (unaligned) vector load.
"""

from __future__ import annotations

from autotune.ops.registry import lookup
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.anchored import anchored, with_layouts
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

BY_CHANNEL = Layout(((0, 0), (2, 0), (3, 0), (1, 0)), ((0, 0),) * 4)


@template("lrn.rows", op="lrn", priority=1.0)
class LrnRows:
    """One image row at a time."""

    def applies(self, workload: Workload, target: Target) -> bool:
        anchor = workload.anchor
        if anchor is None or anchor.op != "lrn" or anchor.inputs[0] >= len(workload.inputs):
            return False
        others = all(n is anchor or lookup(n.op).elementwise for n in workload.nodes)
        data = workload.inputs[anchor.inputs[0]].type
        return others and data.dtype == "f32" and len(data.shape) == 4 and min(data.shape) > 0

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        lanes = target.lanes(DType.f32.bytes)
        return ConfigSpace((Choice("lanes", (lanes, lanes // 2), lanes),))

    def default(self, workload: Workload, target: Target) -> Config:
        return self.space(workload, target).default()

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        lanes = config.get_int("lanes")
        anchor = workload.anchor
        assert anchor is not None
        a = anchored(workload)
        source = f"in{anchor.inputs[0]}"
        blocked = {f"in{n}": Layout.blocked(4, [(1, target.lanes(DType.f32.bytes))])
                   for n, i in enumerate(workload.inputs) if len(i.type.shape) == 4}  # fmt: skip
        s = with_layouts(a.schedule, interface, {**blocked, a.output: next(iter(blocked.values()))})
        s = s.cache_read(source, a.anchor)
        n, c, h, w = a.axes(a.output)
        s = s.split(a.output, c, lanes).reorder(a.output, n, h, w, f"{c}.0", f"{c}.1").fuse(a.output, n, h)
        s = s.vectorize(a.output, f"{c}.1").parallel(a.output, f"{n}*{h}").partition(a.output, f"{c}.0")
        s = s.compute_at(a.anchor, a.output, f"{c}.0", REGISTER)
        (window,) = a.reduce_axes(a.anchor)
        sum_n, sum_c, sum_h, sum_w = a.axes(a.anchor)
        s = s.reorder(a.anchor, sum_n, sum_h, sum_w, window, sum_c).unroll(a.anchor, window).vectorize(a.anchor, sum_c)
        copy = f"{source}.r"
        s = s.compute_at(copy, a.output, f"{n}*{h}").layout(copy, BY_CHANNEL)
        cn, cc, ch, cw = (x.name for x in s.state.stage(copy).stage.axes)
        s = s.split(copy, cc, lanes).reorder(copy, cn, ch, cw, f"{cc}.0", f"{cc}.1").vectorize(copy, f"{cc}.1")
        return s.partition(copy, f"{cc}.0")
