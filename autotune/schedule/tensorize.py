"""The primitive that maps the inside of a stage to one dot-product instruction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.schedule.registry import check, primitive
from autotune.schedule.state import SERIAL, VECTORIZE, StageState, State
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Expr, Read
from autotune.tensor.reducer import is_builtin


@dataclass(frozen=True, slots=True)
class DotProduct:
    """An instruction that adds, in every lane, a short dot product of neighbouring elements to an accumulator.

    Attributes:
        name: the instruction, and the mark of the loop that it swallows.
        extent: products per lane.
        left, right: element types of the factors.
        total: type of the accumulator.
        feature: what the CPU needs, beside AVX-512VL for less than 16 lanes.
    """

    name: str
    extent: int
    left: DType
    right: DType
    total: DType
    feature: str


DOT_PRODUCTS = {
    d.name: d
    for d in (
        DotProduct("vpdpbusd", 4, DType.u8, DType.i8, DType.i32, "avx512vnni"),
        DotProduct("vdpbf16ps", 2, DType.bf16, DType.bf16, DType.f32, "avx512bf16"),
    )
}
LANES = (4, 8, 16)


@primitive
def tensorize(state: State, stage: str, loop: str, instruction: str) -> State:
    """Execute the innermost reduce loop, and the lanes of the vectorized loop, with one dot-product instruction.

    "vpdpbusd" multiplies 4 pairs of u8 and i8 per i32 lane, "vdpbf16ps" 2 pairs of bf16 per f32 lane. The elements
    that the loop reads must lie next to each other, and the lanes either share them or follow one another.

    rewrite:
        vectorize j in 0..16: for k in 0..4: C[j] += i32(A[k]) * i32(B[j, k])
        -->
        C[0..16] = vpdpbusd(C[0..16], A[0..4], B[0..16, 0..4])
    """
    s = state.stage(stage)
    where = f"tensorize {stage}.{loop}"
    check(
        instruction in DOT_PRODUCTS, f"{where}: unknown instruction {instruction!r}; known: {', '.join(DOT_PRODUCTS)}"
    )
    dot = DOT_PRODUCTS[instruction]
    old = s.loop(loop)
    check(old.mark == SERIAL, f"{where}: the loop is already marked {old.mark}")
    check(loop not in s.partitioned, f"{where}: the loop is partitioned")
    check(old.reduce and s.loops[-1].name == loop, f"{where}: it must be the innermost loop and a reduce loop; reorder")
    check(old.extent == dot.extent, f"{where}: {instruction} folds {dot.extent} products, not {old.extent}; split")
    vector = next((x for x in s.loops if x.mark == VECTORIZE), None)
    check(
        vector is not None and vector.extent in LANES and not vector.reduce,
        f"{where}: it needs a vectorized spatial loop of {', '.join(map(str, LANES))} iterations",
    )
    check(_fits(s, dot), f"{where}: {instruction} needs a sum of {dot.total}({dot.left}) * {dot.total}({dot.right})")
    inside = [x.name for x in state.stages if x.at == (s.name, loop)]
    check(not inside, f"{where}: {', '.join(inside)} is computed inside it")
    marked = tuple(replace(x, mark=instruction) if x.name == loop else x for x in s.loops)
    return state.put(replace(s, loops=marked))


def _fits(s: StageState, dot: DotProduct) -> bool:
    reducer = s.stage.reducer
    body = s.stage.body[0]
    if reducer is None or reducer.name != "sum" or not is_builtin(reducer) or body.dtype is not dot.total:
        return False
    if not isinstance(body, Binary) or body.op != "mul":
        return False
    found = (_source(body.a), _source(body.b))
    return found in ((dot.left, dot.right), (dot.right, dot.left))


def _source(e: Expr) -> DType | None:
    """The dtype of the tensor that a widened read comes from."""
    return e.a.dtype if isinstance(e, Cast) and isinstance(e.a, Read) else None
