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
SIZES = (1.0, 1.0, 0.25, 4.0)
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
    they transform, too, the larger or the smaller ones, where the worst error, with a margin, is small enough. Where it
    is too large without that it keeps in f32 what is gained the least by, or what comes last, whichever leaves more of
    the gain.

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

    choose = Chooser(target, database, strict_fp=strict_fp, untuned=Defaults(cache, target, database=database))
    bound, here = precision.max_error, not target.missing_features()
    tried = precision.name == "auto" or bound is not None  # else they are the model's own roundings
    saving = functools.partial(_gains, graph, nodes, choose=choose, dtype=dtype, strict_fp=strict_fp)
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
    tries = _Tries(graph, target, database, cache, bound or MAX_ERROR, strict_fp)
    error, best = tries.error_of(narrow(gains)), _Rounded()
    for points in ROUNDED if error <= tries.allowed else ():  # who rounds more may err less: errors have signs
        if best.saved < WORTH_TRYING * sum(saved(points).values()):
            some = error <= tries.most  # where none may be rounded there is nothing to search for
            best = max(best, _rounded(gains, saved(points), points, narrow, tries, some), key=lambda one: one.saved)
        if len(best.names) == len(saved(points)):
            break
    if not best.names:
        fits = error <= tries.most
        return (narrow(gains), replace(found, error=error)) if fits else _fewer(gains, narrow, tries, found)
    names = [*gains, *(name for name in best.names if name not in gains)]
    counts = replace(found, narrow=len(names), rounded=len(best.names), error=best.error)
    return narrow(names, rounded=dict.fromkeys(best.names, best.points)), counts


class _Rounded(NamedTuple):
    """Convolutions that round tiles of so many points, the seconds that they save by it, and the program's error."""

    names: Sequence[str] = ()
    points: int = 0
    saved: float = 0.0
    error: float = 0.0


def _rounded(
    gains: Collection[str], saved: Mapping[str, float], points: int, narrow: Callable[..., Graph], tries: _Tries,
    some: bool,
) -> _Rounded:  # fmt: skip
    """As many convolutions as the error allows rounded by tiles of so many points, beside all narrow products.

    Args:
        gains: the products that are narrow anyway; `saved`: seconds of those that it may be, in graph order.
        some: whether to look for how many, where it does not allow all.
    """

    def error_of(names: Collection[str]) -> float:
        both = [*gains, *(name for name in names if name not in gains)]
        return tries.error_of(narrow(both, rounded=dict.fromkeys(names, points)))

    best, total = _Rounded(), sum(saved.values())
    if (error := error_of(saved)) <= tries.most:
        return _Rounded(list(saved), points, total, error)
    for order in reversed(_orders(saved)) if some else ():
        if best.saved < WORTH_TRYING * total:
            names, error = _most(order, error_of, tries.most)
            best = max(best, _Rounded(names, points, sum(saved[name] for name in names), error), key=lambda x: x.saved)
    return best


def _orders(gains: Mapping[str, float]) -> tuple[Sequence[str], ...]:
    """What is left out, the last first: what comes last, or what gains the least."""
    return list(gains), sorted(gains, key=lambda name: -gains[name])


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


def _fewer(gains: Mapping[str, float], narrow: Narrow, tries: _Tries, found: Precise) -> tuple[Graph, Precise]:
    """As much of the gain as the error allows, where it does not allow all."""

    def error_of(names: Collection[str]) -> float:
        return tries.error_of(narrow(names))

    tried = [_most(order, error_of, tries.most) for order in _orders(gains)]
    names, error = max(tried, key=lambda one: sum(gains[name] for name in one[0]))
    note = f"more would err by over {tries.allowed:g}"
    return narrow(names), replace(found, narrow=len(names), error=error, note=note)


def _most(
    order: Sequence[str], error_of: Callable[[Collection[str]], float], allowed: float
) -> tuple[Sequence[str], float]:
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
    graph: Graph, products: Iterable[Node], *, narrow: Narrow, choose: Chooser, dtype: DType, strict_fp: bool,
    rounds: bool = False,
) -> dict[str, float]:  # fmt: skip
    """Seconds that 16 bits save, for the products that they make faster, in graph order; with `rounds` only of those
    whose kernels round what they transform."""
    nodes = [node for node in products if not too_large(graph, node, dtype)]
    before = _by_origin(graph)
    after = _by_origin(narrow([node.name for node in nodes]))
    gains: dict[str, float] = {}
    for node in nodes:
        origin = node.origins[0] if node.origins else ""
        if origin in before and origin in after and (not rounds or _rounds(after[origin], choose)):
            wide = _seconds(before[origin], choose, strict_fp, least=True)
            short = _seconds(after[origin], choose, strict_fp, least=False)
            if short < WORTH_NARROWING * wide:
                gains[node.name] = wide - short
    return gains


def _rounds(workload: Workload, choose: Chooser) -> bool:
    known = known_algorithm(workload, choose.own(workload).algorithm)
    return known is not None and known.rounds is not None


def _by_origin(graph: Graph) -> Mapping[str, Workload]:
    """The kernels by the ONNX node that they are named after."""
    return {group.origins[0]: group.workload for group in partition(graph) if group.origins}


def _seconds(workload: Workload, choose: Chooser, strict_fp: bool, *, least: bool) -> float:
    """As measured; else the least possible, or (unless `least`) what the closed form of a sketch's nest says, where
    conversions come on top of all else; so, too, of a product whose operands are multiplied as numbers of another type,
    which are far from the least that their instructions could take."""
    choice, target = choose.own(workload), choose.target
    if choice.tuned and choice.seconds is not None:
        return choice.seconds
    known = known_algorithm(workload, choice.algorithm)
    turned = known is not None and known.factor is not None
    bound = limit(workload, target, strict_fp=strict_fp, own=not turned).seconds
    space = lookup(choice.config.template or "").space(workload, target)
    if (least and not turned) or not isinstance(space, SketchSpace):
        return bound
    row = dict(zip(NAMES, space.encode(choice.config.without("template")), strict=True))
    cycles = float(row["cycles"] + row["converting"]) * space.numbers.bound
    return max(bound, cycles / Speed.of(target).clock)
