"""Split-K: threads share the sum itself, where the result is too small to be shared and the sum is long."""

from __future__ import annotations

from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import REGISTER
from autotune.search_spaces.library.anchored import anchored, with_layouts
from autotune.search_spaces.operators.matmul_nest import panel_layout, tile_product
from autotune.search_spaces.operators.matmul_shape import MatmulShape, has_constant_b, is_matmul, operand_b
from autotune.search_spaces.operators.matmul_space import tile_space, tiling, with_default_tile
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target
from autotune.tensor.layout import Layout

MOST_RESULTS = 1 << 16
LEAST_DEPTH = 512


@template("matmul.split_k", op="matmul", weight=0.5, priority=-1.0)
class SplitKMatmul:
    """Partial products over parts of k, computed by different threads, then added up."""

    def applies(self, workload: Workload, target: Target) -> bool:
        if target.num_threads == 1 or not is_matmul(workload):
            return False
        p = MatmulShape.of(workload)
        return p.batches * p.m * p.n <= MOST_RESULTS and p.k >= LEAST_DEPTH and len(_parts(p)) > 0

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = MatmulShape.of(workload)
        return tile_space(p, target, others=(Choice("parts", _parts(p)),))

    def default(self, workload: Workload, target: Target) -> Config:
        p = MatmulShape.of(workload)
        space = self.space(workload, target)
        parts = min(_parts(p), key=lambda n: (-(-n // target.num_threads) * target.num_threads / n, n))
        return with_default_tile(p, target, space).replace(parts=parts)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = MatmulShape.of(workload)
        constant = has_constant_b(workload)
        t = tiling(p, config, target, panels=constant)
        b = operand_b(workload) or ""
        a = anchored(workload)
        s = with_layouts(a.schedule, interface, {b: panel_layout(p, t.columns)} if constant else {})
        (k,) = a.reduce_axes(a.anchor)
        part = f"{a.anchor}.rf"
        s = s.rfactor(a.anchor, k, p.k // config.get_int("parts")).cache_write(part)
        s = tile_product(s, part, f"{part}.c", b, p, t)
        return _added_up(s, a.output, a.anchor, t.lanes)


def _added_up(s: Schedule, out: str, total: str, lanes: int) -> Schedule:
    """The sum of the parts and the epilogue, one vector at a time."""
    *rest, j = (x.name for x in s.state.stage(out).stage.axes)
    s = s.split(out, j, lanes).vectorize(out, f"{j}.1")
    fused, *others = [*rest, f"{j}.0"]
    for loop in others:
        s = s.fuse(out, fused, loop)
        fused = f"{fused}*{loop}"
    s = s.parallel(out, fused).compute_at(total, out, fused, REGISTER)
    *single, tj = (x.name for x in s.state.stage(total).stage.axes)
    (part,) = (x.name for x in s.state.stage(total).stage.reduce_axes)
    s = s.layout(total, Layout.blocked(len(single) + 1, [(len(single), lanes)]))
    return s.reorder(total, *single, part, tj).vectorize(total, tj)


def _parts(p: MatmulShape) -> tuple[int, ...]:
    """Numbers of equal parts of k, none shorter than a cache line is worth."""
    return tuple(n for n in (2, 3, 4, 6, 8, 12, 16, 24, 32) if p.k % n == 0 and p.k // n >= 64)
