"""Converters of quantised operators against the ONNX reference, and where it differs from the text, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from autotune.api.session import InferenceSession
from autotune.errors import ModelError
from autotune.graph import load_model
from tests.graph.graph_models import FEW, build, check, random
from tests.peer import exactly

Array = NDArray[Any]


def integers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def zero_point(dtype: Any, *shape: int) -> Array:
    return np.asarray(integers(dtype, *shape, seed=5) // 3, dtype)


@pytest.mark.parametrize("to", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_quantize(to: Any, axis: int | None) -> None:
    """Halves go to even, everything beyond the range to its ends."""
    x = np.concatenate(
        [random(2, 3, 4) * 40, np.full((2, 3, 1), 0.5, np.float32), np.full((2, 3, 1), 1e9, np.float32)], 2
    )
    shape = () if axis is None else (x.shape[axis],)
    scale = np.asarray(np.full(shape, 0.5), np.float32)
    tensors: dict[str, Array] = {"s": scale, "z": np.asarray(zero_point(to, *shape) if shape else to(3))}
    attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
    model = build(helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **attrs), {"x": x}, tensors, opset=21)
    check(model, {"x": x})


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 25])
def test_quantize_and_back_at_every_opset(opset: int) -> None:
    x = random(2, 8)
    tensors: dict[str, Array] = {"s": np.asarray(0.02, np.float32), "z": np.asarray(7, np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    q = np.clip(np.rint(x / np.float32(0.02)) + 7, 0, 255).astype(np.uint8)
    y = (q.astype(np.float32) - np.float32(7)) * np.float32(0.02)
    check(build(nodes, {"x": x}, tensors, ("q", "y"), opset=opset), {"x": x}, [q, y])


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks(axis: int) -> None:
    x = random(5, 6) * 20
    shape = tuple(-(-e // 4) if d == axis else e for d, e in enumerate(x.shape))
    tensors: dict[str, Array] = {"s": random(*shape, low=0.1, high=1), "z": integers(np.uint8, *shape)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis, block_size=4),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis, block_size=4),
    ]
    spread = {name: np.repeat(a, 4, axis).take(np.arange(x.shape[axis]), axis) for name, a in tensors.items()}
    q = np.clip(np.rint(x / spread["s"]) + spread["z"], 0, 255).astype(np.uint8)
    y = (q.astype(np.float32) - spread["z"]) * spread["s"]
    check(build(nodes, {"x": x}, tensors, ("q", "y"), opset=21), {"x": x}, [q, y])


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
def test_dequantize(dtype: Any) -> None:
    x = integers(dtype, 3, 5)
    tensors: dict[str, Array] = {"s": random(5, low=0.1, high=1)} | (
        {} if dtype is np.int32 else {"z": zero_point(dtype, 5)}
    )
    node = helper.make_node("DequantizeLinear", ["x", *tensors], ["y"])
    check(build(node, {"x": x}, tensors, opset=21), {"x": x})


def test_the_quotient_of_halves_is_rounded_to_half() -> None:
    x = random(64).astype(np.float16) * np.float16(30)
    tensors: dict[str, Array] = {"s": np.asarray(0.3, np.float16), "z": np.asarray(0, np.int8)}
    model = build(helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"]), {"x": x}, tensors, opset=21)
    check(model, {"x": x})
    (found,) = InferenceSession(model.SerializeToString(), database=False).run(None, {"x": x})
    expected = np.clip(np.rint(x / tensors["s"]), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("case", ["both signs", "positive", "negative"])
def test_dynamic_quantize(case: str) -> None:
    x = {"both signs": random(3, 5), "positive": random(7, low=1, high=9), "negative": random(2, 2, low=-3, high=-1)}[
        case
    ]
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    check(build(node, {"x": x}, outputs=("y", "s", "z")), {"x": x})


def _centred(a: Array, zero: Array | None) -> Array:
    return a.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))


@FEW
@given(
    kinds=st.tuples(*[st.sampled_from([np.int8, np.uint8])] * 2),
    ranks=st.sampled_from([(2, 2), (3, 2), (3, 3), (1, 2)]),
    zeros=st.sampled_from([None, "one", "each"]),
    constant=st.booleans(),
)
def test_matmul_integer(kinds: tuple[Any, Any], ranks: tuple[int, int], zeros: str | None, constant: bool) -> None:
    m, k, n = 3, 33, 5
    a = integers(kinds[0], *((2,) * (ranks[0] - 2) + (m, k))[-ranks[0] :])
    b = integers(kinds[1], *((2,) * (ranks[1] - 2)), k, n, seed=1)
    points: dict[str, Array] = {}
    if zeros is not None:
        each = zeros == "each" and ranks == (2, 2)
        points = {
            "za": zero_point(kinds[0], *((m,) if each else ())),
            "zb": zero_point(kinds[1], *((n,) if each else ())),
        }
    za, zb = points.get("za"), points.get("zb")
    wanted = _centred(a, za[:, None] if za is not None and za.ndim else za) @ _centred(b, zb)
    feeds, tensors = ({"a": a}, {"b": b, **points}) if constant else ({"a": a, "b": b, **points}, {})
    model = build(helper.make_node("MatMulInteger", ["a", "b", *points], ["y"]), feeds, tensors)
    check(model, feeds, [wanted])


@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
@pytest.mark.parametrize("bias", [False, True])
def test_qlinear_conv(kinds: tuple[Any, Any], bias: bool) -> None:
    """Against ONNX Runtime, bit for bit but for ties: padding is the zero point of the data."""
    x, w = integers(kinds[0], 1, 4, 7, 9), integers(kinds[1], 6, 4, 3, 3, seed=1)
    tensors: dict[str, Array] = {
        "xs": np.asarray(0.02, np.float32), "xz": zero_point(kinds[0]), "w": w,
        "ws": random(6, low=0.001, high=0.003), "wz": np.full(6, 128 if kinds[1] is np.uint8 else 0, kinds[1]),
        "ys": np.asarray(0.4, np.float32), "yz": np.asarray(90, kinds[0]),
    }  # fmt: skip
    if bias:
        tensors["b"] = np.arange(-3000, 3000, 1000, dtype=np.int32)
    node = helper.make_node("QLinearConv", ["x", *tensors], ["y"], pads=[1, 1, 1, 1], strides=[2, 1])
    model = build(node, {"x": x}, tensors)
    model.ir_version = 8
    check(model, {"x": x}, exactly(model.SerializeToString(), {"x": x}))


@pytest.mark.parametrize("zero", [0, 3])
def test_conv_integer(zero: int) -> None:
    x, w = integers(np.uint8, 1, 4, 6, 6), integers(np.int8, 8, 2, 3, 3)
    tensors: dict[str, Array] = {"w": w, "z": np.asarray(zero, np.uint8)}
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 0, 1, 0], group=2)
    check(build(node, {"x": x}, tensors), {"x": x})


def test_qlinear_matmul() -> None:
    a, b = integers(np.uint8, 2, 4, 20), integers(np.int8, 2, 20, 6)
    tensors: dict[str, Array] = {
        "as": np.asarray(0.01, np.float32), "az": np.asarray(113, np.uint8), "b": b,
        "bs": random(6, low=0.01, high=0.02),
        "bz": np.zeros(6, np.int8), "ys": np.asarray(0.05, np.float32), "yz": np.asarray(118, np.uint8),
    }  # fmt: skip
    node = helper.make_node("QLinearMatMul", ["a", *tensors], ["y"])
    model = build(node, {"a": a}, tensors)
    check(model, {"a": a})
    (found,) = InferenceSession(model.SerializeToString(), database=False).run(None, {"a": a})
    total = _centred(a, tensors["az"]) @ b.astype(np.int32)
    factor = tensors["as"] * tensors["bs"] / tensors["ys"]
    wanted = np.clip(np.rint(total.astype(np.float32) * factor) + np.float32(118), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_scales_that_do_not_fit_are_refused() -> None:
    x, tensors = random(4, 6), {"s": random(5)}
    model = build(helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=1), {"x": x}, tensors, opset=21)
    with pytest.raises(ModelError, match="5 scales for axis 1"):
        load_model(model.SerializeToString())


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("given", [False, True])
def test_constant_weights_are_multiplied_as_cpus_do(kind: Any, groups: int, given: bool) -> None:
    """u8 times i8, zero points apart: the weights' in the weights, the data's by sums of weights.

    Whether the data's is a constant or `given` with the data, it is what lies around an image.
    """
    x, w = integers(kind, 1, 16, 6, 6), integers(np.uint8, 8, 16 // groups, 3, 3) // 2 + 64
    tensors: dict[str, Array] = {"w": w.astype(np.uint8), "xz": zero_point(kind), "wz": np.asarray(128, np.uint8)}
    feeds = {"x": x} | ({"xz": tensors["xz"]} if given else {})
    held = {name: array for name, array in tensors.items() if name not in feeds}
    node = helper.make_node("ConvInteger", ["x", *tensors], ["y"], pads=[1, 0, 2, 1], group=groups)
    model = build(node, feeds, held)
    graph = load_model(model.SerializeToString())
    (conv,) = [n for n in graph.nodes if n.op == "conv2d"]
    types = {value.name: value.dtype for value in graph.values.values()}
    assert [types[name] for name in conv.inputs] == ["u8", "i8"]
    (found,) = InferenceSession(model.SerializeToString(), database=False).run(None, feeds)
    wide = np.pad(_centred(x, tensors["xz"]), ((0, 0), (0, 0), (1, 2), (0, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    windows = windows.reshape(groups, -1, *windows.shape[2:])
    filters = _centred(tensors["w"], tensors["wz"]).reshape(groups, -1, 16 // groups, 3, 3)
    wanted = np.einsum("gchwrs,gkcrs->gkhw", windows, filters).reshape(1, 8, *windows.shape[2:4])
    np.testing.assert_array_equal(np.asarray(found), wanted)
