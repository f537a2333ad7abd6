"""Pad of every mode and CenterCropPad, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from autotune.errors import ModelError
from autotune.graph import load_model
from tests.graph.graph_models import FEW, build, check, random

MODES = ("constant", "edge", "reflect", "wrap")


@FEW
@given(pads=st.lists(st.integers(-1, 2), min_size=4, max_size=4), value=st.sampled_from([0.0, 1.5]))
def test_pad(pads: list[int], value: float) -> None:
    feeds = {"x": random(3, 4)}
    around = ((max(pads[0], 0), max(pads[2], 0)), (max(pads[1], 0), max(pads[3], 0)))
    cropped = feeds["x"][max(0, -pads[0]) : 3 - max(0, -pads[2]), max(0, -pads[1]) : 4 - max(0, -pads[3])]
    expected = np.pad(cropped, around, constant_values=value)
    tensors = {"p": np.asarray(pads), "v": np.asarray(value, np.float32)}
    check(build(helper.make_node("Pad", ["x", "p", "v"], ["y"]), feeds, tensors), feeds, [expected])
    old = helper.make_node("Pad", ["x"], ["y"], pads=pads, value=value)
    check(build(old, feeds, opset=9), feeds, [expected])
    oldest = helper.make_node("Pad", ["x"], ["y"], paddings=pads, value=value)
    check(build(oldest, feeds, opset=1), feeds, [expected])


@FEW
@given(pads=st.lists(st.integers(-1, 7), min_size=4, max_size=4), mode=st.sampled_from(MODES), data=st.data())
def test_borders_of_its_own_elements(pads: list[int], mode: Any, data: st.DataObject) -> None:
    """A border wider than the data repeats it again and again; it cannot be mirrored."""
    feeds = {"x": random(data.draw(st.integers(3, 5)), data.draw(st.integers(3, 5)))}
    rows, columns = feeds["x"].shape
    around = ((max(pads[0], 0), max(pads[2], 0)), (max(pads[1], 0), max(pads[3], 0)))
    cropped = feeds["x"][max(0, -pads[0]) : rows - max(0, -pads[2]), max(0, -pads[1]) : columns - max(0, -pads[3])]
    tensors = {"p": np.asarray(pads)}
    model = build(helper.make_node("Pad", ["x", "p"], ["y"], mode=mode), feeds, tensors, opset=19)
    if mode == "reflect" and any(max(pair) >= extent for pair, extent in zip(around, cropped.shape, strict=True)):
        with pytest.raises(ModelError, match="a mirrored border of"):
            load_model(model.SerializeToString())
    else:
        check(model, feeds, [np.pad(cropped, around, mode=mode)])


def test_pad_of_some_axes() -> None:
    feeds = {"x": random(2, 3)}
    tensors = {"p": np.asarray([1, 2]), "a": np.asarray([-1])}
    for mode, expected in (("constant", ((0, 0), (1, 2))), ("edge", ((0, 0), (1, 2)))):
        model = build(helper.make_node("Pad", ["x", "p", "", "a"], ["y"], mode=mode), feeds, tensors, opset=18)
        check(model, feeds, [np.pad(feeds["x"], expected, mode=mode)])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("dtype", "value"), [(np.int64, 2**62 + 1), (np.uint8, 255), (np.bool_, True), (np.float16, 7)]
)
def test_values_of_other_dtypes(dtype: Any, value: Any) -> None:
    feeds = {"x": np.asarray([[0, 1]], dtype)}
    tensors = {"p": np.asarray([1, 0, 0, 1]), "v": np.asarray(value, dtype)}
    model = build(helper.make_node("Pad", ["x", "p", "v"], ["y"]), feeds, tensors)
    check(model, feeds, [np.pad(feeds["x"], ((1, 0), (0, 1)), constant_values=value)])


@FEW
@given(shape=st.lists(st.integers(0, 6), min_size=2, max_size=2), axes=st.sampled_from([[0, 2], [-1, 1]]))
def test_center_crop_pad(shape: list[int], axes: list[int]) -> None:
    feeds = {"x": random(3, 4, 5)}
    node = helper.make_node("CenterCropPad", ["x", "s"], ["y"], axes=axes)
    check(build(node, feeds, {"s": np.asarray(shape)}, opset=18), feeds)


@pytest.mark.parametrize(
    ("pads", "mode", "message"),
    [([1, 1], "odd", "unknown mode 'odd'"), ([1, 1, 1], "edge", "3 pads"), ([-3, -2], "edge", "crop more"),
     ([-4, 1], "edge", "no elements to repeat"), ([4, 0], "reflect", "border of 4 along axis 0, which has 4"),
     ([-3, 1], "reflect", "border of 1 along axis 0, which has 1")],
)  # fmt: skip
def test_impossible_pads(pads: list[int], mode: str, message: str) -> None:
    model = build(helper.make_node("Pad", ["x", "p"], ["y"], mode=mode), {"x": random(4)}, {"p": np.asarray(pads)})
    with pytest.raises(ModelError, match=message):
        load_model(model.SerializeToString())
