"""Converters against the ONNX reference: data movement, constants and shapes computed in the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper

import autotune
from autotune.errors import ModelError
from autotune.graph import load_model, optimize
from tests.graph.graph_models import FEW, Array, build, check, random

# Data movement ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "allowzero"), [((4, 6), 0), ((-1, 3), 0), ((0, -1), 0), ((2, 0, 4), 0), ((24,), 1)])
def test_reshape(shape: tuple[int, ...], allowzero: int) -> None:
    feeds = {"x": random(2, 3, 4)}
    node = helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=allowzero)
    check(build(node, feeds, {"s": np.asarray(shape)}, opset=14), feeds)


@pytest.mark.parametrize("axis", [-2, 0, 1, 2, 3])
def test_flatten(axis: int) -> None:
    feeds = {"x": random(2, 3, 4)}
    check(build(helper.make_node("Flatten", ["x"], ["y"], axis=axis), feeds), feeds)


@pytest.mark.parametrize("axes", [[1], [0, -1], None])
def test_squeeze(axes: list[int] | None) -> None:
    feeds, tensors = {"x": random(1, 1, 3, 1)}, {} if axes is None else {"a": np.asarray(axes)}
    check(build(helper.make_node("Squeeze", ["x", *tensors], ["y"]), feeds, tensors), feeds)
    old: dict[str, Any] = {} if axes is None or -1 in axes else {"axes": axes}
    expected = np.squeeze(feeds["x"], tuple(old["axes"]) if old else None)
    check(build(helper.make_node("Squeeze", ["x"], ["y"], **old), feeds, opset=11), feeds, [expected])


@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze_leaves_axes_that_are_not_1(opset: int) -> None:
    """Beyond the specification; torch's squeeze does so, and its exporter writes it as it is (PixArt)."""
    feeds = {"x": random(1, 3, 1)}
    tensors = {"a": np.asarray([1, 2])} if opset == 13 else {}
    attrs: dict[str, Any] = {} if tensors else {"axes": [1, 2]}
    model = build(helper.make_node("Squeeze", ["x", *tensors], ["y"], **attrs), feeds, tensors, opset=opset)
    check(model, feeds, [feeds["x"].reshape(1, 3)])


def test_squeeze_of_an_empty_list() -> None:
    """Of an attribute all axes of 1, of an operand none: what onnx.reference does."""
    feeds = {"x": random(1, 3, 1)}
    node = helper.make_node("Squeeze", ["x"], ["y"])
    node.attribute.append(AttributeProto(name="axes", type=AttributeProto.INTS))
    check(build(node, feeds, opset=11), feeds, [feeds["x"].reshape(3)])
    check(build(helper.make_node("Squeeze", ["x", "a"], ["y"]), feeds, {"a": np.zeros(0, np.int64)}), feeds)


@pytest.mark.parametrize("axes", [[0], [1, 3], [-1]])
def test_unsqueeze(axes: list[int]) -> None:
    feeds = {"x": random(2, 3)}
    check(build(helper.make_node("Unsqueeze", ["x", "a"], ["y"]), feeds, {"a": np.asarray(axes)}), feeds)
    expected = np.expand_dims(feeds["x"], tuple(axes))
    check(build(helper.make_node("Unsqueeze", ["x"], ["y"], axes=axes), feeds, opset=11), feeds, [expected])


@FEW
@given(perm=st.permutations(range(4)), second=st.permutations(range(4)), shape=st.tuples(*[st.integers(1, 3)] * 4))
def test_transposes(perm: list[int], second: list[int], shape: tuple[int, ...]) -> None:
    feeds = {"x": random(*shape)}
    nodes = [
        helper.make_node("Transpose", ["x"], ["z"], perm=perm),
        helper.make_node("Transpose", ["z"], ["y"], perm=second),
    ]
    model = build(nodes, feeds)
    check(model, feeds)
    left = [node.op for node in optimize(load_model(model.SerializeToString())).nodes]
    assert left.count("transpose") <= 1


def test_transpose_reverses_by_default() -> None:
    feeds = {"x": random(2, 3, 4)}
    check(build(helper.make_node("Transpose", ["x"], ["y"]), feeds), feeds)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    feeds = {"a": random(2, 3), "b": random(*((5, 3) if axis == 0 else (2, 5)), seed=1)}
    check(build(helper.make_node("Concat", ["a", "b"], ["y"], axis=axis), feeds), feeds)


