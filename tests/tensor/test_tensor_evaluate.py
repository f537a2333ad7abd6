"""The evaluator on definitions that are not operators: every way through it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.tensor import (
    ComputeDef,
    DType,
    Reducer,
    Tensor,
    cast,
    compute,
    compute_many,
    const,
    max_,
    placeholder,
    read,
    reduce,
    reduce_axis,
    scan,
    select,
    sum_,
    table,
    unary,
)
from autotune.tensor.evaluate import evaluate
from autotune.tensor.expr import Expr, Reinterpret, binary


def value(out: Tensor, dtype: DType | None = None, **arrays: Any) -> Any:
    inputs = [placeholder(a.shape, DType.of(a.dtype), name) for name, a in arrays.items()]
    definition = ComputeDef.build(inputs, [out])
    return evaluate(definition, arrays, dtype)[out.name]


def ten(name: str, *shape: int, dtype: str = "f64") -> Tensor:
    return placeholder(shape, dtype, name)


rng = np.random.default_rng(0)


def test_sum_that_is_no_product_of_reads() -> None:
    x, y, k = ten("x", 5, 7), ten("y", 3, 7), reduce_axis(7, "k")
    out = compute((5, 3), lambda i, j: sum_((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]), k), "distance")
    a, b = rng.standard_normal((5, 7)), rng.standard_normal((3, 7))
    np.testing.assert_allclose(value(out, x=a, y=b), ((a[:, None] - b[None]) ** 2).sum(-1))


@settings(max_examples=60, deadline=None)
@given(sizes=st.tuples(*[st.sampled_from([1, 2, 3, 5])] * 4), spec=st.sampled_from([
    ("ik", "kj", "ij"), ("bik", "bkj", "bij"), ("ik", "k", "i"), ("k", "k", ""), ("ik", "jk", "ji"), ("i", "k", "i"),
    ("ij", "k", "ij"), ("bk", "bk", "b"), ("i", "j", "ijb"), ("ki", "k", "i"),
]))  # fmt: skip
def test_contractions_are_einsum(sizes: tuple[int, ...], spec: tuple[str, str, str]) -> None:
    extent = dict(zip("bijk", sizes, strict=True))
    shapes = [tuple(extent[c] for c in s) for s in spec[:2]]
    x, y = (ten(n, *s) for n, s in zip("xy", shapes, strict=True))
    k = reduce_axis(extent["k"], "k")

    def body(*axes: Expr) -> Any:
        at = {**dict(zip(spec[2], axes, strict=True)), "k": k.var}
        return sum_(x[tuple(at[c] for c in spec[0])] * y[tuple(at[c] for c in spec[1])], k)

    out = compute([extent[c] for c in spec[2]], body, "out", list(spec[2]))
    a, b = (rng.standard_normal(s) for s in shapes)
    summed = np.einsum(f"{spec[0]},{spec[1]}->" + "".join(c for c in spec[2] if c in spec[0] + spec[1]), a, b)
    if "k" not in spec[0] + spec[1]:
        summed = summed * extent["k"]
    missing = [d for d, c in enumerate(spec[2]) if c not in spec[0] + spec[1]]
    expected = np.broadcast_to(np.expand_dims(summed, missing), out.shape)
    np.testing.assert_allclose(value(out, x=a, y=b), expected, atol=1e-12)


def test_blocks_of_a_contraction_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, k = ten("x", 13, 40), ten("y", 40, 11), reduce_axis(40, "k")
    out = compute((13, 11), lambda i, j: sum_(x[i, k] * y[k, j], k), "out")
    a, b = rng.standard_normal((13, 40)), rng.standard_normal((40, 11))
    monkeypatch.setattr("autotune.tensor.contraction.BLOCK", 10)
    np.testing.assert_allclose(value(out, x=a, y=b), a @ b)


def test_blocks_of_a_fold_keep_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reducer that is associative and not commutative: the last element wins."""
    last = Reducer("last", (DType.f64,), (const(-1.0, "f64"),), (Reducer.right(0, DType.f64),))
    x, r, s = ten("x", 3, 5, 7), reduce_axis(5, "r"), reduce_axis(7, "s")
    out = compute((3,), lambda i: reduce(last, (x[i, r, s],), (r, s)), "out")
    a = rng.standard_normal((3, 5, 7))
    for block in (1, 4, 20, 10**6):
        monkeypatch.setattr("autotune.tensor.evaluate.BLOCK", block)
        np.testing.assert_array_equal(value(out, x=a), a[:, -1, -1])


