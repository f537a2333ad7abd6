"""Transposed convolution against ONNX Runtime, and its checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from autotune.errors import WorkloadError
from autotune.ops.conv_transpose import ConvTranspose

Call = Callable[..., Any]


def runtime(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], **attrs: Any) -> np.ndarray[Any, Any]:
    """ONNX Runtime: the reference evaluator is wrong for groups of several outputs."""
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in (("x", x), ("w", w))]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attrs)], "g", types, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x, "w": w})[0])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rank=st.sampled_from([1, 2, 3]), groups=st.sampled_from([1, 1, 2, 3]))
def test_conv_transpose_is_onnx_conv_transpose(data: st.DataObject, rank: int, groups: int, run: Call) -> None:
    def each(low: int, high: int, count: int = rank) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    image, window, stride, dilation = each(1, 4), each(1, 4), each(1, 4), each(1, 3)
    pad, extra = each(0, 2, 2 * rank), tuple(data.draw(st.integers(0, s - 1)) for s in stride)
    whole = [(i - 1) * s + (k - 1) * d + 1 + e for i, k, s, d, e in zip(image, window, stride, dilation, extra)]
    assume(all(total > pad[d] + pad[d + rank] for d, total in enumerate(whole)))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, groups * 2, *image)).astype(np.float32)
    w = rng.standard_normal((groups * 2, 3, *window)).astype(np.float32)
    theirs = runtime(
        x, w, strides=stride, pads=pad, dilations=dilation, output_padding=extra, group=groups, kernel_shape=window
    )
    attrs = {"stride": stride, "pad": pad, "dilation": dilation, "output_padding": extra, "groups": groups}
    ours = run(f"conv_transpose{rank}d", [x, w], **attrs)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_a_stride_costs_no_products_with_zeros() -> None:
    """4x4 of stride 2: each of the four phases sees 2x2 taps."""
    attrs = {"stride": (2, 2), "pad": (1,) * 4, "dilation": (1, 1), "output_padding": (0, 0), "groups": 1}
    size = ConvTranspose.of("conv_transpose2d", (1, 8, 5, 7), (8, 4, 4, 4), attrs)
    assert size.out == (10, 14)
    assert [(side.taps, side.positions) for side in size.sides] == [(2, 5), (2, 7)]


@pytest.mark.parametrize(
    ("x", "w", "attrs", "message"),
    [
        ((1, 8, 4, 4), (4, 8, 2, 2), {}, "data has 8 channels"),
        ((1, 8, 4, 4), (8, 8, 2, 2), {"groups": 3}, "groups=3 does not divide"),
        ((1, 8, 4, 4), (8, 8, 2, 2), {"pad": (4, 0, 4, 0)}, "leave nothing of the height 5"),
        ((1, 8, 4, 4), (8, 8, 0, 2), {}, "empty"),
        ((1, 8, 4, 4), (8, 8, 2, 2), {"stride": (0, 1)}, "stride=0,1 must be at least 1"),
    ],
)
def test_impossible_ones_are_refused(x: Any, w: Any, attrs: Any, message: str) -> None:
    usual = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1), "output_padding": (0, 0), "groups": 1}
    with pytest.raises(WorkloadError, match=message):
        ConvTranspose.of("conv_transpose2d", x, w, {**usual, **attrs})
