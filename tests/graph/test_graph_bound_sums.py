"""Convolutions of bytes know how large their sums are."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph import Graph, Output, Value
from autotune.graph.builder import GraphBuilder
from autotune.graph.passes import PASSES
from autotune.graph.passes.bound_sums import needed
from autotune.ops.workload import AttrValue
from autotune.tensor.dtype import DType

PLAIN: dict[str, AttrValue] = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def graph(
    weight: np.ndarray[tuple[int, ...], np.dtype[np.int8]] | None, channels: int = 256, **attrs: AttrValue
) -> Graph:
    net = GraphBuilder("net")
    x = net.input(Value("x", "u8", (1, channels, 14, 14)))
    w = net.input(Value("w", "i8", (32, channels, 3, 3))) if weight is None else net.constant(weight)
    return net.build([Output("y", net.emit("conv2d", (x, w), "conv", "", **(PLAIN | attrs)))])


def filters(channels: int, value: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    return np.full((32, channels, 3, 3), value, np.int8)


@pytest.mark.parametrize("value, bits", [(1, 26), (57, 26), (58, 28), (-57, 26), (-58, 28), (127, 28)])
def test_the_largest_sum_decides(value: int, bits: int) -> None:
    """256 channels of 3 x 3 taps: 57 · 255 · 2304 needs 25 bits and a sign, 58 times as much 26."""
    (node,) = PASSES["bound-sums"](graph(filters(256, value))).nodes
    assert dict(node.attrs)["sum_bits"] == bits


def test_positive_and_negative_weights_do_not_add_up_where_data_has_no_sign() -> None:
    mixed = filters(256, 57)
    mixed[:, ::2] = -128
    assert needed(mixed, DType.u8) == 27  # 128 · 255 · 1152
    assert needed(mixed, DType.i8) == 26  # 128 · (57 + 128) · 1152
    assert needed(filters(256, -57), DType.u8) == needed(filters(256, 57), DType.u8) == 26


@pytest.mark.parametrize(
    "channels, attrs",
    [(64, {}), (256, {"stride": (2, 2)}), (256, {"dilation": (2, 2)}), (256, {"sum_bits": 28})],
)
def test_others_stay(channels: int, attrs: dict[str, AttrValue]) -> None:
    """Sums that are small enough by their shape, what exact filtering does not compute, and what is known already."""
    given = graph(filters(channels, 1), channels, **attrs)
    assert PASSES["bound-sums"](given) is given


def test_weights_of_the_run_say_nothing() -> None:
    given = graph(None)
    assert PASSES["bound-sums"](given) is given
