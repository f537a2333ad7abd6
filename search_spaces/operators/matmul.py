"""Matrix product templates: with weights, with few rows and weights, and of two activations."""

from __future__ import annotations

from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.library.anchored import anchored, with_layouts
from autotune.search_spaces.operators.matmul_nest import Tiling, panel_layout, tile_product
from autotune.search_spaces.operators.matmul_shape import MatmulShape, has_constant_b, is_matmul, operand_b
from autotune.search_spaces.operators.matmul_space import k_blocks, shared_evenly, tile_space, tiling, with_default_tile
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, flag
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target

SKINNY = 16
WIDE = (1, 2, 3, 4, 6, 8, 12, 16)


@template("matmul.packed", op="matmul", priority=1.0)
class PackedMatmul:
    """Any product whose second operand is a constant: it is packed once, at compile time, into panels."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return is_matmul(workload) and has_constant_b(workload)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = MatmulShape.of(workload)
        return tile_space(p, target, others=(k_blocks(p),))

    def default(self, workload: Workload, target: Target) -> Config:
        p = MatmulShape.of(workload)
        return shared_evenly(p, target, with_default_tile(p, target, self.space(workload, target)))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = MatmulShape.of(workload)
        return _from_panels(workload, p, tiling(p, config, target), interface)


@template("matmul.skinny", op="matmul", priority=2.0)
class SkinnyMatmul:
    """Few rows: the weights are read once and little is done with them, so that memory sets the pace.

    Wide tiles make up for the few rows, and weights may be asked for in advance.
    """

    def applies(self, workload: Workload, target: Target) -> bool:
        return is_matmul(workload) and has_constant_b(workload) and MatmulShape.of(workload).m <= SKINNY

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = MatmulShape.of(workload)
        return tile_space(p, target, vectors=WIDE, others=(Choice("prefetch", (0, 4, 8, 16, 32, 64)),))

    def default(self, workload: Workload, target: Target) -> Config:
        p = MatmulShape.of(workload)
        return shared_evenly(p, target, with_default_tile(p, target, self.space(workload, target)))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = MatmulShape.of(workload)
        return _from_panels(workload, p, tiling(p, config, target), interface)


@template("matmul.dynamic", op="matmul")
class DynamicMatmul:
    """Both operands are computed at run time: `b` is read as it lies, or packed block by block."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return is_matmul(workload) and not has_constant_b(workload)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = MatmulShape.of(workload)
        packing = (flag("pack_b", default=p.trans_b),) if operand_b(workload) is not None else ()
        return tile_space(p, target, others=(k_blocks(p), *packing))

    def default(self, workload: Workload, target: Target) -> Config:
        p = MatmulShape.of(workload)
        config = with_default_tile(p, target, self.space(workload, target))
        return shared_evenly(p, target, config.replace(outer="nm", m_tiles=0))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = MatmulShape.of(workload)
        b = operand_b(workload)
        packs = b is not None and config.get_bool("pack_b")
        a = anchored(workload)
        s = with_layouts(a.schedule, interface, {})
        t = tiling(p, config, target, panels=packs, packs=packs)
        return tile_product(s, a.output, a.anchor, b or "", p, t)


def _from_panels(workload: Workload, p: MatmulShape, t: Tiling, interface: Interface | None) -> Schedule:
    a = anchored(workload)
    b = f"in{p.b}"
    s = with_layouts(a.schedule, interface, {b: panel_layout(p, t.columns)})
    return tile_product(s, a.output, a.anchor, b, p, t)
