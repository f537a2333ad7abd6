"""Kernels in place: the result takes the memory of an operand that nobody reads any more.

Where only elementwise operators read an operand, such as a sum's residual, every element of the result depends on the
same element of it, which is read before the result can be stored: whatever the order of elements and the division
among threads, nothing is overwritten that is still needed. Kernels that update their first operand leave it as it is
where the result does not differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotune.compiler.slots import Assignment, KernelStep
from autotune.ops.registry import has_trait, lookup
from autotune.ops.traits import Trait
from autotune.ops.workload import Workload


def in_place(a: Assignment, lifetimes: Mapping[int, Sequence[int]], movable: frozenset[int]) -> dict[int, int]:
    """Which root slot's memory each root slot has, among the `movable` ones; its own unless it is given another's.

    Args:
        lifetimes: the steps at which each root slot is used, ascending.
        movable: root slots in the arena.
    """
    memory = {slot: slot for slot in movable}
    for n, step in enumerate(a.steps):
        out = step.outputs[0]
        if out not in movable or lifetimes[out][0] != n:  # a part of something, or written by others before
            continue
        for slot in _replaced(a, step):
            if slot in movable and lifetimes[slot][-1] == n:
                memory[out] = memory[slot]
                break
    return memory


def updated(
    a: Assignment, lifetimes: Mapping[int, Sequence[int]], inputs: Mapping[int, int], outputs: Mapping[int, int]
) -> tuple[tuple[int, int], ...]:
    """(number of an input, number of an output) of the model: the caller may hand in one memory for both.

    Args:
        lifetimes: as for `in_place`.
        inputs, outputs: numbers of those that lie in memory of the caller, by root slot.
    """
    return tuple(
        (inputs[slot], outputs[step.outputs[0]])
        for n, step in enumerate(a.steps)
        if step.outputs[0] in outputs and lifetimes[step.outputs[0]][0] == n and _updates(step)
        for slot in _replaced(a, step)
        if slot in inputs and lifetimes[slot][-1] == n
    )


def read_elsewhere(workload: Workload) -> set[int]:
    """Numbers of the values of which other elements than that of the result may be read for it."""
    found = set[int]()
    for number, node in reversed([*enumerate(workload.nodes, len(workload.inputs))]):
        if number in found or not lookup(node.op).elementwise:
            found |= set(node.inputs)
    return found


def _replaced(a: Assignment, step: KernelStep) -> Iterator[int]:
    """The slots over which the step could write its result."""
    if len(step.outputs) != 1:
        return
    if _updates(step):
        first, *others = (step.inputs[i] for i in step.workload.nodes[0].inputs)
        slots = [] if first in others else [first]
    else:
        elsewhere = read_elsewhere(step.workload)
        read = [(slot, i in elsewhere) for i, slot in enumerate(step.inputs) if isinstance(slot, int)]
        # A view reads other elements of the same memory.
        kept = {a.root(slot)[0] for slot, other in read if other or a.slots[slot].part_of}
        slots = [slot for slot, _ in read if slot not in kept]
    yield from (slot for slot in slots if isinstance(slot, int) and _alike(a, slot, step.outputs[0]))


def _updates(step: KernelStep) -> bool:
    """Whether the step updates an operand, and does nothing besides."""
    return len(step.workload.nodes) == 1 and has_trait(step.workload.nodes[0].op, Trait.UPDATES)


def _alike(a: Assignment, slot: int, other: int) -> bool:
    """Whether two slots have their elements in the same places."""
    one, two = a.slots[slot], a.slots[other]
    return (one.dtype, one.shape, one.layout) == (two.dtype, two.shape, two.layout)
