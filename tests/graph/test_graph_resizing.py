"""Resize and Upsample against the ONNX reference, and against ONNX Runtime where the reference has nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autotune.errors import ModelError
from autotune.graph import evaluate_graph, load_model
from tests.graph.contrib_models import theirs
from tests.graph.graph_models import FEW, Array, build, check, random

ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def resize(feeds: dict[str, Array], scales: Any = None, sizes: Any = None, roi: Any = None, **attrs: Any) -> Any:
    """A model of one Resize of opset 19."""
    tensors = {"roi": roi, "scales": scales, "sizes": sizes}
    kinds = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    given = {name: np.asarray(value, kinds[name]) for name, value in tensors.items() if value is not None}
    names = [name if name in given else "" for name in tensors]
    while not names[-1]:
        names.pop()
    model = build(helper.make_node("Resize", ["x", *names], ["y"], **attrs), feeds, given, opset=19)
    model.ir_version = 9
    return model


def nearest(model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    """Exactly what ONNX Runtime takes."""
    (wanted,) = theirs(model, feeds)
    found = evaluate_graph(load_model(model.SerializeToString()), feeds)["y"]
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@settings(FEW, max_examples=150)
@given(data=st.data(), rank=st.sampled_from([1, 2, 2, 3]), mode=st.sampled_from(["nearest", "linear", "cubic"]))
def test_resize(data: st.DataObject, rank: int, mode: str) -> None:
    """Interpolated as by the reference. Which element is the nearest, ONNX Runtime decides: in f32."""
    extents = data.draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank))
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": data.draw(st.sampled_from(MODES))}
    if mode == "nearest":
        attrs["nearest_mode"] = data.draw(st.sampled_from(ROUNDINGS))
    else:
        attrs["antialias"] = data.draw(st.integers(0, 1))
        attrs["exclude_outside"] = data.draw(st.integers(0, 1))
    if mode == "cubic":
        attrs["cubic_coeff_a"] = data.draw(st.sampled_from([-0.75, -0.5]))
    feeds = {"x": random(*extents)}
    if data.draw(st.booleans()):
        choices = st.sampled_from([0.5, 0.6, 1.0, 1.5, 2.0, 2.3, 3.0])
        scales = [max(data.draw(choices), 1 / n) for n in extents]
        model = resize(feeds, scales=scales, **attrs)
    else:
        model = resize(feeds, sizes=data.draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank)), **attrs)
    (nearest if mode == "nearest" else check)(model, feeds)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", [*MODES, "tf_crop_and_resize"])
def test_nearest_at_ties_and_elements(coordinates: str, rounding: str) -> None:
    """Scales that are no f32, and sizes whose points are elements, or halfway between, but for rounding."""
    region = {"roi": [0.1, 0.9]} if coordinates == "tf_crop_and_resize" else {}
    attrs = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    for extent in (1, 2, 3, 7, 10, 27, 30, 50, 64):
        feeds = {"x": np.arange(extent, dtype=np.float32)}
        for scale in (2.3, 0.7, 3.3, 1 / 3, 1.1):
            size = int(np.float32(scale) * np.float32(extent))
            if size and (size != extent or not region):  # of the same size, ONNX Runtime passes the region over
                nearest(resize(feeds, scales=[scale], **region, **attrs), feeds)
        for size in (1, 2, 3, 9, 23, 69):
            if size != extent or not region:
                nearest(resize(feeds, sizes=[size], **region, **attrs), feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_half_pixels_of_tensorflow(mode: str, rounding: str) -> None:
    """A mode that opset 13 has no more: half a pixel is added and not taken off again."""
    none, attrs = np.zeros(0, np.float32), {"mode": mode, "nearest_mode": rounding}
    for extent, size in ((4, 8), (5, 3), (7, 20)):
        feeds = {"x": random(1, 1, 2, extent)}
        node = helper.make_node(
            "Resize", ["x", "none", "none", "sizes"], ["y"],
            coordinate_transformation_mode="tf_half_pixel_for_nn", **attrs,
        )  # fmt: skip
        model = build(node, feeds, {"none": none, "sizes": np.asarray([1, 1, 2, size])}, opset=11)
        model.ir_version = 9
        check(model, feeds, theirs(model, feeds))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("roi", [[0.4, 0.2, 0.6, 0.8], [-0.3, 0.1, 1.4, 0.5], [0.875, 0, 0.125, 1], [2, 2, 3, 3]])
def test_regions(mode: str, roi: list[float]) -> None:
    feeds = {"x": random(1, 5, 2, 6)}
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5, "axes": [3, 1]}
    for sizes in ([4, 3], [1, 1]):
        (nearest if mode == "nearest" else check)(resize(feeds, sizes=sizes, roi=roi, mode=mode, **attrs), feeds)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_the_ratio_of_the_sides_is_kept(policy: str) -> None:
    feeds = {"x": random(1, 2, 4, 6)}
    check(resize(feeds, sizes=[7, 8], axes=[2, 3], keep_aspect_ratio_policy=policy), feeds)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.float16, np.float64])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_dtypes(dtype: Any, mode: str) -> None:
    """Integers are rounded, and saturate where a cubic overshoots."""
    x = np.random.default_rng(0).integers(-128, 128, (2, 6)) if np.dtype(dtype).kind != "u" else np.eye(3, 6) * 255
    feeds = {"x": x.astype(dtype)}
    check(resize(feeds, scales=[2, 2], mode=mode), feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [1, 7, 9, 10])
def test_the_first_forms(mode: str, opset: int) -> None:
    """Upsample of every opset, and Resize-10."""
    feeds = {"x": random(1, 2, 3, 5)}
    scales = np.asarray([1, 1, 2, 3], np.float32)
    o, s = np.arange(6) / 2, np.arange(15) / 3
    if mode == "nearest":
        expected = feeds["x"][:, :, o.astype(int)][:, :, :, s.astype(int)]
    else:
        rows = np.stack([np.interp(o, np.arange(3), c) for c in feeds["x"].transpose(0, 1, 3, 2).reshape(-1, 3)])
        rows = rows.reshape(1, 2, 5, 6).transpose(0, 1, 3, 2)
        columns = np.stack([np.interp(s, np.arange(5), r) for r in rows.reshape(-1, 5)])
        expected = columns.reshape(1, 2, 6, 15).astype(np.float32)
    if opset == 1:
        old = "bilinear" if mode == "linear" else mode
        node = helper.make_node("Upsample", ["x"], ["y"], mode=old, height_scale=2.0, width_scale=3.0)
    elif opset == 7:
        node = helper.make_node("Upsample", ["x"], ["y"], mode=mode, scales=scales.tolist())
    else:
        node = helper.make_node("Upsample" if opset == 9 else "Resize", ["x", "s"], ["y"], mode=mode)
    tensors = {"s": scales} if opset >= 9 else {}
    check(build(node, feeds, tensors, opset=opset), feeds, [expected])


@pytest.mark.parametrize(("scale", "extent", "size"), [(2.3, 30, 69), (1.1, 10, 11), (0.7, 10, 7), (2.0, 5, 10)])
def test_sizes_by_scales_are_worked_out_in_f32(scale: float, extent: int, size: int) -> None:
    """As ONNX Runtime and exporters do; the reference, in f64, has 68 instead of 69."""
    feeds = {"x": random(1, 1, 2, extent)}
    for model in (resize(feeds, scales=[1, 1, 1, scale]),
                  build(helper.make_node("Upsample", ["x", "s"], ["y"]), feeds,
                        {"s": np.asarray([1, 1, 1, scale], np.float32)}, opset=9)):  # fmt: skip
        graph = load_model(model.SerializeToString())
        assert graph.values[graph.outputs[0].value].shape == (1, 1, 2, size)


def test_no_elements() -> None:
    feeds = {"x": random(0, 3)}
    check(resize(feeds, sizes=[0, 6], mode="linear"), feeds, [np.zeros((0, 6), np.float32)])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"scales": [2.0]}, "scales .* must be positive"),
        ({"scales": [2.0, -1.0]}, "must be positive"),
        ({"sizes": [2, 2, 2]}, "sizes"),
        ({"sizes": [2, 2], "mode": "quintic"}, "mode=quintic"),
        ({"sizes": [2, 2], "coordinate_transformation_mode": "odd"}, "coordinates=odd"),
        ({"sizes": [2, 2], "nearest_mode": "odd"}, "rounding=odd"),
        ({"sizes": [2, 2], "axes": [0, 0]}, "repeat an axis"),
        ({"sizes": [2, 2], "antialias": 1}, "antialias needs"),
        ({"sizes": [2, 2], "coordinate_transformation_mode": "tf_crop_and_resize"}, "region"),
        ({"sizes": [2, 2], "keep_aspect_ratio_policy": "odd"}, "keep_aspect_ratio_policy"),
    ],
)
def test_impossible_resizes(attrs: dict[str, Any], message: str) -> None:
    model = resize({"x": np.zeros((3, 4), np.float32)}, **attrs)
    with pytest.raises(ModelError, match=message):
        load_model(model.SerializeToString())
