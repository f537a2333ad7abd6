"""Converters against the ONNX reference: windows, matrices, normalisation, reductions, elementwise."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from autotune.graph import load_model, optimize
from tests.graph.graph_models import FEW, build, check, random

# Convolution and pools -------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn, rank: int, pools: bool = False) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """(data extents, kernel, ONNX attributes) of a window that fits."""
    kernel = tuple(draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)))
    extents = tuple(draw(st.lists(st.integers(3, 9), min_size=rank, max_size=rank)))
    attrs: dict[str, Any] = {"strides": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))}
    auto_pad = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    attrs["auto_pad"] = auto_pad
    if auto_pad in ("NOTSET", "VALID") and not pools:
        attrs["dilations"] = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    if auto_pad == "NOTSET":
        limits = [extent - 1 for extent in kernel] * 2
        attrs["pads"] = [draw(st.integers(0, limit)) for limit in limits]
    reach = [d * (k - 1) + 1 for d, k in zip(attrs.get("dilations", [1] * rank), kernel, strict=True)]
    assume(all(r <= extent for r, extent in zip(reach, extents, strict=True)))
    return extents, kernel, attrs


@FEW
@given(data=st.data(), rank=st.sampled_from([1, 2, 3]), groups=st.sampled_from([1, 2, 4]), bias=st.booleans())
def test_conv(data: st.DataObject, rank: int, groups: int, bias: bool) -> None:
    extents, kernel, attrs = data.draw(windows(rank))
    feeds = {"x": random(2, 4, *extents)}
    tensors = {"w": random(8, 4 // groups, *kernel, seed=1), "b": random(8, seed=2)}
    inputs = ["x", "w", "b"] if bias else ["x", "w"]
    check(build(helper.make_node("Conv", inputs, ["y"], group=groups, **attrs), feeds, tensors), feeds)


@pytest.mark.parametrize("mode", [0.0, 1.0, -np.inf])
@pytest.mark.parametrize("op", ["Conv", "AveragePool", "MaxPool"])
def test_explicit_padding_in_front_of_a_window(op: str, mode: float) -> None:
    feeds = {"x": random(1, 2, 5, 5)}
    tensors = {"p": np.asarray([0, 0, 1, 0, 0, 0, 1, 2]), "v": np.asarray(mode, np.float32), "w": random(2, 2, 3, 3)}
    if op == "Conv":
        if np.isinf(mode):
            return  # inf * 0
        window = helper.make_node(op, ["z", "w"], ["y"], pads=[1, 0, 0, 0])
    else:
        window = helper.make_node(op, ["z"], ["y"], kernel_shape=[3, 3])
    model = build([helper.make_node("Pad", ["x", "p", "v"], ["z"]), window], feeds, tensors)
    check(model, feeds)
    folds = mode == (-np.inf if op == "MaxPool" else 0.0)
    left = [node.op for node in optimize(load_model(model.SerializeToString())).nodes]
    assert ("pad" not in left) == folds


# Matrices --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trans_a", "trans_b", "constant"), list(itertools.product([0, 1], [0, 1], [False, True])))
@pytest.mark.parametrize("c", [None, (), (4,), (3, 1), (3, 4)])
def test_gemm(trans_a: int, trans_b: int, constant: bool, c: tuple[int, ...] | None) -> None:
    a, b = random(*((5, 3) if trans_a else (3, 5))), random(*((4, 5) if trans_b else (5, 4)), seed=1)
    feeds, rest = {"a": a}, {"b": b}
    if c is not None:
        rest["c"] = random(*c, seed=2)
    node = helper.make_node(
        "Gemm", ["a", "b", "c"][: 2 + (c is not None)], ["y"], transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0
    )
    model = build(node, feeds, rest) if constant else build(node, feeds | rest)
    check(model, feeds if constant else feeds | rest)


def test_constant_gemm_weights_are_stored_as_k_by_n() -> None:
    feeds = {"a": random(1, 5)}
    node = helper.make_node("Gemm", ["a", "b"], ["y"], transB=1)
    graph = load_model(build(node, feeds, {"b": random(4, 5)}).SerializeToString())
    (matmul,) = graph.nodes
    assert graph.values[matmul.inputs[1]].shape == (5, 4)
    assert dict(matmul.attrs) == {"trans_a": False, "trans_b": False}


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)),
     ((2, 3, 4), (4,)), ((4,), (2, 4, 5))],
)  # fmt: skip
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    feeds = {"a": random(*a), "b": random(*b, seed=1)}
    check(build(helper.make_node("MatMul", ["a", "b"], ["y"]), feeds), feeds)


# Normalisation, reductions, softmax ------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("constant", [True, False])
def test_batch_normalization(opset: int, constant: bool) -> None:
    x = random(2, 3, 4, 4)
    statistics = {name: random(3, seed=i) for i, name in enumerate(("scale", "bias", "mean"))}
    statistics["var"] = random(3, low=0.5, high=2)
    feeds = {"x": x} if constant else {"x": x, **statistics}
    node = helper.make_node("BatchNormalization", ["x", *statistics], ["y"], epsilon=1e-3)
    scale, bias, mean, var = (array.reshape(3, 1, 1) for array in statistics.values())
    expected = (x - mean) / np.sqrt(var + np.float32(1e-3)) * scale + bias
    check(build(node, feeds, statistics if constant else None, opset=opset), feeds, [expected])


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int) -> None:
    feeds = {"x": random(7, 7, 3, 3)}  # the reference evaluator computes as many channels as there are images
    check(build(helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.1, beta=0.6, bias=1.5), feeds), feeds)


@pytest.mark.parametrize(("opset", "axis"), list(itertools.product([11, 13], [-1, 0, 1, 2, None])))
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op: str, opset: int, axis: int | None) -> None:
    """The reference evaluator knows the new meaning only, so the old one is written out."""
    x = random(2, 3, 4)
    attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
    if opset >= 13:
        rows = np.moveaxis(x, -1 if axis is None else axis, -1)
        exps = np.exp(rows)
        soft = np.moveaxis(exps / exps.sum(-1, keepdims=True), -1, -1 if axis is None else axis)
    else:
        split = (1 if axis is None else axis) % 3
        exps = np.exp(x.reshape(int(np.prod(x.shape[:split])), -1))
        soft = (exps / exps.sum(-1, keepdims=True)).reshape(x.shape)
    expected = soft if op == "Softmax" else np.log(soft)
    check(build(helper.make_node(op, ["x"], ["y"], **attrs), {"x": x}, opset=opset), {"x": x}, [expected])


REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp"]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("axes", "opset"), [(None, 11), ([1], 11), ([-1, 0], 11), (None, 18), ([1], 18), ([-1, 0], 18)]
)
def test_reductions(op: str, keepdims: int, axes: list[int] | None, opset: int) -> None:
    feeds = {"x": random(2, 3, 4, low=0.5)}
    if opset < 13 or axes is None:
        attrs: dict[str, Any] = {} if axes is None else {"axes": axes}
        model = build(helper.make_node(f"Reduce{op}", ["x"], ["y"], keepdims=keepdims, **attrs), feeds, opset=opset)
    else:
        node = helper.make_node(f"Reduce{op}", ["x", "a"], ["y"], keepdims=keepdims)
        model = build(node, feeds, {"a": np.asarray(axes)}, opset=opset)
    check(model, feeds)


def test_reduction_without_axes_may_do_nothing() -> None:
    feeds = {"x": random(2, 3)}
    node = helper.make_node("ReduceSum", ["x", "a"], ["y"], noop_with_empty_axes=1)
    check(build(node, feeds, {"a": np.zeros(0, np.int64)}), feeds)


@pytest.mark.parametrize(("op", "axis", "keepdims"), list(itertools.product(["ArgMax", "ArgMin"], [0, -1], [0, 1])))
def test_arg_reductions(op: str, axis: int, keepdims: int) -> None:
    feeds = {"x": random(3, 4)}
    check(build(helper.make_node(op, ["x"], ["y"], axis=axis, keepdims=keepdims), feeds), feeds)


@pytest.mark.parametrize(("exclusive", "reverse"), list(itertools.product([0, 1], [0, 1])))
def test_cumsum(exclusive: int, reverse: int) -> None:
    feeds = {"x": random(3, 4)}
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    check(build(node, feeds, {"axis": np.asarray(-1)}), feeds)


# Elementwise -----------------------------------------------------------------------------------------

UNARY = ["Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Identity", "Neg", "Reciprocal", "Relu", "Round",
         "Sigmoid", "Sin", "Softplus", "Softsign", "Tanh"]  # fmt: skip


@pytest.mark.parametrize("op", [*UNARY, "Elu", "HardSigmoid", "LeakyRelu", "Selu"])
def test_unary(op: str) -> None:
    feeds = {"x": random(3, 5)}
    check(build(helper.make_node(op, ["x"], ["y"]), feeds, opset=14), feeds)


@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_unary_of_positive_numbers(op: str) -> None:
    feeds = {"x": random(3, 5, low=0.5)}
    check(build(helper.make_node(op, ["x"], ["y"]), feeds), feeds)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    feeds = {"x": random(3, 5)}
    check(build(helper.make_node("Gelu", ["x"], ["y"], approximate=approximate), feeds, opset=20), feeds)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow"])
@pytest.mark.parametrize(("a", "b"), [((2, 3), (2, 3)), ((2, 1, 4), (3, 1)), ((), (2, 2)), ((3,), (2, 3))])
def test_binary(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    feeds = {"a": random(*a, low=0.5), "b": random(*b, seed=1, low=0.5)}
    check(build(helper.make_node(op, ["a", "b"], ["y"]), feeds), feeds)


@pytest.mark.parametrize("op", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
def test_comparisons(op: str) -> None:
    feeds = {"a": random(3, 4).round(), "b": random(3, 1, seed=1).round()}
    check(build(helper.make_node(op, ["a", "b"], ["y"]), feeds), feeds)


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Not"])
def test_logic(op: str) -> None:
    feeds = {"a": random(3, 4) > 0, "b": random(3, 1, seed=1) > 0}
    inputs = ["a"] if op == "Not" else ["a", "b"]
    feeds = {name: feeds[name] for name in inputs}
    check(build(helper.make_node(op, inputs, ["y"]), feeds), feeds)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_nary(op: str, count: int) -> None:
    feeds = {f"x{i}": random(*((2, 3), (3,), (1, 1))[i], seed=i) for i in range(count)}
    check(build(helper.make_node(op, list(feeds), ["y"]), feeds), feeds)


@pytest.mark.parametrize(("low", "high"), [(None, None), (-0.5, None), (None, 0.5), (-0.5, 0.5)])
@pytest.mark.parametrize("form", ["attribute", "constant", "run-time"])
def test_clip(low: float | None, high: float | None, form: str) -> None:
    feeds = {"x": random(3, 4)}
    bounds = {n: np.asarray(v, np.float32) for n, v in (("min", low), ("max", high)) if v is not None}
    inputs = ["x", *(name if name in bounds else "" for name in ("min", "max"))]
    if form == "attribute":
        attrs: dict[str, Any] = {name: float(value) for name, value in bounds.items()}
        model = build(helper.make_node("Clip", ["x"], ["y"], **attrs), feeds, opset=7)
        expected = np.clip(feeds["x"], -np.inf if low is None else low, np.inf if high is None else high)
        check(model, feeds, [expected.astype(np.float32)])
    elif form == "constant":
        check(build(helper.make_node("Clip", inputs, ["y"]), feeds, bounds), feeds)
    else:
        check(build(helper.make_node("Clip", inputs, ["y"]), feeds | bounds), feeds | bounds)


def test_clip_by_integers_that_no_float_holds() -> None:
    feeds = {"x": np.array([0, 2**53, 2**53 + 2, 2**60], np.int64)}
    bounds = {"low": np.array(2**53 + 1, np.int64), "high": np.array(2**59 + 1, np.int64)}
    check(build(helper.make_node("Clip", ["x", "low", "high"], ["y"]), feeds, bounds), feeds)


def test_prelu_and_where() -> None:
    feeds = {"x": random(2, 3, 4)}
    check(build(helper.make_node("PRelu", ["x", "s"], ["y"]), feeds, {"s": random(3, 1, seed=1)}), feeds)
    feeds |= {"c": random(3, 1) > 0, "z": random(4, seed=2)}
    check(build(helper.make_node("Where", ["c", "x", "z"], ["y"]), feeds), feeds)


@pytest.mark.parametrize("to", [TensorProto.INT32, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.FLOAT])
def test_cast(to: int) -> None:
    feeds = {"x": random(3, 4)}
    check(build(helper.make_node("Cast", ["x"], ["y"], to=to), feeds), feeds)


@pytest.mark.parametrize(("base", "exponent"), [("float32", "int64"), ("int32", "float32"), ("int64", "int32")])
def test_pow_of_different_dtypes(base: str, exponent: str) -> None:
    feeds = {"a": np.asarray([1, 2, 3], base), "b": np.asarray([3, 2, 0], exponent)}
    check(build(helper.make_node("Pow", ["a", "b"], ["y"]), feeds), feeds)


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_isinf(positive: int, negative: int) -> None:
    feeds = {"x": np.asarray([1, np.inf, -np.inf, np.nan], np.float32)}
    node = helper.make_node("IsInf", ["x"], ["y"], detect_positive=positive, detect_negative=negative)
    check(build(node, feeds), feeds)


def test_cast_like() -> None:
    feeds = {"x": random(3, 4), "like": np.zeros(1, np.int32)}
    check(build(helper.make_node("CastLike", ["x", "like"], ["y"]), feeds, opset=15), feeds)


def test_integer_arithmetic() -> None:
    rng = np.random.default_rng(0)
    feeds = {"a": rng.integers(-9, 9, (3, 4)), "b": rng.integers(1, 5, (4,))}
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        check(build(helper.make_node(op, ["a", "b"], ["y"]), feeds), feeds)


@pytest.mark.parametrize("opset", [7, 12, 13])
def test_dropout(opset: int) -> None:
    feeds = {"x": random(3, 4)}
    check(build(helper.make_node("Dropout", ["x"], ["y"]), feeds, opset=opset), feeds, [feeds["x"]])


def test_dropout_mask() -> None:
    feeds = {"x": random(3, 4)}
    model = build(helper.make_node("Dropout", ["x"], ["y", "m"]), feeds, outputs=["y", "m"])
    check(model, feeds, [feeds["x"], np.ones((3, 4), np.bool_)])
