"""The loop nest of a tiled matrix product, shared by the templates that choose its sizes.

A register tile of `rows` x `vectors` accumulators is fed by one broadcast per row and one load per vector (the
micro-kernel of BLIS, Van Zee and van de Geijn 2015). Around it, blocks of tiles are sized for the caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS
from autotune.schedule.state import LOCAL, REGISTER
from autotune.search_spaces.operators.matmul_shape import MatmulShape
from autotune.tensor.layout import Layout


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes and orders of the loops.

    Attributes:
        rows, vectors, lanes: the register tile holds rows x (vectors x lanes) elements.
        m_tiles, n_tiles: tiles per cache block; `n_tiles` divides the number of tiles along n.
        k_block: length of a partial sum, dividing k; 0 sums in one go.
        k_unroll: steps of the sum written out.
        outer, inner: order of the loops over blocks, and over tiles in a block: "mn" has m outside, and batches outside
            both; with "nm", batches are inside n where they share one `b`.
        panels: `b` lies in panels of a tile's columns, padded.
        packs: and it is the kernel that packs it, once per block.
        prefetch: steps of the sum by which `b` is asked for in advance; 0 leaves that to the CPU.
        dot: the instruction that folds four neighbours of 8-bit operands into each lane, "" without it.
    """

    rows: int
    vectors: int
    lanes: int
    m_tiles: int
    n_tiles: int
    k_block: int = 0
    k_unroll: int = 1
    outer: str = "mn"
    inner: str = "nm"
    panels: bool = True
    packs: bool = False
    prefetch: int = 0
    dot: str = ""

    @property
    def step(self) -> int:
        """Elements of k per step of the sum."""
        return DOT_PRODUCTS[self.dot].extent if self.dot else 1

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def ragged_rows(self, p: MatmulShape) -> bool:
        """Whether the last tile or block along m is smaller than the others."""
        return bool(p.m % self.rows or -(-p.m // self.rows) % self.m_tiles)

    def ragged_columns(self, p: MatmulShape) -> bool:
        """Whether the last tile has fewer columns, and none to compute in vain."""
        return not self.panels and bool(p.n % self.columns)


def panel_layout(p: MatmulShape, columns: int, step: int = 1) -> Layout:
    """`b` in panels of `columns` columns, each with all of k: what a tile reads is contiguous."""
    k, n = p.b_dims
    neighbours = [(k, step)] if step > 1 else []
    return Layout.blocked(p.rank_b, [(n, columns), *neighbours], order=(*range(p.rank_b - 2), n, k))


def tile_product(s: Schedule, out: str, product: str, b: str, p: MatmulShape, t: Tiling) -> Schedule:
    """Schedule stage `product`, the sum, and stage `out`, which reads it elementwise.

    Args:
        s: a schedule in which nothing has been done to the two stages.
        b: the tensor that the second operand is read from.
    """
    copy = ""
    if t.packs:
        s = s.cache_read(b, product)
        copy = b = f"{b}.r"
    build = _in_blocks_of_k if t.k_block else _in_one_go
    s = build(s, out, product, b, p, t)
    if not copy:
        return s
    if t.k_block:
        place = next(x.name for x in s.state.stage(product).loops if x.reduce)
        return _pack(s.compute_at(copy, product, place), copy, p, t)
    (_, j) = (x.name for x in s.state.stage(out).stage.axes[-2:])
    place = next(x for x in outer_loops(s, out) if x.endswith(f"{j}.0.0"))
    return _pack(s.compute_at(copy, out, place), copy, p, t)


def _pack(s: Schedule, copy: str, p: MatmulShape, t: Tiling) -> Schedule:
    """Copy a block of `b` into panels."""
    axes = [x.name for x in s.state.stage(copy).stage.axes]
    k, n = (axes[d] for d in p.b_dims)
    s = s.layout(copy, panel_layout(p, t.columns)).split(copy, n, t.lanes)
    return s.reorder(copy, *axes[:-2], f"{n}.0", k, f"{n}.1").vectorize(copy, f"{n}.1")


def _in_one_go(s: Schedule, out: str, product: str, b: str, p: MatmulShape, t: Tiling) -> Schedule:
    """Every tile is summed up, and what `out` does with it is done in registers."""
    *batch, i, j = (x.name for x in s.state.stage(out).stage.axes)
    s = s.split(out, i, t.rows).split(out, f"{i}.0", t.m_tiles)
    s = s.split(out, j, t.columns).split(out, f"{j}.0", t.n_tiles).split(out, f"{j}.1", t.lanes)
    outer = _blocks(p, t, batch, f"{i}.0.0", f"{j}.0.0")
    inner = _order(t.inner, f"{i}.0.1", f"{j}.0.1")
    s = s.reorder(out, *outer, *inner, f"{i}.1", f"{j}.1.0", f"{j}.1.1")
    s = s.unroll(out, f"{i}.1").unroll(out, f"{j}.1.0").vectorize(out, f"{j}.1.1")
    s = s.compute_at(product, out, inner[1], REGISTER)
    if t.ragged_rows(p):
        s = s.partition(out, f"{i}.0.0").partition(out, f"{i}.0.1")
    if t.ragged_columns(p):
        s = s.partition(out, f"{j}.0.0").partition(out, f"{j}.0.1")
    s = _shared(s, out, outer[: outer.index(f"{j}.0.0") + 1] if t.packs else outer)
    return _sum_of_a_tile(s, product, b, p, t)


def _in_blocks_of_k(s: Schedule, out: str, product: str, b: str, p: MatmulShape, t: Tiling) -> Schedule:
    """Partial sums over blocks of k are added up in a block of scratch memory that stays in the cache."""
    (k,) = (x.name for x in s.state.stage(product).stage.reduce_axes)
    s = s.rfactor(product, k, t.k_block)
    partial = f"{product}.rf"
    *batch, i, j = (x.name for x in s.state.stage(out).stage.axes)
    s = s.split(out, i, t.rows * t.m_tiles).split(out, j, t.columns * t.n_tiles).split(out, f"{j}.1", t.lanes)
    outer = _blocks(p, t, batch, f"{i}.0", f"{j}.0")
    s = s.reorder(out, *outer, f"{i}.1", f"{j}.1.0", f"{j}.1.1").vectorize(out, f"{j}.1.1")
    if t.ragged_rows(p):
        s = s.partition(out, f"{i}.0")
    if t.ragged_columns(p):
        s = s.partition(out, f"{j}.0")
    s = _shared(s, out, outer)
    s = s.compute_at(product, out, outer_loops(s, out)[-1], LOCAL)
    *single, pi, pj = (x.name for x in s.state.stage(product).stage.axes)
    s = s.layout(product, Layout.blocked(len(single) + 2, [(len(single), t.rows), (len(single) + 1, t.columns)]))
    s = s.split(product, pi, t.rows).split(product, pj, t.columns).split(product, f"{pj}.1", t.lanes)
    inner = _order(t.inner, f"{pi}.0", f"{pj}.0")
    s = s.reorder(product, *single, f"{k}.o", *inner, f"{pi}.1", f"{pj}.1.0", f"{pj}.1.1")
    s = s.unroll(product, f"{pi}.1").unroll(product, f"{pj}.1.0").vectorize(product, f"{pj}.1.1")
    s = s.compute_at(partial, product, inner[1], REGISTER)
    if t.ragged_rows(p):
        s = s.partition(product, f"{pi}.0")
    if t.ragged_columns(p):
        s = s.partition(product, f"{pj}.0")
    return _sum_of_a_tile(s.pad(product, pj) if t.panels else s, partial, b, p, t)


def _sum_of_a_tile(s: Schedule, stage: str, b: str, p: MatmulShape, t: Tiling) -> Schedule:
    """The sum over k of one tile, in registers."""
    state = s.state.stage(stage)
    *single, i, j = (x.name for x in state.stage.axes)
    (k,) = (x.name for x in state.stage.reduce_axes)
    rank = len(state.stage.axes)
    s = s.layout(stage, Layout.blocked(rank, [(rank - 1, t.lanes)]))  # whole vectors, where there are fewer columns
    s, neighbours = s.split(stage, j, t.lanes), list[str]()
    if t.dot:
        s, neighbours, k = s.split(stage, k, t.step), [f"{k}.1"], f"{k}.0"
    s = s.split(stage, k, t.k_unroll)
    s = s.reorder(stage, *single, f"{k}.0", f"{k}.1", i, f"{j}.0", f"{j}.1", *neighbours)
    s = s.unroll(stage, f"{k}.1").unroll(stage, i).unroll(stage, f"{j}.0").vectorize(stage, f"{j}.1")
    for loop in neighbours:
        s = s.tensorize(stage, loop, t.dot)
    if (t.k_block or p.k) // t.step % t.k_unroll:
        s = s.partition(stage, f"{k}.0")
    if t.prefetch:
        s = s.prefetch(stage, b, f"{k}.1", t.prefetch)
    return s.pad(stage, j) if t.panels else s


def outer_loops(s: Schedule, out: str) -> list[str]:
    """The loops of `out` over blocks, outermost (shared among threads) first."""
    state = s.state.stage(out)
    *_, i, j = (x.name for x in state.stage.axes)
    inside = {f"{i}.0.1", f"{j}.0.1", f"{i}.1", f"{j}.1.0", f"{j}.1.1"}
    return [x.name for x in state.loops if x.name not in inside]


def _blocks(p: MatmulShape, t: Tiling, batch: list[str], m: str, n: str) -> list[str]:
    """The loops over batches and blocks, outermost first."""
    if t.outer == "mn":
        return [*batch, m, n]
    return [n, *batch, m] if p.rank_b == 2 else [*batch, n, m]


def _order(text: str, m: str, n: str) -> tuple[str, str]:
    return (m, n) if text == "mn" else (n, m)


def _shared(s: Schedule, out: str, loops: list[str]) -> Schedule:
    """Share the outer loops among threads, fused as far as no partitioned loop is among them."""
    fused, *rest = loops
    while rest and not {fused, rest[0]} & s.state.stage(out).partitioned:
        s = s.fuse(out, fused, rest[0])
        fused = f"{fused}*{rest.pop(0)}"
    return s.parallel(out, fused)
