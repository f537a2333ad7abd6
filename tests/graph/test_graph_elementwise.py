"""Converters of elementwise operators, reductions and normalisations: rare operators, all dtypes, the oldest opsets."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.graph_models import build, check, random

# Functions -------------------------------------------------------------------------------------------

DOMAINS = {"Acos": (-1, 1), "Acosh": (1, 9), "Asin": (-1, 1), "Atanh": (-0.9, 0.9)}


@pytest.mark.parametrize("op", [*DOMAINS, "Asinh", "Atan", "Cosh", "Sinh", "Tan", "Sign", "Mish", "Celu", "Shrink",
                                "Swish", "ThresholdedRelu"])  # fmt: skip
def test_functions(op: str) -> None:
    low, high = DOMAINS.get(op, (-2, 2))
    feeds = {"x": random(3, 5, low=low, high=high)}
    check(build(helper.make_node(op, ["x"], ["y"]), feeds, opset=24), feeds)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("Celu", {"alpha": 2.0}), ("Shrink", {"lambd": 1.0, "bias": 0.5}), ("ThresholdedRelu", {"alpha": -0.5}),
     ("Swish", {"alpha": 0.5})],
)  # fmt: skip
def test_functions_with_attributes(op: str, attrs: dict[str, Any]) -> None:
    feeds = {"x": random(3, 5)}
    check(build(helper.make_node(op, ["x"], ["y"], **attrs), feeds, opset=24), feeds)


def test_shrink_of_integers() -> None:
    feeds = {"x": np.arange(-5, 6, dtype=np.int16)}
    check(build(helper.make_node("Shrink", ["x"], ["y"], lambd=1.5, bias=1.0), feeds), feeds)


def test_swiglu() -> None:
    feeds = {"a": random(3, 4), "b": random(3, 4, seed=1)}
    a, b = feeds.values()
    expected = a / (1 + np.exp(-0.5 * a)) * b
    check(build(helper.make_node("SwiGLU", ["a", "b"], ["y"], alpha=0.5), feeds, opset=28), feeds, [expected])


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "uint8"])
def test_mod(dtype: str, fmod: int) -> None:
    if fmod == 0 and dtype.startswith("float"):
        opset = 28
    else:
        opset = 13
    signed = not dtype.startswith("u")
    a, b = (
        np.array([7, -7, 7, -7, 0, 6] if signed else [7, 5, 4]),
        np.array([3, 3, -3, -3, -5, 2] if signed else [3, 5, 9]),
    )
    feeds = {"a": a.astype(dtype), "b": b.astype(dtype)}
    check(build(helper.make_node("Mod", ["a", "b"], ["y"], fmod=fmod), feeds, opset=opset), feeds)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift(direction: str, dtype: str) -> None:
    feeds = {"a": np.array([16, 200, 1], dtype), "b": np.array([1, 2, 3], dtype)}
    check(build(helper.make_node("BitShift", ["a", "b"], ["y"], direction=direction), feeds), feeds)


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
def test_bitwise(op: str) -> None:
    feeds = {"a": np.arange(-8, 8, dtype=np.int16).reshape(4, 4), "b": np.array([1, 3, -1, 5], np.int16)}
    names = ["a"] if op == "BitwiseNot" else ["a", "b"]
    feeds = {name: feeds[name] for name in names}
    check(build(helper.make_node(op, names, ["y"]), feeds, opset=18), feeds)


@pytest.mark.parametrize(
    ("source", "to"),
    [(np.float32, TensorProto.INT32), (np.uint64, TensorProto.DOUBLE), (np.float16, TensorProto.INT16),
     (np.uint16, TensorProto.BFLOAT16), (ml_dtypes.bfloat16, TensorProto.FLOAT16), (np.int8, TensorProto.UINT8)],
)  # fmt: skip
def test_bit_cast(source: Any, to: int) -> None:
    feeds = {"x": np.array([0, 1, 7, 100, 3], np.float64).astype(source)}
    expected = feeds["x"].view(helper.tensor_dtype_to_np_dtype(to))
    check(build(helper.make_node("BitCast", ["x"], ["y"], to=to), feeds, opset=26), feeds, [expected])


# Reductions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Sum", "Prod", "Max", "Min", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"])
def test_reductions_of_nothing(op: str) -> None:
    feeds = {"x": np.zeros((2, 0, 3), np.float32)}
    node = helper.make_node(f"Reduce{op}", ["x", "a"], ["y"], keepdims=1)
    neutral = {"Prod": 1.0, "Max": -np.inf, "Min": np.inf, "LogSum": -np.inf, "LogSumExp": -np.inf}
    expected = np.full((2, 1, 3), neutral.get(op, 0.0), np.float32)
    check(build(node, feeds, {"a": np.array([1])}, opset=20), feeds, [expected])


@pytest.mark.parametrize("op", ["L1", "L2", "LogSum", "LogSumExp", "SumSquare"])
def test_reductions_over_no_axes_still_map(op: str) -> None:
    feeds = {"x": random(2, 3, low=0.5)}
    node = helper.make_node(f"Reduce{op}", ["x", "a"], ["y"], noop_with_empty_axes=1)
    x = feeds["x"]
    expected = {"LogSum": np.log(x), "SumSquare": x * x}.get(op, x)
    check(build(node, feeds, {"a": np.zeros(0, np.int64)}, opset=18), feeds, [expected])


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_reductions_of_truth(op: str) -> None:
    feeds = {"x": np.array([[True, False], [False, False], [True, True]])}
    check(build(helper.make_node(f"Reduce{op}", ["x", "a"], ["y"]), feeds, {"a": np.array([1])}, opset=20), feeds)


def test_log_sum_exp_of_infinities() -> None:
    feeds = {"x": np.array([[np.inf, 1], [-np.inf, -np.inf], [1000, 1000], [-np.inf, 2]], np.float32)}
    expected = np.array([np.inf, -np.inf, 1000 + np.log(2), 2], np.float32)
    model = build(helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[1], keepdims=0), feeds, opset=13)
    check(model, feeds, [expected])


@pytest.mark.parametrize("op", ["L2", "LogSum", "LogSumExp"])
def test_real_functions_of_integers_are_truncated(op: str) -> None:
    feeds = {"x": np.array([[3, 4], [60, 80]], np.int32)}
    expected = {"L2": [[5], [100]], "LogSum": [[1], [4]], "LogSumExp": [[4], [80]]}[op]
    model = build(helper.make_node(f"Reduce{op}", ["x"], ["y"], axes=[1]), feeds, opset=13)
    check(model, feeds, [np.array(expected, np.int32)])


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_cumulative(op: str, exclusive: int, reverse: int) -> None:
    feeds = {"x": random(3, 4)}
    node = helper.make_node(op, ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    check(build(node, feeds, {"axis": np.asarray(0)}, opset=26), feeds)


def test_running_counts_of_truth() -> None:
    """Beyond the specification; torch counts, and its older exporter leaves the cast out."""
    feeds = {"x": np.asarray([[True, False, True], [True, True, True]])}
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["z"]), helper.make_node("Mul", ["z", "two"], ["y"])]
    check(build(nodes, feeds, {"axis": np.asarray(1), "two": np.asarray(2)}), feeds, [2 * feeds["x"].cumsum(1)])


@pytest.mark.parametrize(("opset", "axis"), [(13, 0), (13, -1), (13, None), (11, None), (1, 0)])
def test_hardmax(opset: int, axis: int | None) -> None:
    """Before opset 13 the axes from `axis` on are one."""
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.float32)
    attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
    if opset >= 13:
        rows = np.moveaxis(x, -1 if axis is None else axis, -1)
    else:
        rows = x.reshape(int(np.prod(x.shape[: 1 if axis is None else axis])), -1)
    hot = (np.arange(rows.shape[-1]) == rows.argmax(-1)[..., None]).astype(np.float32)
    expected = np.moveaxis(hot, -1, -1 if axis is None else axis) if opset >= 13 else hot.reshape(x.shape)
    model = build(helper.make_node("Hardmax", ["x"], ["y"], **attrs), {"x": x}, opset=opset)
    check(model, {"x": x}, [expected])


@pytest.mark.parametrize("op", ["Hardmax", "Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize(("opset", "axis"), [(13, 0), (13, 1), (11, 1)])
def test_softmax_of_nothing(op: str, shape: tuple[int, ...], opset: int, axis: int) -> None:
    feeds = {"x": np.zeros(shape, np.float32)}
    check(build(helper.make_node(op, ["x"], ["y"], axis=axis), feeds, opset=opset), feeds, [feeds["x"]])


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op: str, periodic: int) -> None:
    node = helper.make_node(op, ["n"], ["y"], periodic=periodic)
    check(build(node, {}, {"n": np.asarray(10)}, opset=17), {})


# Normalisation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, -1, -2])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalization_with_its_statistics(axis: int, bias: bool) -> None:
    feeds = {"x": random(2, 3, 4)}
    shape = feeds["x"].shape[axis:]
    tensors = {"w": random(*shape, seed=1), "b": random(*shape, seed=2)}
    inputs = ["x", "w", "b"] if bias else ["x", "w"]
    node = helper.make_node("LayerNormalization", inputs, ["y", "m", "s"], axis=axis)
    check(build(node, feeds, tensors, outputs=["y", "m", "s"], opset=17), feeds)


def test_layer_normalization_of_halves_keeps_its_statistics_wide() -> None:
    x = (random(2, 8) * 100).astype(np.float16)
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y", "m", "s"])
    model = build(node, {"x": x}, {"w": np.ones(8, np.float16)}, outputs=["y", "m", "s"], opset=17)
    wide = x.astype(np.float32)
    mean, deviation = wide.mean(-1, keepdims=True), wide.std(-1, keepdims=True)
    expected = [((wide - mean) / deviation).astype(np.float16), mean, 1 / deviation]
    check(model, {"x": x}, expected)


@pytest.mark.parametrize("axis", [1, -1])
def test_rms_normalization(axis: int) -> None:
    feeds = {"x": random(2, 3, 4)}
    tensors = {"w": random(*feeds["x"].shape[axis:], seed=1)}
    check(build(helper.make_node("RMSNormalization", ["x", "w"], ["y"], axis=axis), feeds, tensors, opset=23), feeds)


@pytest.mark.parametrize(("opset", "per"), [(18, 2), (21, 6)])
def test_group_normalization(opset: int, per: int) -> None:
    feeds = {"x": random(2, 6, 3, 4)}
    tensors = {"w": random(per, seed=1), "b": random(per, seed=2)}
    node = helper.make_node("GroupNormalization", ["x", "w", "b"], ["y"], num_groups=2, epsilon=1e-3)
    x = feeds["x"].reshape(2, 2, -1)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    weights = [np.repeat(t, 6 // per).reshape(6, 1, 1) for t in tensors.values()]
    expected = normal.reshape(feeds["x"].shape) * weights[0] + weights[1]
    check(build(node, feeds, tensors, opset=opset), feeds, [expected])


@pytest.mark.parametrize("opset", [1, 6, 22])
def test_instance_normalization(opset: int) -> None:
    feeds = {"x": random(2, 3, 4, 5)}
    tensors = {"w": random(3, seed=1), "b": random(3, seed=2)}
    check(build(helper.make_node("InstanceNormalization", ["x", "w", "b"], ["y"]), feeds, tensors, opset=opset), feeds)


@pytest.mark.parametrize("axes", [None, [0, 2], [-1]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    feeds = {"x": random(2, 3, 4, 5)}
    attrs: dict[str, Any] = {} if axes is None else {"axes": axes}
    check(build(helper.make_node("MeanVarianceNormalization", ["x"], ["y"], **attrs), feeds), feeds)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p: int) -> None:
    x = random(2, 3, 4)
    x[0, :, 1] = 0
    size = np.abs(x).sum(1, keepdims=True) if p == 1 else np.sqrt((x * x).sum(1, keepdims=True))
    expected = np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    model = build(helper.make_node("LpNormalization", ["x"], ["y"], axis=1, p=p), {"x": x}, opset=22)
    check(model, {"x": x}, [expected])


def test_batch_normalization_of_each_element() -> None:
    x = random(2, 3, 4)
    tensors = {name: random(3, 4, seed=i, low=0.5) for i, name in enumerate(("scale", "bias", "mean", "var"))}
    scale, bias, mean, var = tensors.values()
    node = helper.make_node("BatchNormalization", ["x", *tensors], ["y"], spatial=0, is_test=1)
    expected = (x - mean) / np.sqrt(var + np.float32(1e-5)) * scale + bias
    check(build(node, {"x": x}, tensors, opset=6), {"x": x}, [expected])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (1, 3, 9), (5, 3)])
def test_batch_normalization_by_the_statistics_of_the_data(shape: tuple[int, ...], dtype: Any) -> None:
    feeds = {"x": random(*shape).astype(dtype)}
    given = {name: random(3, seed=i, low=0.5).astype(dtype) for i, name in enumerate(("s", "b", "m", "v"))}
    node = helper.make_node("BatchNormalization", ["x", *given], ["y", "mean", "var"], training_mode=1, momentum=0.75)
    wide = feeds["x"].astype(np.float64)
    axes = (0, *range(2, len(shape)))
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    s, b, m, v = (array.astype(np.float64) for array in given.values())
    per_channel = (3, *(1,) * (len(shape) - 2))
    y = (wide - mean) / np.sqrt(var + 1e-5) * s.reshape(per_channel) + b.reshape(per_channel)
    expected = [y, 0.75 * m + 0.25 * mean.reshape(-1), 0.75 * v + 0.25 * var.reshape(-1)]
    found = evaluate_graph(load_model(build(node, feeds, given, ["y", "mean", "var"], 15).SerializeToString()), feeds)
    for name, wanted in zip(("y", "mean", "var"), expected, strict=True):
        assert found[name].dtype == dtype
        np.testing.assert_allclose(found[name], wanted, rtol=3e-3 if dtype is np.float16 else 1e-5, atol=1e-5)


def test_weights_that_are_standardised_are_constants() -> None:
    """As torch's older exporter writes a BiT ResNet: only the result is used, and all of it is known."""
    node = helper.make_node("BatchNormalization", ["w", "s", "b", "m", "v"], ["z", "1", "2"], training_mode=1)
    given = {name: random(3, seed=i, low=0.5) for i, name in enumerate(("s", "b", "m", "v"))}
    feeds = {"x": random(1, 3, 8)}
    model = build(
        [node, helper.make_node("Add", ["x", "z"], ["y"])], feeds, {"w": random(1, 3, 8, seed=9), **given}, opset=15
    )
    check(model, feeds)
    assert [node.op for node in optimize(load_model(model.SerializeToString())).nodes] == ["add"]


