"""Matrix product with weights: `b` is packed once, at compile time, into panels as wide as the register tile."""

from __future__ import annotations

from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces.anchored import anchored, with_layouts
from autotune.search_spaces.config import Config
from autotune.search_spaces.interface import Interface
from autotune.search_spaces.knobs import Choice, tile
from autotune.search_spaces.matmul_nest import Tiling, packed_b, tiled
from autotune.search_spaces.matmul_shape import MatmulShape, has_constant_b, is_matmul, tile_cycles
from autotune.search_spaces.registry import template
from autotune.search_spaces.space import ConfigSpace, Constraint, Derived
from autotune.target import Target

MOST_ROWS, MOST_VECTORS = 28, 4
MOST_BODY = 512
K_BLOCKS = (64, 128, 192, 256, 384, 512, 768, 1024)
TILES_PER_BLOCK = (1, 2, 4, 8, 16, 32, 0)


@template("matmul.packed", op="matmul", priority=1.0)
class PackedMatmul:
    """Any product whose second operand is a constant."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return is_matmul(workload) and has_constant_b(workload)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = MatmulShape.of(workload)
        lanes = target.lanes(p.dtype.bytes)
        registers = target.num_vector_registers
        knobs = (
            tile("rows", p.m, limit=MOST_ROWS, default=MOST_ROWS // 2),
            Choice("vectors", tuple(range(1, min(MOST_VECTORS, -(-p.n // lanes)) + 1))),
            Choice("m_tiles", TILES_PER_BLOCK, 0),
            Choice("n_tiles", TILES_PER_BLOCK, 0),
            Choice("k_block", (0, *(k for k in K_BLOCKS if k < p.k and p.k % k == 0))),
            Choice("k_unroll", tuple(u for u in (1, 2, 4, 8) if u <= p.k)),
            Choice("outer", ("mn", "nm")),
            Choice("inner", ("nm", "mn")),
        )

        def live(c: Config) -> float:
            rows, vectors = c.get_int("rows"), c.get_int("vectors")
            return rows * vectors + vectors + 1

        def fits(c: Config) -> bool:
            return live(c) <= registers + registers // 8

        def code_size(c: Config) -> bool:
            return c.get_int("rows") * c.get_int("vectors") * c.get_int("k_unroll") <= MOST_BODY

        def panel_bytes(c: Config) -> float:
            return c.get_int("vectors") * lanes * (c.get_int("k_block") or p.k) * p.dtype.bytes

        def block_bytes(c: Config) -> float:
            t = tiling(p, c, target)
            return t.rows * t.m_tiles * (t.k_block or p.k) * p.dtype.bytes

        return ConfigSpace(
            knobs,
            (
                Constraint("registers", fits, "the tile needs more vector registers than there are"),
                Constraint("code size", code_size, "the unrolled body would not fit the instruction cache"),
            ),
            (
                Derived("live_vectors", live),
                Derived("panel_bytes", panel_bytes),
                Derived("block_bytes", block_bytes),
                Derived("tile_cost", lambda c: _product_cost(p, c.get_int("rows"), c.get_int("vectors"), target)),
            ),
        )

    def default(self, workload: Workload, target: Target) -> Config:
        """The cheapest register tile, and blocks of rows that stay in half of L2 while all of `b` streams by."""
        p = MatmulShape.of(workload)
        space = self.space(workload, target)
        tiles = [
            (_product_cost(p, rows, vectors, target), rows, vectors)
            for rows in space.knob("rows").values
            for vectors in space.knob("vectors").values
            if isinstance(rows, int) and isinstance(vectors, int)
            and rows * vectors + vectors + 1 <= target.num_vector_registers
        ]  # fmt: skip
        _, rows, vectors = min(tiles)
        unroll = max(u for u in (1, 2, 4) if u <= p.k and (u == 1 or rows * vectors * u <= 24))
        room = target.l2_bytes // 2 // (rows * p.k * p.dtype.bytes)
        along_m, along_n = -(-p.m // rows), -(-p.n // (vectors * target.lanes(p.dtype.bytes)))
        m_tiles = 0 if room >= along_m else max(t for t in TILES_PER_BLOCK if t <= max(room, 1) and t)
        config = space.default().replace(rows=rows, vectors=vectors, k_unroll=unroll, m_tiles=m_tiles)
        threads = target.num_threads
        if p.batches >= threads:
            return config
        # The threads share blocks of columns, or blocks of rows where those are shared more evenly.
        choices = [(_imbalance(along_n, dividing(along_n, t or along_n), threads), 0, t) for t in TILES_PER_BLOCK]
        choices += [(_imbalance(along_m, evenly(along_m, t or along_m), threads), 1, t) for t in TILES_PER_BLOCK
                    if not m_tiles or 0 < t <= m_tiles]  # fmt: skip
        _, by_rows, size = min(choices, key=lambda x: (x[0], x[1], -(x[2] or along_m + along_n)))
        return config.replace(outer="mn", m_tiles=size) if by_rows else config.replace(outer="nm", n_tiles=size)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = MatmulShape.of(workload)
        t = tiling(p, config, target)
        a = anchored(workload)
        s = with_layouts(a.schedule, interface, {f"in{p.b}": packed_b(p, t.columns)})
        return tiled(s, a, p, t)


def tiling(p: MatmulShape, config: Config, target: Target) -> Tiling:
    """The loop sizes of a config."""
    lanes = target.lanes(p.dtype.bytes)
    rows, vectors = config.get_int("rows"), config.get_int("vectors")
    along_m, along_n = -(-p.m // rows), -(-p.n // (vectors * lanes))
    return Tiling(
        rows,
        vectors,
        lanes,
        evenly(along_m, config.get_int("m_tiles") or along_m),
        dividing(along_n, config.get_int("n_tiles") or along_n),
        config.get_int("k_block"),
        config.get_int("k_unroll"),
        config.get_str("outer"),
        config.get_str("inner"),
    )


def evenly(total: int, most: int) -> int:
    """The size of pieces, at most `most`, that cut `total` into the fewest pieces, all about as long."""
    pieces = -(-total // most)
    return -(-total // pieces)


def dividing(total: int, most: int) -> int:
    """The largest divisor of `total` that is at most `most`."""
    return max(d for d in range(1, min(total, most) + 1) if total % d == 0)


def _imbalance(tiles: int, block: int, threads: int) -> float:
    """The time of the busiest thread, in units of an even share."""
    blocks = -(-tiles // block)
    return -(-blocks // threads) * block * threads / tiles


def _product_cost(p: MatmulShape, rows: int, vectors: int, target: Target) -> float:
    """Cycles of all tiles for one step of the sum, tails included."""
    columns = vectors * target.lanes(p.dtype.bytes)
    full, rest = divmod(p.m, rows)
    cost = full * tile_cycles(rows, vectors, p, target) + (tile_cycles(rest, vectors, p, target) if rest else 0)
    return cost * -(-p.n // columns)
