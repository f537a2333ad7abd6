"""Definitions as values: construction, refusal, JSON, names, layouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.tensor import (
    ComputeDef,
    DType,
    Layout,
    arg_reducer,
    compute,
    compute_many,
    const,
    placeholder,
    read,
    reduce,
    reduce_axis,
    scan,
    sum_,
    table,
    unary,
)
from autotune.tensor.dtype import DType as SameDType

x = placeholder((4, 6), "f32", "x")
weight = placeholder((6, 3), "f32", "w", constant=True)


def test_operator_expressions_refuse_mixed_dtypes_and_truth() -> None:
    with pytest.raises(WorkloadError, match="mixes f32 and i32"):
        compute((4,), lambda i: x[i, 0] + const(1, "i32"))
    with pytest.raises(WorkloadError, match="only known at run time"):
        compute((4,), lambda i: x[i, 0] if x[i, 0] > 0 else x[i, 1])
    with pytest.raises(WorkloadError, match="unknown function 'sinc'"):
        unary("sinc", x[0, 0])
    with pytest.raises(WorkloadError, match="read with 1 indices"):
        x[0]
    with pytest.raises(WorkloadError, match="cast it to i64"):
        x[x[0, 0], 0]


def test_stages_refuse_wrong_axes() -> None:
    with pytest.raises(WorkloadError, match="needs a function of 2 indices"):
        compute((4, 6), lambda i: x[i, 0])
    k = reduce_axis(6, "i")
    with pytest.raises(WorkloadError, match="same name"):
        compute((4,), lambda i: sum_(x[i, k], k))
    with pytest.raises(WorkloadError, match="impossible extent -1"):
        placeholder((-1,))
    with pytest.raises(WorkloadError, match="2 values"):
        compute_many((4,), lambda i: (x[i, 0], x[i, 1]), ("only",))


def test_definitions_refuse_unknown_inputs_and_shared_names() -> None:
    y = compute((4,), lambda i: x[i, 0], "y")
    with pytest.raises(WorkloadError, match="neither computed nor an input"):
        ComputeDef.build([], [y])
    with pytest.raises(WorkloadError, match="two inputs are named x"):
        ComputeDef.build([x, x], [y])
    with pytest.raises(WorkloadError, match="is an input"):
        ComputeDef.build([x], [x])
    with pytest.raises(WorkloadError, match="output twice"):
        ComputeDef.build([x], [y, y])
    with pytest.raises(WorkloadError, match="named x"):
        ComputeDef.build([x], [y], ["x"])


def definitions() -> dict[str, ComputeDef]:
    k, r = reduce_axis(6, "k"), reduce_axis(6, "r")
    product = compute((4, 3), lambda i, j: sum_(x[i, k] * weight[k, j], k), "product")
    shifted = compute((4, 8), lambda i, j: read(x, (i, j - 1), when=(j >= 1) & (j < 7), otherwise=-math.inf), "shifted")
    last = arg_reducer("argmin", DType.f32, last=True)
    positions = compute_many((4,), lambda i: reduce(last, (x[i, r], r.var), r), ("smallest", "where"))
    running = scan((4, 6), 1, lambda before, i, j: before + x[i, j], name="running")
    m = table("M", ((0.5, 0.25), (math.inf, -1 / 3)))
    scaled = compute((2, 2), lambda i, j: m(i, j) * x[i * 2, (j + 1) // 2], "scaled")
    return {
        "product": ComputeDef.build([x, weight], [product]),
        "shifted": ComputeDef.build([x], [shifted]),
        "arg": ComputeDef.build([x], list(positions)),
        "scan": ComputeDef.build([x], [running]),
        "table": ComputeDef.build([x], [scaled]),
    }


@pytest.mark.parametrize("name", ["product", "shifted", "arg", "scan", "table"])
def test_json_round_trip(name: str) -> None:
    definition = definitions()[name]
    again = ComputeDef.from_json(definition.to_json())
    assert again == definition
    assert again.to_json() == definition.to_json()
    assert again.key == definition.key
    assert str(again) == str(definition)


def test_keys_differ() -> None:
    assert len({d.key for d in definitions().values()}) == 5


def test_a_definition_prints() -> None:
    assert str(definitions()["product"]) == (
        "x: f32[4, 6]\nw: f32[6, 3] constant\nproduct[i<4, j<3] = sum[k<6] (x[i, k] * w[k, j])"
    )


def test_a_long_chain_of_stages_does_not_recurse() -> None:
    t = compute((4,), lambda i: x[i, 0], "t")
    for _ in range(3000):
        t = compute((4,), lambda i, t=t: t[i] + 1.0, "t")
    definition = ComputeDef.build([x], [t])
    assert len(definition.stages) == 3001
    assert len({s.name for s in definition.stages}) == 3001


def test_dtypes() -> None:
    assert SameDType("bf16") is DType.bf16
    for dtype in DType:
        assert DType.of(dtype.numpy) is dtype
        assert dtype.bits == 8 * dtype.bytes
    assert [d.value for d in DType if d.is_float] == ["f64", "f32", "f16", "bf16"]
    assert DType.i8.is_signed
    assert not DType.u8.is_signed
    assert not DType.bool.is_int


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...]]:
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 5, 7, 16])) for _ in range(rank))
    blocked = draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=2))
    blocks = [(d, draw(st.sampled_from([2, 3, 4, 16]))) for d in blocked]
    order = draw(st.permutations(range(rank)))
    halo = [(0, 0) if d in blocked else draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for d in range(rank)]
    return Layout.blocked(rank, blocks, order).with_halo(halo), shape


@settings(max_examples=150, deadline=None)
@given(case=layouts())
def test_layouts_pack_and_unpack(case: tuple[Layout, tuple[int, ...]]) -> None:
    layout, shape = case
    array: Any = np.arange(1, math.prod(shape) + 1).reshape(shape)
    packed = layout.pack(array)
    assert packed.shape == layout.physical_shape(shape)
    assert packed.size == layout.elements(shape)
    assert packed.flags.c_contiguous
    np.testing.assert_array_equal(layout.unpack(packed, shape), array)
    assert np.sort(packed[packed != 0]).tolist() == list(range(1, array.size + 1))  # all of it, and zeros around
    assert Layout.from_json(layout.to_json()) == layout
    strides = layout.strides(shape)
    assert tuple(s * packed.itemsize for s in strides) == packed.strides or packed.size == 1 or 1 in packed.shape


def test_nchw16c_is_where_it_should_be() -> None:
    layout = Layout.blocked(4, [(1, 16)]).with_halo([(0, 0), (0, 0), (1, 1), (1, 2)])
    array = np.arange(1, 20 * 5 * 6 + 1).reshape(1, 20, 5, 6)
    packed = layout.pack(array)
    assert packed.shape == (1, 2, 7, 9, 16)
    assert packed[0, 1, 2 + 1, 3 + 1, 2] == array[0, 18, 2, 3]
    assert packed[0, 1, :, :, 4:].sum() == 0
    assert packed[0, 0, 0].sum() == 0
    assert str(layout) == "NCHW16c halo H1+1 W1+2"


def test_a_halo_of_something_else_than_zero() -> None:
    layout = Layout.blocked(4, [(1, 4)]).with_halo([(0, 0), (0, 0), (1, 0), (0, 2)], 7)
    packed = layout.pack(np.ones((1, 6, 3, 2), np.uint8))
    assert (packed[:, :, 0] == 7).all() and (packed[:, :, :, 2:] == 7).all()
    assert (packed[0, 1, 1:, :2, 2:] == 0).all(), "what fills up blocks is zero"
    assert str(layout) == "NCHW4c halo H1+0 W0+2 of 7"
    assert Layout.from_json(layout.to_json()) == layout != layout.with_halo(layout.halo)
    assert layout.with_halo([(0, 0)] * 4, 7) == Layout.blocked(4, [(1, 4)])


def test_blocked_dimensions_have_no_halo() -> None:
    with pytest.raises(WorkloadError, match="cannot have the halo"):
        Layout.blocked(2, [(1, 8)]).with_halo([(0, 0), (1, 1)])