@pytest.mark.parametrize("constant", [True, False])
def test_batch_normalization_of_mixed_precision(constant: bool) -> None:
    x = random(2, 3, 4).astype(np.float16)
    statistics = {name: random(3, seed=i, low=0.5) for i, name in enumerate(("scale", "bias", "mean", "var"))}
    scale, bias, mean, var = (array.reshape(3, 1) for array in statistics.values())
    expected = ((x - mean) / np.sqrt(var + np.float32(1e-5)) * scale + bias).astype(np.float16)
    node = helper.make_node("BatchNormalization", ["x", *statistics], ["y"])
    feeds = {"x": x} if constant else {"x": x, **statistics}
    model = build(node, feeds, statistics if constant else None, opset=15)
    graph_feeds: dict[str, Any] = feeds
    check(model, graph_feeds, [expected])


# The oldest opsets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    ("b", "axis"),
    [((2, 3, 4), None), ((4,), None), ((3, 4), None), ((3,), 1), ((2,), 0), ((2, 3), 0), ((1, 1), 0), ((), None)],
)
@pytest.mark.parametrize("op", ["Add", "Pow", "Greater", "And"])
def test_broadcasting_along_an_axis(op: str, b: tuple[int, ...], axis: int | None, opset: int) -> None:
    arrays = {"a": random(2, 3, 4, low=0.5), "b": random(*b, seed=1, low=0.5)}
    if op == "And":
        arrays = {name: array > 1 for name, array in arrays.items()}
    attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
    x, y = arrays.values()
    aligned = y if axis is None else y.reshape(*y.shape, *(1,) * (3 - axis - y.ndim))
    expected = {"Add": np.add, "Pow": np.power, "Greater": np.greater, "And": np.logical_and}[op](x, aligned)
    node = helper.make_node(op, ["a", "b"], ["y"], broadcast=1, **attrs)
    check(build(node, arrays, opset=opset), arrays, [expected])


