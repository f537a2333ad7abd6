"""What `tensorize` asks of the loops that instructions on tile registers (matrices of accumulators) swallow."""

from __future__ import annotations

from autotune.schedule.dot_products import DOT_PRODUCTS, TILE_LANES, TILE_ROWS, TILE_STORE, DotProduct
from autotune.schedule.registry import check
from autotune.schedule.state import LOCAL, TILE, VECTORIZE, Loop, StageState, State
from autotune.tensor.expr import Read, Var


def swallowed(mark: str) -> int:
    """How many loops an instruction takes: the one with its mark, and those inside it, down to the innermost."""
    if mark == TILE_STORE:
        return 2
    return 4 if DOT_PRODUCTS[mark].tiled else 1


def check_product(s: StageState, at: int, dot: DotProduct, where: str) -> None:
    """The loops from number `at` on are rows, lanes, groups and neighbours of a tile, and nothing else.

    Raises:
        ScheduleError: they are not, or the sum is not kept in tiles.
    """
    check(
        s.at is not None and s.scope == TILE, f"{where}: {dot.name} adds to tiles; compute {s.name} at a loop, in tile"
    )
    inside = s.loops[at:]
    form = f"rows, {TILE_LANES} vectorized lanes, groups, {dot.extent} neighbours"
    check(len(inside) == 4, f"{where}: {dot.name} takes four loops, innermost: {form}; reorder")
    rows, lanes, groups, neighbours = inside
    _check_rows(rows, lanes, where)
    check(groups.reduce and neighbours.reduce, f"{where}: {dot.name} takes {form}; reorder")
    check(groups.extent <= dot.groups, f"{where}: {dot.name} takes {dot.groups} groups, not {groups.extent}; split")
    check(
        neighbours.extent == dot.extent,
        f"{where}: {dot.name} folds {dot.extent} products, not {neighbours.extent}; split",
    )


def check_store(state: State, s: StageState, at: int, where: str) -> None:
    """The loops from number `at` on are rows and lanes, and the stage copies what another keeps in tiles.

    Raises:
        ScheduleError: they are not, or it computes something.
    """
    inside = s.loops[at:]
    check(len(inside) == 2, f"{where}: {TILE_STORE} takes two loops, innermost: rows, {TILE_LANES} lanes; reorder")
    _check_rows(inside[0], inside[1], where)
    body = s.stage.body[0]
    same = isinstance(body, Read) and body.when is None and body.indices == tuple(Var(a.name) for a in s.stage.axes)
    check(same and s.stage.reducer is None, f"{where}: {TILE_STORE} copies elements as they are; cache_read the tiles")
    assert isinstance(body, Read)
    kept = [x for x in state.stages if any(t.name == body.tensor.name for t in x.stage.outputs) and x.scope == TILE]
    check(bool(kept), f"{where}: {body.tensor.name} is not kept in tiles")
    check(s.at is not None and s.scope == LOCAL, f"{where}: tiles are copied to scratch memory; compute it at a loop")


def _check_rows(rows: Loop, lanes: Loop, where: str) -> None:
    check(
        not rows.reduce and rows.extent <= TILE_ROWS, f"{where}: a tile has {TILE_ROWS} rows, not {rows.extent}; split"
    )
    check(
        lanes.mark == VECTORIZE and lanes.extent == TILE_LANES and not lanes.reduce,
        f"{where}: the loop inside the rows must be vectorized, of {TILE_LANES} iterations",
    )
