"""Recurrences that no template knows: the generic schedule gives their stages vectors, registers and threads."""

from __future__ import annotations

import pytest

from autotune.lower import lower, print_program
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.schedule import Schedule
from autotune.search_spaces import lookup
from autotune.target import Target
from tests.conftest import Right

TARGETS = ("x86 -mcpu=haswell -num-cores=2", "native -num-cores=2")


def linear_attention(tokens: int, heads: int, width: int, extras: str = "", result: int = 0) -> Workload:
    shapes = {"past": (1, heads, width, width), "decay": (1, tokens, heads, 1), "beta": (1, tokens, heads)}
    shape = (1, tokens, heads, width)
    types = [TensorType("f32", s) for s in (shape, shape, shape, *(shapes[e] for e in extras.split(",") if e))]
    node = WorkloadNode.make("linear_attention", tuple(range(len(types))), extras=extras, scale=0.5, result=result)
    return Workload(tuple(map(WorkloadInput, types)), (node,), (len(types),))


def scheduled(workload: Workload, target: str) -> Schedule:
    rules, parsed = lookup("generic"), Target.parse(target)
    return rules.schedule(workload, rules.default(workload, parsed), parsed)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("extras", ["", "past", "decay,beta"])
def test_right(right: Right, extras: str, target: str) -> None:
    right(scheduled(linear_attention(3, 2, 19, extras, result=int(extras == "past")), target), target=target)


def test_shared_when_it_pays(right: Right) -> None:
    small, large = (scheduled(linear_attention(2, h, 32, "decay,beta"), TARGETS[0]) for h in (1, 32))
    assert "barrier" in print_program(lower(large))
    assert "on thread 0:\n    for" in print_program(lower(small))
    right(large, target=TARGETS[0])


def test_sums_are_in_registers() -> None:
    nest = print_program(lower(scheduled(linear_attention(4, 2, 32, "decay,beta"), TARGETS[0])))
    assert "register linear_known" in nest and "register linear_read" in nest
    assert "shared linear_state: f32[2, 1, 2, 32, 32]" in nest


def test_nothing_to_do(right: Right) -> None:
    right(scheduled(linear_attention(0, 1, 4), TARGETS[1]), target=TARGETS[1])
