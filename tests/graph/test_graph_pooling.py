"""Pools of any rank, as ONNX models write them, against ONNX Runtime and the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

from autotune.errors import ModelError
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


def test_windows_that_do_not_fit_the_data() -> None:
    model = build(helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), {"x": random(1, 1, 4)})
    with pytest.raises(ModelError, match="does not fit data of shape"):
        load_model(model.SerializeToString())
