"""What decides what a graph becomes, as a name: graphs that differ in the names of their values have one program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

from autotune.compiler.compile import CompiledModel
from autotune.graph import Graph
from autotune.graph.ir import Array


def graph_key(graph: Graph, contents: Callable[[Array], bytes]) -> str:
    """64 hex digits.

    Args:
        contents: the SHA-256 of an array's elements.
    """
    values = [value.name for value in graph.inputs] + list(graph.constants) + [node.name for node in graph.nodes]
    number = {name: n for n, name in enumerate(values)}
    facts = [
        graph.own,
        [[value.dtype, value.shape] for value in graph.inputs],
        [[array.dtype.str, str(array.dtype), array.shape, contents(array).hex()] for array in graph.constants.values()],
        [[node.op, [number[name] for name in node.inputs], node.output.dtype, node.output.shape, repr(node.attrs)]
         for node in graph.nodes],
        [[number[output.value], output.complaint] for output in graph.outputs],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()


def names_of(graph: Graph) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a graph takes and gives, by which its program is told apart from that of an equal one."""
    given = tuple(output.name for output in graph.outputs if not output.complaint)
    return tuple(value.name for value in graph.inputs), given


def named(program: CompiledModel, names: tuple[tuple[str, ...], tuple[str, ...]], graph: Graph) -> CompiledModel:
    """The program of an equal graph, whose `names_of` these are, as that of a graph."""
    reads, writes = (dict(zip(old, new)) for old, new in zip(names, names_of(graph)))
    plan = program.program
    inputs = tuple(replace(spec, name=reads[spec.name]) for spec in plan.inputs)
    outputs = tuple((replace(spec, name=writes[spec.name]), place) for spec, place in plan.outputs)
    return replace(program, program=replace(plan, inputs=inputs, outputs=outputs, metadata=graph.metadata))
