"""f32 as bf16 and back, bit by bit what NumPy's conversion gives."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.tensor import DType
from autotune.tensor.halves import converted

BF16, F32 = DType.bf16.numpy, DType.f32.numpy


def bits(count: int) -> np.ndarray:
    """Numbers of every exponent, ties, both kinds of NaN, both infinities and zeros among them."""
    drawn = np.random.default_rng(0).integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
    upper = (np.arange(1 << 16, dtype=np.uint32) << 16)[:, None]
    near = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return np.concatenate([drawn, (upper | near).ravel()])


def test_every_number_is_rounded_to_the_nearest() -> None:
    numbers = bits(100_000).view(np.float32)
    with np.errstate(all="ignore"):
        expected = numbers.astype(BF16)
    np.testing.assert_array_equal(converted(numbers, BF16).view(np.uint16), expected.view(np.uint16))


def test_every_bf16_comes_back() -> None:
    numbers = np.arange(1 << 16, dtype=np.uint16).view(BF16)
    found, expected = converted(numbers, F32), numbers.astype(F32)
    number = ~np.isnan(expected)
    assert (np.isnan(found) == ~number).all()
    np.testing.assert_array_equal(found[number].view(np.uint32), expected[number].view(np.uint32))


@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (2, 3, 5)])
def test_shapes_are_kept_and_other_types_are_left_to_numpy(shape: tuple[int, ...]) -> None:
    plain = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    narrow = converted(plain, BF16)
    assert (narrow.shape, narrow.dtype) == (shape, BF16)
    assert converted(narrow, F32).shape == shape
    assert converted(plain, F32) is plain
    np.testing.assert_array_equal(converted(plain, np.dtype(np.float64)), plain.astype(np.float64))


def test_what_does_not_lie_together_is_converted_too() -> None:
    plain = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(converted(plain.T, BF16), plain.T.astype(BF16))
    spread = np.broadcast_to(plain[:, :1], (4, 6))
    np.testing.assert_array_equal(converted(converted(spread, BF16), F32), spread)
