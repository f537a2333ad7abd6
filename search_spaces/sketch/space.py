"""The space of a contraction's tilings: knobs that sampling, mutation and crossover can move without breaking it."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.core import LINE, Pipe
from autotune.cost_model.features import FEATURES_VERSION, Features
from autotune.cost_model.prior import prior
from autotune.schedule.dot_products import PAIRS, TILES
from autotune.search_spaces.library.afar import AHEAD, reads_apart, turns_ahead
from autotune.search_spaces.library.register_tile import Steps
from autotune.search_spaces.sketch.batch import Batch, Decoder, Integers
from autotune.search_spaces.sketch.coming import part_read_again, stays_beside_the_next
from autotune.search_spaces.sketch.contraction import Axis, Contraction
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.foresee import Cost, foreseen
from autotune.search_spaces.sketch.instructions import dominated, throughput
from autotune.search_spaces.sketch.nest_numbers import NAMES, NestNumbers
from autotune.search_spaces.sketch.rules import (
    FACTOR_TILES,
    MOST_BODY,
    block_size,
    depths,
    folded,
    from_afar,
    interleaved,
    long,
    narrow,
    remainder,
    term_orders,
    too_many,
    unrolls,
)
from autotune.search_spaces.sketch.tiling import BLOCK, NO, ONCE, Tiling
from autotune.search_spaces.sketch.unlearned import IDLE, as_asking, unless_in_parts, unless_waiting
from autotune.search_spaces.space.config import Config, KnobValue
from autotune.search_spaces.space.knobs import Choice, flag
from autotune.search_spaces.space.space import ConfigSpace, Constraint, stacked
from autotune.target import Target

MOST_ROWS = 30
"""Along an axis of a tile without vectors: what 32 registers hold beside a vector and a number."""
MOST_VECTORS = 8
"""Along the axis of vectors, whether they divide it or not."""
USED = 0.85
"""Share of a tile that must be of use at the end of an axis that it does not divide."""
WORTHWHILE = 4
"""Accumulators of the smallest tile, where axes are long enough: fewer only wait for each other."""

ASKING = ("ahead", "stream", "apart")
"""Knobs of when panels of constants are asked for, and of how many places a core fetches them ahead from."""

WALK = ("outer", "inner", "block.")
"""Knobs of the order of tiles."""

PANELS = ("vector", "lanes", "terms", "dot", "apart")
"""Knobs that decide, with the tile along vectors, how panels of constants lie."""

TILES_PER_BLOCK = (1, 2, 4, 8, 16, 32, 64, 0)
MOST_TILES = 4000
DRAWS = 256
"""From which a sample takes the first that is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchSpace(ConfigSpace):
    """All tilings worth trying of a contraction, told apart by what they make: equal nests have one config.

    Args:
        numbers: of the loop nests; they are what the cost model sees.
        usual: those of a usual run, of an end that the run says in the middle; untuned kernels are the best for that.
        tiling: what a config says.
    """

    numbers: NestNumbers
    usual: NestNumbers
    tiling: Callable[[Config], Tiling]

    def canonical(self, config: Config) -> Config:
        """The one of all configs of the same nest: the smallest names of sizes, loops of one turn first."""
        t, c = self.tiling(config), self.numbers.c
        knobs: dict[str, KnobValue] = {}
        for n, a in enumerate(c.spatial):
            if f"block.{a.name}" in config:
                count = -(-a.extent // t.elements(n))
                same = [v for v in TILES_PER_BLOCK if block_size(count, v, c.product and n == t.vector) == t.block[n]]
                knobs[f"block.{a.name}"] = 0 if 0 in same else min(same)
        still = {
            "outer": [n for n, a in enumerate(c.spatial) if -(-a.extent // t.elements(n)) <= t.block[n]],
            "inner": [n for n, tiles in enumerate(t.block) if tiles == 1],
        }
        for name, once in still.items():
            if name in config:
                order = config.get_ints(name)
                knobs[name] = (*(n for n in once if n in order), *(n for n in order if n not in once))
        if "outer" in config:
            order, count = config.get_ints("outer"), config.get_int("shared")
            moved = sum(n in order for n in still["outer"])
            turning = sum(n not in still["outer"] for n in order[:count])
            knobs["shared"] = moved + turning if turning > 1 else 1  # the first that turns is shared anyway
            if not self._has("shared", knobs["shared"]):
                del knobs["outer"], knobs["shared"]
        if t.stream and not any(part_read_again(c, t, f).bytes for f in c.streamed):
            knobs["stream"] = False
        if t.apart and t.tile[t.vector] == 1:
            knobs["apart"] = False
        if self.numbers.target.num_threads == 1:
            knobs["shared"] = 1
        return config.replace(**knobs)

    def _has(self, name: str, value: KnobValue) -> bool:
        return any(knob.name == name and value in knob.values for knob in self.knobs)

    def default(self) -> Config:
        return self.foreseen(1)[0]

    def alike(self, other: Config, gap: float, default: Config) -> Config | None:
        """Of the configs in which panels of constants are as in `other`, of the same product of other extents, the one
        of which the most is expected; None where that is less than of the default by more than `gap`, as `expected`."""
        names = [a.name for a in self.numbers.c.spatial]
        vector, tile = other.get("vector"), other.get("tile")
        if not isinstance(tile, tuple) or len(tile) != len(names) or vector not in names:
            return None
        width, own = tile[names.index(str(vector))], default.get("tile")
        same = all(default.get(name, False) == other.get(name, False) for name in PANELS)
        if same and isinstance(own, tuple) and own[names.index(str(vector))] == width:
            return default if gap >= 0.0 else None  # it is among them, and of nothing is more expected
        kept: list[Choice] = []
        for knob in self.knobs:
            values = [
                value for value in knob.values
                if (knob.name not in PANELS or value == other.get(knob.name, False))
                and (knob.name != "tile" or (isinstance(value, tuple) and value[names.index(str(vector))] == width))
            ]  # fmt: skip
            if not values:
                return None
            kept.append(Choice(knob.name, tuple(values)))
        found = replace(self, knobs=tuple(kept)).foreseen(1)
        if not found:
            return None
        one, best = self.expected(Batch.of(self.numbers.c, [self.tiling(config) for config in (*found, default)]))
        return found[0] if one - best <= gap else None

    def foreseen(self, count: int, expected: Cost | None = None) -> list[Config]:
        """The configs of which the most is expected, by another model than the prior where one is given, best first;
        fewer where there are not so many."""
        return self.configs_of(self.ranked(expected), count)

    def ranked(self, expected: Cost | None = None) -> Integers:
        """(rows, knobs) what `configs_of` makes those of, best first.

        Four things are not left to models that learned from kernels by themselves, with weights that caches hold,
        while in a model they come from farther away (`unlearned`). When panels are asked for follows from the tile, and
        from the room for the next ones beside those that are read, and where they lie from how often that is; no tall
        tile reads one alone; a sum in parts has to promise more; and of instructions that differ in nothing but speed
        only the fastest counts. The search tries all. A closed form, which knows what asking takes, supposes that
        panels are asked for: loads weigh more then.
        """
        decoder = Decoder(self.numbers.c, self._learned, self.numbers.target)
        rough: Cost = self.cycles
        careful = expected or self.expected
        careful = careful if self._untold else unless_in_parts(careful)
        afar = any(knob.name == ASKING[0] for knob in self.knobs)
        if afar and self._untold:
            rough, careful = as_asking(rough), as_asking(careful)
        if afar:
            rough, careful = (unless_waiting(cost, self.numbers.c) for cost in (rough, careful))
        return foreseen(decoder, rough, careful, self.numbers.c.total)

    def configs_of(self, rows: Integers, count: int) -> list[Config]:
        """The first of what `ranked` found, each once."""
        others = Config.of((knob.name, knob.values[0]) for knob in self.knobs if knob.name in ASKING)
        learned = self._learned
        found: dict[Config, None] = {}
        for row in rows:
            config = others.replace(**{knob.name: knob.values[n] for knob, n in zip(learned, row)})
            if "ahead" in config:
                t = self.tiling(config)
                stream = stays_beside_the_next(self.numbers.c, t, self.numbers.target)
                times = min(part_read_again(self.numbers.c, t, f).times for f in self.numbers.c.streamed)
                vectors = t.tile[t.vector]
                height, steps = math.prod(t.tile) // vectors, self._steps(t)
                ahead = turns_ahead(height, vectors, stream, self.numbers.target, steps, times)
                if t.upright >= 0:  # tiles: many lines in a turn, which come fast enough from the second cache
                    ahead = AHEAD[0 if stream else 1]
                apart = reads_apart(height, vectors, self.numbers.target, times)
                apart = apart if self._has("apart", apart) else not apart  # as panels of others lie
                config = config.replace(ahead=ahead, stream=stream, apart=apart)
            if self.numbers.c.lanewise:
                config = self._whole_lines(config)
            found[self.canonical(config)] = None
            if len(found) == count:
                break
        return list(found)

    def _steps(self, t: Tiling) -> Steps:
        """How fast tiles step: with as many operations a cycle as their instruction allows."""
        c, target, kind = self.numbers.c, self.numbers.target, self.numbers.kind
        rates, latencies = throughput(c, target, kind, Batch.of(c, [t]))
        pipe = Pipe(kind, target.vector_bits * t.lanes // c.lanes, float(rates[0]), float(latencies[0]))
        return Steps(pipe, Steps.of(target, lanes=t.lanes).loads)

    @property
    def _untold(self) -> bool:
        """Whether models have learned nothing of such sums, so that the closed form says what is expected."""
        c = self.numbers.c
        return c.lanewise or any(f.dot.name == PAIRS for f in c.foldings)

    @property
    def _learned(self) -> list[Choice]:
        """The knobs of which models have learned, with the values that count."""
        slower = dominated(self.numbers.c, self.numbers.target, self.numbers.kind)
        learned = [
            Choice(k.name, tuple(v for v in k.values if k.name != "dot" or v not in slower))
            for k in self.knobs if k.name not in ASKING
        ]  # fmt: skip
        if self.numbers.c.lanewise:  # nothing is read twice but by neighbours: tiles follow one another as in memory
            learned = [Choice(k.name, k.values[:1]) if k.name.startswith(WALK) else k for k in learned]
        return learned

    def _whole_lines(self, config: Config) -> Config:
        """With as many tiles along vectors in a block as fill a cache line of narrow results: threads that write halves
        of the same lines wait for each other."""
        t, c = self.tiling(config), self.numbers.c
        axis, size = c.spatial[t.vector], t.elements(t.vector)
        room = LINE // (size * c.schedule.state.stage(c.output).stage.outputs[0].dtype.bytes)
        tiles = math.gcd(-(-axis.extent // size), room) if room else 1
        name = f"block.{axis.name}"
        return config.replace(**{name: tiles}) if name in config and tiles > 1 else config

    def cycles(self, batch: Batch) -> NDArray[np.float64]:
        """Cycles that the closed form gives, relative to the bound."""
        return self.usual.cycles(batch)

    def expected(self, batch: Batch) -> NDArray[np.float64]:
        """What the prior expects, lower is faster, without one the closed form; threads without work come last.

        The prior has learned on as many threads as its machines have, and there may be more. Of pairs no model has
        learned anything: there the closed form says what is expected.
        """
        known, values = prior(NAMES, FEATURES_VERSION), self.usual.of(batch)
        idle = self.usual.idle(batch)
        if known is None:
            return np.asarray(values[:, NAMES.index("cycles")] * 2.0**idle)
        features = Features(NAMES, values.astype(np.float32))
        found = known.closed(features) if self._untold else known.predict(features)
        return np.asarray(-found + IDLE * idle)

    @property
    def portable(self) -> bool:
        return True

    def sample(self, rng: random.Random) -> Config:
        if any(f.dot.tiled for f in self.numbers.c.foldings):
            decoder = Decoder(self.numbers.c, self.knobs, self.numbers.target)
            drawn = decoder.draw(np.random.default_rng(rng.getrandbits(64)), DRAWS)
            found = drawn[decoder.valid(decoder.batch(drawn))]
            if len(found):
                values = ((knob.name, knob.values[n]) for knob, n in zip(self.knobs, found[0]))
                return self.canonical(Config.of(values))
        return self.canonical(ConfigSpace.sample(self, rng))

    def neighbours(self, config: Config, rng: random.Random) -> list[Config]:
        near = ConfigSpace.neighbours(self, config, rng)
        return [other for other in dict.fromkeys(map(self.canonical, near)) if other != config]

    def mutate(self, config: Config, rng: random.Random) -> Config:
        return self.canonical(ConfigSpace.mutate(self, config, rng))

    def crossover(self, mother: Config, father: Config, rng: random.Random) -> Config:
        return self.canonical(ConfigSpace.crossover(self, mother, father, rng))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return NAMES

    def encode(self, config: Config) -> NDArray[np.float32]:
        (row,) = self.encode_all([config])
        return np.asarray(row, np.float32)

    def encode_all(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        if not configs:
            return stacked([], len(NAMES))
        return np.asarray(self.numbers.of(Batch.of(self.numbers.c, [self.tiling(x) for x in configs])), np.float32)


def sketch_space(c: Contraction, target: Target) -> SketchSpace:
    """The space of a contraction that has an axis for vectors."""
    target = replace(target, num_threads=1) if c.inside else target
    registers, widens = target.num_vector_registers, bool(narrow(c, target))
    tiling_of: Callable[[Config], Tiling] = functools.lru_cache(4096)(lambda config: tiling(c, config))
    spatial = [n for n, a in enumerate(c.spatial) if a.extent > 1]
    lanes = c.widths()
    knobs: list[Choice] = [
        Choice("vector", tuple(c.spatial[n].name for n in c.vector_axes())),
        Choice("lanes", lanes),
        Choice("tile", tuple(_tiles(c, lanes, registers))),
    ]
    for n in spatial:
        knobs.append(Choice(f"block.{c.spatial[n].name}", TILES_PER_BLOCK, 0))
    orders = tuple(itertools.permutations(spatial))
    if len(orders) > 1:
        knobs += [Choice("outer", orders), Choice("inner", orders)]
    terms = term_orders(c)
    if len(terms) > 1:
        knobs.append(Choice("terms", terms))
    if len(depths(c)) > 1:
        knobs.append(Choice("depth", depths(c)))
    if c.points > math.prod(a.extent for a in c.spatial):
        knobs.append(Choice("unroll", unrolls(c)))
    if c.lanewise:
        knobs.append(flag("slide"))
    for f in c.factors:
        if f.plain and not f.constant:
            knobs.append(Choice(f"pack.{f.tensor}", (NO, ONCE, BLOCK)))
    knobs.append(Choice("shared", tuple(range(1, min(len(spatial), 3) + 1))))
    if c.foldings:
        knobs.append(Choice("dot", (*(f.dot.name for f in c.foldings), *(() if c.folded else (NO,)))))
    if from_afar(c, target):
        knobs += [Choice("ahead", AHEAD), flag("stream"), flag("apart")]
    if any(f.guarded for f in c.factors) and not c.edges:
        knobs.append(Choice("skip", (True,) if c.folded else (False, True)))

    def fits(config: Config) -> bool:
        t = tiling_of(config)
        size = math.prod(t.tile)
        if t.upright >= 0 and size + FACTOR_TILES + (c.spatial[t.upright].extent % t.height > 0) > TILES:
            return False
        shared, folding = min(t.tile[t.vector], size // t.tile[t.vector]), c.folding(t.dot)
        if folding is None:
            return too_many(size, shared, None, registers, widens) <= 0
        axis = c.spatial[t.vector].name
        turned = any(
            where == NO and not (f.constant and f.plain) and axis in f.axes() and interleaved(c, folding, f, t.lanes)
            for f, where in zip(c.factors, t.packs)
        )
        return too_many(size, shared, folding.dot, registers, widens, int(turned)) <= 0

    def filled(config: Config) -> bool:
        """No axis is shorter than its tile, and what jumps is not torn apart."""
        t = tiling_of(config)
        return all(_filled(a, t.elements(n), t.unit(n)) for n, a in enumerate(c.spatial))

    def regular(config: Config) -> bool:
        """Vectors are loaded, not gathered; neighbours of a dot product lie side by side."""
        t = tiling_of(config)
        return all(_regular(c, t, f, where) for f, where in zip(c.factors, t.packs))

    def code_size(config: Config) -> bool:
        t = tiling_of(config)
        tiles = [-(-a.extent // t.elements(n)) for n, a in enumerate(c.spatial)]
        ragged = sum(a.extent % t.elements(n) != 0 or tiles[n] % t.block[n] != 0 for n, a in enumerate(c.spatial))
        ragged += sum(c.product and t.elements(n) > 1 and tiles[n] > 1 for n in c.edges)
        turns = t.unroll or math.prod(a.extent for a in c.reduce)
        return math.prod(t.tile) * turns * c.body << ragged <= MOST_BODY

    return SketchSpace(
        knobs=tuple(knobs),
        constraints=(
            Constraint("registers", fits, "the tile needs more vector registers than there are"),
            Constraint("filled", filled, "an axis is shorter than its tile, or a tile crosses a jump"),
            Constraint("regular", regular, "vectors would be gathered; pack the operand or choose another axis"),
            Constraint("code size", code_size, "the unrolled loops would be long to compile"),
        ),
        numbers=NestNumbers(c, target),
        usual=NestNumbers(c.midway(), target, c.ended),
        tiling=tiling_of,
    )


def tiling(c: Contraction, config: Config) -> Tiling:
    """What a config says, with sizes cut to what there is."""
    vector = next(n for n, a in enumerate(c.spatial) if a.name == config.get_str("vector"))
    lanes, tile = config.get_int("lanes"), config.get_ints("tile")
    dot = config.get_str("dot") if "dot" in config else NO
    folding = c.folding(dot)
    upright = folding.upright[vector] if folding and folding.upright else -1
    height = folding.height(c.spatial[upright].extent) if folding and upright >= 0 else 1
    blocks = []
    for n, a in enumerate(c.spatial):
        count = -(-a.extent // (tile[n] * (lanes if n == vector else height if n == upright else 1)))
        wanted = config.get_int(f"block.{a.name}") if a.extent > 1 else 0
        blocks.append(block_size(count, wanted, c.product and n == vector))
    alone = tuple(n for n, a in enumerate(c.spatial) if a.extent == 1)
    outer, inner = ((*alone, *(config.get_ints(k) if k in config else long(c.spatial))) for k in ("outer", "inner"))
    terms = config.get_ints("terms") if "terms" in config else term_orders(c)[0]
    depth, unroll = (config.get_int(k) if k in config else other for k, other in (("depth", 0), ("unroll", 1)))
    packs = tuple(config.get_str(f"pack.{f.tensor}") if f"pack.{f.tensor}" in config else NO for f in c.factors)
    flags = (name in config and config.get_bool(name) for name in ("skip", "slide", "stream", "apart"))
    skip, slide, stream, apart = flags
    shared, ahead = len(alone) + config.get_int("shared"), (config.get_int("ahead") if "ahead" in config else 0)
    order = (tuple(blocks), outer, inner, terms, depth, unroll)
    return Tiling(vector, lanes, tile, *order, packs, shared, dot, skip, slide, ahead, upright, height, stream, apart)


def _filled(a: Axis, elements: int, lanes: int) -> bool:
    whole = -(-a.extent // lanes) * lanes
    return elements <= whole and (a.period == 0 or a.period % elements == 0)


def _regular(c: Contraction, t: Tiling, f: Factor, where: str) -> bool:
    if not c.product:
        return True
    axis = c.spatial[t.vector].name
    panels = f.plain and (f.constant or where != NO)
    folding = c.folding(t.dot)
    if folding is not None:
        last = c.terms()[t.terms[-1]]
        if not folded(c, folding, last, t.depth) or t.lanes not in folding.lanes:
            return False
        if remainder(folding, last) % min(folding.dot.extent * t.unroll, last.extent):
            return False  # the last block ends within a turn
        here = (x.constant or t.packs[k] == NO for k, x in enumerate(c.factors) if folding.zeros[k])
        if folding.extent > c.reduce[folding.axis].extent and not any(here):
            return False  # what fills up the last group may be anything
        if folding.dot.tiled and t.upright < 0:
            return False
        apart, still = f.stride(c.reduce[folding.axis].name) != 1, f.stride(axis) == 0
        if not panels and (folding.panels[c.factors.index(f)] or (apart and still)):
            return False
        if folding.dot.tiled and not panels and (apart or not still):
            return False
    return panels or f.stride(axis) in (0, 1)


def _tiles(c: Contraction, lanes: tuple[int, ...], registers: int) -> list[tuple[int, ...]]:
    """Register tiles along at most three axes, large enough to be worth it where the axes are."""
    sizes = [_sizes(a, n in c.vector_axes(), lanes) for n, a in enumerate(c.spatial)]
    for n in c.divided:
        elements = lanes[0] if n in c.vector_axes() else 1
        sizes[n] = [size for size in sizes[n] if c.spatial[n].extent % (elements * size) == 0]
    if c.lanewise:  # several vectors would share nothing
        sizes = [[1] if n in c.vector_axes() else each for n, each in enumerate(sizes)]
    wide = [n for n, each in enumerate(sizes) if len(each) > 1]
    found = [(1,) * len(sizes)]
    for axes in itertools.combinations(wide, min(3, len(wide))):
        for chosen in itertools.product(*(sizes[n] for n in axes)):
            if math.prod(chosen) <= registers - 2:
                tile = [1] * len(sizes)
                for n, value in zip(axes, chosen):
                    tile[n] = value
                found.append(tuple(tile))

    def largest(vector: int) -> int:
        """Accumulators of the largest tile with vectors along an axis."""
        fitting = (all(_filled(a, tile[n] * (lanes[-1] if n == vector else 1), lanes[-1] if n == vector else 1)
                       for n, a in enumerate(c.spatial)) and math.prod(tile) for tile in found)  # fmt: skip
        return max(fitting)

    enough = min(WORTHWHILE if c.product else 1, *(largest(n) for n in c.vector_axes()))
    if any(f.dot.tiled for f in c.foldings):
        enough = 1  # registers that are tiles
    found = [tile for tile in dict.fromkeys(found) if math.prod(tile) >= enough]
    if len(found) > MOST_TILES:  # many axes: those of the largest tiles, which is what reuse asks for
        found = sorted(found, key=lambda tile: -math.prod(tile))[:MOST_TILES]
    return sorted(found)


def _sizes(a: Axis, vector: bool, lanes: tuple[int, ...]) -> list[int]:
    """Sizes of a tile along an axis: all that divide it, and those that waste little."""
    longest = min(a.extent, MOST_ROWS)
    kept = [n for n in range(1, longest + 1) if a.extent % n == 0 or _used(a.extent, n) >= USED]
    if vector:
        kept += range(1, min(-(-a.extent // lanes[-1]), MOST_VECTORS) + 1)
    return sorted(set(kept))


def _used(extent: int, size: int) -> float:
    return extent / (-(-extent // size) * size)