def test_online_softmax_as_a_tuple_reducer() -> None:
    m, s = Reducer.left(0, DType.f64), Reducer.left(1, DType.f64)
    m2, s2 = Reducer.right(0, DType.f64), Reducer.right(1, DType.f64)
    top = binary("max", m, m2)
    total = s * unary("exp", m - top) + s2 * unary("exp", m2 - top)
    online = Reducer("online", (DType.f64,) * 2, (const(-1e300, "f64"), const(0.0, "f64")), (top, total))
    x, k = ten("x", 4, 100), reduce_axis(100, "k")
    largest, denominator = compute_many(
        (4,), lambda i: reduce(online, (x[i, k], const(1.0, "f64")), k), ("largest", "denominator")
    )
    a = rng.standard_normal((4, 100)) * 50
    found = evaluate(ComputeDef.build([x], [largest, denominator]), {"x": a})
    np.testing.assert_array_equal(found["largest"], a.max(1))
    np.testing.assert_allclose(found["denominator"], np.exp(a - a.max(1, keepdims=True)).sum(1))


def test_a_recurrent_cell_is_a_scan() -> None:
    """h[t] = tanh(decay * h[t-1] + x[t]), elementwise over the other axis."""
    x = ten("x", 20, 6)
    out = scan((20, 6), 0, lambda h, t, i: unary("tanh", h * 0.5 + x[t, i]), 0.25, "f64", "h")
    a = rng.standard_normal((20, 6))
    state, expected = np.full(6, 0.25), []
    for row in a:
        state = np.tanh(state * 0.5 + row)
        expected.append(state)
    np.testing.assert_allclose(value(out, x=a), expected)


@settings(max_examples=60, deadline=None)
@given(extent=st.integers(1, 6), scale=st.sampled_from([-2, -1, 1, 2, 3]), offset=st.integers(-4, 9),
       taps=st.integers(1, 3))  # fmt: skip
def test_predicated_reads_never_leave_the_array(extent: int, scale: int, offset: int, taps: int) -> None:
    x, k = ten("x", extent), reduce_axis(taps, "k")

    def inside(at: Expr) -> Expr:
        return (at >= 0) & (at < extent)

    def tap(i: Expr) -> Expr:
        at = i * scale + k.var + offset
        return read(x, (at,), when=inside(at), otherwise=-7.0)

    out = compute((5,), lambda i: max_(tap(i), k), "out")
    a = rng.standard_normal(extent)
    at = np.arange(5)[:, None] * scale + np.arange(taps) + offset
    expected = np.where((at >= 0) & (at < extent), a[np.clip(at, 0, extent - 1)], -7.0).max(1)
    np.testing.assert_array_equal(value(out, x=a), expected)


def test_a_predicate_over_other_axes_is_a_mask() -> None:
    x = ten("x", 4, 4)
    out = compute((4, 4), lambda i, j: read(x, (i, j), when=i + j < 4, otherwise=math.inf), "out")
    a = rng.standard_normal((4, 4))
    np.testing.assert_array_equal(value(out, x=a), np.where(np.add.outer(range(4), range(4)) < 4, a, np.inf))


def test_reads_outside_are_errors() -> None:
    x, which = ten("x", 4), ten("which", 3, dtype="i64")
    with pytest.raises(WorkloadError, match="reads outside of the shape"):
        value(compute((4,), lambda i: x[i + 1], "out"), x=np.ones(4))
    with pytest.raises(WorkloadError, match="reads outside of the shape"):
        value(compute((4,), lambda i: read(x, (i + 1,), when=i < 4), "out"), x=np.ones(4))
    with pytest.raises(WorkloadError, match="reads outside of the shape"):
        value(compute((3,), lambda i: x[which[i]], "out"), x=np.ones(4), which=np.array([0, 9, 1]))


def test_indirect_reads() -> None:
    x, which = ten("x", 4, 2), ten("which", 3, dtype="i32")
    out = compute((3, 2), lambda i, j: x[cast("i64", which[i]), j], "out")
    a, chosen = rng.standard_normal((4, 2)), np.array([3, 0, 3], np.int32)
    np.testing.assert_array_equal(value(out, x=a, which=chosen), a[chosen])


