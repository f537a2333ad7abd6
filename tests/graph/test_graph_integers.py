"""Operators on integers, exactly: bounds, means and powers that no float holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import autotune
from tests.graph.graph_models import Array, build, check

ENDS = {np.int64: (-(2**63), 2**63 - 1), np.uint64: (0, 2**64 - 1), np.int32: (-(2**31), 2**31 - 1)}


def compiled(model: Any, feeds: dict[str, Array]) -> Array:
    (found,) = autotune.InferenceSession(model.SerializeToString(), target="native -num-cores=1").run(None, feeds)
    return found


@pytest.mark.parametrize("dtype", list(ENDS))
@pytest.mark.parametrize("bounds", [(None, None), (3, None), (None, 3), (3, 5)])
def test_clip_with_open_sides(dtype: Any, bounds: tuple[int | None, int | None]) -> None:
    feeds = {"x": np.asarray([*ENDS[dtype], 0, 4, 2**30 + 1], dtype)}
    tensors = {name: np.asarray(n, dtype) for name, n in zip("lh", bounds, strict=True) if n is not None}
    node = helper.make_node("Clip", ["x", *(name if name in tensors else "" for name in "lh")], ["y"])
    model = build(node, feeds, tensors)
    low, high = (end if n is None else n for n, end in zip(bounds, ENDS[dtype], strict=True))
    expected = np.asarray([min(max(int(n), low), high) for n in feeds["x"]], dtype)
    check(model, feeds, [expected])
    np.testing.assert_array_equal(compiled(model, feeds), expected)


def test_clip_at_the_ends_of_the_range() -> None:
    for low, high in ((-(2**63), 2**63 - 1), (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)):
        feeds, bounds = {"x": np.asarray([-(2**63), -1, 2**63 - 1])}, {"l": np.asarray(low), "h": np.asarray(high)}
        check(build(helper.make_node("Clip", ["x", "l", "h"], ["y"]), feeds, bounds), feeds)


@pytest.mark.parametrize(
    ("dtype", "rows"),
    [(np.int64, [[2**60 + 1, 2**60 + 3, 5], [-(2**60) - 7, 2, 2], [2**53 + 1, 2**53 + 1, 2**53 + 1]]),
     (np.uint64, [[2**62 + 1, 2**62 + 3, 5], [7, 8, 9]]), (np.int32, [[2**31 - 1] * 3, [-(2**31), -(2**31), 7]]),
     (np.uint32, [[2**32 - 1] * 3, [0, 0, 2]])],
)  # fmt: skip
def test_means_are_exact_and_truncated(dtype: Any, rows: list[list[int]]) -> None:
    feeds = {"x": np.asarray(rows, dtype)}
    model = build(helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0), feeds)
    exact = [sum(row) // 3 if sum(row) >= 0 else -(-sum(row) // 3) for row in rows]
    check(model, feeds, [np.asarray(exact, dtype)])
    np.testing.assert_array_equal(compiled(model, feeds), exact)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("power", [0.5, 1.5, -0.5, 2.0, 3.0, -1.0, 100.0, np.nan])
def test_powers_with_real_exponents(dtype: Any, power: float) -> None:
    feeds = {"x": np.asarray([-9, -2, -1, 0, 1, 2, 16], dtype), "p": np.asarray(power, np.float32)}
    model = build(helper.make_node("Pow", ["x", "p"], ["y"]), feeds)
    with np.errstate(all="ignore"):
        check(model, feeds)
        expected = np.power(feeds["x"], feeds["p"]).astype(dtype)
    np.testing.assert_array_equal(compiled(model, feeds), expected)
