"""Convolution of pixels along one axis is the same convolution, of bytes with any border, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.ops import compute_def, conv_pixels, parse_workload
from autotune.tensor import DType

Call = Callable[..., Any]

SIZES = st.integers(1, 3)
KINDS = st.sampled_from([("f64", "f64"), ("u8", "i8"), ("i8", "i8"), ("u8", "u8")])


@settings(max_examples=80, deadline=None)
@given(
    rank=st.integers(2, 3), window=st.tuples(SIZES, SIZES, SIZES), alone=st.booleans(), kinds=KINDS,
    pad=st.tuples(*[st.integers(0, 2)] * 6), steps=st.tuples(SIZES, SIZES, SIZES), border=st.sampled_from([0, 131]),
)  # fmt: skip
def test_sums_of_the_copy_are_those_of_the_definition(
    rank: int, window: tuple[int, ...], alone: bool, kinds: tuple[str, str], pad: tuple[int, ...],
    steps: tuple[int, ...], border: int, run: Call, same: Call,
) -> None:  # fmt: skip
    rng, taps = np.random.default_rng(0), (1,) * rank if alone else window[:rank]
    arrays = []
    for kind, shape in zip(kinds, ((2, 3, 8, 7, 9)[: rank + 2], (4, 3, *taps)), strict=True):
        drawn = rng.standard_normal(shape) if kind == "f64" else rng.integers(0, 256, shape)
        arrays.append(drawn.astype(DType(kind).numpy))
    one = (1,) * rank
    attrs: dict[str, Any] = {"pad": pad[: 2 * rank], "groups": 1, "stride": one, "dilation": one}
    attrs["stride" if alone else "dilation"] = steps[:rank]
    if kinds[0] == "u8" and border:
        attrs["pad_value"] = border
    op = f"conv{rank}d"
    same(run(op, arrays, algorithm=conv_pixels.NAME, **attrs), run(op, arrays, **attrs), 1e-12)


def test_windows_that_begin_between_rows_are_few() -> None:
    definition = compute_def(parse_workload("conv2d data=1,64,7,7 weight=32,64,3,3 pad=1"), conv_pixels.NAME)
    assert definition.stage(conv_pixels.PIXELS).outputs[0].shape == (1, 81, 64)
    assert definition.stage(conv_pixels.SUMS).outputs[0].shape == (1, 32, 61)
    lone = compute_def(parse_workload("conv2d data=1,64,14,14 weight=32,64,1,1 stride=2"), conv_pixels.NAME)
    assert lone.stage(conv_pixels.PIXELS).outputs[0].shape == (1, 49, 64)
    assert lone.stage(conv_pixels.SUMS).outputs[0].shape == (1, 32, 49)


@pytest.mark.parametrize("rest", ["weight=12,1,3,3 groups=3", "weight=16,3,3,3 stride=2"])
def test_windows_that_lie_unequally_far_apart_are_refused(rest: str) -> None:
    with pytest.raises(WorkloadError, match="conv2d: pixels needs an image"):
        compute_def(parse_workload(f"conv2d data=1,3,9,9 {rest}"), conv_pixels.NAME)
    with pytest.raises(WorkloadError, match="conv1d: pixels needs an image"):
        compute_def(parse_workload("conv1d data=1,3,9 weight=8,3,3"), conv_pixels.NAME)
