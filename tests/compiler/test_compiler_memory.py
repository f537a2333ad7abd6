"""The arena: no two buffers that are alive together overlap, and little is wasted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler import memory
from autotune.compiler.choose import Chooser
from autotune.compiler.layouts import assign
from autotune.compiler.memory import ALIGN, Lifetime, plan_memory
from autotune.graph import load_model, optimize, partition
from autotune.target import Target
from autotune.tensor import DType
from benchmarks import zoo

FEW = settings(max_examples=40, deadline=None, derandomize=True, database=None)
lifetimes = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)).map(
        lambda t: Lifetime(t[0], t[1], t[1] + t[2])
    ),
    max_size=40,
)


@FEW
@given(lifetimes)
def test_buffers_alive_together_do_not_overlap(buffers: list[Lifetime]) -> None:
    plan = plan_memory(buffers)
    for n, (a, start) in enumerate(zip(buffers, plan.offsets, strict=True)):
        assert start % ALIGN == 0
        assert start + a.size <= plan.total
        for b, other in zip(buffers[:n], plan.offsets[:n], strict=True):
            together = a.first <= b.last and b.first <= a.last
            if together and a.size and b.size:
                assert start + a.size <= other or other + b.size <= start


@FEW
@given(lifetimes)
def test_total_is_at_least_what_is_alive_at_once(buffers: list[Lifetime]) -> None:
    plan = plan_memory(buffers)
    assert plan.lower_bound <= plan.total <= sum(-(-b.size // ALIGN) * ALIGN for b in buffers)


def test_a_chain_needs_two_buffers() -> None:
    chain = [Lifetime(1000, n, n + 1) for n in range(10)]
    plan = plan_memory(chain)
    assert plan.total == plan.lower_bound == 2 * 1024


def test_random_lifetimes_waste_little() -> None:
    rng = random.Random(0)
    for _ in range(5):
        sizes = [rng.choice([64, 256, 1000, 5000, 20000]) * rng.randint(1, 9) for _ in range(120)]
        starts = [rng.randint(0, 60) for _ in sizes]
        buffers = [Lifetime(n, at, at + int(rng.expovariate(0.3))) for n, at in zip(sizes, starts, strict=True)]
        plan = plan_memory(buffers)
        assert plan.total <= 1.1 * plan.lower_bound
        assert plan == plan_memory(buffers)  # nothing about it is left to chance


def test_a_long_chain_is_planned_like_a_short_one() -> None:
    plan = plan_memory([Lifetime(1000, n, n + 1) for n in range(5000)])
    assert plan.total == plan.lower_bound == 2 * 1024


def test_a_plan_that_greedy_misses() -> None:
    """The largest last in a chain of nearly equal ones, as in ShuffleNet: greedy by size takes 1.47 times the bound."""
    sizes = [21952, 21952, 21952, 22743]
    plan = plan_memory([Lifetime(64 * size, n, n + 1) for n, size in enumerate(sizes)])
    assert plan.total == plan.lower_bound == 64 * (21952 + 22743)


def test_a_search_that_goes_in_circles_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    missed = 0
    for _ in range(20):
        firsts = [rng.randrange(30) for _ in range(40)]
        buffers = [Lifetime(64 * rng.randrange(1, 1000), first, first + rng.randrange(1, 8)) for first in firsts]
        with monkeypatch.context() as patched:
            patched.setattr(memory, "EFFORT", 1 << 60)
            plan = plan_memory(buffers)
        missed += plan.total > plan.lower_bound
    assert missed


@pytest.mark.parametrize("name", ["mobilenetv2", "shufflenet", "squeezenet"])
def test_buffers_of_real_models(name: str) -> None:
    graph = optimize(load_model(zoo.build(name).SerializeToString()))
    a = assign(graph, partition(graph), Chooser(Target.parse("x86 -mcpu=znver4 -num-cores=2"), None))
    buffers = [
        Lifetime(a.slots[slot].elements * DType(a.slots[slot].dtype).bytes, steps[0], steps[-1])
        for slot, steps in a.lifetimes().items()
        if slot not in a.inputs.values()
    ]
    plan = plan_memory(buffers)
    assert plan.total <= 1.1 * plan.lower_bound
