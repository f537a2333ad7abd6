"""Recurrences: several stages in turns along one axis, each reading any element of earlier steps."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.tensor import (
    ComputeDef,
    Tensor,
    compute,
    compute_many,
    placeholder,
    read,
    recurrence,
    reduce_axis,
    state,
    sum_,
    unary,
)
from autotune.tensor.evaluate import evaluate
from autotune.tensor.merge import merge_equal_stages

STEPS, N = 5, 4


def cell(steps: int = STEPS, n: int = N) -> ComputeDef:
    """h[t] = tanh(x[t] + R h[t - 1]), c[t] = c[t - 1] * h[t - 1][reversed] + h[t]."""
    x, r = placeholder((steps, n), "f32", "x"), placeholder((n, n), "f32", "r")
    h, c = state((steps, n), "f32", "h"), state((steps, n), "f32", "c")
    k = reduce_axis(n, "k")
    before = compute((steps, n), lambda t, i: read(h, (t - 1, i), when=t >= 1, otherwise=0.5), "before")
    fed = compute((steps, n), lambda t, i: sum_(r[i, k] * before[t, k], k), "fed")
    new_h = compute((steps, n), lambda t, i: unary("tanh", x[t, i] + fed[t, i]), "new_h")
    new_c = compute(
        (steps, n),
        lambda t, i: read(c, (t - 1, i), when=t >= 1, otherwise=1.0) * before[t, n - 1 - i] + new_h[t, i],
        "new_c",
    )
    found_h, found_c = recurrence([h, c], [new_h, new_c], name="cell")
    doubled = compute((n,), lambda i: found_h[steps - 1, i] * 2.0, "doubled")
    return ComputeDef.build([x, r], [found_c, doubled])


def expected(x: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, c = np.full(x.shape[1], 0.5), np.ones(x.shape[1])
    history = []
    for row in x:
        before = h
        h = np.tanh(row + r @ before)
        c = c * before[::-1] + h
        history.append(c)
    return np.array(history), h * 2


def values(steps: int = STEPS, n: int = N) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((steps, n)), "r": rng.standard_normal((n, n)) / n}


def test_several_stages_take_turns() -> None:
    arrays = values()
    found = list(evaluate(cell(), arrays).values())
    for got, want in zip(found, expected(**arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_no_steps() -> None:
    x = placeholder((0, 3), "f32", "x")
    h = state((0, 3), "f32", "h")
    new = compute((0, 3), lambda t, i: x[t, i] + read(h, (t - 1, i), when=t >= 1), "new")
    definition = ComputeDef.build([x], recurrence([h], [new]))
    (found,) = evaluate(definition, {"x": np.zeros((0, 3), np.float32)}).values()
    assert found.shape == (0, 3)


def test_json_round_trip() -> None:
    definition = cell()
    again = ComputeDef.from_json(definition.to_json())
    assert again == definition and again.key == definition.key
    assert {s.recurrence for s in again.stages} == {"before", None}
    assert "in turns along t" in str(definition)


def test_two_recurrences_in_one_definition_keep_apart() -> None:
    x = placeholder((STEPS, N), "f32", "x")

    def running(source: Tensor) -> Tensor:
        h = state((STEPS, N), "f32", "h")
        before = compute((STEPS, N), lambda t, i: read(h, (t - 1, N - 1 - i), when=t >= 1), "before")
        return recurrence([h], [compute((STEPS, N), lambda t, i: source[t, i] + before[t, i], "new")])[0]

    definition = ComputeDef.build([x], [running(running(x))])
    assert len({s.recurrence for s in definition.stages}) == 2
    assert len({t.name for t in definition.tensors}) == 5
    array = np.arange(STEPS * N, dtype=np.float32).reshape(STEPS, N)
    want = array
    for _ in range(2):
        rows = [want[0]]
        for row in want[1:]:
            rows.append(row + rows[-1][::-1])
        want = np.array(rows)
    (found,) = evaluate(definition, {"x": array}).values()
    np.testing.assert_array_equal(found, want)


def test_one_stage_may_update_two_states() -> None:
    x = placeholder((STEPS,), "f32", "x")
    a, b = state((STEPS,), "f32", "a"), state((STEPS,), "f32", "b")

    def step(t):  # type: ignore[no-untyped-def]
        old_a, old_b = read(a, (t - 1,), when=t >= 1), read(b, (t - 1,), when=t >= 1)
        return old_b + x[t], old_a * 2.0 + 1.0

    found = ComputeDef.build([x], recurrence([a, b], compute_many((STEPS,), step, ("a1", "b1"))))
    array = np.arange(STEPS, dtype=np.float32)
    got_a, got_b = evaluate(found, {"x": array}).values()
    want_a, want_b, last = [], [], (0.0, 0.0)
    for v in array.tolist():
        last = (last[1] + v, last[0] * 2 + 1)
        want_a.append(last[0])
        want_b.append(last[1])
    np.testing.assert_array_equal(got_a, want_a)
    np.testing.assert_array_equal(got_b, want_b)


@pytest.mark.parametrize("shift", [0, 1, -1], ids=["same step", "later step", "two steps ahead"])
def test_a_state_is_only_read_at_earlier_steps(shift: int) -> None:
    h = state((STEPS, N), "f32", "h")
    new = compute((STEPS, N), lambda t, i: read(h, (t + shift if shift >= 0 else t * 2 - 1, i), when=t >= 1), "new")
    with pytest.raises(WorkloadError, match="not computed yet"):
        recurrence([h], [new])


def test_refusals() -> None:
    h = state((STEPS, N), "f32", "h")
    other = compute((STEPS, N + 1), lambda t, i: read(h, (t - 1, i - 1), when=(t >= 1) & (i >= 1)), "other")
    with pytest.raises(WorkloadError, match="both must be the same"):
        recurrence([h], [other])
    short = compute((STEPS - 1, N), lambda t, i: read(h, (t - 1, i), when=t >= 1), "short")
    new = compute((STEPS, N), lambda t, i: read(short, (t - 1, i), when=t >= 1), "new")
    with pytest.raises(WorkloadError, match="must be the steps"):
        recurrence([h], [new])


def test_equal_recurrences_are_one() -> None:
    x = placeholder((STEPS, N), "f32", "x")

    def running(names: str) -> Tensor:
        half = compute((STEPS, N), lambda t, i: x[t, i] * 0.5, f"half_{names}")
        h = state((STEPS, N), "f32", names)
        before = compute((STEPS, N), lambda t, i: read(h, (t - 1, N - 1 - i), when=t >= 1), f"before_{names}")
        return recurrence([h], [compute((STEPS, N), lambda t, i: half[t, i] + before[t, i], names)])[0]

    history, again = running("a"), running("b")
    last = compute((N,), lambda i: again[STEPS - 1, i], "last")
    merged = ComputeDef.build([x], merge_equal_stages([history, last]))
    assert [s.name for s in merged.stages] == ["half_a", "before_a", "a", "last"]
    array = np.arange(STEPS * N, dtype=np.float32).reshape(STEPS, N)
    got = evaluate(merged, {"x": array})
    np.testing.assert_array_equal(got["a"][-1], got["last"])
