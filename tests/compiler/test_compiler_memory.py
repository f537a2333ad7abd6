"""The arena: no two buffers that are alive together overlap, and little is wasted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autotune.compiler.memory import ALIGN, Lifetime, plan_memory

lifetimes = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)).map(
        lambda t: Lifetime(t[0], t[1], t[1] + t[2])
    ),
    max_size=40,
)


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


@given(lifetimes)
def test_total_is_at_least_what_is_alive_at_once(buffers: list[Lifetime]) -> None:
    plan = plan_memory(buffers)
    assert plan.lower_bound <= plan.total <= sum(-(-b.size // ALIGN) * ALIGN for b in buffers)


def test_a_chain_needs_two_buffers() -> None:
    chain = [Lifetime(1000, n, n + 1) for n in range(10)]
    plan = plan_memory(chain)
    assert plan.total == plan.lower_bound == 2 * 1024
