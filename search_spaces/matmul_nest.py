"""The loop nest of a tiled matrix product, shared by the templates that choose its sizes.

A register tile of `rows` x `vectors` accumulators is fed by one broadcast per row and one load per vector (the
micro-kernel of BLIS, Van Zee and van de Geijn 2015). Around it, blocks of tiles are sized for the caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.schedule import Schedule
from autotune.schedule.state import LOCAL, REGISTER
from autotune.search_spaces.anchored import Anchored
from autotune.search_spaces.matmul_shape import MatmulShape
from autotune.tensor.layout import Layout


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes and orders of the loops.

    Attributes:
        rows, vectors, lanes: the register tile holds rows x (vectors x lanes) elements.
        m_tiles, n_tiles: tiles per cache block; `n_tiles` divides the number of tiles along n.
        k_block: length of a partial sum, dividing k; 0 sums in one go.
        k_unroll: steps of the sum written out.
        outer, inner: order of the loops over blocks, and over tiles in a block: "mn" has m outside.
        pack_a: copy the rows of `a` that a block needs, so that a tile reads neighbouring cache lines.
        pack_b: copy the columns of `b` that a block needs, likewise.
    """

    rows: int
    vectors: int
    lanes: int
    m_tiles: int
    n_tiles: int
    k_block: int
    k_unroll: int
    outer: str
    inner: str
    pack_a: bool = False
    pack_b: bool = False

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def packed_b(p: MatmulShape, columns: int) -> Layout:
    """Panels of `columns` columns, each with all of k: what a tile reads is contiguous."""
    k, n = p.b_dims
    batch = range(p.rank_b - 2)
    return Layout.blocked(p.rank_b, [(n, columns)], order=(*batch, n, k))


def packed_a(p: MatmulShape, rows: int, lanes: int) -> Layout:
    """Rows of one tile next to each other, one cache line of k at a time."""
    m, k = p.a_dims
    batch = range(p.rank_a - 2)
    return Layout.blocked(p.rank_a, [(k, lanes), (m, rows)] if p.trans_a else [(m, rows), (k, lanes)], (*batch, m, k))


def tiled(s: Schedule, a: Anchored, p: MatmulShape, t: Tiling) -> Schedule:
    """The nest, given a schedule with layouts in which only the product and the output are left."""
    build = _blocked if t.k_block else _whole
    return build(s, a, p, t)


def _whole(s: Schedule, a: Anchored, p: MatmulShape, t: Tiling) -> Schedule:
    """Every tile is summed in one go, and the epilogue is applied to it in registers."""
    out, product = a.output, a.anchor
    *batch, i, j = a.axes(out)
    s = s.split(out, i, t.rows).split(out, f"{i}.0", t.m_tiles)
    s = s.split(out, j, t.columns).split(out, f"{j}.0", t.n_tiles).split(out, f"{j}.1", t.lanes)
    outer = _order(t.outer, f"{i}.0.0", f"{j}.0.0")
    inner = _order(t.inner, f"{i}.0.1", f"{j}.0.1")
    s = s.reorder(out, *batch, *outer, *inner, f"{i}.1", f"{j}.1.0", f"{j}.1.1")
    s = s.unroll(out, f"{i}.1").unroll(out, f"{j}.1.0").vectorize(out, f"{j}.1.1")
    s = s.compute_at(product, out, inner[1], REGISTER)
    if p.m % t.rows or -(-p.m // t.rows) % t.m_tiles:
        s = s.partition(out, f"{i}.0.0").partition(out, f"{i}.0.1")
    s, _ = _share(s, out, [*batch, *outer])
    return _micro_kernel(s, product, p, t)


def _blocked(s: Schedule, a: Anchored, p: MatmulShape, t: Tiling) -> Schedule:
    """Partial sums over blocks of k are added up in a block of scratch memory that stays in the cache."""
    out, product = a.output, a.anchor
    (k,) = a.reduce_axes(product)
    s = s.rfactor(product, k, t.k_block)
    partial = f"{product}.rf"
    *batch, i, j = a.axes(out)
    s = s.split(out, i, t.rows * t.m_tiles).split(out, j, t.columns * t.n_tiles).split(out, f"{j}.1", t.lanes)
    outer = _order(t.outer, f"{i}.0", f"{j}.0")
    s = s.reorder(out, *batch, *outer, f"{i}.1", f"{j}.1.0", f"{j}.1.1").vectorize(out, f"{j}.1.1")
    ragged = bool(p.m % t.rows or -(-p.m // t.rows) % t.m_tiles)
    if ragged:
        s = s.partition(out, f"{i}.0")
    s, innermost = _share(s, out, [*batch, *outer])
    s = s.compute_at(product, out, innermost, LOCAL)
    *single, pi, pj = (x.name for x in s.state.stage(product).stage.axes)
    s = s.layout(product, Layout.blocked(len(single) + 2, [(len(single), t.rows), (len(single) + 1, t.columns)]))
    s = s.split(product, pi, t.rows).split(product, pj, t.columns).split(product, f"{pj}.1", t.lanes)
    inner = _order(t.inner, f"{pi}.0", f"{pj}.0")
    s = s.reorder(product, *single, f"{k}.o", *inner, f"{pi}.1", f"{pj}.1.0", f"{pj}.1.1")
    s = s.unroll(product, f"{pi}.1").unroll(product, f"{pj}.1.0").vectorize(product, f"{pj}.1.1")
    s = s.compute_at(partial, product, inner[1], REGISTER)
    if ragged:
        s = s.partition(product, f"{pi}.0")
    return _micro_kernel(s.pad(product, pj), partial, p, t)


def _micro_kernel(s: Schedule, stage: str, p: MatmulShape, t: Tiling) -> Schedule:
    """The sum of one tile, in registers."""
    state = s.state.stage(stage)
    *single, i, j = (x.name for x in state.stage.axes)
    (k,) = (x.name for x in state.stage.reduce_axes)
    rank = len(state.stage.axes)
    s = s.layout(stage, Layout.blocked(rank, [(rank - 1, t.lanes)]))  # whole vectors, where there are fewer columns
    s = s.split(stage, j, t.lanes).split(stage, k, t.k_unroll)
    s = s.reorder(stage, *single, f"{k}.0", f"{k}.1", i, f"{j}.0", f"{j}.1")
    s = s.unroll(stage, f"{k}.1").unroll(stage, i).unroll(stage, f"{j}.0").vectorize(stage, f"{j}.1")
    if (t.k_block or p.k) % t.k_unroll:
        s = s.partition(stage, f"{k}.0")
    return s.pad(stage, j)


def _order(text: str, m: str, n: str) -> tuple[str, str]:
    return (m, n) if text == "mn" else (n, m)


def _share(s: Schedule, out: str, loops: list[str]) -> tuple[Schedule, str]:
    """Share the outer loops among threads, fused as far as no partitioned loop is among them.

    Returns the schedule and the innermost of these loops.
    """
    fused, *rest = loops
    while rest and not {fused, rest[0]} & s.state.stage(out).partitioned:
        s = s.fuse(out, fused, rest[0])
        fused = f"{fused}*{rest.pop(0)}"
    return s.parallel(out, fused), rest[-1] if rest else fused
