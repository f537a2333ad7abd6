"""Which products of a graph take 16-bit operands: those asked for, or those that it makes faster within an error."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from autotune.codegen.beside import Beside
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.choose import Chooser
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.defaults import Defaults
from autotune.compiler.exact import compile_within
from autotune.compiler.precision import AS_IT_IS, AS_THE_MODEL, MAX_ERROR, Precise, Precision
from autotune.compiler.weights import PackedWeights
from autotune.graph import Graph, partition
from autotune.graph.ir import Node
from autotune.graph.narrow import narrowable, narrowed, too_large
from autotune.ops.registry import known_algorithm
from autotune.ops.workload import Workload
from autotune.records import Database
from autotune.runtime.difference import max_error
from autotune.runtime.feeds import random_feeds
from autotune.runtime.program import TensorSpec
from autotune.schedule.dot_products import DOT_PRODUCTS, DotProduct
from autotune.search_spaces import lookup
from autotune.search_spaces.operators.attention import DOT
from autotune.search_spaces.sketch.nest_numbers import NAMES
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.search_spaces.space.limit import Speed, limit
from autotune.target import Target
from autotune.tensor.dtype import DType

WORTH_NARROWING = 0.95
"""Share of the time in f32 that a narrow product may take, as far as that is known."""
SIZES = (1.0, 1.0, 0.25, 4.0, 1.0, 1.0, 0.25, 4.0)
"""Of the sample inputs, each with a seed of its own: the spread of their floats."""
ROUNDED = (6, 4)
"""Points of tiles that are tried rounded to bf16, while the error allows it: those of 4 x 4 outputs and of 2 x 2."""
WORTH_TRYING = 0.5
"""Of what rounding could save, what has to be left for another try: a precaution against waiting."""
MARGIN = 0.8
"""Share of the error allowed that the worst sample may reach. A precaution, not a measurement: nothing bounds
what other inputs err by."""

Narrow = Callable[[Collection[str]], Graph]
"""The graph with some of its products narrow."""


def compile_precisely(
    graph: Graph,
    target: Target,
    database: Database | None = None,
    cache: ObjectCache | None = None,
    *,
    precision: Precision = AS_THE_MODEL,
    strict_fp: bool = False,
    max_memory: int | None = None,
    weights: PackedWeights | None = None,
    beside: Beside | None = None,
) -> CompiledModel:
    """Compile an optimised graph in a precision; for the rest see `compile_graph`.

    Raises:
        ModelError: besides, a weight is too large for the precision asked for, or f32 errs more than is allowed.
    """
    if precision.dtype(graph.own) is DType.f32 and precision.max_error is not None:
        compiled, found = compile_within(
            graph, target, database, cache, precision.max_error,
            strict_fp=strict_fp, max_memory=max_memory, weights=weights,
        )  # fmt: skip
    else:
        graph, found = in_precision(graph, target, database, cache, precision=precision, strict_fp=strict_fp)
        compiled = compile_graph(
            graph, target, database, cache,
            strict_fp=strict_fp, max_memory=max_memory, weights=weights, beside=beside,
        )  # fmt: skip
    return replace(compiled, precise=found, program=replace(compiled.program, precision=str(found)))


def in_precision(
    graph: Graph,
    target: Target,
    database: Database | None = None,
    cache: ObjectCache | None = None,
    *,
    precision: Precision,
    strict_fp: bool = False,
) -> tuple[Graph, Precise]:
    """The graph with 16-bit products, and what is to be said about them.

    "auto" runs the program on sample inputs of several sizes, where this machine can. Convolutions round the tiles that
    they transform, too, the larger or the smaller ones. Until the worst error, with a margin, is small enough it leaves
    out what is gained the least by, or what comes last, whichever leaves more of the gain.

    Raises:
        ModelError: a weight is too large for the precision asked for.
    """
    dtype = precision.dtype(graph.own)
    if dtype is DType.f32:
        return graph, replace(AS_IT_IS, asked=precision.name)
    nodes = narrowable(graph, in_rows=folds_rows(target, dtype))
    narrow = functools.partial(narrowed, graph, dtype, between=_folds_pairs(target))
    if precision.name in ("bf16", "f16"):
        names = [node.name for node in nodes]
        return narrow(names), Precise(precision.name, dtype.value, len(names), len(names))

    untuned = Defaults(cache, target, database=database)
    known, guess = (Chooser(target, records, strict_fp=strict_fp, untuned=untuned) for records in (database, None))
    bound, here = precision.max_error, not target.missing_features()
    tried = precision.name == "auto" or bound is not None  # else they are the model's own roundings
    saving = functools.partial(_gains, graph, nodes, known=known, guess=guess, dtype=dtype, strict_fp=strict_fp)
    gains = saving(narrow=narrow)
    found = Precise(precision.name, dtype.value, len(gains), len(nodes))

    @functools.cache
    def saved(points: int) -> dict[str, float]:
        """Seconds that convolutions save besides where they round tiles of so many points."""
        if not (tried and here and dtype is DType.bf16 and rounds_tiles(target)) or strict_fp:
            return {}
        more = saving(narrow=functools.partial(narrow, rounded={node.name: points for node in nodes}), rounds=True)
        besides = {name: seconds - gains.get(name, 0.0) for name, seconds in more.items()}
        return {name: seconds for name, seconds in besides.items() if seconds > 0}

    if not gains and not any(map(saved, ROUNDED)):
        return graph, replace(found, note="16 bits would not be faster")
    if not tried or not here:
        return narrow(gains), replace(found, note="not tried on inputs: made for another CPU" if tried else "")
    tries, best = _Tries(graph, target, database, cache, bound or MAX_ERROR, strict_fp), _Chosen()
    for points in ROUNDED:
        steps = [_Step(name, 0, seconds) for name, seconds in gains.items()]
        steps += [_Step(name, points, seconds) for name, seconds in saved(points).items()]
        if best.seconds < WORTH_TRYING * sum(step.seconds for step in steps):
            places = {node.name: place for place, node in enumerate(nodes)}
            best = max(best, _chosen(steps, places, narrow, tries), key=lambda one: one.seconds)
        if not saved(points) or best.all:
            break
    rounded = best.rounded
    note = "" if best.all else f"more would err by over {tries.allowed:g}"
    counts = replace(found, narrow=len(best.names), rounded=len(rounded), error=best.error, note=note)
    return narrow(best.names, rounded=rounded), counts


class _Step(NamedTuple):
    """A product that is made narrow or, with the `points` of its tiles, narrow and rounded, and what that saves."""

    name: str
    points: int
    seconds: float


class _Chosen(NamedTuple):
    """Steps that together err no more than is allowed, and whether they are all of those there were."""

    steps: Sequence[_Step] = ()
    error: float = 0.0
    all: bool = False

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(step.name for step in self.steps))

    @property
    def rounded(self) -> dict[str, int]:
        return {step.name: step.points for step in self.steps if step.points}


def _chosen(steps: Sequence[_Step], places: Mapping[str, int], narrow: Callable[..., Graph], tries: _Tries) -> _Chosen:
    """As much of what steps save as the error allows. Where it does not allow all, those are left out that save the
    least, or that come last, whose errors nothing averages, whichever leaves more.

    Args:
        places: of products in the graph.
    """

    def error_of(some: Sequence[_Step]) -> float:
        chosen = _Chosen(some)
        return tries.error_of(narrow(chosen.names, rounded=chosen.rounded))

    if (error := error_of(steps)) <= tries.most:
        return _Chosen(steps, error, all=True)
    orders = sorted(steps, key=lambda step: places[step.name]), sorted(steps, key=lambda step: -step.seconds)
    return max((_Chosen(*_most(order, error_of, tries.most)) for order in orders), key=lambda one: one.seconds)


def _folds_pairs(target: Target) -> bool:
    """Whether the instruction for pairs of bf16 multiplies as much as those of f32: else attention is no faster for 16
    bits, and depthwise convolutions widen by the units that multiply."""
    return target.core.folding(DOT.pipe, DOT.extent) >= 1


def folds_rows(target: Target, dtype: DType) -> bool:
    """Whether an instruction for pairs of this type multiplies faster than those of f32 do: of few channels nothing but
    it makes 16 bits worth the while."""
    return any(d.tiled or target.core.folding(d.pipe, d.extent) > 1 for d in _instructions(target, dtype))


def rounds_tiles(target: Target) -> bool:
    """Whether convolutions by tiles of bf16 may be faster: where an instruction of vectors multiplies them faster than
    f32, and no tile registers do, beside which transforms would take longer than products."""
    here = _instructions(target, DType.bf16)
    return any(target.core.folding(d.pipe, d.extent) > 1 for d in here) and not any(d.tiled for d in here)


def _instructions(target: Target, dtype: DType) -> list[DotProduct]:
    """Those of the CPU that multiply pairs of this type."""
    pairs = (d for d in DOT_PRODUCTS.values() if d.multiplies(dtype, dtype))
    return [d for d in pairs if d.runs(target.features, target.lanes(d.total.bytes))]


class _Tries:
    """What programs err by on sample inputs, from the one in f32."""

    def __init__(
        self, graph: Graph, target: Target, database: Database | None, cache: ObjectCache | None, allowed: float,
        strict_fp: bool = False,
    ) -> None:  # fmt: skip
        specs = [TensorSpec(v.name, v.dtype, v.shape) for v in graph.inputs]
        self.allowed, self.most = allowed, MARGIN * allowed
        self._compile = functools.partial(
            compile_graph, target=target, database=database, cache=cache, strict_fp=strict_fp
        )
        self._samples = [random_feeds(specs, seed, size) for seed, size in enumerate(SIZES)]
        wide = self._compile(graph)
        self._right = [wide.run(feeds) for feeds in self._samples]

    def error_of(self, graph: Graph) -> float:
        """The worst one."""
        tried = self._compile(graph)
        return max(max_error(tried.run(feeds), right) for feeds, right in zip(self._samples, self._right, strict=True))


def _most(
    order: Sequence[_Step], error_of: Callable[[Sequence[_Step]], float], allowed: float
) -> tuple[Sequence[_Step], float]:
    """As many as the error allows, from the first on, and the error; all together err too much."""
    error, least, most = 0.0, 0, len(order)
    while most - least > 1:
        middle = (least + most) // 2
        off = error_of(order[:middle])
        if off <= allowed:
            error, least = off, middle
        else:
            most = middle
    return order[:least], error


def _gains(
    graph: Graph, products: Iterable[Node], *, narrow: Narrow, known: Chooser, guess: Chooser, dtype: DType,
    strict_fp: bool, rounds: bool = False,
) -> dict[str, float]:  # fmt: skip
    """Seconds that 16 bits save, for the products that they make faster, in graph order.

    A time that was measured is held against none that is only expected: what was tuned because it should be faster
    would be given up for it, and its records with it.

    Args:
        known, guess: with and without records.
        rounds: only of those whose kernels, untuned, round what they transform.
    """
    nodes = [node for node in products if not too_large(graph, node, dtype)]
    before = _by_origin(graph)
    after = _by_origin(narrow([node.name for node in nodes]))
    gains: dict[str, float] = {}
    for node in nodes:
        origin = node.origins[0] if node.origins else ""
        if origin in before and origin in after and (not rounds or _rounds(after[origin], guess)):
            both = before[origin], after[origin]
            wide, short = (_measured(workload, known) for workload in both)
            if wide is None or short is None:
                wide, short = (_seconds(one, guess, strict_fp, least=one is both[0]) for one in both)
            if short < WORTH_NARROWING * wide:
                gains[node.name] = wide - short
    return gains


def _measured(workload: Workload, known: Chooser) -> float | None:
    choice = known.own(workload)
    return choice.seconds if choice.tuned else None


def _rounds(workload: Workload, choose: Chooser) -> bool:
    known = known_algorithm(workload, choose.own(workload).algorithm)
    return known is not None and known.rounds is not None


def _by_origin(graph: Graph) -> Mapping[str, Workload]:
    """The kernels by the ONNX node that they are named after."""
    return {group.origins[0]: group.workload for group in partition(graph) if group.origins}


def _seconds(workload: Workload, choose: Chooser, strict_fp: bool, *, least: bool) -> float:
    """The least possible, or (unless `least`) what the closed form of a sketch's nest says, where
    conversions come on top of all else; so, too, of a product whose operands are multiplied as numbers of another type,
    which are far from the least that their instructions could take."""
    choice, target = choose.own(workload), choose.target
    known = known_algorithm(workload, choice.algorithm)
    turned = known is not None and known.factor is not None
    bound = limit(workload, target, strict_fp=strict_fp, own=not turned).seconds
    space = lookup(choice.config.template or "").space(workload, target)
    if (least and not turned) or not isinstance(space, SketchSpace):
        return bound
    row = dict(zip(NAMES, space.encode(choice.config.without("template")), strict=True))
    cycles = float(row["cycles"] + row["converting"]) * space.numbers.bound
    return max(bound, cycles / Speed.of(target).clock)
