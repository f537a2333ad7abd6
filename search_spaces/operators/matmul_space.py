"""Knobs that matrix product templates share, and the analytic choice of their values."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.search_spaces.operators.matmul_nest import Tiling
from autotune.search_spaces.operators.matmul_shape import MatmulShape, tile_cycles
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice, tile
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Derived
from autotune.target import Target

MOST_ROWS = 28
MOST_BODY = 256
K_BLOCKS = (64, 128, 192, 256, 384, 512, 768, 1024)
TILES_PER_BLOCK = (1, 2, 4, 8, 16, 32, 0)


def tile_space(
    p: MatmulShape, target: Target, *, vectors: Sequence[int] = (1, 2, 3, 4), others: Sequence[Choice] = ()
) -> ConfigSpace:
    """The knobs of a register tile and of the blocks around it.

    Args:
        vectors: the widths of a tile to choose from; wider ones than the product are left out.
        others: the template's own knobs.
    """
    lanes = target.lanes(p.dtype.bytes)
    registers = target.num_vector_registers
    most = -(-p.n // lanes)
    knobs = (
        tile("rows", p.m, limit=MOST_ROWS, default=MOST_ROWS // 2),
        Choice("vectors", tuple(v for v in vectors if v <= most)),
        Choice("m_tiles", TILES_PER_BLOCK, 0),
        Choice("n_tiles", TILES_PER_BLOCK, 0),
        Choice("k_unroll", tuple(u for u in (1, 2, 4, 8) if u <= p.k)),
        Choice("outer", ("mn", "nm")),
        Choice("inner", ("nm", "mn")),
        *others,
    )

    def fits(c: Config) -> bool:
        return _live(c) <= registers + registers // 8

    def code_size(c: Config) -> bool:
        t = tiling(p, c, target)
        copies = 3 if t.ragged_rows(p) else 1  # whole blocks, whole tiles of the last block, the last tile
        return t.rows * t.vectors * t.k_unroll * copies <= MOST_BODY

    def depth(c: Config) -> int:
        k_block = c.get("k_block", 0)
        return k_block if isinstance(k_block, int) and k_block else p.k

    def block_bytes(c: Config) -> float:
        t = tiling(p, c, target)
        return t.rows * t.m_tiles * depth(c) * p.dtype.bytes

    return ConfigSpace(
        knobs,
        (
            Constraint("registers", fits, "the tile needs more vector registers than there are"),
            Constraint("code size", code_size, "the unrolled loops would be long to compile"),
        ),
        (
            Derived("live_vectors", _live),
            Derived("panel_bytes", lambda c: c.get_int("vectors") * lanes * depth(c) * p.dtype.bytes),
            Derived("block_bytes", block_bytes),
            Derived("tile_cycles", lambda c: product_cycles(p, c.get_int("rows"), c.get_int("vectors"), target)),
        ),
    )


def k_blocks(p: MatmulShape) -> Choice:
    """Lengths of partial sums that divide k; 0 for one sum."""
    return Choice("k_block", (0, *(k for k in K_BLOCKS if k < p.k and p.k % k == 0)))


def tiling(p: MatmulShape, config: Config, target: Target, *, panels: bool = True, packs: bool = False) -> Tiling:
    """The loops that a config asks for."""
    lanes = target.lanes(p.dtype.bytes)
    rows, vectors = config.get_int("rows"), config.get_int("vectors")
    along_m, along_n = -(-p.m // rows), -(-p.n // (vectors * lanes))
    return Tiling(
        rows,
        vectors,
        lanes,
        m_tiles=evenly(along_m, config.get_int("m_tiles") or along_m),
        n_tiles=dividing(along_n, config.get_int("n_tiles") or along_n),
        k_block=config.get_int("k_block") if "k_block" in config else 0,
        k_unroll=config.get_int("k_unroll"),
        outer=config.get_str("outer"),
        inner=config.get_str("inner"),
        panels=panels,
        packs=packs,
        prefetch=config.get_int("prefetch") if "prefetch" in config else 0,
    )


def with_default_tile(p: MatmulShape, target: Target, space: ConfigSpace) -> Config:
    """The space's default with the cheapest register tile, and rows in blocks that stay in half of L2."""
    lanes, threads = target.lanes(p.dtype.bytes), target.num_threads

    def idle(rows: int, vectors: int) -> float:
        """By how much tiles are too few for the threads."""
        along_m, along_n = -(-p.m // rows), -(-p.n // (vectors * lanes))
        return 1.0 if p.batches >= threads else min(_imbalance(n, 1, threads) for n in (along_m, along_n))

    tiles = [
        (product_cycles(p, rows, vectors, target) * idle(rows, vectors), rows, vectors)
        for rows in space.knob("rows").values
        for vectors in space.knob("vectors").values
        if isinstance(rows, int) and isinstance(vectors, int)
        and rows * vectors + vectors + 1 <= target.num_vector_registers
    ]  # fmt: skip
    _, rows, vectors = min(tiles)
    unroll = max(u for u in (1, 2, 4) if u <= p.k and (u == 1 or rows * vectors * u <= 24))
    room = target.l2_bytes // 2 // (rows * p.k * p.dtype.bytes)
    m_tiles = 0 if room >= -(-p.m // rows) else max(t for t in TILES_PER_BLOCK if t <= max(room, 1) and t)
    return space.default().replace(rows=rows, vectors=vectors, k_unroll=unroll, m_tiles=m_tiles)


def shared_evenly(p: MatmulShape, target: Target, config: Config) -> Config:
    """The config with blocks that keep all threads busy: of columns, or of rows where those come out more even."""
    threads = target.num_threads
    if p.batches >= threads and p.rank_b > 2:
        return config
    rows, columns = config.get_int("rows"), config.get_int("vectors") * target.lanes(p.dtype.bytes)
    along_m, along_n, most = -(-p.m // rows), -(-p.n // columns), config.get_int("m_tiles")
    choices = [(_imbalance(along_n, dividing(along_n, t or along_n), threads), 0, t) for t in TILES_PER_BLOCK]
    if p.batches == 1:
        choices += [(_imbalance(along_m, evenly(along_m, t or along_m), threads), 1, t) for t in TILES_PER_BLOCK
                    if not most or 0 < t <= most]  # fmt: skip
    _, by_rows, size = min(choices, key=lambda x: (x[0], x[1], -(x[2] or 1 << 30)))
    return config.replace(outer="mn", m_tiles=size) if by_rows else config.replace(outer="nm", n_tiles=size)


def evenly(total: int, most: int) -> int:
    """The size of pieces, at most `most`, that cut `total` into the fewest pieces, all about as long."""
    pieces = -(-total // most)
    return -(-total // pieces)


def dividing(total: int, most: int) -> int:
    """The largest divisor of `total` that is at most `most`."""
    return max(d for d in range(1, min(total, most) + 1) if total % d == 0)


def product_cycles(p: MatmulShape, rows: int, vectors: int, target: Target) -> float:
    """Cycles of all tiles for one step of the sum, tails included."""
    columns = vectors * target.lanes(p.dtype.bytes)
    full, rest = divmod(p.m, rows)
    cycles = full * tile_cycles(rows, vectors, p, target) + (tile_cycles(rest, vectors, p, target) if rest else 0)
    return cycles * -(-p.n // columns)


def _live(c: Config) -> float:
    rows, vectors = c.get_int("rows"), c.get_int("vectors")
    return rows * vectors + vectors + 1


def _imbalance(tiles: int, block: int, threads: int) -> float:
    """The time of the busiest thread, in units of an even share."""
    blocks = -(-tiles // block)
    return -(-blocks // threads) * block * threads / tiles
