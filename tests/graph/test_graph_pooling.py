"""Pools of any rank, as ONNX models write them, against ONNX Runtime and the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

import autotune
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import load_model
from tests.graph.graph_models import FEW, build, check, random
from tests.graph.test_graph_operators import windows


def theirs(model: Any, feeds: Any) -> Any:
    """ONNX Runtime: the reference evaluator disagrees with the specification on ceil_mode and auto_pad."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model.ir_version = 9
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@FEW
@given(data=st.data(), rank=st.sampled_from([1, 2, 3]), op=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
def test_pools(data: st.DataObject, rank: int, op: str) -> None:
    extents, kernel, attrs = data.draw(windows(rank, pools=True))
    if attrs["auto_pad"].startswith("SAME"):
        assume(all(s <= k for s, k in zip(attrs["strides"], kernel, strict=True)))  # else ONNX Runtime fails
    elif attrs["auto_pad"] == "NOTSET":
        attrs["ceil_mode"] = data.draw(st.integers(0, 1))
    outputs = ["y"]
    if op == "AveragePool":
        attrs["count_include_pad"] = data.draw(st.integers(0, 1))
    elif op == "LpPool":
        attrs["p"] = data.draw(st.integers(1, 3))
    elif data.draw(st.booleans()):
        outputs.append("where")
        attrs["storage_order"] = data.draw(st.integers(0, 1))
    feeds = {"x": random(2, 3, *extents)}
    model = build(helper.make_node(op, ["x"], outputs, kernel_shape=kernel, **attrs), feeds, None, outputs, opset=19)
    check(model, feeds, theirs(model, feeds))


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_global_pools(op: str, rank: int) -> None:
    feeds = {"x": random(2, 3, *(4, 5, 2)[:rank])}
    fold = np.max if op == "GlobalMaxPool" else np.mean  # the reference always adds two dimensions to the maximum
    expected = fold(feeds["x"], axis=tuple(range(2, rank + 2)), keepdims=True)
    check(build(helper.make_node(op, ["x"], ["y"]), feeds), feeds, [expected])


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("opset", [1, 13])
def test_global_lp_pool(p: int, opset: int) -> None:
    feeds = {"x": random(2, 3, 4, 5)}
    node = helper.make_node("GlobalLpPool", ["x"], ["y"], p=float(p) if opset == 1 else p)
    expected = (np.abs(feeds["x"].astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    check(build(node, feeds, opset=opset), feeds, [expected.astype(np.float32)])


@pytest.mark.parametrize(("kernel", "stride", "pads"), [(3, 2, [0, 0]), (3, 3, [0, 0]), (2, 5, [1, 0]), (3, 4, [1, 1])])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("include", [0, 1])
def test_a_last_window_that_lies_partly_outside(
    op: str, kernel: int, stride: int, pads: list[int], include: int
) -> None:
    """With ceil_mode also where it is the only one: wider than the padded image."""
    feeds = {"x": random(2, 3, 4)}
    attrs: dict[str, Any] = {"count_include_pad": include} if op == "AveragePool" else {}
    node = helper.make_node(
        op, ["x"], ["y"], kernel_shape=[kernel], strides=[stride], pads=pads, dilations=[2], ceil_mode=1, **attrs
    )
    model = build(node, feeds, opset=22)
    check(model, feeds, theirs(model, feeds))
    session = autotune.InferenceSession(model.SerializeToString(), target="native -num-cores=1")
    np.testing.assert_allclose(session.run(None, feeds)[0], theirs(model, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("extent", [7, 8, 9, 10])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_gaps_between_windows_are_centred(op: str, auto_pad: str, extent: int, dtype: Any) -> None:
    """Padding for SAME is negative where strides leave gaps, by the specification's formula: evenly cut off."""
    if op == "AveragePool" and dtype is np.uint8:
        return
    feeds = {"x": np.arange(extent, dtype=dtype)[None, None]}
    for kernel, stride in ((1, 4), (2, 4), (1, 2), (2, 5)):
        total = -(-extent // stride) * stride - stride + kernel - extent
        first = {0: 0, -1: 0, -2: -1, -3: -1, -4: -2}.get(total, total // 2 + (auto_pad == "SAME_LOWER") * (total % 2))
        starts = [stride * i - first for i in range(-(-extent // stride))]
        windows = [feeds["x"][0, 0, max(start, 0) : start + kernel] for start in starts]
        values = np.asarray([w.max() if op == "MaxPool" else w.mean() for w in windows], dtype)
        node = helper.make_node(op, ["x"], ["y"], kernel_shape=[kernel], strides=[stride], auto_pad=auto_pad)
        model = build(node, feeds, opset=12)
        check(model, feeds, [values[None, None]])
        if (
            dtype is np.uint8 and auto_pad == "SAME_UPPER"
        ):  # for real numbers, or at the other side, it has none or errs
            check(model, feeds, theirs(model, feeds))


def test_positions_in_an_image_that_padding_crops() -> None:
    feeds = {"x": random(1, 1, 8)}
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2], strides=[4], auto_pad="SAME_UPPER")
    with pytest.raises(UnsupportedError, match="SAME_UPPER crops"):
        load_model(build(node, feeds, None, ["y", "i"]).SerializeToString())


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_images_without_a_batch(op: str) -> None:
    """As torch's older exporter writes SuperPoint's 9 x 9 maximum: kernel and pads of two dimensions, data of three."""
    outputs = ["y", "where"] if op == "MaxPool" else ["y"]
    attrs: dict[str, Any] = {"kernel_shape": [9, 9], "pads": [4, 4, 4, 4], "strides": [1, 1]}
    feeds = {"x": random(2, 12, 10)}
    model = build(helper.make_node(op, ["x"], outputs, **attrs), feeds, None, outputs, opset=19)
    batched = {"x": feeds["x"][None]}
    expected = theirs(build(helper.make_node(op, ["x"], outputs, **attrs), batched, None, outputs, opset=19), batched)
    check(model, feeds, [array[0] for array in expected])


def test_windows_that_do_not_fit_the_data() -> None:
    model = build(helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), {"x": random(1, 4)})
    with pytest.raises(ModelError, match="does not fit data of shape"):
        load_model(model.SerializeToString())
