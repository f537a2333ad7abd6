"""Reductions, argmax, softmax and running sums against onnx.reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.tensor import DType

Call = Callable[..., Any]
shapes = st.lists(st.sampled_from([1, 2, 3, 5, 7, 11]), min_size=1, max_size=4)
REDUCE = {"reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
          "reduce_prod": "ReduceProd"}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(REDUCE)), shape=shapes, keepdims=st.booleans(), data=st.data())
def test_reductions(
    name: str, shape: list[int], keepdims: bool, data: st.DataObject, run: Call, reference: Call, same: Call
) -> None:
    axes = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, unique_by=lambda a: a % len(shape)))
    x = np.random.default_rng(len(shape)).standard_normal(shape)
    theirs = reference(REDUCE[name], [x, np.array(axes)], keepdims=int(keepdims))
    same(run(name, [x], axes=tuple(axes), keepdims=keepdims), theirs)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_integer_reductions_keep_their_dtype(name: str, dtype: Any, run: Call, same: Call) -> None:
    x = np.random.default_rng(0).integers(0, 100, (3, 40)).astype(dtype)
    theirs = getattr(np, name)(x, axis=1, **({"dtype": dtype} if name in ("sum", "prod") else {}))
    same(run(f"reduce_{name}", [x], axes=(1,), keepdims=False), theirs)


def test_max_and_min_propagate_nan_and_infinity(run: Call, same: Call) -> None:
    x = np.array([[1.0, np.nan, 2.0], [-np.inf, -np.inf, -np.inf]])
    same(run("reduce_max", [x], axes=(1,), keepdims=False), np.array([np.nan, -np.inf]))
    same(run("reduce_min", [x], axes=(1,), keepdims=False), np.array([np.nan, -np.inf]))


def test_reducing_nothing_and_reducing_over_no_axes(run: Call, same: Call) -> None:
    x = np.arange(6.0).reshape(2, 3)
    same(run("reduce_sum", [x], axes=(), keepdims=True), x)
    empty = np.zeros((2, 0))
    same(run("reduce_sum", [empty], axes=(1,), keepdims=False), np.zeros(2))
    same(run("reduce_max", [empty], axes=(1,), keepdims=False), np.full(2, -np.inf))


def test_a_large_reduction_is_done_in_blocks(run: Call, same: Call) -> None:
    x = np.random.default_rng(0).standard_normal((3, 1_500_007)).astype(np.float32)
    same(run("reduce_sum", [x], DType.f64, axes=(1,), keepdims=False), x.sum(axis=1, dtype=np.float64), 1e-9)
    same(run("argmax", [x], axis=1, keepdims=False, select_last_index=False), x.argmax(axis=1))


def test_half_precision_means_do_not_overflow(run: Call) -> None:
    x = np.full((1, 4096), 100, np.float16)
    assert run("reduce_mean", [x], axes=(1,), keepdims=False)[0] == 100


@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(["argmax", "argmin"]), shape=shapes, keepdims=st.booleans(), last=st.booleans(),
    data=st.data(), kinds=st.integers(1, 4),
)  # fmt: skip
def test_arg_reductions(
    name: str, shape: list[int], keepdims: bool, last: bool, data: st.DataObject, kinds: int, run: Call,
    reference: Call, same: Call,
) -> None:  # fmt: skip
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(kinds).integers(0, kinds, shape).astype(np.float64)  # ties are likely
    attrs = {"axis": axis, "keepdims": int(keepdims), "select_last_index": int(last)}
    theirs = reference({"argmax": "ArgMax", "argmin": "ArgMin"}[name], [x], **attrs)
    same(run(name, [x], axis=axis, keepdims=keepdims, select_last_index=last), theirs)


def test_argmax_of_values_equal_to_the_identity(run: Call, same: Call) -> None:
    x = np.full((2, 3), -np.inf)
    same(run("argmax", [x], axis=1, keepdims=False, select_last_index=False), np.array([0, 0]))


@settings(max_examples=30, deadline=None)
@given(shape=shapes, data=st.data(), scale=st.sampled_from([1.0, 1000.0]))
def test_softmax(shape: list[int], data: st.DataObject, scale: float, run: Call, reference: Call, same: Call) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(0).standard_normal(shape) * scale
    same(run("softmax", [x], axis=axis), reference("Softmax", [x], axis=axis))
    if scale == 1.0:
        same(run("log_softmax", [x], axis=axis), reference("LogSoftmax", [x], axis=axis))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_softmax_of_narrow_floats(dtype: Any, run: Call, same: Call) -> None:
    x = (np.random.default_rng(0).standard_normal((4, 1000)) * 5).astype(dtype)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    same(run("softmax", [x], axis=1), (wide / wide.sum(axis=1, keepdims=True)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_has_no_denormals(dtype: Any, run: Call) -> None:
    """Arithmetic with such takes ten times as long, and they say nothing beside a probability of a half."""
    least = np.finfo(dtype).tiny
    far = -float(np.log(least)) * np.linspace(0.9, 1.1, 400)
    x = np.concatenate([[0.0], -far, [-np.inf]]).astype(dtype)
    found, exact = run("softmax", [x], axis=0), np.exp(x.astype(np.longdouble))
    kept = found > 0
    assert (found[kept] >= least).all() and kept.sum() > 50 and not kept[-1]
    assert exact[~kept].max() < 1024 * least  # as many as are summed up, in powers of two
    np.testing.assert_allclose(found[kept], exact[kept], rtol=2e-5 if dtype is np.float32 else 1e-12)
    assert np.isnan(run("softmax", [np.array([0.0, np.nan, -200.0], dtype)], axis=0)).all()


@settings(max_examples=40, deadline=None)
@given(shape=shapes, data=st.data(), exclusive=st.booleans(), reverse=st.booleans(), whole=st.booleans())
def test_cumsum(
    shape: list[int], data: st.DataObject, exclusive: bool, reverse: bool, whole: bool, run: Call, reference: Call,
    same: Call,
) -> None:  # fmt: skip
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, shape).astype(np.int32) if whole else rng.standard_normal(shape)
    theirs = reference("CumSum", [x, np.array(axis)], exclusive=int(exclusive), reverse=int(reverse))
    same(run("cumsum", [x], axis=axis, exclusive=exclusive, reverse=reverse), theirs)


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("reduce_sum", {"axes": (2,), "keepdims": True}, "axis=2 is outside of a tensor of 2 dimensions"),
        ("reduce_sum", {"axes": (0, -2), "keepdims": True}, "name an axis twice"),
        ("argmax", {"axis": 5, "keepdims": True, "select_last_index": False}, "axis=5 is outside"),
        ("softmax", {"axis": -3}, "axis=-3 is outside"),
        ("cumsum", {"axis": 1.5, "exclusive": False, "reverse": False}, "axis=1.5 must be an integer"),
    ],
)
def test_impossible_axes_are_refused(op: str, attrs: Any, message: str, run: Call) -> None:
    with pytest.raises(WorkloadError, match=message):
        run(op, [np.ones((2, 3))], **attrs)
