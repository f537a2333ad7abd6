"""Matrix products against NumPy's matmul, which ONNX MatMul is defined by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError

Call = Callable[..., Any]
extents = st.sampled_from([1, 2, 3, 5, 7, 16])


@settings(max_examples=80, deadline=None)
@given(
    batch=st.lists(extents, max_size=2), ones=st.tuples(st.booleans(), st.booleans()), drop=st.integers(0, 2),
    sizes=st.tuples(extents, extents, extents), flags=st.tuples(st.booleans(), st.booleans()), seed=st.integers(0, 9),
)  # fmt: skip
def test_matmul_is_onnx_matmul(
    batch: list[int], ones: tuple[bool, bool], drop: int, sizes: tuple[int, int, int], flags: tuple[bool, bool],
    seed: int, run: Call, reference: Call, same: Call,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    i, k, j = sizes
    a = rng.standard_normal([*(1 if ones[0] else n for n in batch), i, k])
    b = rng.standard_normal([*(1 if ones[1] else n for n in batch), k, j])
    b = b.reshape(b.shape[min(drop, len(batch)) :]) if all(n == 1 for n in b.shape[: min(drop, len(batch))]) else b
    theirs = reference("MatMul", [a, b])
    stored = [np.ascontiguousarray(np.swapaxes(t, -1, -2)) if f else t for t, f in zip((a, b), flags, strict=True)]
    same(run("matmul", stored, trans_a=flags[0], trans_b=flags[1]), theirs)


@pytest.mark.parametrize(
    ("a", "b"), [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 4, 5), (5,)), ((5,), (2, 5, 3))]
)
def test_vectors(a: Any, b: Any, run: Call, reference: Call, same: Call) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a), rng.standard_normal(b)]
    same(run("matmul", arrays, trans_a=False, trans_b=False), np.asarray(reference("MatMul", arrays)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integers_are_exact(dtype: Any, run: Call, same: Call) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(info.min, info.max, s, dtype=dtype, endpoint=True) for s in ((3, 40), (40, 5)))
    wide = np.int32 if info.bits == 8 else dtype
    same(run("matmul", [a, b], trans_a=False, trans_b=False), a.astype(wide) @ b.astype(wide))


def test_half_precision_is_summed_in_f32(run: Call) -> None:
    ones = np.ones((1, 4096), np.float16)
    assert run("matmul", [ones, ones], trans_a=False, trans_b=True)[0, 0] == 4096  # f16 sums stick at 2048


def test_an_empty_sum_is_zero(run: Call, same: Call) -> None:
    a, b = np.ones((2, 0)), np.ones((0, 3))
    same(run("matmul", [a, b], trans_a=False, trans_b=False), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("a", "b", "flags", "message"),
    [
        ((3, 4), (5, 6), {}, "sums over 4"),
        ((), (5, 6), {}, "a is a scalar"),
        ((4,), (4, 6), {"trans_a": True}, "needs a matrix"),
        ((2, 3, 4), (3, 4, 6), {}, "do not broadcast"),
        ((3, 4), (4, 6), {"trans_a": 7}, "must be true or false"),
    ],
)
def test_impossible_products_are_refused(a: Any, b: Any, flags: Any, message: str, run: Call) -> None:
    with pytest.raises(WorkloadError, match=message):
        run("matmul", [np.ones(a), np.ones(b)], **{"trans_a": False, "trans_b": False, **flags})


def test_mixed_dtypes_are_refused(run: Call) -> None:
    with pytest.raises(WorkloadError, match="different dtypes f64, f32"):
        run("matmul", [np.ones((2, 2)), np.ones((2, 2), np.float32)], trans_a=False, trans_b=False)
