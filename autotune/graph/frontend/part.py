"""Parts of a model: what is converted at once, and what has to wait for values of the run."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
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
class Body:
    """The body of a loop that runs step by step, and what it needs of the model around it.

    Attributes:
        index: the loop's place in the model's table.
        reads: names whose values a run hands in, beside those of the body's own inputs.
        known: those of them with small values that are known already.
        inside: nodes of the table that depend on initializers alone: the body computes them again, so that weights
            stay constants.
    """

    index: int
    reads: tuple[str, ...]
    known: frozenset[str]
    inside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part, converted for inputs of known types: what to do, and what remains.

    Attributes:
        graph: what can be compiled now; None when that is nothing. Its inputs and outputs have the names of the model.
        constants: values that are known without running anything.
        aliases: values that are an input of the part by another name.
        lists: sequences by name, as the names of their tensors among the values; None for an empty optional.
        hosts: nodes to run as host functions after the graph, in order.
        bodies: those of the loops among them.
        rest: what remains after that.
        observed: inputs of the part whose values this stage depends on.
    """

    graph: Graph | None
    constants: Mapping[str, Array]
    aliases: Mapping[str, str]
    lists: Mapping[str, tuple[str, ...] | None]
    hosts: tuple[int, ...]
    bodies: Mapping[int, Body]
    rest: Part | None
    observed: tuple[str, ...]

    def gets_on(self, part: Part) -> bool:
        """Whether something is done after it that was not done before."""
        return bool(self.hosts) or self.rest is None or self.rest.nodes != part.nodes


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
    read = (name for index in kept for name in model.nodes[index].reads)
    inside = {*kept, *behind(model, order, read, pure)}
    nodes = tuple(index for index in order if index in inside)
    written = {name for index in nodes for name in model.nodes[index].writes}
    reads = dict.fromkeys(name for index in nodes for name in model.nodes[index].reads)
    inputs = tuple(name for name in reads if name not in written and name not in model.initializers)
    return Part(nodes, inputs, frozenset(inputs).intersection(fixed)) if kept else None


def behind(model: OnnxModel, order: Sequence[int], names: Iterable[str], pure: Container[str]) -> set[int]:
    """The nodes of `order` that compute those of the names that depend on initializers alone."""
    # Not the model's table of producers: another run may have taken another branch of an If.
    producer = {name: index for index in order for name in model.nodes[index].writes}
    inside, todo = set[int](), [name for name in names if name in pure]
    while todo:
        index = producer.get(todo.pop())
        if index is not None and index not in inside:
            inside.add(index)
            todo += [name for name in model.nodes[index].reads if name in pure]
    return inside
