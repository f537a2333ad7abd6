"""Parts of a model: what is converted at once, and what has to wait for values of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.graph.frontend.model import OnnxModel
from autotune.graph.ir import Array, Graph


@dataclass(frozen=True, slots=True)
class Part:
    """Some nodes of a model.

    Attributes:
        nodes: places in the model's table, in topological order.
        inputs: names whose values come from outside, initializers apart.
        fixed: those inputs whose values, not only types, the part is always specialised on: small, and decided by
            the specialisation of the part before.
    """

    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stage:
    """A part, converted for inputs of known types: what to do, and what remains.

    Attributes:
        graph: what can be compiled now; None when that is nothing. Its inputs and outputs have the names of the model.
        constants: values that are known without running anything.
        aliases: values that are an input of the part by another name.
        hosts: nodes to run as host functions after the graph, in order.
        rest: what remains after that.
        observed: inputs of the part whose values this stage depends on.
    """

    graph: Graph | None
    constants: Mapping[str, Array]
    aliases: Mapping[str, str]
    hosts: tuple[int, ...]
    rest: Part | None
    observed: tuple[str, ...]


def whole(model: OnnxModel) -> Part:
    """The model as one part."""
    return Part(tuple(range(len(model.nodes))), tuple(declared.name for declared in model.inputs))


def needed(model: OnnxModel, nodes: Iterable[int]) -> list[int]:
    """Those nodes that lead to an output of the model."""
    wanted = set(model.outputs)
    found = []
    for index in reversed(list(nodes)):
        entry = model.nodes[index]
        if not wanted.isdisjoint(entry.writes):
            wanted.update(entry.reads)
            found.append(index)
    return found[::-1]


def remaining(
    model: OnnxModel, order: Sequence[int], waiting: set[int], pure: set[str], fixed: Iterable[str]
) -> Part | None:
    """What waits, with what it needs again: nodes that read initializers alone are no reason to hand weights over
    from one program to the next.

    Args:
        order: all nodes of the part so far, in topological order.
        waiting: those that were put off.
        pure: names that depend on initializers alone.
        fixed: names with small values that are known now.
    """
    kept = needed(model, [index for index in order if index in waiting])
    inside, todo = set(kept), list(kept)
    while todo:
        for name in model.nodes[todo.pop()].reads:
            index = model.producer.get(name)
            if name in pure and index is not None and index not in inside:
                inside.add(index)
                todo.append(index)
    nodes = tuple(index for index in order if index in inside)
    written = {name for index in nodes for name in model.nodes[index].writes}
    reads = dict.fromkeys(name for index in nodes for name in model.nodes[index].reads)
    inputs = tuple(name for name in reads if name not in written and name not in model.initializers)
    return Part(nodes, inputs, frozenset(inputs).intersection(fixed)) if kept else None
