"""Recurrent layers: the recurrent weights packed as the loops read them, sums and gates of a tile in registers.

One step costs a product of the last state with all recurrent weights: bound by the memory that holds these when the
batch is small. Threads share the hidden units, so each reads its own part of the weights, and meet once per step.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from autotune.cost_model.expected import behind_caches
from autotune.ops.registry import compute_def, value_types
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.schedule.state import LOCAL, REGISTER
from autotune.search_spaces.library.anchored import with_layouts
from autotune.search_spaces.library.register_tile import Steps, registers
from autotune.search_spaces.operators.plain import plain_schedule
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.knobs import Choice, flag
from autotune.search_spaces.space.registry import template
from autotune.search_spaces.space.space import ConfigSpace, Constraint
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
VECTORS = (1, 2, 3, 4, 6, 8)
ROWS = (1, 2, 3, 4, 5, 6, 8, 12)
UNROLL = (1, 2, 4, 8)
MOST_SUMS = 32  # vectors of sums; more than there are registers is spilled


@dataclass(frozen=True, slots=True)
class Layer:
    """The shape of a recurrent layer."""

    gates: int
    directions: int
    batch: int
    hidden: int
    dtype: DType
    lanes: int
    stages: int

    @staticmethod
    def of(workload: Workload, target: Target) -> Layer:
        node = next(n for n in workload.nodes if n.op in GATES)
        types = value_types(workload)
        data, weight = types[node.inputs[0]], types[node.inputs[1]]
        attrs = dict(node.attrs)
        gates = 1 if node.op == "gru" and not attrs["linear_before_reset"] else GATES[node.op]
        dtype = DType.f64 if data.dtype == "f64" else DType.f32
        # Reset gates before the sum: the state is kept for two stages, of which the second waits for the first.
        stages = 3 if gates < GATES[node.op] else 1
        return Layer(gates, weight.shape[0], data.shape[1], weight.shape[2], dtype, target.lanes(dtype.bytes), stages)

    def held(self, vectors: int, rows: int) -> int:
        """Vector registers of a tile."""
        return registers(rows, self.gates * vectors)

    def cycles(self, vectors: int, rows: int, shared: bool, target: Target) -> tuple[float, int, int]:
        """Cycles of a step, its vectors of weights, and the size of its code: what one thread is to expect.

        Tiles come one after the other, then threads wait for each other. Weights stay in the cache that holds all that
        a thread reads in a step.
        """
        steps, threads = Steps.of(target, self.dtype, self.lanes), target.num_threads if shared else 1
        units = math.ceil(self.directions * math.ceil(self.hidden / (self.lanes * vectors)) / threads)
        tiles = math.ceil(self.batch / rows)
        sums, weights = self.gates * vectors * rows, self.gates * vectors
        packed = self.hidden * weights * self.lanes * self.dtype.bytes
        unit = [tiles * self.hidden * steps.cycles(sums, weights + rows)]
        for held, rate in behind_caches(target):
            if units * packed > held:
                unit.append((tiles if packed > held else 1) * packed / rate)
        meeting = self.stages * target.core.barrier_cycles if threads > 1 else 0.0
        return units * max(unit) + meeting, units * tiles * weights, sums


@template("recurrent", op=None, priority=1.0)
class Recurrent:
    """RNN, GRU, LSTM of any shape and dtype."""

    def applies(self, workload: Workload, target: Target) -> bool:
        return any(n.op in GATES for n in workload.nodes)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        p = Layer.of(workload, target)
        blocks = -(-p.hidden // p.lanes)
        knobs = (
            Choice("vectors", tuple(v for v in VECTORS if v <= max(blocks, 1))),
            Choice("rows", tuple(r for r in ROWS if r <= max(p.batch, 1))),
            Choice("unroll", UNROLL, 4),
            flag("alternate", default=True),
            flag("shared", default=target.num_threads > 1),
        )
        fits = Constraint(
            "registers",
            lambda c: p.gates * c.get_int("vectors") * c.get_int("rows") <= MOST_SUMS,
            f"{p.gates} gates times vectors times rows must be at most {MOST_SUMS}",
        )
        return ConfigSpace(knobs, (fits,))

    def default(self, workload: Workload, target: Target) -> Config:
        """Of what the registers hold, the fewest cycles; among equals the fewest weights to load, the least code."""
        p, space = Layer.of(workload, target), self.space(workload, target)
        names = ("vectors", "rows", "shared")
        tiles = itertools.product(*(space.knob(name).values for name in names))
        plain = space.default()
        candidates = [plain.replace(**dict(zip(names, tile, strict=True))) for tile in tiles]

        def cost(config: Config) -> tuple[int, float, int, int]:
            vectors, rows = config.get_int("vectors"), config.get_int("rows")
            spilled = max(0, p.held(vectors, rows) - target.num_vector_registers)
            return spilled, *p.cycles(vectors, rows, config.get_bool("shared"), target)

        return min((config for config in candidates if space.satisfies(config)), key=cost)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        definition = compute_def(workload)
        if any(0 in t.shape for t in definition.tensors):
            return plain_schedule(workload, interface)
        s = with_layouts(Schedule(definition), interface, {})
        return _Nests(s, Layer.of(workload, target), config).run()


class _Nests:
    """Gives every stage its loops; `s` is the schedule so far."""

    def __init__(self, s: Schedule, layer: Layer, config: Config) -> None:
        self.s, self.p = s, layer
        self.vectors, self.rows = config.get_int("vectors"), config.get_int("rows")
        self.unroll, self.shared = config.get_int("unroll"), config.get_bool("shared")
        self.alternate = config.get_bool("alternate")
        self.block = layer.lanes * self.vectors

    def run(self) -> Schedule:
        stages = self.s.state.stages
        products = {s.name: self.s.state.consumers(s)[0].name for s in stages if s.stage.reducer and s.stage.recurrence}
        cells = list(dict.fromkeys(products.values()))
        for s in stages:
            if any(s.name in {r.tensor.name for r in self.s.state.stage(x).reads()} for x in products):
                if s.stage.recurrence is None:
                    self._weights(s.name)
        for cell in cells:
            self._cell(cell, [name for name, reader in products.items() if reader == cell])
        for s in stages:
            if s.name in products or s.name in cells or all(x.name != s.name for x in self.s.state.stages):
                continue
            readers = {products.get(x.name, x.name) for x in self.s.state.consumers(s)}
            if s.stage.recurrence is not None and len(readers) == 1 and readers <= set(cells):
                self.s = self.s.compute_at(s.name, readers.pop(), str(s.stage.scan_axis), LOCAL)
                self._rows(s.name, shared=False)
            elif s.untouched and self.s.state.stage(s.name).untouched:
                self._rows(s.name, shared=True)
        return self.s

    def _weights(self, name: str) -> None:
        """Packed: for each block of hidden units, for each element of the state, the vectors of all gates."""
        s = self.s.state.stage(name)
        known = {t.name: t for t in self.s.state.inputs}
        fixed = all(r.tensor.name in known and known[r.tensor.name].constant for r in s.reads())
        d, g, j, k = range(4)
        packed = Layout(((d, 0), (j, 0), (k, 0), (g, 0), (j, self.block)), ((0, 0),) * 4)
        if fixed:
            self.s = self.s.precompute(name).layout(name, packed)
            return
        axes = [a.name for a in s.stage.axes]
        self.s = self.s.layout(name, packed).split(name, axes[j], self.block)
        outer, inner = f"{axes[j]}.0", f"{axes[j]}.1"
        self.s = self.s.reorder(name, axes[d], outer, axes[k], axes[g], inner)
        self.s = self.s.fuse(name, axes[d], outer).parallel(name, f"{axes[d]}*{outer}")

    def _cell(self, name: str, products: list[str]) -> None:
        """States: tiles of some rows of the batch and some vectors of hidden units, shared among threads by units."""
        s = self.s
        t, d, b, j = (a.name for a in s.state.stage(name).stage.axes)
        s = s.split(name, j, self.block).split(name, b, self.rows)
        tail = [f"{j}.1"]
        if self.vectors > 1:
            s = s.split(name, f"{j}.1", self.p.lanes)
            tail = [f"{j}.1.0", f"{j}.1.1"]
        s = s.reorder(name, t, d, f"{j}.0", f"{b}.0", f"{b}.1", *tail).fuse(name, d, f"{j}.0")
        if self.p.batch % self.rows:
            s = s.partition(name, f"{b}.0")
        for product in products:
            s = s.compute_at(product, name, f"{b}.0", REGISTER)
            s = self._product(s, product)
        s = s.unroll(name, f"{b}.1")
        if self.vectors > 1:
            s = s.unroll(name, tail[0])
        s = s.vectorize(name, tail[-1])
        units = f"{d}*{j}.0"
        s = s.alternate(name, units) if self.alternate else s
        self.s = s.parallel(name, units) if self.shared else s

    def _product(self, s: Schedule, name: str) -> Schedule:
        """Sums over the last state, a vector of units of every gate for each row at once."""
        stage = s.state.stage(name).stage
        t, d, b, g, j = (a.name for a in stage.axes)
        k = stage.reduce_axes[0].name
        steps = max(u for u in UNROLL if u <= self.unroll and (self.p.hidden % u == 0 or u == 1))
        s = s.split(name, k, steps)
        tail = [b, g, j]
        if self.vectors > 1:
            s = s.split(name, j, self.p.lanes)
            tail = [b, g, f"{j}.0", f"{j}.1"]
        s = s.reorder(name, t, d, f"{k}.0", f"{k}.1", *tail)
        for loop in (f"{k}.1", *tail[:-1]):
            s = s.unroll(name, loop)
        return s.vectorize(name, tail[-1])

    def _rows(self, name: str, shared: bool) -> None:
        """An elementwise stage: vectors along its last axis, everything else one loop."""
        s = self.s
        state = s.state.stage(name)
        turn = state.turn
        loops = [x for x in state.loops if x.name != turn]
        last, outer = loops[-1], [x.name for x in loops[:-1]]
        lanes = min(self.p.lanes, last.extent)
        s = s.split(name, last.name, lanes)
        outer.append(f"{last.name}.0")
        if shared:
            fused = outer[0]
            for loop in outer[1:]:
                s, fused = s.fuse(name, fused, loop), f"{fused}*{loop}"
            s = s.parallel(name, fused) if turn is None or self.shared else s
        else:
            s = s.partition(name, outer[-1])
        self.s = s.vectorize(name, f"{last.name}.1")
