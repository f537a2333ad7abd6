"""Elementwise operators against onnx.reference: values, broadcasting, NaN, integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError

Call = Callable[..., Any]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 88.0, -88.0, 800.0, -800.0, math.inf, -math.inf, math.nan])
UNARY = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "erf": "Erf",
    "neg": "Neg", "abs": "Abs", "reciprocal": "Reciprocal", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "sin": "Sin", "cos": "Cos", "isnan": "IsNaN", "isinf": "IsInf", "hard_swish": "HardSwish", "softplus": "Softplus",
}  # fmt: skip
BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "min": "Min", "max": "Max",
    "equal": "Equal", "less": "Less", "greater": "Greater", "less_or_equal": "LessOrEqual",
    "greater_or_equal": "GreaterOrEqual",
}  # fmt: skip
UNBOUNDED = {"softplus"}  # the reference computes log(exp(x) + 1), which overflows where ours does not


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: Any, run: Call, reference: Call, same: Call) -> None:
    values = np.concatenate([SPECIAL, np.random.default_rng(0).standard_normal(50) * 3]).astype(dtype)
    if name in UNBOUNDED:
        values = values[~(values > 10)]
    with np.errstate(all="ignore"):
        theirs = reference(UNARY[name], [values], opset=22)
    if name == "erf":  # the reference computes it in single precision
        theirs = np.array([math.erf(v) for v in values], dtype)
    same(run(name, [values]), theirs, 1e-6 if name == "hard_swish" and dtype is np.float64 else None)  # its 1/6 is f32


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int64, np.int8])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: Any, run: Call, reference: Call, same: Call) -> None:
    rng = np.random.default_rng(1)
    if np.issubdtype(dtype, np.integer):
        a, b = rng.integers(-9, 9, (4, 1, 5)).astype(dtype), rng.integers(1, 4, (3, 1)).astype(dtype)
        a = np.abs(a) if name == "div" else a  # the reference rounds down where ONNX truncates
    else:
        a, b = np.resize(SPECIAL, (4, 1, 5)).astype(dtype), rng.standard_normal((3, 1)).astype(dtype)
        a[0] = b[0]
    with np.errstate(all="ignore"):
        theirs = reference(BINARY[name], [a, b], opset=22)
    same(run(name, [a, b]), theirs)


@settings(max_examples=50, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 7]), max_size=4), keep=st.lists(st.booleans(), min_size=4, max_size=4),
    drop=st.integers(0, 4), swap=st.booleans(),
)  # fmt: skip
def test_broadcasting(shape: list[int], keep: list[bool], drop: int, swap: bool, run: Call, same: Call) -> None:
    rng = np.random.default_rng(0)
    other = [n if k else 1 for n, k in zip(shape, keep, strict=False)][min(drop, len(shape)) :]
    arrays = [rng.standard_normal(shape), rng.standard_normal(other)]
    a, b = reversed(arrays) if swap else arrays
    same(run("sub", [a, b]), np.asarray(a - b))


def test_integer_division_truncates_and_never_traps(run: Call, same: Call) -> None:
    a = np.array([7, -7, 7, -7, 5, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    same(run("div", [a, b])[:5], np.array([3, -3, -3, 3, 0], np.int32))


def test_integer_powers(run: Call, same: Call) -> None:
    a, b = np.array([2, 3, -1, -1, 1, 5, 0], np.int64), np.array([10, 0, -3, -2, -9, -1, 0], np.int64)
    same(run("pow", [a, b]), np.array([1024, 1, -1, 1, 1, 0, 1], np.int64))


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_logic(name: str, run: Call, reference: Call, same: Call) -> None:
    a, b = np.array([[True], [False]]), np.array([True, False])
    same(run(name, [a, b]), reference(name.capitalize(), [a, b]))
    same(run("not", [a]), ~a)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str, run: Call, reference: Call, same: Call) -> None:
    x = np.concatenate([SPECIAL[:-3], np.linspace(-6, 6, 101)])
    same(run("gelu", [x], approximate=approximate), reference("Gelu", [x], approximate=approximate), 1e-6)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 6.0), (-math.inf, 2.0), (1.0, math.inf), (2.0, -2.0)])
def test_clip(low: float, high: float, run: Call, reference: Call, same: Call) -> None:
    bounds = [np.array(low), np.array(high)]
    same(run("clip", [SPECIAL], min=low, max=high), reference("Clip", [SPECIAL, *bounds]))


def test_activations_with_attributes(run: Call, reference: Call, same: Call) -> None:
    x = SPECIAL[:-1]
    same(run("leaky_relu", [x], alpha=0.3), reference("LeakyRelu", [x], alpha=0.3), 1e-6)
    same(run("elu", [x], alpha=0.3), reference("Elu", [x], alpha=0.3), 1e-6)
    same(run("hard_sigmoid", [x], alpha=0.3, beta=0.25), reference("HardSigmoid", [x], alpha=0.3, beta=0.25), 1e-6)


def test_where(run: Call, reference: Call, same: Call) -> None:
    condition, a, b = np.array([[True], [False]]), np.arange(3.0), np.array(math.nan)
    same(run("where", [condition, a, b]), reference("Where", [condition, a, b]))


@pytest.mark.parametrize("end", [-1, 0, 2, 3, 9])
def test_until_is_zero_from_an_end_on_whatever_is_there(end: int, run: Call, same: Call) -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    data[:, max(end, 0) :] = math.nan
    right = np.where(np.arange(3)[:, None] < end, data, np.float32(0))
    same(run("until", [data, np.asarray(end, np.int64)], axis=1), right)


def test_until_has_an_end_for_each_batch(run: Call, same: Call) -> None:
    data, ends = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4), np.asarray([2, -5])
    right = data * (np.arange(3)[:, None] < ends[:, None, None])
    same(run("until", [data, ends.reshape(2, 1, 1)], axis=1), right)
    same(run("until", [data[0], ends[:1, None]], axis=1), data[0] * (np.arange(4) < 2))


@pytest.mark.parametrize(
    ("axis", "end"),
    [(2, np.int64(1)), (0, np.int32(1)), (0, np.ones(2, np.int64)[:, None]), (1, np.ones(3, np.int64)),
     (0, np.ones((1, 1, 1), np.int64))],
)  # fmt: skip
def test_until_needs_an_axis_and_one_end(axis: int, end: Any, run: Call) -> None:
    with pytest.raises(WorkloadError, match=r"until: (axis|end)"):
        run("until", [np.zeros((2, 3), np.float32), np.asarray(end)], axis=axis)


@pytest.mark.parametrize("to", ["f64", "f32", "f16", "bf16", "i8", "u8", "i32", "i64", "bool"])
@pytest.mark.parametrize("source", [np.float32, np.int32, np.bool_, ml_dtypes.bfloat16])
def test_cast(source: Any, to: str, run: Call, same: Call) -> None:
    from autotune.tensor import DType

    values = np.array([0, 1, 2.75, 3.5, 100], np.float32).astype(source)
    same(run("cast", [values], to=to), values.astype(DType(to).numpy))


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "message"),
    [
        ("add", [np.ones(3), np.ones(4)], {}, "do not broadcast"),
        ("add", [np.ones(3), np.ones(3, np.int32)], {}, "different dtypes f64, i32; cast them first"),
        ("exp", [np.ones(3, np.int32)], {}, "needs floating-point numbers, got i32"),
        ("add", [np.ones(3, bool), np.ones(3, bool)], {}, "needs numbers, got bool"),
        ("cast", [np.ones(3)], {"to": "float"}, "unknown dtype 'float'"),
        ("gelu", [np.ones(3)], {"approximate": "fast"}, "must be one of none, tanh"),
        ("clip", [np.ones(3)], {"min": math.nan, "max": 1.0}, "a bound is NaN"),
        ("clip", [np.ones(3)], {"min": 0.0}, "lacks the attribute 'max'"),
        ("relu", [np.ones(3)], {"alpha": 0.1}, "no attribute 'alpha'"),
        ("rellu", [np.ones(3)], {}, "did you mean relu"),
        ("where", [np.ones(3), np.ones(3), np.ones(3)], {}, "needs bool, got f64"),
        ("add", [np.ones(3)], {}, "takes the operands a, b; got 1"),
    ],
)
def test_impossible_operands_are_refused(op: str, arrays: Any, attrs: Any, message: str, run: Call) -> None:
    with pytest.raises(WorkloadError, match=message):
        run(op, arrays, **attrs)
