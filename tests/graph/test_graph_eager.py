"""Eager operators: what NumPy answers at once is what conversion and evaluation, their definition, give."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from autotune.compiler.host import GROWS, prepared, run_on_host
from autotune.errors import AutotuneError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.moved import evaluated
from autotune.graph.host import eager, is_eager
from autotune.graph.host.eager import MAKERS
from autotune.graph.ir import Array

OPSET = 18
FLOATS = (np.float32, np.float64)
INTEGERS = (np.int32, np.int64)
Case = tuple[list[Any], dict[str, Any], int]
"""Inputs, attributes, and how many outputs."""


def shape(r: random.Random, least: int = 1, most: int = 3) -> tuple[int, ...]:
    return tuple(r.randint(1, 4) for _ in range(r.randint(least, most)))


def tensor(r: random.Random, form: tuple[int, ...], kinds: tuple[Any, ...] = (*FLOATS, *INTEGERS)) -> Array:
    kind = np.dtype(r.choice(kinds))
    rng = np.random.default_rng(r.getrandbits(32))
    if kind.kind == "b":
        return np.asarray(rng.random(form) < 0.5)
    if kind.kind == "f":
        return np.asarray(rng.choice(rng.standard_normal(5), form), kind)  # some are equal
    return np.asarray(rng.integers(-5, 6, form), kind)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def indices(r: random.Random, extent: int, form: tuple[int, ...]) -> Array:
    return np.random.default_rng(r.getrandbits(32)).integers(-extent, extent, form)


def unary(*kinds: Any) -> Callable[[random.Random], Case]:
    return lambda r: ([tensor(r, shape(r, 0), kinds)], {}, 1)


def binary(*kinds: Any, zeros: bool = True) -> Callable[[random.Random], Case]:
    def case(r: random.Random) -> Case:
        kind, form = r.choice(kinds), shape(r, 0)
        other = tuple(extent if r.random() < 0.7 else 1 for extent in form)[r.randint(0, len(form)) :]
        one, two = tensor(r, form, (kind,)), tensor(r, other, (kind,))
        return [one, two if zeros else np.where(two == 0, np.asarray(3, kind), two)], {}, 1

    return case


def gathered(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    axis = r.randrange(-x.ndim, x.ndim)
    return [x, indices(r, x.shape[axis], shape(r, 0, 2))], {"axis": axis}, 1


def joined(r: random.Random) -> Case:
    form, kind = shape(r), r.choice(FLOATS)
    axis = r.randrange(-len(form), len(form))
    parts = [list(form) for _ in range(r.randint(1, 3))]
    for part in parts:
        part[axis] = r.randint(0, 3)
    return [tensor(r, tuple(part), (kind,)) for part in parts], {"axis": axis}, 1


def unsqueezed(r: random.Random) -> Case:
    x = tensor(r, shape(r, 0))
    return [x, ints(*r.sample(range(x.ndim + 2), 2))], {}, 1


def squeezed(r: random.Random) -> Case:
    return [tensor(r, (1, *shape(r), 1)), *([ints(0, -1)] if r.random() < 0.7 else [])], {}, 1


def reshaped(r: random.Random) -> Case:
    x = tensor(r, shape(r, 2))
    return [x, ints(*r.choice([(-1,), (0, -1), (x.size, 1), (1, -1, 1)]))], {}, 1


def sliced(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    axis, step = r.randrange(-x.ndim, x.ndim), r.choice((1, 1, 2, -1))
    start, end = r.randint(-6, 6), r.choice((r.randint(-6, 6), 2**62))
    inputs = [x, ints(start), ints(end), ints(axis)]
    return [*inputs, *([ints(step)] if step != 1 else [])], {}, 1


def cut(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    axis = r.randrange(-x.ndim, x.ndim)
    first = r.randint(0, x.shape[axis])
    return [x, ints(first, x.shape[axis] - first)], {"axis": axis}, 2


def expanded(r: random.Random) -> Case:
    form = shape(r)
    return [tensor(r, tuple(n if r.random() < 0.5 else 1 for n in form)), ints(2, *form)], {}, 1


def along(r: random.Random) -> tuple[Array, Array, int]:
    x = tensor(r, shape(r), FLOATS)
    axis = r.randrange(-x.ndim, x.ndim)
    form = [r.randint(1, extent) for extent in x.shape]
    return x, indices(r, x.shape[axis], tuple(form)), axis


def gathered_along(r: random.Random) -> Case:
    x, places, axis = along(r)
    return [x, places], {"axis": axis}, 1


def tiled(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    return [x, ints(*(r.randint(0, 2) for _ in x.shape))], {}, 1


def scattered(r: random.Random) -> Case:
    x, places, axis = along(r)
    return [x, places, tensor(r, places.shape, (x.dtype,))], {"axis": axis, "reduction": r.choice(("add", "max"))}, 1


def by_tuples(r: random.Random) -> tuple[Array, Array]:
    x = tensor(r, shape(r), FLOATS)
    depth, count = r.randint(1, x.ndim), r.randint(1, 4)
    return x, np.stack([indices(r, extent, (count,)) for extent in x.shape[:depth]], -1)


def scattered_nd(r: random.Random) -> Case:
    x, places = by_tuples(r)
    more = tensor(r, (len(places), *x.shape[places.shape[1] :]), (x.dtype,))
    return [x, places, more], {"reduction": r.choice(("add", "min", "mul"))}, 1


def chosen(r: random.Random) -> Case:
    form, kind = shape(r), r.choice((*FLOATS, *INTEGERS, np.bool_))
    return [tensor(r, form, (np.bool_,)), tensor(r, form, (kind,)), tensor(r, form[-1:], (kind,))], {}, 1


def limited(r: random.Random) -> Case:
    kind = r.choice((*FLOATS, *INTEGERS))
    return [tensor(r, shape(r, 0), (kind,)), np.asarray(-1, kind), np.asarray(2, kind)], {}, 1


def cast(r: random.Random) -> Case:
    types = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    return [tensor(r, shape(r, 0), (*FLOATS, *INTEGERS, np.bool_))], {"to": r.choice(types)}, 1


def reduced(*kinds: Any) -> Callable[[random.Random], Case]:
    def case(r: random.Random) -> Case:
        x = tensor(r, shape(r), kinds)
        axes = r.sample(range(x.ndim), r.randint(1, x.ndim))
        given = [x] if r.random() < 0.3 else [x, ints(*axes)]
        return list(given), {"keepdims": r.randint(0, 1)}, 1

    return case


def reduced_by_attribute(*kinds: Any) -> Callable[[random.Random], Case]:
    """As these operators are until opset 18."""

    def case(r: random.Random) -> Case:
        x = tensor(r, shape(r), kinds)
        return [x], {"keepdims": r.randint(0, 1), "axes": [r.randrange(-x.ndim, x.ndim)]}, 1

    return case


def best(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    axis = r.randrange(-x.ndim, x.ndim)
    return [x, ints(r.randint(0, x.shape[axis]))], {"axis": axis, "largest": r.randint(0, 1)}, 2


def extreme_place(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    return [x], {"axis": r.randrange(-x.ndim, x.ndim), "keepdims": r.randint(0, 1)}, 1


def softened(r: random.Random) -> Case:
    x = tensor(r, shape(r), FLOATS)
    return [x], {"axis": r.randrange(-x.ndim, x.ndim)}, 1


def cumulated(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    return [x, np.asarray(r.randrange(-x.ndim, x.ndim))], {}, 1


def turned(r: random.Random) -> Case:
    x = tensor(r, shape(r))
    return [x], {"perm": r.sample(range(x.ndim), x.ndim)} if r.random() < 0.8 else {}, 1


NUMBERS = (*FLOATS, *INTEGERS)
CASES: dict[str, Callable[[random.Random], Case]] = {
    "Abs": unary(*FLOATS), "Add": binary(*NUMBERS), "And": binary(np.bool_), "ArgMax": extreme_place,
    "ArgMin": extreme_place, "Cast": cast, "Ceil": unary(*FLOATS), "Clip": limited, "Concat": joined,
    "ConstantOfShape": lambda r: ([ints(*shape(r))], {"value": numpy_helper.from_array(ints(r.randint(-3, 3)))}, 1),
    "CumSum": cumulated, "Div": binary(*NUMBERS, zeros=False), "Equal": binary(*NUMBERS, np.bool_),
    "Exp": unary(*FLOATS), "Expand": expanded, "Flatten": lambda r: ([tensor(r, shape(r))], {"axis": 1}, 1),
    "Floor": unary(*FLOATS), "Gather": gathered,
    "GatherElements": gathered_along,
    "GatherND": lambda r: (list(by_tuples(r)), {}, 1), "Greater": binary(*NUMBERS),
    "GreaterOrEqual": binary(*NUMBERS), "Identity": unary(*NUMBERS), "Less": binary(*NUMBERS),
    "LessOrEqual": binary(*NUMBERS), "Max": binary(*NUMBERS), "Min": binary(*NUMBERS), "Mul": binary(*NUMBERS),
    "Log": unary(*FLOATS), "Neg": unary(*NUMBERS), "Reciprocal": unary(*FLOATS), "Relu": unary(*FLOATS),
    "Round": unary(*FLOATS), "Sigmoid": unary(*FLOATS), "Sign": unary(*NUMBERS), "Softmax": softened,
    "Tanh": unary(*FLOATS), "Not": unary(np.bool_), "Or": binary(np.bool_),
    "Range": lambda r: ([np.asarray(r.randint(-4, 4)), np.asarray(r.randint(-4, 9)), np.asarray(r.choice((1, 2, -1)))],
                        {}, 1),
    "ReduceMax": reduced_by_attribute(*NUMBERS), "ReduceMean": reduced_by_attribute(*FLOATS),
    "ReduceMin": reduced_by_attribute(*NUMBERS), "ReduceProd": reduced_by_attribute(*NUMBERS),
    "ReduceSum": reduced(*NUMBERS), "Reshape": reshaped, "ScatterElements": scattered, "ScatterND": scattered_nd,
    "Shape": unary(*NUMBERS), "Size": unary(*NUMBERS), "Slice": sliced, "Split": cut, "Sqrt": unary(*FLOATS),
    "Squeeze": squeezed, "Sub": binary(*NUMBERS),
    "Tile": tiled,
    "TopK": best, "Transpose": turned, "Unsqueeze": unsqueezed, "Where": chosen, "Xor": binary(np.bool_),
}  # fmt: skip


def node_of(op: str, attributes: dict[str, Any], inputs: int, outputs: int, opset: int = OPSET) -> NodeAttributes:
    names = [f"x{n}" for n in range(inputs)], [f"y{n}" for n in range(outputs)]
    return NodeAttributes(helper.make_node(op, *names, **attributes), opset, None)


def test_every_eager_operator_is_tried() -> None:
    assert set(CASES) == set(MAKERS)
    assert not is_eager(helper.make_node("Add", ["a", "b"], ["c"], domain="com.microsoft"))


@pytest.mark.parametrize("op", sorted(CASES))
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_eager_is_what_evaluation_gives(op: str, seed: int) -> None:
    values, attributes, outputs = CASES[op](random.Random(seed))
    opset = 17 if "axes" in attributes else OPSET
    node = node_of(op, attributes, len(values), outputs, opset)
    function = eager(node)
    assert function is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = function(values)
    wanted = evaluated(node, values)
    if found is None:
        assert op in ("Slice", "Cast")  # backwards; what an integer cannot hold
        found = run_on_host(node, values)
    for one, other in zip(found, wanted, strict=True):
        assert isinstance(one, np.ndarray) and other is not None
        assert (one.dtype, one.shape, one.flags.c_contiguous) == (other.dtype, other.shape, True)
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    told = GROWS[op](node, values) if op in GROWS else 0
    most = max(8 * sum(value.size for value in values), told) + 64  # what only changes its type, or tells a shape
    assert all(one.nbytes <= most for one in found if isinstance(one, np.ndarray)), "loops count on it"


EXTREMES = (
    np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 0.5, 3e38, -1e-40], np.float32),
    np.asarray([np.iinfo(np.int32).min, np.iinfo(np.int32).max, 0, -1, 1, 7, -7], np.int32),
    np.asarray([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0, -1, 1, 7, -7], np.int64),
    np.asarray([0, 1, 128, 255], np.uint8),
)
ONE = ("Abs", "ArgMax", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin",
       "ReduceProd", "ReduceSum", "Relu", "Round", "Sigmoid", "Sign", "Softmax", "Sqrt", "Tanh")  # fmt: skip
TWO = ("Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Sub")


@pytest.mark.parametrize("values", EXTREMES, ids=lambda array: str(array.dtype))
@pytest.mark.parametrize("op", [*ONE, *TWO, "Cast", "CumSum", "TopK"])
def test_eager_is_what_evaluation_gives_at_the_ends_of_numbers(op: str, values: Array) -> None:
    """Overflow, division by 0, what is no number; without a warning."""
    inputs, attributes = [values], [dict[str, Any]()]
    if op in TWO:
        inputs = [np.repeat(values, len(values)), np.tile(values, len(values))]
    elif op in ("CumSum", "TopK"):
        inputs.append(ints(3) if op == "TopK" else np.asarray(0))
    elif op == "Cast":
        types = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT8, TensorProto.BOOL)
        attributes = [{"to": to} for to in types]
    elif op == "ArgMax":
        attributes = [{"axis": 0}]
    for given_ in attributes:
        node = node_of(op, given_, len(inputs), 2 if op == "TopK" else 1, 17 if op.startswith("Reduce") else OPSET)
        function = eager(node)
        assert function is not None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = function(inputs)
        if found is None:
            continue  # it is left to the definition
        for one, other in zip(found, evaluated(node, inputs), strict=True):
            assert isinstance(one, np.ndarray) and other is not None and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    ("op", "attributes", "values"),
    [
        ("Gather", {"axis": 0}, [np.zeros((3, 2), np.float32), ints(3)]),
        ("Concat", {"axis": 0}, [np.zeros((3, 2), np.float32), np.zeros((3, 3), np.float32)]),
        ("TopK", {}, [np.zeros(3, np.float32), ints(4)]),
        ("Reshape", {}, [np.zeros(3, np.float32), ints(2)]),
        ("GatherND", {}, [np.zeros((3, 2), np.float32), ints(0, 5)]),
        ("ScatterND", {}, [np.zeros((3, 2), np.float32), ints(0, 1).reshape(2, 1), np.ones((1, 2), np.float32)]),
        ("Where", {}, [np.ones(3, bool), np.zeros(3, np.float32), np.zeros(3, np.int64)]),
        ("Add", {}, [np.zeros(3, np.float32), np.zeros(2, np.float32)]),
    ],
)
def test_what_is_impossible_is_one_line(op: str, attributes: dict[str, Any], values: list[Array]) -> None:
    with pytest.raises(AutotuneError) as error:
        prepared(node_of(op, attributes, len(values), 1))(values)
    assert "\n" not in str(error.value)


def test_halves_are_left_to_the_definition() -> None:
    values = [np.asarray([1.5, -2.0], np.float16)] * 2
    node = node_of("Mul", {}, 2, 1)
    function = eager(node)
    assert function is not None and function(values) is None
    (found,) = run_on_host(node, values)
    np.testing.assert_array_equal(found, np.asarray([2.25, 4.0], np.float16))


def test_the_sign_of_what_has_none() -> None:
    (found,) = run_on_host(node_of("Sign", {}, 1, 1), [np.asarray([0, 7], np.uint8)])
    np.testing.assert_array_equal(found, np.asarray([0, 1], np.uint8))
