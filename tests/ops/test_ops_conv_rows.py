"""Convolution along rows is the same convolution, of bytes and of pairs of 16 bits, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.ops import compute_def, conv_rows, parse_workload
from autotune.tensor import DType

Call = Callable[..., Any]

SIZES = st.integers(1, 3)
KINDS = st.sampled_from([("f64", "f64"), ("u8", "i8"), ("i8", "i8"), ("u8", "u8")])


@settings(max_examples=80, deadline=None)
@given(
    channels=st.integers(1, conv_rows.FEW), window=st.tuples(SIZES, st.integers(2, 5)), kinds=KINDS,
    pad=st.tuples(*[st.integers(0, 3)] * 4), stride=st.tuples(SIZES, SIZES), down=st.integers(1, 2),
    border=st.sampled_from([0, 131]),
)  # fmt: skip
def test_sums_along_rows_are_those_of_the_definition(
    channels: int, window: tuple[int, int], kinds: tuple[str, str], pad: tuple[int, ...], stride: tuple[int, int],
    down: int, border: int, run: Call, same: Call,
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    arrays = []
    for kind, shape in zip(kinds, ((2, channels, 7, 6), (conv_rows.FEW + 1, channels, *window)), strict=True):
        drawn = rng.standard_normal(shape) if kind == "f64" else rng.integers(0, 256, shape)
        arrays.append(drawn.astype(DType(kind).numpy))
    attrs: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": (down, 1), "groups": 1}
    if kinds[0] == "u8" and border:
        attrs["pad_value"] = border
    same(run("conv2d", arrays, algorithm=conv_rows.NAME, **attrs), run("conv2d", arrays, **attrs), 1e-12)


def test_a_row_and_a_window_of_it_are_neighbours() -> None:
    first = "conv2d data=1,3,224,224:u8 weight=64,3,7,7:i8 stride=2 pad=3"
    definition = compute_def(parse_workload(first), conv_rows.NAME)
    assert definition.stage(conv_rows.ROWS).outputs[0].shape == (1, 229, 111 * 8 + 28)
    assert definition.stage(conv_rows.WEIGHT).outputs[0].shape == (64, 7, 28)
    assert [a.extent for a in definition.stage("out0").reduce_axes] == [7, 28]


def test_halves_that_are_widened_lie_in_rows_as_halves() -> None:
    wide = "conv2d data=1,3,9,9:bf16 weight=16,3,3,3:bf16"
    rows = compute_def(parse_workload(wide), conv_rows.NAME).stage(conv_rows.ROWS).outputs[0]
    assert (rows.dtype, rows.shape[-1]) == (DType.bf16, 6 * 4 + 12)
    odd = compute_def(parse_workload("conv2d data=1,1,9,9:bf16 weight=16,1,3,3:bf16"), conv_rows.NAME)
    assert odd.stage("conv").reduce_axes[-1].extent == 6, "a channel of zeros makes three pixels whole pairs"


@pytest.mark.parametrize(
    "rest", ["weight=12,1,3,3 groups=3", "weight=16,3,3,3 dilation=1,2", "weight=16,3,3,1", "weight=8,3,3,3"]
)
def test_windows_that_are_no_neighbours_are_refused(rest: str) -> None:
    with pytest.raises(WorkloadError, match="conv2d in rows: not of few channels"):
        compute_def(parse_workload(f"conv2d data=1,3,9,9 {rest}"), conv_rows.NAME)
