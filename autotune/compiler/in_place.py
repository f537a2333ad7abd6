"""Elementwise kernels in place: the result takes the memory of an operand that nobody reads any more.

Every element of such a kernel's result depends on the same element of the operand, which is read before the result can
be stored: whatever the order of elements and the division among threads, nothing is overwritten that is still needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.compiler.slots import Assignment
from autotune.ops.registry import lookup


def in_place(a: Assignment, lifetimes: Mapping[int, Sequence[int]], movable: frozenset[int]) -> dict[int, int]:
    """Which root slot's memory each root slot has, among the `movable` ones; its own unless it is given another's.

    Args:
        lifetimes: the steps at which each root slot is used, ascending.
        movable: root slots in the arena.
    """
    memory = {slot: slot for slot in movable}
    for n, step in enumerate(a.steps):
        if len(step.outputs) != 1 or not all(lookup(node.op).elementwise for node in step.workload.nodes):
            continue
        (out,) = step.outputs
        if out not in movable or lifetimes[out][0] != n:  # a part of something, or written by others before
            continue
        for slot in step.inputs:
            if isinstance(slot, int) and slot in movable and lifetimes[slot][-1] == n and _alike(a, slot, out):
                memory[out] = memory[slot]
                break
    return memory


def _alike(a: Assignment, slot: int, other: int) -> bool:
    """Whether two slots have their elements in the same places."""
    one, two = a.slots[slot], a.slots[other]
    return (one.dtype, one.shape, one.layout) == (two.dtype, two.shape, two.layout)
