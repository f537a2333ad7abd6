"""Slices and gathers that take a few places along a dimension go before what computes each place by itself.

requires: attentions, norms and activations are recognised: each of them is one operator then.
ensures: where all that is read of a value is the same few places along a dimension, the operators that lead to it
compute these alone, as far up as they compute each place by itself: of a decoder's last layer the last token's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Union

from autotune.graph.ir import Attrs, Graph, Node
from autotune.graph.passes.sweep import Sweep
from autotune.graph.places import Fewer, of_fewer
from autotune.ops.registry import has_trait, lookup
from autotune.ops.traits import Trait

FEW = 0.5
"""Of the places: to take more saves less than what else may change with the shapes."""


@dataclass(frozen=True, slots=True)
class Taking:
    """What is taken along an axis: `count` places, by a slice from `begin` in steps, or those that `indices` says."""

    axis: int
    count: int
    begin: int = 0
    step: int = 1
    indices: str = ""


Part = tuple[str, Union[Taking, None]]
"""A value, and what is taken of it; None for all."""


@dataclass(frozen=True, slots=True)
class Raised:
    """How a node, of whose result nothing is read but what is taken, computes just that."""

    taking: Taking
    parts: tuple[Part, ...]
    attrs: Attrs


def raise_slices(graph: Graph) -> Graph:
    """`slice(f(x, w))` --> `f(slice(x), w)`; so with `gather`, through as many operators as there are."""
    raised = _raised(graph)
    if not raised:
        return graph
    sweep, order = Sweep(graph), {name: n for n, name in enumerate(graph.producers)}
    found: dict[Part, str] = {}
    for original, node in zip(graph.nodes, sweep):
        source = (original.inputs[0] if original.inputs else "", _taking(graph, original))
        chain = sorted(_chain(raised, source), key=order.__getitem__)
        if all(has_trait(graph.producers[name].op, Trait.MOVES) for name in chain):
            sweep.keep(node)  # nothing that is computed would be less
            continue
        for name in chain:
            if (name, raised[name].taking) not in found:
                operands = [_taken(sweep, node, part, found) for part in raised[name].parts]
                made = sweep.again(graph.producers[name], operands, **dict(raised[name].attrs))
                found[name, raised[name].taking] = made
        result = found[source]
        if sweep.values[result].shape != node.output.shape:  # an index without dimensions leaves none
            result = sweep.emit(node, "reshape", (result,), shape=node.output.shape)
        sweep.replace(node, result)
    return sweep.result()


def _taken(sweep: Sweep, taker: Node, part: Part, found: dict[Part, str]) -> str:
    """An operand; of which it is to be so, the places that are taken."""
    name, taking = part
    if taking is None:
        return sweep.current(name)
    if part not in found:  # what is raised itself came first in the chain
        found[part] = _emitted(sweep, taker, sweep.current(name), taking)
    return found[part]


def _emitted(sweep: Sweep, taker: Node, name: str, taking: Taking) -> str:
    if taking.indices:
        indices = sweep.current(taking.indices)
        if not sweep.values[indices].shape:
            indices = sweep.emit(taker, "reshape", (indices,), shape=(1,))
        return sweep.again(taker, (name, indices), axis=taking.axis)
    ranges = [(0, extent, 1) for extent in sweep.values[name].shape]
    ranges[taking.axis] = taking.begin, taking.count, taking.step
    begin, size, step = zip(*ranges)
    return sweep.again(taker, (name,), begin=begin, size=size, step=step)


def _raised(graph: Graph) -> dict[str, Raised]:
    """Nodes of whose results the same places are all that is read, and that can be computed alone."""
    wanted: dict[str, set[Taking | None]] = {name: {None} for name in graph.output_values}
    raised: dict[str, Raised] = {}
    for node in reversed(graph.nodes):
        readers = wanted.get(node.name)
        if readers is None:
            continue  # what is left of other passes is nobody's reader
        taking = next(iter(readers)) if len(readers) == 1 else None
        own = None if taking is None else _fewer(graph, node, taking)
        if own is not None:
            raised[node.name] = own
        first = [(name, _taking(graph, node)) for name in node.inputs[:1]]
        for name, part in (*first, *((name, None) for name in node.inputs[1:])) if own is None else own.parts:
            wanted.setdefault(name, set()).add(part)
    return raised


def _fewer(graph: Graph, node: Node, taking: Taking) -> Raised | None:
    """What computes these places of the node's result alone."""
    fewer = of_fewer(node, graph.values, taking.axis, taking.count)
    if fewer is None or (taking.indices and _of_weights(graph, node, fewer)):
        return None
    takes = (None if dim is None else replace(taking, axis=dim) for dim in fewer.dims)
    return Raised(taking, tuple(zip(node.inputs, takes, strict=True)), fewer.attrs)


def _taking(graph: Graph, node: Node) -> Taking | None:
    """What a node takes of its first operand, if it is few places along one dimension."""
    found = None
    if node.op == "slice":
        shape = graph.values[node.inputs[0]].shape
        begin, size, step = (node.int_tuple(name) for name in ("begin", "size", "step"))
        axes = [axis for axis, extent in enumerate(shape) if (begin[axis], size[axis], step[axis]) != (0, extent, 1)]
        if len(axes) == 1:
            found = Taking(axes[0], size[axes[0]], begin[axes[0]], step[axes[0]])
    elif node.op == "gather":
        shape, indices = graph.values[node.inputs[0]].shape, graph.values[node.inputs[1]]
        if len(indices.shape) <= 1:
            found = Taking(int(node.number("axis")) % len(shape), indices.size, indices=indices.name)
    return found if found is not None and 0 < found.count <= FEW * shape[found.axis] else None


def _of_weights(graph: Graph, node: Node, fewer: Fewer) -> bool:
    """Whether weights, which are prepared while they are constant, would be put together in each run."""
    names, weights = lookup(node.op).operands, lookup(node.op).weights
    fewer_of = [name for name, operand, dim in zip(names, node.inputs, fewer.dims)
                if dim is not None and operand in graph.constants]  # fmt: skip
    return not weights.isdisjoint(fewer_of)


def _chain(raised: Mapping[str, Raised], source: Part) -> set[str]:
    """What leads to a part of a value and is raised with it."""
    found, todo = set[str](), [source]
    while todo:
        name, taking = todo.pop()
        if taking is not None and name in raised and raised[name].taking == taking and name not in found:
            found.add(name)
            todo += raised[name].parts
    return found
