"""A kernel as a function: right on ordinary arrays, clear about wrong ones, and safe from several threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.errors import InputError
from autotune.runtime.function import KernelFunction
from autotune.schedule.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, placeholder
from autotune.tensor.layout import Array, Layout


@pytest.fixture(scope="module")
def scale() -> Iterator[KernelFunction]:
    """x * w of (5, 20), x blocked by 16 along the second dimension."""
    x, w = placeholder((5, 20), "f32", "x"), placeholder((20,), "f32", "w", constant=True)
    y = compute((5, 20), lambda i, j: x[i, j] * w[j], name="y")
    definition = ComputeDef.build([x, w], [y])
    schedule = Schedule(definition).layout("x", Layout.blocked(2, [(1, 16)]))
    target = Target.parse("native -num-cores=2")
    with KernelFunction(definition.inputs, build_kernel(schedule, target), target) as function:
        yield function


def arrays(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((5, 20)).astype(np.float32), rng.standard_normal(20).astype(np.float32)


def test_computes_on_ordinary_arrays(scale: KernelFunction) -> None:
    x, w = arrays(0)
    (y,) = scale(x, w)
    np.testing.assert_array_equal(y, x * w)


def test_each_call_has_buffers_of_its_own(scale: KernelFunction) -> None:
    def call(seed: int) -> bool:
        x, w = arrays(seed)
        return bool(np.array_equal(scale(x, w)[0], x * w))

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(call, range(40)))


@pytest.mark.parametrize(
    ("position", "wrong", "words"),
    [
        (0, np.zeros((5, 21), np.float32), r"x must be float32\[5, 20\], got float32\[5, 21\]"),
        (1, np.zeros(20, np.float64), r"w must be float32\[20\], got float64\[20\]"),
    ],
)
def test_refuses_what_does_not_fit(scale: KernelFunction, position: int, wrong: Array, words: str) -> None:
    given = list(arrays(0))
    given[position] = wrong
    with pytest.raises(InputError, match=words):
        scale(*given)


def test_refuses_the_wrong_number_of_arrays(scale: KernelFunction) -> None:
    with pytest.raises(InputError, match="takes 2 arrays"):
        scale(arrays(0)[0])
