"""Memory of results: given out again when nobody has a view of it, and never before."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from autotune.runtime.form import ALIGN, KEPT, LARGE, Array, Form
from autotune.runtime.program import TensorSpec


def form(count: int = 100) -> Form:
    return Form(TensorSpec("y", "f32", (count,)))


def test_arrays_are_as_the_tensor_and_lie_on_cache_lines() -> None:
    for array, address in (form().fresh(), form().lent()):
        assert array.shape == (100,) and array.dtype == np.float32 and array.flags.writeable
        assert address == array.ctypes.data and address % ALIGN == 0


def test_memory_without_an_array_is_given_out_again() -> None:
    made = form()
    first = made.lent()[1]
    assert made.lent()[1] == first and made.lent()[1] == first
    held, second = made.lent()
    assert second == first and made.lent()[1] != first
    del held


def test_results_that_are_fed_to_the_next_run_take_turns() -> None:
    made, last, seen = form(), None, set()
    for _ in range(10):
        last, address = made.lent()
        seen.add(address)
    assert last is not None and len(seen) == KEPT


@pytest.mark.parametrize(
    "part", [lambda x: x[3:5], lambda x: x.reshape(10, 10).T, memoryview, lambda x: x.view(np.uint8), lambda x: [x],
             lambda x: np.frombuffer(memoryview(x), np.float32), lambda x: x.ctypes],
)  # fmt: skip
def test_whatever_reads_an_array_keeps_its_memory(part: Callable[[Array], object]) -> None:
    made = form()
    array, first = made.lent()
    kept = part(array)
    del array
    others = [made.lent() for _ in range(4)]
    assert first not in {address for _, address in others}
    assert len({address for _, address in others}) == 4
    del kept
    assert made.lent()[1] == first


def test_what_is_held_at_once_lies_apart() -> None:
    made = form()
    held = [made.lent() for _ in range(5)]
    for n, (array, _) in enumerate(held):
        array[:] = n
    assert [set(array) for array, _ in held] == [{n} for n in range(5)]


def test_large_arrays_are_not_kept() -> None:
    made = form(LARGE // 4)
    made.lent()
    assert not made._kept


def test_threads_never_share_memory() -> None:
    made, wrong = form(1000), []

    def use(n: int) -> None:
        for _ in range(300):
            array, _ = made.lent()
            array[:] = n
            if not (array == n).all():
                wrong.append(n)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
