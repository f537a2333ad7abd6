"""Products of 8-bit matrices by dot-product instructions: four products per i32 lane at once (AVX-512 VNNI)."""

from __future__ import annotations

from dataclasses import replace

from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS
from autotune.search_spaces.library.anchored import anchored, with_layouts
from autotune.search_spaces.operators.matmul_nest import panel_layout, tile_product
from autotune.search_spaces.operators.matmul_shape import MatmulShape, has_constant_b, is_matmul
from autotune.search_spaces.operators.matmul_space import shared_evenly, tile_space, tiling, with_default_tile
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace
from autotune.target import Target

DOT = DOT_PRODUCTS["vpdpbusd"]


def dot_operands(workload: Workload, target: Target) -> bool:
    """Whether the anchor multiplies what the instruction does, u8 activations and i8 weights, and the CPU has it."""
    anchor = workload.anchor
    assert anchor is not None
    types = workload.types()
    fitting = [types[i].dtype for i in anchor.inputs] == [DOT.left, DOT.right]
    return fitting and target.has("avx512vnni", "avx512vl")


@template("matmul.dot", op="matmul", priority=3.0)
class DotMatmul:
    """u8 activations, row by row, times i8 weights packed into panels of four neighbours along the sum."""

    def applies(self, workload: Workload, target: Target) -> bool:
        if not is_matmul(workload, (DOT.left, DOT.right)) or not has_constant_b(workload):
            return False
        p = MatmulShape.of(workload)
        direct = p.a < len(workload.inputs) and not p.trans_a and p.k % DOT.extent == 0
        return direct and dot_operands(workload, target)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        return tile_space(self._sums(workload), target)

    def default(self, workload: Workload, target: Target) -> Config:
        p = self._sums(workload)
        return shared_evenly(p, target, with_default_tile(p, target, self.space(workload, target)))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = self._sums(workload)
        t = replace(tiling(p, config, target), dot=DOT.name)
        a, b = anchored(workload), f"in{p.b}"
        s = with_layouts(a.schedule, interface, {b: panel_layout(p, t.columns, t.step)})
        return tile_product(s, a.output, a.anchor, b, p, t)

    def _sums(self, workload: Workload) -> MatmulShape:
        """Sizes with the dtype of the sums, which decides how many lanes a vector has."""
        return replace(MatmulShape.of(workload), dtype=DOT.total)
