"""The templates of sketches: any sum of products, and any map, whatever its operator is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from autotune.cost_model.prior_files import prior_key
from autotune.ops import conv_pixels, conv_rows
from autotune.ops.conv import CONVOLUTIONS
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.library.unread import skip_what_nobody_reads
from autotune.search_spaces.sketch.batch import Integers
from autotune.search_spaces.sketch.contraction import Contraction, contraction
from autotune.search_spaces.sketch.in_rows import in_rows, laid_in_rows
from autotune.search_spaces.sketch.mapping import far_apart, mapping, slides, turned
from autotune.search_spaces.sketch.parts import added_up, in_parts
from autotune.search_spaces.sketch.pixels import of_pixels, passed
from autotune.search_spaces.sketch.rules import from_afar, read_once
from autotune.search_spaces.sketch.space import SketchSpace, sketch_space
from autotune.search_spaces.sketch.tiling import Tiles, Tiling
from autotune.search_spaces.sketch.widened import all_wide, copied, widened
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.dtype import DType

FIRST, AMONG_ALGORITHMS, BEFORE_GENERIC, BESIDE_GENERIC, BEHIND_GENERIC = 1.0, 0.0, -5.0, -10.0, -15.0
"""Priorities, of which the order alone counts: beside templates of one operator's own (1), among the algorithms of
convolutions (0), and before, beside and behind `generic` (-10)."""

MOST_PROMISING = 48
"""Tilings that are remembered of a workload."""

Look = Callable[[Workload, Target], "Contraction | None"]


class _Sketch:
    """A template whose nests are tilings of what there is to see in a workload."""

    look: Look

    def applies(self, workload: Workload, target: Target) -> bool:
        c = self.look(workload, target)
        return c is not None and bool(c.vector_axes())

    def space(self, workload: Workload, target: Target) -> SketchSpace:
        return _space(self.look, workload, target)

    def default(self, workload: Workload, target: Target) -> Config:
        return self.promising(workload, target, 1)[0]

    def promising(self, workload: Workload, target: Target, count: int) -> list[Config]:
        return list(_promising(self.look, workload, target, prior_key(), count))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        space = self.space(workload, target)
        c = space.numbers.c
        laid = with_layouts(c.schedule, interface, dict(c.layouts))
        t = self.tiling(space.tiling(config), c, laid)
        if space.numbers.target.num_threads == 1:  # nobody to share with, and loops that are one hide what comes next
            t = replace(t, shared=1)
        nest = Tiles(c, t, self.placed(laid, workload, target))
        return skip_what_nobody_reads(self.finished(nest.schedule(), nest, workload, target), workload)

    def placed(self, schedule: Schedule, workload: Workload, target: Target) -> Schedule:
        """With the loops around the nest, where it is a part of something."""
        return schedule

    def finished(self, schedule: Schedule, nest: Tiles, workload: Workload, target: Target) -> Schedule:
        """With what the nest reads made before, and what reads it done behind."""
        return schedule

    def tiling(self, t: Tiling, c: Contraction, laid: Schedule) -> Tiling:
        """The tiling of a config in the layouts that operands have."""
        return t


@functools.lru_cache(maxsize=64)
def _space(look: Look, workload: Workload, target: Target) -> SketchSpace:
    c = look(workload, target)
    assert c is not None
    return sketch_space(c, target)


@functools.lru_cache(maxsize=1024)
def _promising(look: Look, workload: Workload, target: Target, models: str, count: int) -> tuple[Config, ...]:
    rows = _ranked(look, workload, target, models)
    return tuple(_space(look, workload, target).configs_of(rows, count))


@functools.lru_cache(maxsize=1024)
def _ranked(look: Look, workload: Workload, target: Target, _models: str) -> Integers:
    """Remembered: finding them takes a tenth of a second, and choosing among templates asks as well as searching."""
    return _space(look, workload, target).ranked()[:MOST_PROMISING].copy()


@functools.lru_cache(maxsize=64)
def _in_parts(workload: Workload, target: Target) -> Contraction | None:
    c = contraction(workload, target)
    return None if c is None else in_parts(c, target)


def _first(workload: Workload, target: Target) -> float:
    """Untuned, the first for products of matrices, depthwise convolutions and tiles, which templates have not; behind
    those of other convolutions, which it equals (benchmarks/sketches.py --against). Of narrow factors, and of weights
    from memory, which it asks for in time, it is one among those; for run-time matrices times a vector beside
    `generic`, whose vectors may lie along the sum. Of bytes it is one among those, too, of which some are exact.
    """
    anchor, c = workload.anchor, contraction(workload, target)
    narrow = anchor is not None and any(workload.source(value) != value for value in anchor.inputs)
    afar = c is not None and from_afar(c, target)
    tiled = c is not None and any(f.dot.tiled for f in c.foldings) and not narrow
    if c is not None and not (tiled or c.lanewise) and read_once(c):
        return BESIDE_GENERIC
    if tiled or (anchor is not None and anchor.op == "matmul") or (c is not None and c.lanewise):
        return FIRST
    types = workload.types()
    of_bytes = anchor is not None and all(DType(types[value].dtype).bytes == 1 for value in anchor.inputs)
    if (narrow or afar or of_bytes) and anchor is not None and anchor.op in CONVOLUTIONS:
        return AMONG_ALGORITHMS
    return BEFORE_GENERIC


@template("sketch.contraction", op=None, priority=_first)
class SketchedContraction(_Sketch):
    """Contractions with an axis along which nothing need be gathered."""

    algorithm = "direct"
    look = staticmethod(contraction)


@template("sketch.parts", op=None, weight=0.5, priority=BEFORE_GENERIC - 1)
class SketchedParts(_Sketch):
    """Contractions with few results and long sums: threads share the sums."""

    look = staticmethod(_in_parts)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        whole = contraction(workload, target)
        assert whole is not None
        return added_up(super().schedule(workload, config, target, interface), whole)


@template("sketch.widened", op=None, weight=0.5, priority=_first)
class SketchedWidened(_Sketch):
    """Contractions of narrow numbers that are widened before all else."""

    look = staticmethod(widened)

    def finished(self, schedule: Schedule, nest: Tiles, workload: Workload, target: Target) -> Schedule:
        return copied(schedule, nest, target)


@template("sketch.wide", op=None, weight=0.5, priority=_first)
class SketchedWide(SketchedWidened):
    """The same of floats, of which weights are kept widened: more memory, fewer instructions."""

    look = staticmethod(all_wide)


@template("sketch.rows", op=None, priority=_first)
class SketchedRows(_Sketch):
    """Convolutions of few channels whose windows are rows of neighbours that instructions fold."""

    algorithm = conv_rows.NAME
    look = staticmethod(in_rows)

    def finished(self, schedule: Schedule, nest: Tiles, workload: Workload, target: Target) -> Schedule:
        return laid_in_rows(schedule, nest, target)


@template("sketch.pixels", op=None, priority=_first)
class SketchedPixels(_Sketch):
    """Convolutions of small images on tile registers, which pixels of several rows fill."""

    algorithm = conv_pixels.NAME
    look = staticmethod(of_pixels)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        return passed(super().schedule(workload, config, target, interface), workload)


def _map_first(workload: Workload, target: Target) -> float:
    """Untuned, for large transposes: there blocks matter, and `generic` has none; beside it for windows that slide."""
    c = mapping(workload, target)
    if c is not None and far_apart(c, target):
        return BEFORE_GENERIC
    return BESIDE_GENERIC if c is not None and slides(c) else BEHIND_GENERIC


@template("sketch.map", op=None, weight=0.5, priority=_map_first)
class SketchedMap(_Sketch):
    """One nest over the elements of a result, of vectors along its memory: transposes, windows, sums along rows."""

    look = staticmethod(mapping)

    def tiling(self, t: Tiling, c: Contraction, laid: Schedule) -> Tiling:
        return turned(t, c, laid)
