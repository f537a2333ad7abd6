"""The programs that a run is made of: one where the shapes are known, else those that the values of one run lead to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.api.feeds import complete_feeds, shapes_with
from autotune.api.node_arg import NodeArg
from autotune.codegen.object_cache import object_cache
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.precise import in_precision
from autotune.compiler.precision import AS_THE_MODEL, Precision
from autotune.compiler.shape_programs import ShapePrograms
from autotune.compiler.specialisation import ProgramStep, Step
from autotune.compiler.staged import StagedModel
from autotune.compiler.stages import Making
from autotune.compiler.weights import PackedWeights
from autotune.errors import InputError, ModelError
from autotune.graph import Graph, one_line, open_model, optimize, verify
from autotune.graph.frontend import ModelSource, convert_whole
from autotune.records import Database
from autotune.runtime.executor import Array
from autotune.runtime.feeds import random_feeds
from autotune.runtime.program import TensorSpec
from autotune.target import Target
from autotune.tensor.shape_range import ShapeRange


@dataclass(frozen=True)
class ObservedProgram:
    """An optimised graph, and what it was given in the run.

    Attributes:
        weight: how often a run of the model runs it, on average over its shapes.
    """

    graph: Graph
    feeds: Mapping[str, Array]
    weight: float = 1.0


def observe(
    model: ModelSource,
    target: Target,
    database: Database | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, object] | None = None,
    seed: int = 0,
    strict_fp: bool = False,
    precision: Precision = AS_THE_MODEL,
) -> tuple[ObservedProgram, ...]:
    """The programs of a model; if values of the run decide what they are, it is compiled untuned and run once.

    Args:
        shapes: dimensions of inputs by name, where the model leaves them open.
        inputs: arrays by name; the others are drawn.
        seed: to draw them with.
        precision: in which the programs are; `database`: what "auto" knows of times.

    Raises:
        ModelError, UnsupportedError: the model, or a run with these inputs, is impossible.
        InputError: an input is unknown, of another form, or of an open shape and not given.
    """
    given = inputs or {}
    parsed = open_model(model, shapes_with(shapes, inputs))
    feeds = complete_feeds([NodeArg.of(declared) for declared in parsed.inputs], given, seed)
    cache = object_cache()

    def precise(graph: Graph) -> Graph:
        return in_precision(graph, target, database, cache, precision=precision, strict_fp=strict_fp)[0]

    with one_line():
        graph = convert_whole(parsed)
    if graph is not None:
        verify(graph)
        return (ObservedProgram(precise(optimize(graph)), feeds),)
    graphs: dict[int, Graph] = {}
    found: list[ObservedProgram] = []

    def compiled(graph: Graph) -> CompiledModel:
        graph = precise(graph)
        program = compile_graph(graph, target, None, cache, strict_fp=strict_fp)
        graphs[id(program)] = graph
        return program

    def watch(step: Step) -> None:
        if isinstance(step, ProgramStep):
            found.append(ObservedProgram(graphs[id(step.program)], dict(step.feeds)))

    run_observed(StagedModel(parsed, Making(compiled, target=target)), feeds, given, watch)
    return tuple(found)


def observe_shapes(
    model: ModelSource,
    target: Target,
    ranges: Sequence[ShapeRange],
    database: Database | None = None,
    *,
    seed: int = 0,
    strict_fp: bool = False,
    precision: Precision = AS_THE_MODEL,
) -> tuple[ObservedProgram, ...]:
    """The programs that serve these shapes, each with how often a run of them needs it, and inputs that are drawn.

    Raises:
        ModelError, UnsupportedError: the model is impossible in these shapes, or values decide what its programs are.
    """
    programs = ShapePrograms.of(open_model(model), ranges, target, optimize)
    cache, weights, total = object_cache(), PackedWeights(), sum(one.weight for one in ranges)
    held: dict[Hashable, Array] = {}  # passes make new weights of the model's, the same ones for all shapes
    found = []
    for extents, graph in programs:
        graph = in_precision(graph, target, database, cache, precision=precision, strict_fp=strict_fp)[0]
        constants = {name: held.setdefault(weights.identity(a), a) for name, a in graph.constants.items()}
        feeds = random_feeds([TensorSpec(v.name, v.dtype, v.shape) for v in graph.inputs], seed)
        ends = {axis.end: programs.axes.open.symbols.index(axis.symbol) for axis in programs.axes.open.free}
        feeds |= {name: np.asarray(extents[ends[name]], np.int64) for name in feeds if name in ends}
        found.append(ObservedProgram(replace(graph, constants=constants), feeds, programs.weights[extents] / total))
    return tuple(found)


def run_observed(
    model: CompiledModel | StagedModel,
    feeds: Mapping[str, Array],
    given: Collection[str],
    watch: Callable[[Step], None] | None = None,
) -> list[CompiledModel]:
    """The programs of one run; a model that is one program need not run for that.

    Args:
        given: inputs that were not drawn. Random values are rarely a shape, so an error tells of the others.
        watch: told of each step as well.
    """
    if isinstance(model, CompiledModel):
        return [model]
    found: list[CompiledModel] = []

    def tell(step: Step) -> None:
        if isinstance(step, ProgramStep):
            found.append(step.program)
        if watch is not None:
            watch(step)

    try:
        model.run(feeds, tell)
    except (ModelError, InputError) as error:
        drawn = [name for name in feeds if name not in given]
        if not drawn:
            raise
        raise type(error)(
            f"{error}; this run drew the values of {', '.join(drawn)}: give real ones by --input NAME=FILE.npy",
            values=error.values,
        ) from error
    return found
