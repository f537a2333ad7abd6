"""The primitive that maps the inside of a stage to one instruction: a dot product, or a product of tiles."""

from __future__ import annotations

from dataclasses import replace

from autotune.schedule.dot_products import DOT_PRODUCTS, LANES, TILE_STORE, DotProduct
from autotune.schedule.registry import check, primitive
from autotune.schedule.state import SERIAL, VECTORIZE, StageState, State
from autotune.schedule.tiles import check_product, check_store
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Expr, Read
from autotune.tensor.fields import field_of
from autotune.tensor.reducer import is_builtin


@primitive
def tensorize(state: State, stage: str, loop: str, instruction: str) -> State:
    """Execute the innermost loops with one instruction: a dot product, or a product or copy of tiles.

    "vpdpbusd" multiplies 4 pairs of u8 and i8 per i32 lane, "vdpbf16ps" 2 pairs of bf16 per f32 lane. The elements
    that the loop reads must lie next to each other, and the lanes either share them or follow one another; bytes may
    also be the same few bits of each byte of a word. "vpmaddubsw" needs such, of 7 bits at most: sums of two products
    saturate in 16 bits.

    "tdpbusd" and its kind do so for up to 16 rows and 16 groups of neighbours; `loop` is the one over the rows, and
    the sum is kept in tiles. "tilestored" copies such rows to scratch memory.

    rewrite:
        vectorize j in 0..16: for k in 0..4: C[j] += i32(A[k]) * i32(B[j, k])
        -->
        C[0..16] = vpdpbusd(C[0..16], A[0..4], B[0..16, 0..4])

        for i in 0..16: vectorize j in 0..16:
          for g in 0..16: for k in 0..4: C[i, j] += i32(A[i, g, k]) * i32(B[g, j, k])
        -->
        C[0..16, 0..16] = tdpbusd(C[0..16, 0..16], A[0..16, 0..16, 0..4], B[0..16, 0..16, 0..4])
    """
    s = state.stage(stage)
    where = f"tensorize {stage}.{loop}"
    known = (*DOT_PRODUCTS, TILE_STORE)
    check(instruction in known, f"{where}: unknown instruction {instruction!r}; known: {', '.join(known)}")
    old = s.loop(loop)
    check(old.mark == SERIAL, f"{where}: the loop is already marked {old.mark}")
    if instruction == TILE_STORE:
        check_store(state, s, s.position(loop), where)
    else:
        dot = DOT_PRODUCTS[instruction]
        if dot.tiled:
            check_product(s, s.position(loop), dot, where)
        else:
            _check_lanes(s, loop, dot, where)
        check(
            _fits(s, dot), f"{where}: {instruction} needs a sum of {dot.total}({dot.left}) * {dot.total}({dot.right})"
        )
    swallowed = {x.name for x in s.loops[s.position(loop) :]}
    check(not swallowed & s.partitioned, f"{where}: the loop is partitioned")
    inside = [x.name for x in state.stages if x.at is not None and x.at[0] == s.name and x.at[1] in swallowed]
    check(not inside, f"{where}: {', '.join(inside)} is computed inside it")
    marked = tuple(replace(x, mark=instruction) if x.name == loop else x for x in s.loops)
    return state.put(replace(s, loops=marked))


def _check_lanes(s: StageState, loop: str, dot: DotProduct, where: str) -> None:
    """The loop is the innermost one, of the neighbours that an instruction of vectors folds."""
    old = s.loop(loop)
    check(old.reduce and s.loops[-1].name == loop, f"{where}: it must be the innermost loop and a reduce loop; reorder")
    check(old.extent == dot.extent, f"{where}: {dot.name} folds {dot.extent} products, not {old.extent}; split")
    vector = next((x for x in s.loops if x.mark == VECTORIZE), None)
    check(
        vector is not None and vector.extent in LANES and not vector.reduce,
        f"{where}: it needs a vectorized spatial loop of {', '.join(map(str, LANES))} iterations",
    )


def _fits(s: StageState, dot: DotProduct) -> bool:
    reducer = s.stage.reducer
    body = s.stage.body[0]
    if reducer is None or reducer.name != "sum" or not is_builtin(reducer) or body.dtype is not dot.total:
        return False
    if not isinstance(body, Binary) or body.op != "mul":
        return False
    (left, below), (right, no_more) = _source(body.a), _source(body.b)
    return dot.multiplies(left, right, below=max(below, no_more))


def _source(e: Expr) -> tuple[DType | None, int]:
    """The dtype of the tensor that a widened read comes from, and what bytes without a sign are less than; bytes are
    also fields of a word that is read."""
    field = field_of(e.a) if isinstance(e, Cast) else None
    if field is not None and isinstance(field.word, Read):
        return DType.u8, field.mask + 1
    dtype = e.a.dtype if isinstance(e, Cast) and isinstance(e.a, Read) else None
    return dtype, 256 if dtype is DType.u8 else 0
