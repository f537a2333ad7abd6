"""Sampling, regions of interest, and windows put together, against ONNX Runtime and the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autotune.errors import ModelError
from autotune.graph import load_model
from tests.graph.graph_models import FEW, Array, build, check, random


def runtime(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime computes."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model.ir_version = 9
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@settings(FEW, max_examples=60)
@given(
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    align=st.integers(0, 1),
    rank=st.sampled_from([2, 2, 3]),
    data=st.data(),
)
def test_grid_sample(mode: str, padding: str, align: int, rank: int, data: st.DataObject) -> None:
    image = data.draw(st.lists(st.integers(2, 5), min_size=rank, max_size=rank))
    channels = data.draw(st.sampled_from([2, 3, 9]))  # many are sampled with the channels last
    feeds = {"x": random(2, channels, *image), "grid": random(2, *(3, 2, 2)[:rank], rank, seed=1, low=-2.5, high=2.5)}
    attrs: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check(build(helper.make_node("GridSample", ["x", "grid"], ["y"], **attrs), feeds, opset=20), feeds)


def test_grid_sample_of_opset_16() -> None:
    feeds = {"x": random(1, 2, 4, 5), "grid": random(1, 3, 3, 2, seed=1)}
    for mode in ("bilinear", "bicubic"):
        model = build(helper.make_node("GridSample", ["x", "grid"], ["y"], mode=mode), feeds, opset=16)
        check(model, feeds, runtime(model, feeds))


def test_points_far_away_and_no_points() -> None:
    """Infinities and NaN read nothing beyond the image."""
    grid = np.asarray([np.nan, np.inf, -np.inf, 1e30, -1e30, 0, 5, -5], np.float32).reshape(1, 2, 2, 2)
    feeds = {"x": random(1, 1, 4, 4), "grid": grid}
    for padding in ("zeros", "border", "reflection"):
        model = build(helper.make_node("GridSample", ["x", "grid"], ["y"], padding_mode=padding), feeds, opset=20)
        load_model(model.SerializeToString())


@pytest.mark.parametrize("size", [[2, 3, 4, 5], [1, 1, 2, 3, 4]])
@pytest.mark.parametrize("align", [0, 1])
def test_affine_grid(size: list[int], align: int) -> None:
    rank = len(size) - 2
    feeds = {"theta": random(size[0], rank, rank + 1)}
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=align)
    check(build(node, feeds, {"size": np.asarray(size)}, opset=20), feeds)


@settings(FEW, max_examples=15)
@given(
    mode=st.sampled_from(["avg", "max"]),
    ratio=st.sampled_from([0, 0, 1, 2]),
    coordinates=st.sampled_from(["half_pixel", "output_half_pixel"]),
    seed=st.integers(0, 1000),
)
def test_roi_align(mode: str, ratio: int, coordinates: str, seed: int) -> None:
    """Regions inside, partly outside, and as large as several images."""
    rng = np.random.default_rng(seed)
    start, extent = rng.uniform(-6, 10, (5, 2)), rng.choice([0.3, 2, 7, 30], (5, 2)) * rng.uniform(0.5, 1, (5, 2))
    rois = np.concatenate([start, start + extent], 1).astype(np.float32)
    feeds = {"x": random(2, 2, 5, 7), "rois": rois, "batch": np.asarray([0, 1, 1, 0, 1])}
    attrs: dict[str, Any] = {"mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": coordinates}
    node = helper.make_node("RoiAlign", [*feeds], ["y"], output_height=3, output_width=2, spatial_scale=0.75, **attrs)
    model = build(node, feeds, opset=16)
    check(model, feeds)


def test_max_roi_pool() -> None:
    rois = np.asarray([[0, 0, 0, 6, 4], [1, 2, 1, 3.6, 8], [1, -3, -3, 20, 20], [0, 9, 9, 12, 12]], np.float32)
    feeds = {"x": random(2, 3, 9, 8), "rois": rois}
    model = build(helper.make_node("MaxRoiPool", [*feeds], ["y"], pooled_shape=[3, 2], spatial_scale=0.5), feeds)
    check(model, feeds, runtime(model, feeds))


@FEW
@given(data=st.data())
def test_col2im(data: st.DataObject) -> None:
    rank = data.draw(st.sampled_from([2, 3]))
    attrs: dict[str, Any] = {
        "strides": data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
        "dilations": data.draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank)),
        "pads": data.draw(st.lists(st.integers(0, 1), min_size=2 * rank, max_size=2 * rank)),
    }
    image, kernel = [5, 6, 4][:rank], data.draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    windows = 1
    for d in range(rank):
        padded = image[d] + attrs["pads"][d] + attrs["pads"][d + rank]
        windows *= (padded - (kernel[d] - 1) * attrs["dilations"][d] - 1) // attrs["strides"][d] + 1
    feeds = {"x": random(2, 3 * int(np.prod(kernel)), windows)}
    tensors = {"image": np.asarray(image), "block": np.asarray(kernel)}
    check(build(helper.make_node("Col2Im", ["x", *tensors], ["y"], **attrs), feeds, tensors, opset=18), feeds)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("groups", "shifts"), [(1, 1), (2, 2), (1, 4)])
def test_deform_conv(masked: bool, groups: int, shifts: int) -> None:
    feeds = {"x": random(2, 4, 5, 6), "w": random(4, 4 // groups, 2, 3), "offset": random(2, shifts * 12, 3, 2)}
    feeds |= {"b": random(4)} | ({"mask": random(2, shifts * 6, 3, 2)} if masked else {})
    attrs: dict[str, Any] = {
        "group": groups,
        "offset_group": shifts,
        "pads": [1, 0, 0, 1],
        "strides": [2, 2],
        "dilations": [1, 2],
    }
    check(build(helper.make_node("DeformConv", [*feeds], ["y"], **attrs), feeds, opset=19), feeds)


@pytest.mark.parametrize("wanted", [None, [1, 2, 5, 4], [1, 2, 6, 7]])
def test_max_unpool(wanted: list[int] | None) -> None:
    x = random(1, 2, 2, 2)
    places = np.asarray([3, 5, 10, 18, 21, 23, 30, 39]).reshape(1, 2, 2, 2)
    feeds = {"x": x, "i": places}
    tensors = {"s": np.asarray(wanted)} if wanted else {}
    attrs: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 2]}
    check(build(helper.make_node("MaxUnpool", ["x", "i", *tensors], ["y"], **attrs), feeds, tensors), feeds)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("GridSample", [(1, 2, 3, 3), (1, 2, 2, 3)], {}, "do not fit together"),
        ("GridSample", [(1, 2, 3, 3), (1, 2, 2, 2)], {"mode": "odd"}, "mode=odd"),
        ("RoiAlign", [(1, 2, 3, 3), (2, 5), (2,)], {}, "roi_align"),
        ("MaxRoiPool", [(1, 2, 3, 3), (2, 4)], {"pooled_shape": [1, 1]}, "max_roi_pool"),
        ("DeformConv", [(1, 2, 3, 3), (2, 2, 2, 2), (1, 8, 3, 3)], {}, "offset of shape"),
        ("DeformConv", [(1, 2, 3, 3), (2, 2, 2, 2), (1, 8, 2, 2)], {"group": 3}, "groups"),
        ("MaxUnpool", [(1, 1, 2, 2), (1, 1, 2, 3)], {"kernel_shape": [2, 2]}, "do not fit data"),
    ],
)
def test_what_does_not_fit(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], message: str) -> None:
    whole = {("RoiAlign", 2), ("MaxUnpool", 1)}
    feeds = {f"x{n}": random(*s).astype(np.int64 if (op, n) in whole else np.float32) for n, s in enumerate(shapes)}
    model = build(helper.make_node(op, [*feeds], ["y"], **attrs), feeds, opset=20)
    with pytest.raises(ModelError, match=message):
        load_model(model.SerializeToString())