@FEW
@given(data=st.data())
def test_slice(data: st.DataObject) -> None:
    feeds = {"x": random(4, 5, 3)}
    axes = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
    number = st.one_of(st.integers(-7, 7), st.sampled_from([2**31, -(2**31)]))
    starts, ends = ([data.draw(number) for _ in axes] for _ in "se")
    steps = [data.draw(st.sampled_from([-2, -1, 1, 2])) for _ in axes]
    extents = [feeds["x"].shape[axis] for axis in axes]
    starts = [max(start, -n) if step < 0 else start for start, step, n in zip(starts, steps, extents, strict=True)]
    tensors = {"s": np.asarray(starts), "e": np.asarray(ends), "a": np.asarray(axes), "t": np.asarray(steps)}
    check(build(helper.make_node("Slice", ["x", *tensors], ["y"]), feeds, tensors), feeds)


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [(-10, -100, -1, [0]), (-6, -7, -1, [0]), (-10, -9, -1, [0]), (-6, -(2**63), -2, [0]), (0, -100, -1, [0]),
     (-10, 0, -1, []), (-10, 3, -1, []), (9, -100, -2, [4, 2, 0]), (4, 9, -1, []), (-10, 2, 1, [0, 1]),
     (9, 100, 1, [])],
)  # fmt: skip
def test_slices_clamp_as_the_specification_says(start: int, end: int, step: int, expected: list[int]) -> None:
    """A start before the first element, backwards, is the first one: the reference, which slices NumPy arrays, errs."""
    x, limits = np.arange(5, dtype=np.float32), {"s": np.asarray([start]), "e": np.asarray([end])}
    limits |= {"a": np.asarray([0]), "t": np.asarray([step])}
    node, wanted = helper.make_node("Slice", ["x", *limits], ["y"]), np.asarray(expected, np.float32)
    check(build(node, {"x": x}, limits), {"x": x}, [wanted])
    session = autotune.InferenceSession(build(node, {"x": x, **limits}).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": x, **limits})[0], wanted)
    nothing = {"x": x[:0]}
    check(build(node, nothing, limits), nothing)


def test_slice_by_attributes() -> None:
    feeds = {"x": random(4, 5)}
    node = helper.make_node("Slice", ["x"], ["y"], starts=[1, -3], ends=[9, -1], axes=[0, 1])
    check(build(node, feeds, opset=9), feeds, [feeds["x"][1:, -3:-1]])


@pytest.mark.parametrize(("sizes", "opset"), [([2, 3], 11), ([2, 3], 13), ([1, 4, 1], 13), (None, 13)])
def test_split(sizes: list[int] | None, opset: int) -> None:
    total = sum(sizes) if sizes else 6
    feeds = {"x": random(2, total)}
    outputs = [f"y{i}" for i in range(len(sizes) if sizes else 3)]
    if opset < 13:
        node = helper.make_node("Split", ["x"], outputs, axis=1, split=sizes)
        expected = np.split(feeds["x"], np.cumsum(sizes or [])[:-1], axis=1)
        check(build(node, feeds, outputs=outputs, opset=opset), feeds, expected)
    elif sizes is None:
        node = helper.make_node("Split", ["x"], outputs, axis=1)
        check(build(node, feeds, outputs=outputs), feeds, np.split(feeds["x"], 3, axis=1))
    else:
        node = helper.make_node("Split", ["x", "s"], outputs, axis=1)
        check(build(node, feeds, {"s": np.asarray(sizes)}, outputs), feeds)


def test_expand() -> None:
    feeds = {"x": random(3, 1)}
    check(build(helper.make_node("Expand", ["x", "s"], ["y"]), feeds, {"s": np.asarray([2, 1, 4])}), feeds)


@pytest.mark.parametrize("indices", [1, -1, [0, 2], [[0], [-1]]])
@pytest.mark.parametrize("axis", [0, 1])
def test_gather(indices: Any, axis: int) -> None:
    feeds, tensors = {"x": random(3, 4)}, {"i": np.asarray(indices)}
    check(build(helper.make_node("Gather", ["x", "i"], ["y"], axis=axis), feeds, tensors), feeds)
    check(build(helper.make_node("Gather", ["x", "i"], ["y"], axis=axis), feeds | tensors), feeds | tensors)


def test_an_index_outside_its_axis_is_refused() -> None:
    model = build(helper.make_node("Gather", ["x", "i"], ["y"]), {"x": random(3, 4)}, {"i": np.asarray([3])})
    with pytest.raises(ModelError, match="axis 0 is outside of -3..2"):
        load_model(model.SerializeToString())


# Shapes computed in the model ------------------------------------------------------------------------


def test_a_shape_subgraph_folds_while_loading() -> None:
    """What exporters write for x.view(x.size(0), -1, x.size(2) // 2)."""
    feeds = {"x": random(2, 3, 8)}
    tensors = {"zero": np.asarray(0), "two": np.asarray([2]), "minus": np.asarray([-1]), "axes": np.asarray([0])}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        helper.make_node("Gather", ["shape", "two"], ["last"]),
        helper.make_node("Div", ["last", "two"], ["half"]),
        helper.make_node("Cast", ["half"], ["half64"], to=TensorProto.INT64),
        helper.make_node("Concat", ["batch1", "minus", "half64"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    model = build(nodes, feeds, tensors)
    check(model, feeds)
    assert [node.op for node in load_model(model.SerializeToString()).nodes] == ["reshape"]


@pytest.mark.parametrize("bounds", [(0, 5, 1), (5, 0, -2), (0.5, 2.0, 0.5), (3, 3, 1)])
def test_range(bounds: tuple[float, float, float]) -> None:
    dtype = np.float32 if isinstance(bounds[0], float) else np.int64
    tensors = dict(zip(("start", "limit", "delta"), (np.asarray(b, dtype) for b in bounds), strict=True))
    check(build(helper.make_node("Range", list(tensors), ["y"]), {}, tensors), {})


@pytest.mark.parametrize("value", [None, np.asarray([3], np.int64), np.asarray([0.5], np.float32)])
def test_constant_of_shape(value: Array | None) -> None:
    attrs = {} if value is None else {"value": onnx.numpy_helper.from_array(value)}
    model = build(helper.make_node("ConstantOfShape", ["s"], ["y"], **attrs), {}, {"s": np.asarray([2, 3])})
    check(model, {})


@pytest.mark.parametrize(
    "attrs",
    [{"value_float": 1.5}, {"value_int": 3}, {"value_floats": [1.0, 2.0]}, {"value_ints": [1, 2]},
     {"value": onnx.numpy_helper.from_array(np.ones((2, 2)))}],
)  # fmt: skip
def test_constant(attrs: dict[str, Any]) -> None:
    check(build(helper.make_node("Constant", [], ["y"], **attrs), {}), {})
