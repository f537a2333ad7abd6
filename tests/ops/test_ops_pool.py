"""Pooling and normalisation against onnx.reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError

Call = Callable[..., Any]
PLAIN: dict[str, Any] = {
    "kernel": (3, 3), "stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "ceil_mode": False,
}  # fmt: skip


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    return {
        "kernel": kernel,
        "stride": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "pad": tuple(draw(st.integers(0, k - 1)) for k in kernel * 2),
        "dilation": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        "ceil_mode": draw(st.booleans()),
    }


def naive(x: Any, attrs: dict[str, Any], fold: Callable[[Any, int], Any], shape: tuple[int, int]) -> Any:
    """Pooling spelled out: `fold(elements inside the image, taps inside the padded image)` of every window."""
    out = np.zeros((*x.shape[:2], *shape))
    (kh, kw), (sh, sw), (top, left, bottom, right) = attrs["kernel"], attrs["stride"], attrs["pad"]
    for oh, ow in np.ndindex(*shape):
        rows = [oh * sh - top + r * attrs["dilation"][0] for r in range(kh)]
        columns = [ow * sw - left + s * attrs["dilation"][1] for s in range(kw)]
        padded = len([r for r in rows if r < x.shape[2] + bottom]) * len([c for c in columns if c < x.shape[3] + right])
        kept = np.ix_([r for r in rows if 0 <= r < x.shape[2]], [c for c in columns if 0 <= c < x.shape[3]])
        for n, c in np.ndindex(*x.shape[:2]):
            out[n, c, oh, ow] = fold(x[n, c][kept], padded)
    return out


def onnx_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    return {"kernel_shape": attrs["kernel"], "strides": attrs["stride"], "pads": attrs["pad"],
            "dilations": attrs["dilation"], "ceil_mode": int(attrs["ceil_mode"])}  # fmt: skip


def inferred(op: str, x: Any, attrs: dict[str, Any]) -> tuple[int, ...]:
    """The output shape by ONNX's own shape inference."""
    h = onnx.helper
    value = h.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, x.shape)
    node = h.make_node(op, ["x"], ["y"], **onnx_attrs(attrs))
    graph = h.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
    model = onnx.shape_inference.infer_shapes(h.make_model(graph, opset_imports=[h.make_opsetid("", 22)]))
    return tuple(d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim)


@settings(max_examples=60, deadline=None)
@given(attrs=pools(), image=st.tuples(st.integers(1, 9), st.integers(1, 9)), include=st.booleans())
def test_pooling(attrs: dict[str, Any], image: tuple[int, int], include: bool, run: Call, same: Call) -> None:
    windows = [(k - 1) * d + 1 for k, d in zip(attrs["kernel"], attrs["dilation"], strict=True)]
    padded = [n + before + after for n, before, after in zip(image, attrs["pad"][:2], attrs["pad"][2:], strict=True)]
    assume(windows[0] <= padded[0] and windows[1] <= padded[1])
    x = np.random.default_rng(0).standard_normal((2, 3, *image))
    largest = run("max_pool2d", [x], **attrs)
    assert largest.shape == inferred("MaxPool", x, attrs)
    same(largest, naive(x, attrs, lambda v, _: v.max(initial=-np.inf), largest.shape[2:]))
    mean = run("avg_pool2d", [x], count_include_pad=include, **attrs)
    with np.errstate(all="ignore"):
        theirs = naive(x, attrs, lambda v, padded: v.sum() / (padded if include else v.size), largest.shape[2:])
    same(mean, theirs)


@pytest.mark.parametrize(("stride", "pad"), [((1, 1), (0, 0, 0, 0)), ((2, 2), (1, 1, 1, 1)), ((2, 1), (0, 1, 0, 1))])
@pytest.mark.parametrize("include", [False, True])
def test_pooling_is_onnx_pooling(stride: Any, pad: Any, include: bool, run: Call, reference: Call, same: Call) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 8))
    attrs = {**PLAIN, "stride": stride, "pad": pad}
    same(run("max_pool2d", [x], **attrs), reference("MaxPool", [x], **onnx_attrs(attrs)))
    theirs = reference("AveragePool", [x], count_include_pad=int(include), **onnx_attrs(attrs))
    same(run("avg_pool2d", [x], count_include_pad=include, **attrs), theirs)


def test_max_pooling_of_integers_and_nan(run: Call, same: Call) -> None:
    x = np.arange(-16, 0, dtype=np.int8).reshape(1, 1, 4, 4)
    attrs = {**PLAIN, "pad": (1, 1, 1, 1), "stride": (3, 3)}
    same(run("max_pool2d", [x], **attrs), np.array([[[[-11, -9], [-3, -1]]]], np.int8))
    y = np.zeros((1, 1, 4, 4))
    y[0, 0, 3, 3] = np.nan
    assert np.isnan(run("max_pool2d", [y], **attrs)).sum() == 1


@pytest.mark.parametrize("size", [1, 3, 4, 5])
@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.6])
def test_lrn(size: int, beta: float, run: Call, reference: Call, same: Call) -> None:
    x = np.random.default_rng(0).standard_normal((7, 7, 3, 4))  # the reference takes the batch for the channels
    attrs = {"size": size, "alpha": 0.25, "beta": beta, "bias": 2.0}
    same(run("lrn", [x], **attrs), reference("LRN", [x], **attrs), 1e-6)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layer_norm(axis: int, dtype: Any, run: Call, reference: Call, same: Call) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 5, 7)).astype(dtype)
    scale, bias = (rng.standard_normal(x.shape[axis:]).astype(dtype) for _ in range(2))
    theirs = reference("LayerNormalization", [x, scale, bias], axis=axis, epsilon=1e-3)
    same(run("layer_norm", [x, scale, bias], axis=axis, epsilon=1e-3), theirs, 1e-5)


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("max_pool2d", {"pad": (3, 0, 0, 0)}, "pad 3 of the height must be smaller than the kernel 3"),
        ("max_pool2d", {"kernel": (9, 3)}, "window of 9 does not fit"),
        ("max_pool2d", {"kernel": (0, 3)}, "kernel=0,3 must be at least 1"),
        ("max_pool2d", {"ceil_mode": 2}, "must be true or false"),
    ],
)
def test_impossible_windows_are_refused(op: str, attrs: Any, message: str, run: Call) -> None:
    with pytest.raises(WorkloadError, match=message):
        run(op, [np.ones((1, 1, 8, 8))], **{**PLAIN, **attrs})
