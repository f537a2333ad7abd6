"""Operators that pick or write elements by position, against NumPy and the ONNX reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError

Call = Callable[..., Any]
DTYPES = ("f8", "f4", "f2", ml_dtypes.bfloat16, "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=4)


def numbers(rng: np.random.Generator, shape: Any, dtype: Any = "f4") -> Any:
    return rng.integers(0, 100, tuple(shape)).astype(dtype)


@settings(max_examples=30, deadline=None)
@given(shape=shapes, dtype=st.sampled_from(DTYPES), kind=st.sampled_from(["i4", "i8"]), data=st.data())
def test_gather_elements(shape: list[int], dtype: Any, kind: str, data: st.DataObject, run: Call, same: Call) -> None:
    axis, rng = data.draw(st.integers(-len(shape), len(shape) - 1)), np.random.default_rng(0)
    wanted = list(shape)
    wanted[axis] = data.draw(st.integers(0, 4))
    indices = rng.integers(-shape[axis], shape[axis], wanted).astype(kind)
    x = numbers(rng, shape, dtype)
    same(run("gather_elements", [x, indices], axis=axis), np.take_along_axis(x, indices.astype("i8"), axis))


@pytest.mark.parametrize(("batch", "depth"), [(0, 1), (0, 2), (0, 4), (1, 1), (1, 3), (2, 2), (1, 0)])
def test_gather_nd(batch: int, depth: int, run: Call, same: Call, reference: Call) -> None:
    rng = np.random.default_rng(1)
    x = numbers(rng, (2, 3, 4, 5))
    extents = x.shape[batch : batch + depth]
    indices = np.stack([rng.integers(-e, e, (*x.shape[:batch], 3)) for e in extents], -1) if depth else None
    if indices is None:
        same(run("gather_nd", [x, np.zeros((2, 3, 0), "i8")], batch_dims=batch), np.stack([x] * 3, 1))
    else:
        same(run("gather_nd", [x, indices], batch_dims=batch), reference("GatherND", [x, indices], batch_dims=batch))


@pytest.mark.parametrize("op", ["gather", "gather_elements"])
def test_run_time_indices_stay_inside(op: str, run: Call) -> None:
    x, wild = np.arange(5, dtype="i4"), np.array([-(2**62), -9, 7, 2**62])
    assert run(op, [x, wild], axis=0).tolist() == [0, 0, 4, 4]
    assert run("gather_nd", [x, wild[:, None]], batch_dims=0).tolist() == [0, 0, 4, 4]


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["i8", "f4", "u1"])
def test_one_hot(axis: int, kind: str, run: Call, same: Call) -> None:
    indices = np.array([[0, 2, 9], [4, 3, 1]] if kind == "u1" else [[0, -2, 9], [-9, 3, 1]]).astype(kind)
    wanted = np.moveaxis(np.stack([(indices == k) | (indices == k - 5) for k in range(5)], -1), -1, axis)
    off_on = np.array([-1.0, 7.0], "f2")
    same(run("one_hot", [indices, off_on], axis=axis, depth=5), np.where(wanted, off_on[1], off_on[0]))


@pytest.mark.parametrize("k", [-9, -2, 0, 1, 9])
@pytest.mark.parametrize("upper", [True, False])
def test_trilu(k: int, upper: bool, run: Call, same: Call) -> None:
    for dtype in DTYPES:
        x = np.ones((2, 4, 5), dtype)
        same(run("trilu", [x], upper=upper, k=k), np.triu(x, k) if upper else np.tril(x, k))


def test_reverse_sequence(run: Call, same: Call, reference: Call) -> None:
    x, lengths = np.arange(24, dtype="f4").reshape(4, 3, 2), np.array([1, 4, 3])
    for batch, time, own in ((1, 0, lengths), (0, 1, np.array([1, 2, 3, 1]))):
        expected = reference("ReverseSequence", [x, own], batch_axis=batch, time_axis=time)
        same(run("reverse_sequence", [x, own], batch_axis=batch, time_axis=time), expected)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str, run: Call, same: Call) -> None:
    rng = np.random.default_rng(3)
    cache, update = numbers(rng, (2, 3, 6, 4)), numbers(rng, (2, 3, 2, 4))
    start = np.array([1, 5 if mode == "circular" else 4])
    expected = cache.copy()
    for b in range(2):
        for n in range(2):
            expected[b, :, (start[b] + n) % 6] = update[b, :, n]
    same(run("tensor_scatter", [cache, update, start], axis=2, mode=mode), expected)


# Scatter ---------------------------------------------------------------------------------------------

UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@settings(max_examples=40, deadline=None)
@given(
    shape=shapes,
    reduction=st.sampled_from(["none", *UFUNCS]),
    dtype=st.sampled_from(DTYPES[:-1]),
    data=st.data(),
)
def test_scatter_elements(
    shape: list[int], reduction: str, dtype: Any, data: st.DataObject, run: Call, same: Call
) -> None:
    """One update after the other, in the order of the indices."""
    axis, rng = data.draw(st.integers(0, len(shape) - 1)), np.random.default_rng(4)
    size = [data.draw(st.integers(0, 4)) if d == axis else data.draw(st.integers(1, e)) for d, e in enumerate(shape)]
    x, updates = (rng.integers(0, 4, s).astype(dtype) for s in (shape, size))
    indices = rng.integers(-shape[axis], shape[axis], size)
    expected = x.copy()
    for place in np.ndindex(*size):
        at = (*place[:axis], indices[place], *place[axis + 1 :])
        expected[at] = updates[place] if reduction == "none" else UFUNCS[reduction](expected[at], updates[place])
    same(run("scatter_elements", [x, indices, updates], axis=axis, reduction=reduction), expected)


@pytest.mark.parametrize("reduction", ["none", *UFUNCS])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_scatter_nd(depth: int, reduction: str, run: Call, same: Call) -> None:
    rng = np.random.default_rng(5)
    x = numbers(rng, (3, 4, 5))
    indices = np.stack([rng.integers(-e, e, (2, 3)) for e in x.shape[:depth]] or [np.zeros((2, 3), "i8")], -1)
    indices = indices if depth else indices[..., :0]
    updates = numbers(rng, (2, 3, *x.shape[depth:]))
    expected = x.copy()
    for place in np.ndindex(2, 3):
        at = tuple(indices[place])
        expected[at] = updates[place] if reduction == "none" else UFUNCS[reduction](expected[at], updates[place])
    same(run("scatter_nd", [x, indices, updates], reduction=reduction), expected)


def test_updates_out_of_range_are_left_out(run: Call) -> None:
    x, wild, updates = np.zeros(4, "f4"), np.array([-(2**62), -5, 1, 4, 2**62]), np.arange(1, 6, dtype="f4")
    assert run("scatter_elements", [x, wild, updates], axis=0, reduction="none").tolist() == [0, 3, 0, 0]
    assert run("scatter_nd", [x, wild[:, None], updates], reduction="add").tolist() == [0, 3, 0, 0]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "message"),
    [
        ("gather_elements", [(3, 4), (4, 4)], {"axis": 1}, "do not fit into data of shape"),
        ("gather_nd", [(3, 4), (2, 3)], {"batch_dims": 0}, "do not fit data of shape"),
        ("scatter_elements", [(3, 4), (3, 4), (3, 3)], {"axis": 1, "reduction": "none"}, "updates of shape"),
        ("scatter_nd", [(3, 4), (2, 1), (2, 3)], {"reduction": "none"}, "updates must have shape .2, 4."),
        ("scatter_nd", [(3, 4), (2, 1), (2, 4)], {"reduction": "or"}, "must be one of none, add"),
        ("tensor_scatter", [(3, 4, 2), (3, 5, 2), (3,)], {"axis": 1, "mode": "linear"}, "do not fit the cache"),
        ("trilu", [(3,)], {"upper": True, "k": 0}, "needs matrices"),
        ("reverse_sequence", [(3, 4), (3,)], {"batch_axis": 1, "time_axis": 0}, "for 4 sequences"),
    ],
)
def test_refused(op: str, arrays: list[Any], attrs: Any, message: str, run: Call) -> None:
    last = op in ("tensor_scatter", "reverse_sequence")
    whole = [np.zeros(s, "i8" if n == (len(arrays) - 1 if last else 1) else "f4") for n, s in enumerate(arrays)]
    with pytest.raises(WorkloadError, match=message):
        run(op, whole, **attrs)


def test_determinant(run: Call, same: Call) -> None:
    x = np.random.default_rng(6).standard_normal((2, 3, 5, 5))
    for dtype in ("f8", "f4", "f2"):
        same(run("determinant", [x.astype(dtype)]), np.linalg.det(x.astype(dtype).astype("f8")).astype(dtype))
    with pytest.raises(WorkloadError, match="needs square matrices"):
        run("determinant", [np.zeros((2, 3), "f4")])


def test_inverse(run: Call, same: Call) -> None:
    x = np.random.default_rng(6).standard_normal((2, 3, 5, 5))
    for dtype in ("f8", "f4", "f2"):
        same(run("inverse", [x.astype(dtype)]), np.linalg.inv(x.astype(dtype).astype("f8")).astype(dtype))
    none = run("inverse", [np.stack((np.ones((2, 2), "f4"), np.eye(2, dtype="f4")))])
    assert np.isnan(none[0]).all()
    same(none[1], np.eye(2, dtype="f4"))
    with pytest.raises(WorkloadError, match="needs square matrices"):
        run("inverse", [np.zeros((2, 3), "f4")])


# Einsum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "shapes_of"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ii->i", [(4, 4)]),
        ("bii->b", [(2, 4, 4)]),
        ("ij->", [(3, 4)]),
        ("->", [()]),
        ("bi,bj,bk->bkj", [(2, 3), (2, 4), (2, 5)]),
        ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)]),
    ],
)
def test_einsum(equation: str, shapes_of: list[tuple[int, ...]], run: Call, same: Call) -> None:
    rng = np.random.default_rng(7)
    for dtype in ("f4", "f8", "i4", "i8"):
        arrays = [numbers(rng, s, dtype) for s in shapes_of]
        same(run("einsum", arrays, equation=equation), np.asarray(np.einsum(equation, *arrays)))


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk", "not explicit"),
        ("ij,jk->iz", "no operand has z"),
        ("ij,jk->ii", "twice"),
        ("ijk,jk->i", "for an operand of shape"),
        ("ij,ij->i", "i is 3 and 4"),
    ],
)
def test_einsum_refused(equation: str, message: str, run: Call) -> None:
    with pytest.raises(WorkloadError, match=message):
        run("einsum", [np.zeros((3, 4), "f4"), np.zeros((4, 4), "f4")], equation=equation)


def test_frames(run: Call, same: Call) -> None:
    x = np.arange(24, dtype="f4").reshape(2, 12)
    expected = np.lib.stride_tricks.sliding_window_view(x, 5, 1)[:, ::3]
    same(run("frames", [x], size=5, step=3), np.ascontiguousarray(expected))


def test_lookup(run: Call) -> None:
    rng = np.random.default_rng(0)
    x, table = rng.integers(0, 256, (3, 50), np.uint8), rng.standard_normal(256).astype(np.float32)
    np.testing.assert_array_equal(run("lookup", [x, table]), table[x])
    with pytest.raises(WorkloadError, match="lookup: data must be u8, got i8"):
        run("lookup", [x.astype(np.int8), table])
    with pytest.raises(WorkloadError, match=r"lookup: the table must have 256 entries, not the shape \(255,\)"):
        run("lookup", [x, table[1:]])
