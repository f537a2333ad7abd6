"""Attention in one kernel: for a block of queries the scores of all keys, their softmax, the product with the values.

A block's scores lie transposed in the thread's scratch memory, queries innermost: vectors run along queries, so that
the softmax needs no folding across lanes, keys and values are read where they are, and of all operands only the queries
of the block are copied. No score is kept any longer than its block is worked on. Vectors of the result run along
features, or along queries where neighbours in the memory of the values are positions.

Of bf16 operands an instruction that folds pairs multiplies, where the CPU has it: neighbouring features of a score, and
for the values two keys, whose powers are rounded to bf16 and lie side by side.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from autotune.cost_model.expected import behind_caches, overlapped
from autotune.ops.registry import compute_def, lookup
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS
from autotune.schedule.state import LOCAL, REGISTER
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.library.register_tile import Steps, tiles
from autotune.search_spaces.library.unread import skip_what_nobody_reads
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Var, walk
from autotune.tensor.layout import Layout

QUERIES, KEYS, ROWS = (1, 2, 3, 4), (2, 3, 4, 6, 8, 10, 12, 16, 20), (1, 2, 4, 8, 16)
COLUMNS = (1, 2, 3, 4, 5, 6, 8)
PARTIALS = 4
HEADS, BLOCKS = "heads", "blocks"
PRODUCTS, LOGITS, LARGEST, POWERS, SUM, INVERSE, WEIGHTS, VALUES = (
    f"attention_{part}" for part in ("products", "logits", "max", "exp", "sum", "scale", "weights", "values")
)
INTERLEAVED = 3
"""Instructions for a vector of pairs that lie in two rows: two loads and a shuffle."""
SCORES = Layout.blocked(4, [], order=(0, 1, 3, 2))  # (batch, head, key, query)
PAIRED = Layout.blocked(4, [(3, 2)], order=(0, 1, 3, 2))  # the same, of every two keys side by side
DOT = DOT_PRODUCTS["vdpbf16ps"]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Extents of an attention workload.

    Attributes:
        features: of a value; `depth`: of a query and a key.
        narrow: operands are bf16, and so are the powers that values are multiplied with.
        paired: there are values for both keys of a pair, whatever the data.
        orders: name the dimensions of q, k, v and the result.
        operands: numbers of the workload's inputs.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    features: int
    depth: int
    narrow: bool
    paired: bool
    orders: tuple[str, ...]
    operands: tuple[int, ...]

    @staticmethod
    def of(workload: Workload) -> AttentionShape | None:
        """None when the workload is not one attention, over f32 or bf16 numbers, with its values as the one result."""
        anchor = workload.anchor
        if anchor is None or anchor.op != "attention" or anchor.attr("result") != 0 or len(workload.outputs) != 1:
            return None
        if any(n is not anchor and not lookup(n.op).elementwise for n in workload.nodes):
            return None
        if any(i >= len(workload.inputs) for i in anchor.inputs):
            return None  # computed in the kernel itself
        q, k, v = (workload.inputs[i].type for i in anchor.inputs[:3])
        if {q.dtype, k.dtype, v.dtype} not in ({"f32"}, {"bf16"}) or anchor.attr("precision") not in ("", "f32"):
            return None
        orders = tuple(anchor.attr("order").split(","))
        sizes = dict(zip(orders[0], q.shape, strict=True))
        keys, features = k.shape[orders[1].index("s")], v.shape[orders[2].index("d")]
        return AttentionShape(
            sizes["b"], anchor.attr("q_heads"), sizes["s"], keys, features, sizes["d"], q.dtype == "bf16",
            keys % DOT.extent == 0 and "lengths" not in anchor.attr("extras"), orders, tuple(anchor.inputs),
        )  # fmt: skip

    @property
    def tasks(self) -> int:
        return self.batch * self.heads

    @property
    def along(self) -> str:
        """The dimension of the result that its vectors run along, as `orders` name it: neighbours in the values' memory
        are features, or positions."""
        return "s" if self.orders[2].endswith("s") else "d"

    @property
    def across(self) -> str:
        """The other dimension of a tile of the result: for a row of it, a number is broadcast."""
        return "d" if self.along == "s" else "s"


@template("attention.blocks", op="attention", priority=1.0)
class AttentionBlocks:
    """Blocks of queries; a thread takes whole heads, or blocks where there are too few heads."""

    def applies(self, workload: Workload, target: Target) -> bool:
        p = AttentionShape.of(workload)
        if p is None or not min(p.tasks, p.keys, p.features):
            return False
        # One query hardly fills a vector: the generic schedule then runs vectors along features.
        return p.queries * 4 >= target.lanes(4)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = _shape(workload)
        lanes, registers = target.lanes(4), target.num_vector_registers
        most = -(-p.queries // lanes)
        widest = most if p.along == "s" else -(-p.features // lanes)

        def scores_fit(c: Config) -> bool:
            keys, queries = c.get_int("keys"), c.get_int("queries")
            return keys * queries + queries + 1 <= registers

        def values_fit(c: Config) -> bool:
            whole = p.along == "d" or c.get_int("queries") % c.get_int("columns") == 0
            return whole and (c.get_int("rows") + 1) * c.get_int("columns") <= registers

        return ConfigSpace(
            (
                Choice("queries", tuple(n for n in QUERIES if n <= most)),
                Choice("keys", tuple(n for n in KEYS if n <= max(p.keys, KEYS[0]))),
                Choice("rows", tuple(n for n in ROWS if n <= lanes)),
                Choice("columns", tuple(n for n in COLUMNS if n <= widest)),
                Choice("share", (HEADS, BLOCKS)),
            ),
            (
                Constraint(
                    "score registers", scores_fit, "the tile of scores needs more vector registers than there are"
                ),
                Constraint(
                    "value registers",
                    values_fit,
                    "the tile of values needs more vector registers than there are, or does not divide the block",
                ),
            ),
        )

    def default(self, workload: Workload, target: Target) -> Config:
        p, space = _shape(workload), self.space(workload, target)
        names = ("share", "queries", "keys", "rows", "columns")
        tiles = itertools.product(*(space.knob(name).values for name in names))
        plain = space.default()
        found = [plain.replace(**dict(zip(names, tile, strict=True))) for tile in tiles]
        return min(filter(space.satisfies, found), key=lambda config: _cycles(p, target, config))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        p = _shape(workload)
        s = with_layouts(Schedule(compute_def(workload)), interface, {})
        if any(x.name == "attention" for x in s.state.stages):
            s = s.inline("attention")
        for x in s.state.stages:  # an epilogue
            if x.name != "out0" and not x.name.startswith("attention_"):
                s = s.inline(x.name)
        return skip_what_nobody_reads(_Blocks(p, target, config).schedule(s), workload)


def _shape(workload: Workload) -> AttentionShape:
    p = AttentionShape.of(workload)
    assert p is not None  # the template applies
    return p


def _cycles(p: AttentionShape, target: Target, config: Config) -> tuple[float, float]:
    """What a thread is to expect of products and of the memory around them; then loads for each multiply-add.

    A block's scores are written, looked through for the largest, turned into powers, added up, and read once for each
    column of tiles; a head's keys and values are read for every block. The powers themselves take the same in all.
    """
    queries, keys = config.get_int("queries"), config.get_int("keys")
    rows, columns = config.get_int("rows"), config.get_int("columns")
    steps, lanes = Steps.of(target), target.lanes(DType.f32.bytes)
    vectors = math.ceil(p.queries / lanes)
    blocks = math.ceil(vectors / queries)
    if config.get_str("share") == HEADS:  # the last block has no more vectors than it needs
        turns = math.ceil(p.tasks / target.num_threads) * vectors / queries
    else:
        turns = math.ceil(p.tasks * blocks / target.num_threads)
    scores = p.features * sum(n * _score_step(p, steps, k, queries) for k, n in tiles(p.keys, keys))
    across, along = (p.features, queries) if p.along == "s" else (queries * lanes, math.ceil(p.features / lanes))
    shapes = [(r, c, m * n) for r, m in tiles(across, rows) for c, n in tiles(along, columns)]
    apart = INTERLEAVED if p.narrow else 1
    values = p.keys * sum(n * steps.cycles(r * c, r + apart * c) for r, c, n in shapes)
    products = (scores + values) / (DOT.extent if p.narrow else 1)
    kept = queries * lanes * p.keys * DType.f32.bytes
    copied = queries * lanes * p.features * DType.f32.bytes
    passes = 5 + math.ceil(along / columns)
    both = 2 * p.keys * p.features * DType.f32.bytes
    moving = [
        ((passes * kept if kept + copied > held else 0) + (both if both > held else 0)) / rate
        for held, rate in behind_caches(target)
    ]
    loads = (keys + queries) / (keys * queries) + (rows + apart * columns) / (rows * columns)
    return turns * overlapped(products, *moving), loads


def _score_step(p: AttentionShape, steps: Steps, keys: int, queries: int) -> float:
    """Cycles of one feature of a tile of scores. Pairs of a query lie in two rows, and have to be put together; a key
    that several vectors of queries share is an instruction of its own, else it is part of the one that multiplies."""
    if not p.narrow:
        return steps.cycles(keys * queries, keys + queries)
    beside = (keys if queries > 1 else 0) + INTERLEAVED * queries
    return (max(keys * queries, steps.pipe.in_flight) + beside) / steps.pipe.per_cycle


class _Blocks:
    """The loops of one config."""

    def __init__(self, p: AttentionShape, target: Target, config: Config) -> None:
        self.p, self.lanes = p, target.lanes(4)
        self.block = config.get_int("queries") * self.lanes
        self.columns = config.get_int("columns")
        self.keys, self.rows, self.share = config.get_int("keys"), config.get_int("rows"), config.get_str("share")
        self.ends_anywhere = self.share == BLOCKS and p.queries > self.block and p.queries % self.block > 0
        """Whether the last block of a head is no code of its own."""
        folds = p.narrow and DOT.runs(target.features, self.lanes)
        self.folds_scores = folds and p.depth % DOT.extent == 0 and p.orders[1].endswith("d")
        self.folds_values = folds and (p.orders[2].endswith("d") or (p.along == "s" and p.paired))

    def schedule(self, s: Schedule) -> Schedule:
        q = f"in{self.p.operands[0]}"
        s = s.cache_read(q, PRODUCTS, only=0)  # the keys may lie in the same tensor
        s, place = self._blocks_of_queries(s)
        s = self._values(s)
        partial = {}
        for stage in (SUM, LARGEST):
            (j,) = (a.name for a in s.state.stage(stage).stage.reduce_axes)
            s = s.rfactor(stage, j, min(PARTIALS, self.p.keys), "inner")
            partial[stage] = f"{stage}.rf"
        weights = (WEIGHTS,) if self.p.narrow else ()
        for stage in (INVERSE, SUM, partial[SUM], *weights, POWERS, LARGEST, partial[LARGEST], LOGITS):
            s = s.compute_at(stage, "out0", place, LOCAL if stage in (INVERSE, *weights, POWERS, LOGITS) else REGISTER)
        if self.p.narrow:
            s = self._weights(s)
        s = self._row(s, INVERSE)
        for stage in (SUM, LARGEST):
            s = self._partials(self._row(s, stage), partial[stage])
        s = self._powers(s)
        s = self._logits(s)
        s = self._transposed(s.compute_at(f"{q}.r", "out0", place, LOCAL), f"{q}.r")
        return self._whole_blocks(s) if self.ends_anywhere else s

    def _whole_blocks(self, s: Schedule) -> Schedule:
        """The last block of a head is computed whole in the scratch memory, whatever lies there, and only its queries
        are written. Masks end with the queries, and what reads such is guarded."""
        operands = {t.name for t in s.state.inputs}
        for x in (x for x in s.state.stages if x.name.startswith("attention_")):
            partial = x.name in (f"{SUM}.rf", f"{LARGEST}.rf")  # of so many keys each, their number first
            place = self.p.orders[3].index("s") if x.name == VALUES else 2 + partial
            query = x.stage.axes[place].name
            indices = (index for r in x.reads() if r.tensor.name in operands for index in r.indices)
            if not any(isinstance(e, Var) and e.name == query for index in indices for e in walk(index)):
                s = s.pad(x.name, query)
        return s

    def _names(self, s: Schedule, stage: str, order: str) -> dict[str, str]:
        return {letter: a.name for letter, a in zip(order, s.state.stage(stage).stage.axes, strict=True)}

    def _blocks_of_queries(self, s: Schedule) -> tuple[Schedule, str]:
        """The result: blocks of queries, tiles of `rows` by `columns` vectors in them; and the loop over blocks."""
        out, width = "out0", self.columns * self.lanes
        at = self._names(s, out, self.p.orders[3])
        b, h, i, d = (at[letter] for letter in "bhsd")
        s = s.split(out, i, self.block)
        within = {"s": f"{i}.1", "d": d}
        row, vector = within[self.p.across], within[self.p.along]
        s = s.split(out, row, self.rows).split(out, vector, width).split(out, f"{vector}.1", self.lanes)
        tiles = [f"{within['s']}.0", f"{within['d']}.0"]
        tile = [f"{row}.1", f"{vector}.1.0", f"{vector}.1.1"]
        s = s.reorder(out, b, h, f"{i}.0", *tiles, *tile).fuse(out, b, h)
        shared = f"{b}*{h}"
        place = f"{i}.0"
        if self.share == BLOCKS:
            s = s.fuse(out, shared, place)
            shared = place = f"{shared}*{place}"
        elif self.p.queries % self.block:
            s = s.partition(out, place)
        queries, features = (self.rows, width) if self.p.along == "d" else (width, self.rows)
        if self.p.queries % queries or self.p.queries % self.block:
            s = s.partition(out, tiles[0])
        if self.p.features % features:
            s = s.partition(out, tiles[1])
        s = s.parallel(out, shared).unroll(out, tile[0]).unroll(out, tile[1]).vectorize(out, tile[2])
        return s.compute_at(VALUES, out, tiles[1], REGISTER), place

    def _values(self, s: Schedule) -> Schedule:
        """Sums of a tile: one number broadcast per row, a probability or a value, by one load per vector."""
        at = self._names(s, VALUES, self.p.orders[3])
        (j,) = (a.name for a in s.state.stage(VALUES).stage.reduce_axes)
        order = ("b", "h", self.p.across, self.p.along)
        s = s.layout(VALUES, Layout.blocked(4, [], tuple(self.p.orders[3].index(letter) for letter in order)))
        row, vector = at[self.p.across], at[self.p.along]
        s = s.split(VALUES, vector, self.lanes)
        pairs = [j]
        if self.folds_values:
            s = s.split(VALUES, j, DOT.extent)
            pairs = [f"{j}.0", f"{j}.1"]
        s = s.reorder(VALUES, at["b"], at["h"], pairs[0], row, f"{vector}.0", f"{vector}.1", *pairs[1:])
        s = s.unroll(VALUES, row).unroll(VALUES, f"{vector}.0").vectorize(VALUES, f"{vector}.1")
        if self.folds_values:
            s = s.tensorize(VALUES, pairs[1], DOT.name)
            if self.p.keys % DOT.extent:
                s = s.partition(VALUES, pairs[0])
        return s

    def _row(self, s: Schedule, stage: str) -> Schedule:
        """One number per query: a vector of queries in each lane's place, keys one after the other."""
        folds = [a.name for a in s.state.stage(stage).stage.reduce_axes]
        i = s.state.stage(stage).stage.axes[2].name
        s = s.split(stage, i, self.lanes).reorder(stage, *folds, f"{i}.0", f"{i}.1")
        for fold in folds:
            s = s.unroll(stage, fold)
        return s.unroll(stage, f"{i}.0").vectorize(stage, f"{i}.1")

    def _partials(self, s: Schedule, stage: str) -> Schedule:
        """Several numbers per query, of every so many keys, so that they need not wait for each other."""
        (j,) = (a.name for a in s.state.stage(stage).stage.reduce_axes)
        part, b, h, i = (a.name for a in s.state.stage(stage).stage.axes)
        s = s.split(stage, i, self.lanes).reorder(stage, b, h, j, part, f"{i}.0", f"{i}.1")
        return s.unroll(stage, part).unroll(stage, f"{i}.0").vectorize(stage, f"{i}.1")

    def _powers(self, s: Schedule) -> Schedule:
        b, h, i, j = (a.name for a in s.state.stage(POWERS).stage.axes)
        s = s.layout(POWERS, SCORES).split(POWERS, i, self.lanes).reorder(POWERS, b, h, j, f"{i}.0", f"{i}.1")
        return s.unroll(POWERS, f"{i}.0").vectorize(POWERS, f"{i}.1")

    def _logits(self, s: Schedule) -> Schedule:
        """Tiles of keys by all queries of the block, summed over features in registers, then scaled and masked."""
        b, h, i, j = (a.name for a in s.state.stage(LOGITS).stage.axes)
        s = s.layout(LOGITS, SCORES).split(LOGITS, i, self.lanes).split(LOGITS, j, self.keys)
        s = s.reorder(LOGITS, b, h, f"{j}.0", f"{j}.1", f"{i}.0", f"{i}.1")
        s = s.unroll(LOGITS, f"{j}.1").unroll(LOGITS, f"{i}.0").vectorize(LOGITS, f"{i}.1")
        if self.p.keys % self.keys:
            s = s.partition(LOGITS, f"{j}.0")
        s = s.compute_at(PRODUCTS, LOGITS, f"{j}.0", REGISTER)
        b, h, i, j = (a.name for a in s.state.stage(PRODUCTS).stage.axes)
        (d,) = (a.name for a in s.state.stage(PRODUCTS).stage.reduce_axes)
        s = s.layout(PRODUCTS, SCORES).split(PRODUCTS, i, self.lanes)
        pairs = [d]
        if self.folds_scores:
            s = s.split(PRODUCTS, d, DOT.extent)
            pairs = [f"{d}.0", f"{d}.1"]
        s = s.reorder(PRODUCTS, b, h, pairs[0], j, f"{i}.0", f"{i}.1", *pairs[1:])
        s = s.unroll(PRODUCTS, j).unroll(PRODUCTS, f"{i}.0").vectorize(PRODUCTS, f"{i}.1")
        return s.tensorize(PRODUCTS, pairs[1], DOT.name) if len(pairs) > 1 else s

    def _weights(self, s: Schedule) -> Schedule:
        """Powers as factors: of every two keys side by side, which an instruction folds; rows are loaded whole."""
        b, h, i, j = (a.name for a in s.state.stage(WEIGHTS).stage.axes)
        s = s.layout(WEIGHTS, PAIRED).split(WEIGHTS, i, self.lanes).split(WEIGHTS, j, DOT.extent)
        s = s.reorder(WEIGHTS, b, h, f"{j}.0", f"{i}.0", f"{i}.1", f"{j}.1").fuse(WEIGHTS, f"{i}.1", f"{j}.1")
        if self.p.keys % DOT.extent:
            s = s.partition(WEIGHTS, f"{j}.0")
        return s.unroll(WEIGHTS, f"{i}.0").vectorize(WEIGHTS, f"{i}.1*{j}.1")

    def _transposed(self, s: Schedule, copy: str) -> Schedule:
        """The block's queries with features outside, turned in registers a square at a time."""
        order = self.p.orders[0]
        at = self._names(s, copy, order)
        s = s.layout(copy, Layout.blocked(4, [], tuple(order.index(letter) for letter in "bhds")))
        b, h, i, d = (at[letter] for letter in "bhsd")
        s = s.split(copy, i, self.lanes).split(copy, d, self.lanes)
        s = s.reorder(copy, b, h, f"{i}.0", f"{d}.0", f"{d}.1", f"{i}.1")
        return s.unroll(copy, f"{d}.1").vectorize(copy, f"{i}.1")
