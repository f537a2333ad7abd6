"""The template of tiled contractions: any sum of products, whatever its operator is called."""

from __future__ import annotations

import functools

from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.sketch.contraction import contraction
from autotune.search_spaces.sketch.space import SketchSpace, sketch_space
from autotune.search_spaces.sketch.tiling import Tiles
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import template
from autotune.target import Target

BEFORE_PRODUCTS, BEFORE_GENERIC = 2.5, -5.0


def _first(workload: Workload, target: Target) -> float:
    """Untuned, before the templates of products, which it beats on a CPU that nobody has fitted a rule to, and behind
    those of convolutions, which it equals there (benchmarks/sketches.py --against)."""
    anchor = workload.anchor
    if anchor is not None and anchor.op == "matmul":
        return BEFORE_PRODUCTS
    return BEFORE_GENERIC


@template("sketch.contraction", op=None, priority=_first)
class SketchedContraction:
    """Contractions with an axis along which nothing need be gathered."""

    def applies(self, workload: Workload, target: Target) -> bool:
        c = contraction(workload, target)
        return c is not None and bool(c.vector_axes())

    def space(self, workload: Workload, target: Target) -> SketchSpace:
        return _space(workload, target)

    def default(self, workload: Workload, target: Target) -> Config:
        return self.space(workload, target).default()

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        space = _space(workload, target)
        c = space.numbers.c
        return Tiles(c, space.tiling(config), with_layouts(c.schedule, interface, dict(c.layouts))).schedule()


@functools.lru_cache(maxsize=64)
def _space(workload: Workload, target: Target) -> SketchSpace:
    c = contraction(workload, target)
    assert c is not None
    return sketch_space(c, target)
