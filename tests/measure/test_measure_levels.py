"""How slow the turns of a comparison were."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.measure.levels import slowness


def test_turns_that_were_slow_for_all_are_found_whatever_the_kernels_take() -> None:
    slow = np.array([1.0, 1.6, 1.6, 1.0, 1.0, 2.0, 1.0, 1.0])
    seconds = np.array([[3e-6], [1e-3], [0.2]]) * slow
    assert slowness(seconds) == pytest.approx(slow)


def test_one_disturbed_kernel_makes_no_slow_turn() -> None:
    seconds = np.ones((5, 6))
    seconds[2, 3] = 4.0
    assert slowness(seconds) == pytest.approx(np.ones(6))


def test_kernels_may_be_absent_and_turns_of_one_kernel_tell_nothing() -> None:
    slow = np.array([1.0, 1.0, 1.5, 1.0, 1.3, 1.3])
    seconds = np.array([[1.0], [2.0], [4.0]]) * slow
    seconds[2, 1:] = np.nan
    seconds[1, 4:] = np.nan
    assert slowness(seconds) == pytest.approx([1.0, 1.0, 1.5, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("shape", [(0, 0), (1, 4), (3, 1)])
def test_without_others_or_other_turns_nothing_is_known(shape: tuple[int, int]) -> None:
    assert slowness(np.full(shape, 2.0)) == pytest.approx(np.ones(shape[1]))