def test_integer_division_of_every_sign_and_by_zero() -> None:
    a, b = (v.ravel() for v in np.meshgrid(np.arange(-7, 8, dtype=np.int32), np.arange(-3, 4, dtype=np.int32)))
    x, y = ten("x", len(a), dtype="i32"), ten("y", len(a), dtype="i32")
    safe = np.where(b == 0, 1, b)
    expected = {
        "floordiv": a // safe, "floormod": a % safe, "truncdiv": np.trunc(a / safe), "div": np.trunc(a / safe),
    }  # fmt: skip
    for op, quotient in expected.items():
        out = compute((len(a),), lambda i, op=op: binary(op, x[i], y[i]), "out")
        np.testing.assert_array_equal(value(out, x=a, y=b), np.where(b == 0, 0, quotient))


def test_bits_shifts_and_logic() -> None:
    a = np.array([1, -5, 2**30], np.int32)
    x = ten("x", 3, dtype="i32")
    np.testing.assert_array_equal(value(compute((3,), lambda i: binary("shr", x[i], 2), "o"), x=a), a >> 2)
    np.testing.assert_array_equal(value(compute((3,), lambda i: x[i] & 7, "o"), x=a), a & 7)
    one = value(compute((3,), lambda i: Reinterpret(x[i], DType.f32), "o"), x=np.full(3, 0x3F800000, np.int32))
    np.testing.assert_array_equal(one, np.ones(3, np.float32))


def test_erf_is_accurate() -> None:
    a = np.concatenate([np.linspace(-6, 6, 999), [np.inf, -np.inf, np.nan, 1e-300]])
    x = ten("x", len(a))
    expected = [math.erf(v) for v in a]
    found = value(compute((len(a),), lambda i: unary("erf", x[i]), "o"), x=a)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_precision_is_a_choice() -> None:
    x, k = ten("x", 1000, dtype="f16"), reduce_axis(1000, "k")
    out = compute((1,), lambda i: sum_(x[k], k), "o")
    a = np.full(1000, 1.001, np.float16)
    assert value(out, x=a).dtype == np.float16
    exact = value(out, DType.f64, x=a)
    assert exact.dtype == np.float64
    assert exact[0] == float(a[0]) * 1000


def test_tables_and_selects() -> None:
    m = table("M", ((1, 2, 3), (4, 5, 6)), "f64")
    out = compute((2, 3), lambda i, j: select(i < 1, m(i, j), m(1, 2)), "o")
    np.testing.assert_array_equal(value(out), [[1, 2, 3], [6, 6, 6]])


def test_all_tensors_and_wrong_inputs() -> None:
    x = ten("x", 2)
    double = compute((2,), lambda i: x[i] * 2.0, "double")
    definition = ComputeDef.build([x], [compute((2,), lambda i: double[i] + 1.0, "out")])
    found = evaluate(definition, {"x": np.ones(2)}, all_tensors=True)
    assert {n: v.tolist() for n, v in found.items()} == {"x": [1, 1], "double": [2, 2], "out": [3, 3]}
    with pytest.raises(WorkloadError, match="needs an array for the input x"):
        evaluate(definition, {})
    with pytest.raises(WorkloadError, match=r"input x has shape \(2,\)"):
        evaluate(definition, {"x": np.ones(3)})


def test_an_empty_result() -> None:
    x = ten("x", 0, 3)
    assert value(compute((0, 3), lambda i, j: x[i, j] + 1.0, "o"), x=np.ones((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 3, 5), (3, 1, 1), (1, 9, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_of_two_values_the_one_that_few_indices_choose(shape: tuple[int, ...], axis: int) -> None:
    """Whole slices of one or the other, or element by element: the same numbers."""
    x = placeholder(shape)
    y = compute(
        shape, lambda *at: select(at[axis] < 2, x[at] * 2.0, select(at[axis] < 3, const(7.0, "f32"), x[at])), "y"
    )
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = evaluate(ComputeDef.build([x], [y]), {"x": values})["y"]
    at = np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(3)])
    np.testing.assert_array_equal(found, np.where(at < 2, values * 2, np.where(at < 3, np.float32(7), values)))
