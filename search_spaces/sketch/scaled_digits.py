"""Sums of scaled parts in integers: instructions for bytes multiply fields of words by the digits of activations.

Digits are made before all else. Where there are fewer rows than threads, each thread makes all of them: a core reads
what another has just written more slowly than it makes it (Zen 4: 5 us for 2816 activations, which take 1.6), and none
waits.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.ops.coded import NAME, WORDS, code_bits
from autotune.ops.coded_digits import MIXED, PREPARED
from autotune.ops.workload import Workload
from autotune.schedule.dot_products import DOT_PRODUCTS, MOST_HALF, DotProduct
from autotune.schedule.editor import Editor
from autotune.search_spaces.sketch.instructions import turns
from autotune.search_spaces.sketch.scaled import ScaledSum, ScaledTiles, scaled_sum
from autotune.search_spaces.space.registry import template
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.stage import Stage

_CODES = 1 << max(code_bits(form) for form in WORDS)
"""All codes that words hold are less."""
_STAGES = frozenset(f"{NAME}_{what}" for what in PREPARED)


def instruction(target: Target) -> DotProduct:
    """What multiplies codes as they lie in words, on the widest vectors: without one for bytes that of AVX2, which all
    targets have."""
    return next(
        d for d in DOT_PRODUCTS.values()
        if d.multiplies(DType.u8, DType.i8, below=_CODES) and not d.tiled and not d.widened
        and d.runs(target.features, target.lanes(d.total.bytes))
    )  # fmt: skip


@template("sketch.scaled_digits", op=NAME, priority=1.0, strict=False)
class SketchedDigits(ScaledTiles):
    """A part has a sum for each digit; what is taken out of words is multiplied by all of them."""

    algorithm = "digits"

    def found(self, workload: Workload, target: Target) -> ScaledSum | None:
        c = scaled_sum(workload, self.algorithm, _STAGES, MIXED)
        return c and replace(c, folded=instruction(target).extent)

    def busy(self, c: ScaledSum, rows: int, vectors: int, unroll: int, target: Target) -> float:
        dot = instruction(target)
        pipe = target.core.pipe(dot.pipe, target.vector_bits)
        assert pipe is not None  # it has the instruction
        decode = 2 - 1 / c.turns  # instructions that take a vector of bytes out of words: a mask, and a shift but once
        multiply = turns(dot, target) + (1 / min(c.turns * unroll, MOST_HALF // dot.pair(_CODES)) if dot.below else 0)
        return max((c.sums * rows * multiply + decode) * vectors, pipe.in_flight) / pipe.per_cycle

    def foresees(self, c: ScaledSum, target: Target) -> bool:
        """Neither where a line of codes takes so many instructions that a core comes to few lines at a time: of LLaMA's
        shapes those that ask take 0.93 to 0.95 of the time with AVX2 (Zen 3)."""
        return super().foresees(c, target) and not instruction(target).below

    def fold(self, edit: Editor, c: ScaledSum, loop: str, target: Target) -> None:
        edit.tensorize(c.part, loop, instruction(target).name)

    def prepare(self, edit: Editor, c: ScaledSum, target: Target) -> None:
        for s in edit.schedule.state.stages:
            if s.name not in (c.output, c.total, c.part):
                _prepare(edit, s.stage, int(c.batched), target)


def _prepare(edit: Editor, stage: Stage, batched: int, target: Target) -> None:
    """Vectors along what lies side by side: the activations of a block, or else blocks."""
    loops, lanes = edit.loops(stage.name), target.lanes(DType.f32.bytes)
    last = stage.all_axes[-1]
    whole = max(n for n in (lanes, lanes // 2, lanes // 4, 1) if last.extent % n == 0)
    outer, inner = edit.split(stage.name, last.name, whole if whole > 1 else lanes)
    ahead = loops[: len(stage.axes) - (2 if len(stage.axes) > 2 + batched else 1)]
    first, rows = ahead[: -1 - batched], ahead[-1 - batched :]
    rest = [x for x in loops if x not in (*ahead, last.name)]
    edit.order(stage.name, [*rows, *rest, outer, *first, inner])
    edit.unroll(stage.name, first)
    edit.vectorize(stage.name, inner)
    row = edit.fuse(stage.name, rows)
    if edit.extent(stage.name, row) >= target.num_threads > 1:
        edit.parallel(stage.name, row)
    else:
        edit.replicate(stage.name)
