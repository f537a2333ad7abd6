"""Convolution against onnx.reference, and its checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def, parse_workload
from autotune.tensor import DType

Call = Callable[..., Any]
ATTRS: dict[str, Any] = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes and attributes that fit together; small, with extents 1 and primes among them."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    per_group, per_filter = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pad = draw(st.tuples(*[st.integers(0, 3)] * 4))
    smallest = [(k - 1) * d + 1 - pad[i] - pad[i + 2] for i, (k, d) in enumerate(zip(kernel, dilation, strict=True))]
    image = [draw(st.integers(max(s, 1), max(s, 1) + 6)) for s in smallest]
    return {
        "x": (draw(st.integers(1, 2)), groups * per_group, *image),
        "w": (groups * per_filter, per_group, *kernel),
        "attrs": {"stride": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), "pad": pad, "dilation": dilation,
                  "groups": groups},
        "seed": draw(st.integers(0, 99)),
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(case=convolutions())
def test_conv2d_is_onnx_conv(case: dict[str, Any], run: Call, reference: Call, same: Call) -> None:
    rng = np.random.default_rng(case["seed"])
    x, w = rng.standard_normal(case["x"]), rng.standard_normal(case["w"])
    a = case["attrs"]
    theirs = reference("Conv", [x, w], strides=a["stride"], pads=a["pad"], dilations=a["dilation"], group=a["groups"])
    same(run("conv2d", [x, w], **a), theirs)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize(("dtype", "border"), [(np.uint8, 255), (np.uint8, 7), (np.int8, -128)])
def test_a_border_of_another_value(dtype: Any, border: int, groups: int, run: Call) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, (1, 4, 5, 6)).astype(dtype)
    w = rng.integers(-128, 128, (8, 4 // groups, 3, 2)).astype(np.int8)
    ours = run("conv2d", [x, w], **{**ATTRS, "pad": (1, 0, 2, 1), "groups": groups}, pad_value=border)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1)), constant_values=border)
    np.testing.assert_array_equal(ours, run("conv2d", [padded, w], **{**ATTRS, "groups": groups}))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("conv2d data=1,4,5,5 weight=4,4,3,3 pad=1 pad_value=3", "pad_value=3 is for 8-bit integers, the data is f32"),
        ("conv2d data=1,4,5,5:u8 weight=4,4,3,3:i8 pad=1 pad_value=-1", "-1 is no u8, which go from 0 to 255"),
        ("conv2d data=1,4,5,5:u8 weight=4,4,3,3:i8 pad=1 pad_value=1,1", "pad_value=1,1 must be one integer"),
    ],
)
def test_borders_that_are_refused(line: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_workload(line)


def test_a_border_of_zeros_has_one_key() -> None:
    line = "conv2d data=1,4,5,5:u8 weight=4,4,3,3:i8 pad=1"
    workload = parse_workload(line)
    assert workload == parse_workload(f"{line} pad_value=0")
    assert "pad_value" not in workload.to_json()
    assert parse_workload(f"{line} pad_value=3").describe() == f"{line} pad_value=3"
    node = replace(workload.nodes[0], attrs=(*workload.nodes[0].attrs, ("pad_value", 0)))
    with pytest.raises(WorkloadError, match="pad_value=0 goes without saying; leave it out"):
        replace(workload, nodes=(node,)).types()


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8])
def test_every_dtype(dtype: Any, groups: int, run: Call, reference: Call, same: Call) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-5, 6, s).astype(dtype) for s in ((1, 8, 6, 6), (16, 8 // groups, 3, 3)))
    ours = run("conv2d", [x, w], **{**ATTRS, "pad": (1, 1, 1, 1), "groups": groups})
    wide = [a.astype(np.float64) for a in (x, w)]
    theirs = reference("Conv", wide, pads=(1, 1, 1, 1), group=groups)
    same(ours, theirs.astype(np.int32 if dtype is np.int8 else dtype), 0)


def test_float64_reference_of_a_float32_workload_is_float64(run: Call, reference: Call, same: Call) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 16, 9, 9), (8, 16, 3, 3)))
    theirs = reference("Conv", [x.astype(np.float64), w.astype(np.float64)], pads=(1, 1, 1, 1))
    same(run("conv2d", [x, w], DType.f64, **{**ATTRS, "pad": (1, 1, 1, 1)}), theirs)


def test_padding_is_a_predicate_only_where_there_is_padding() -> None:
    def text(**attrs: Any) -> str:
        types = TensorType("f32", (1, 8, 8, 8)), TensorType("f32", (8, 8, 3, 3))
        node = WorkloadNode.make("conv2d", (0, 1), **{**ATTRS, **attrs})
        return str(compute_def(Workload(tuple(map(WorkloadInput, types)), (node,), (2,))))

    assert ">=" not in text()
    assert "<" not in text(pad=(1, 0, 0, 0)).split(" if ")[1]
    assert ">=" not in text(pad=(0, 0, 1, 1)).split(" if ")[1]


@pytest.mark.parametrize(
    ("x", "w", "attrs", "message"),
    [
        ((1, 8, 8), (8, 8, 3, 3), {}, "needs 4 dimensions"),
        ((1, 8, 8, 8), (8, 4, 3, 3), {}, "data has 8 channels"),
        ((1, 8, 8, 8), (8, 8, 3, 3), {"pad": (-1, 0, 0, 0)}, "pad=-1,0,0,0 must be at least 0"),
        ((1, 8, 8, 8), (8, 8, 3, 3), {"pad": (1, 1)}, "must be 4 integers"),
        ((1, 8, 8, 8), (8, 8, 3, 3), {"stride": (0, 1)}, "stride=0,1 must be at least 1"),
        ((1, 8, 8, 8), (8, 8, 3, 3), {"groups": 3}, "groups=3 does not divide"),
        ((1, 8, 8, 8), (8, 8, 9, 3), {}, "window of 9 does not fit into the padded height 8"),
        ((1, 8, 8, 8), (8, 8, 0, 3), {}, "empty"),
        ((1, 8, 8, 8), (8, 8, 3, 3), {"groups": "two"}, "groups=two must be an integer"),
        ((1, 8, -8, 8), (8, 8, 3, 3), {}, "impossible extent -8"),
        ((1, 8, 2**30, 2**30), (8, 8, 3, 3), {}, "elements, more than"),
    ],
)
def test_impossible_convolutions_are_refused(x: Any, w: Any, attrs: Any, message: str) -> None:
    types = TensorType("f32", x), TensorType("f32", w)
    node = WorkloadNode.make("conv2d", (0, 1), **{**ATTRS, **attrs})
    with pytest.raises(WorkloadError, match=message) as caught:
        compute_def(Workload(tuple(map(WorkloadInput, types)), (node,), (2,)))
    assert "\n" not in str(caught.value)


def test_an_empty_image_has_as_many_windows_as_fit_into_its_borders() -> None:
    def shape(x: tuple[int, ...], w: tuple[int, ...], pad: tuple[int, ...]) -> tuple[int, ...]:
        inputs = tuple(WorkloadInput(TensorType("f32", s)) for s in (x, w))
        node = WorkloadNode.make("conv2d", (0, 1), **{**ATTRS, "pad": pad})
        return Workload(inputs, (node,), (2,)).types()[2].shape

    assert shape((1, 3, 5, 0), (4, 3, 1, 1), (0, 0, 0, 0)) == (1, 4, 5, 0)
    assert shape((1, 3, 5, 0), (4, 3, 3, 3), (1, 1, 1, 1)) == (1, 4, 5, 0)
    assert shape((1, 3, 5, 0), (4, 3, 3, 3), (1, 1, 1, 2)) == (1, 4, 5, 1)
