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
def pools(draw: st.DrawFn, rank: int) -> dict[str, Any]:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    kernel = each(1, 4 if rank < 3 else 2)
    return {
        "kernel": kernel,
        "stride": each(1, 3),
        "pad": tuple(draw(st.integers(0, k - 1)) for k in kernel * 2),
        "dilation": each(1, 2),
        "ceil_mode": draw(st.booleans()),
    }


def naive(x: Any, attrs: dict[str, Any], fold: Callable[..., Any], shape: tuple[int, ...]) -> Any:
    """Pooling spelled out: `fold(elements inside the image, taps inside the padded image, their flat places)`."""
    rank = len(shape)
    out = np.zeros((*x.shape[:2], *shape))
    image = np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:])
    for o in np.ndindex(*shape):
        padded, kept = 1, []
        for d in range(rank):
            taps = range(attrs["kernel"][d])
            places = [o[d] * attrs["stride"][d] - attrs["pad"][d] + t * attrs["dilation"][d] for t in taps]
            padded *= len([p for p in places if p < x.shape[d + 2] + attrs["pad"][d + rank]])
            kept.append([p for p in places if 0 <= p < x.shape[d + 2]])
        for n, c in np.ndindex(*x.shape[:2]):
            out[(n, c, *o)] = fold(x[n, c][np.ix_(*kept)], padded, image[np.ix_(*kept)])
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


@settings(max_examples=80, deadline=None)
@given(data=st.data(), rank=st.sampled_from([1, 2, 2, 3]), include=st.booleans())
def test_pooling(data: st.DataObject, rank: int, include: bool, run: Call, same: Call) -> None:
    attrs = data.draw(pools(rank))
    image = tuple(data.draw(st.lists(st.integers(1, 9 if rank < 3 else 5), min_size=rank, max_size=rank)))
    for d in range(rank):
        padded = image[d] + attrs["pad"][d] + attrs["pad"][d + rank]
        assume((attrs["kernel"][d] - 1) * attrs["dilation"][d] + 1 <= padded)
    x = np.random.default_rng(0).standard_normal((2, 3, *image))
    largest = run("max_pool", [x], **attrs)
    assert largest.shape == inferred("MaxPool", x, attrs)
    same(largest, naive(x, attrs, lambda v, *_: v.max(initial=-np.inf), largest.shape[2:]))
    mean = run("avg_pool", [x], count_include_pad=include, **attrs)
    with np.errstate(all="ignore"):
        theirs = naive(x, attrs, lambda v, padded, _: v.sum() / (padded if include else v.size), largest.shape[2:])
    same(mean, theirs)
    p = data.draw(st.sampled_from([1.0, 2.0, 3.0]))
    norms = naive(x, attrs, lambda v, *_: (np.abs(v) ** p).sum() ** (1 / p), largest.shape[2:])
    same(run("lp_pool", [x], p=p, **attrs), norms)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rank=st.sampled_from([1, 2, 3]), column_major=st.booleans())
def test_where_the_largest_is(data: st.DataObject, rank: int, column_major: bool, run: Call, same: Call) -> None:
    attrs = data.draw(pools(rank)) | {"dilation": (1,) * rank, "ceil_mode": False}
    image = tuple(data.draw(st.lists(st.integers(4, 6), min_size=rank, max_size=rank)))
    x = np.random.default_rng(0).integers(-3, 3, (2, 3, *image)).astype(np.int8)  # many are equal: the first counts
    found = run("max_pool_index", [x], column_major=column_major, **attrs)
    places = naive(x, attrs, lambda v, _, at: at.ravel()[v.ravel().argmax()], found.shape[2:]).astype(np.int64)
    if column_major:
        places = np.ravel_multi_index(np.unravel_index(places, image), image, order="F")
    planes = np.arange(6).reshape(2, 3, *(1,) * rank) * np.prod(image)
    same(found, planes + places)


@pytest.mark.parametrize(("stride", "pad"), [((1, 1), (0, 0, 0, 0)), ((2, 2), (1, 1, 1, 1)), ((2, 1), (0, 1, 0, 1))])
@pytest.mark.parametrize("include", [False, True])
def test_pooling_is_onnx_pooling(stride: Any, pad: Any, include: bool, run: Call, reference: Call, same: Call) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 8))
    attrs = {**PLAIN, "stride": stride, "pad": pad}
    same(run("max_pool", [x], **attrs), reference("MaxPool", [x], **onnx_attrs(attrs)))
    theirs = reference("AveragePool", [x], count_include_pad=int(include), **onnx_attrs(attrs))
    same(run("avg_pool", [x], count_include_pad=include, **attrs), theirs)


def test_max_pooling_of_integers_and_nan(run: Call, same: Call) -> None:
    x = np.arange(-16, 0, dtype=np.int8).reshape(1, 1, 4, 4)
    attrs = {**PLAIN, "pad": (1, 1, 1, 1), "stride": (3, 3)}
    same(run("max_pool", [x], **attrs), np.array([[[[-11, -9], [-3, -1]]]], np.int8))
    y = np.zeros((1, 1, 4, 4))
    y[0, 0, 3, 3] = np.nan
    assert np.isnan(run("max_pool", [y], **attrs)).sum() == 1


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
    same(run("layer_norm", [x, scale, bias], axis=axis, epsilon=1e-3, result=0), theirs, 1e-5)


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("max_pool", {"pad": (3, 0, 0, 0)}, "pad 3 of the height must be smaller than the window 3"),
        ("max_pool", {"kernel": (9, 3)}, "window of 9 does not fit"),
        ("max_pool", {"kernel": (0, 3)}, "kernel=0,3 must be at least 1"),
        ("max_pool", {"ceil_mode": 2}, "must be true or false"),
    ],
)
def test_impossible_windows_are_refused(op: str, attrs: Any, message: str, run: Call) -> None:
    with pytest.raises(WorkloadError, match=message):
        run(op, [np.ones((1, 1, 8, 8))], **{**PLAIN, **attrs})