def test_old_forms_of_attributes() -> None:
    x = {"x": random(2, 3, 4)}
    check(build(helper.make_node("Cast", ["x"], ["y"], to="INT32"), x, opset=1), x, [x["x"].astype(np.int32)])
    node = helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.5, consumed_inputs=[0])
    check(build(node, x, opset=1), x, [x["x"].clip(-0.5, 0.5)])
    check(build(helper.make_node("Dropout", ["x"], ["y"], is_test=1), x, opset=6), x, [x["x"]])
    slope = random(3, seed=1)
    expected = np.where(x["x"] < 0, x["x"] * slope.reshape(3, 1), x["x"])
    check(build(helper.make_node("PRelu", ["x", "s"], ["y"]), x, {"s": slope}, opset=6), x, [expected])
    for whole in (slope.reshape(3, 1), random(2, 3, 4, seed=2)):
        expected = np.where(x["x"] < 0, x["x"] * whole, x["x"])
        check(build(helper.make_node("PRelu", ["x", "s"], ["y"]), x, {"s": whole}, opset=6), x, [expected])
    value = np.where(x["x"] < 0, 1.6732 * (np.exp(x["x"]) - 1), x["x"]) * 1.0507
    check(build(helper.make_node("Selu", ["x"], ["y"]), x, opset=1), x, [value.astype(np.float32)])


def test_old_gemm_may_broadcast_what_it_does_not_add() -> None:
    feeds = {"a": random(2, 3), "b": random(3, 4, seed=1)}
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], alpha=1.0, beta=0.0, broadcast=1)
    check(build(node, feeds, {"c": np.ones(1, np.float32)}, opset=6), feeds, [feeds["a"] @ feeds["b"]])
