"""Rotation through cold copies."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.cores import core_of
from autotune.measure.reference import Array
from autotune.measure.weights import WeightBlock
from autotune.target import Target


def test_copies_do_not_overlap_until_the_block_is_used_up() -> None:
    block = WeightBlock(10_000, np.float32)
    low = int(block.bytes.ctypes.data)
    sets = block.take({"in1": 1000, "in2": 8}, 6) + block.take({"in1": 1000, "in2": 8}, 3)
    starts = [addresses["in1"] - low for addresses in sets]
    assert starts == [1088 * number for number in range(9)]
    assert all(addresses["in2"] == addresses["in1"] + 1024 for addresses in sets)
    assert all(addresses["in1"] % 64 == 0 for addresses in sets)
    (wrapped,) = block.take({"in1": 1000, "in2": 8}, 1)
    assert wrapped["in1"] == low


def test_asks_for_no_more_than_there_is() -> None:
    block = WeightBlock(10_000, np.float32)
    assert len(block.take({"in1": 1000}, 100)) == 9
    assert block.take({"in1": 6_000}, 100) == [{}]
    assert block.take({}, 100) == [{}]
    assert len(WeightBlock(1 << 20, np.float32).take({"in1": 64}, 10_000)) == 1024


def test_residency_follows_the_caches() -> None:
    target = Target("x86_64", "skylake", ("avx2", "fma"), 1, 1 << 15, 1 << 20, 1 << 25, core_of("skylake", ()))
    sizes = (0, 1, 1 << 20, (1 << 20) + 1, 1 << 25, (1 << 25) + 1)
    assert [target.residency(size) for size in sizes] == ["", "L2", "L2", "L3", "L3", "DRAM"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
def test_numbers_are_ordinary_and_differ(dtype: type) -> None:
    numbers: Array = WeightBlock(4096, dtype).bytes.view(dtype)
    assert len(np.unique(numbers)) > 50
    if np.issubdtype(dtype, np.floating):
        assert np.isfinite(numbers).all()
        assert np.mean(np.abs(numbers) > 1e-4) > 0.9


def test_words_are_ordinary_numbers_too() -> None:
    """Scales lie among words of codes: bits of small integers would be denormal, and CPUs multiply such slowly."""
    numbers = WeightBlock(4096, np.uint32).bytes.view(np.float32)
    assert np.isfinite(numbers).all() and (np.abs(numbers) >= np.finfo(np.float32).smallest_normal).all()
