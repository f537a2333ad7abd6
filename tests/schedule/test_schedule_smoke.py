"""A scheduled kernel computes what its definition says (the property suites go further)."""

from __future__ import annotations

from autotune.lower import lower, print_program
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, compute, maximum, placeholder, reduce_axis, sum_


def test_json_replays_to_the_same_loops() -> None:
    a, b = placeholder((65, 32), name="A"), placeholder((32, 20), name="B")
    k = reduce_axis(32, "k")
    c = compute((65, 20), lambda i, j: sum_(a[i, k] * b[k, j], k), name="C")
    d = compute((65, 20), lambda i, j: maximum(c[i, j], 0.0), name="D")
    s = Schedule(ComputeDef.build([a, b], [d]))
    s = s.split("D", "i", 14).split("D", "j", 16).reorder("D", "i.0", "j.0", "i.1", "j.1").vectorize("D", "j.1")
    s = s.compute_at("C", "D", "j.0", "register").reorder("C", "k", "i", "j").vectorize("C", "j").partition("D", "i.0")
    again = Schedule.from_json(s.to_json())
    assert again.key == s.key
    assert print_program(lower(again)) == print_program(lower(s))
