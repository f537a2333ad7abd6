"""Corner cases of arithmetic in every dtype: division by zero, wrapping, NaN, shifts, conversions."""

from __future__ import annotations

import pytest

from autotune.schedule import Schedule
from autotune.tensor import (
    ComputeDef,
    DType,
    Reducer,
    cast,
    compute,
    const,
    maximum,
    minimum,
    placeholder,
    reduce,
    reduce_axis,
    select,
    sum_,
    unary,
)
from autotune.tensor.expr import binary
from tests.conftest import Right

FLOATS = ("f64", "f32", "f16", "bf16")
INTS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


def pair(dtype: str, *results: tuple[str, object], n: int = 61) -> Schedule:
    """One output per result, each `fn(x, y)`, vectorized with a masked tail."""
    x, y = placeholder((n,), dtype, "in0"), placeholder((n,), dtype, "in1")
    outputs = [compute((n,), lambda i, fn=fn: fn(x[i], y[i]), name) for name, fn in results]
    s = Schedule(ComputeDef.build([x, y], outputs))
    for name, _ in results:
        s = s.split(name, "i", 16).vectorize(name, "i.1")
    return s


@pytest.mark.parametrize("dtype", INTS)
def test_integers(dtype: str, right: Right) -> None:
    right(
        pair(
            dtype,
            ("quotient", lambda x, y: x / y),
            ("floor", lambda x, y: x // y),
            ("modulo", lambda x, y: x % y),
            ("by_zero", lambda x, y: x / (y - y)),
            ("rest_by_zero", lambda x, y: x % (y - y)),
            ("overflow", lambda x, y: binary("shl", const(1, dtype), x * 0 + (DType(dtype).bits - 1)) / -(x * 0 + 1)),
            ("wrapped", lambda x, y: x * y * y - x + 100),
            ("negated", lambda x, y: -x),
            ("abs", lambda x, y: unary("abs", x - y)),
            ("top", lambda x, y: maximum(x, y)),
            ("low", lambda x, y: minimum(x, y)),
            ("shifted", lambda x, y: binary("shl", x, y & 15)),
            ("back", lambda x, y: binary("shr", x, y & 63)),
            ("bits", lambda x, y: binary("xor", x & y, x | y)),
            ("inverted", lambda x, y: unary("not", x)),
        )
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_with_nan_and_infinities(dtype: str, right: Right) -> None:
    right(
        pair(
            dtype,
            ("top", lambda x, y: maximum(x, y)),
            ("low", lambda x, y: minimum(x, y)),
            ("relu", lambda x, y: maximum(x, 0.0)),
            ("clip", lambda x, y: minimum(maximum(x, -1.0), 1.0)),
            ("capped", lambda x, y: minimum(2.0, x)),
            ("nan", lambda x, y: unary("isnan", x - x)),
            ("inf", lambda x, y: unary("isinf", x)),
            ("less", lambda x, y: x < y),
            ("not_equal", lambda x, y: binary("ne", x, x)),
            ("equal", lambda x, y: binary("eq", x, x)),
            ("picked", lambda x, y: select(x < y, x, y)),
            ("quotient", lambda x, y: x / y),
            ("modulo", lambda x, y: x % y),
            ("floor", lambda x, y: x // y),
            ("truncated", lambda x, y: binary("truncdiv", x, y)),
            ("rounded", lambda x, y: unary("round", x * 4.0)),
            ("up", lambda x, y: unary("ceil", x)),
            ("root", lambda x, y: unary("sqrt", x)),
        ),
        special=True,
    )


FUNCTIONS = (
    "exp",
    "log",
    "tanh",
    "erf",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "sqrt",
)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_nan_and_infinities(dtype: str, right: Right) -> None:
    right(pair(dtype, *((f, lambda x, y, f=f: unary(f, x)) for f in FUNCTIONS)), special=True)


@pytest.mark.parametrize("source", (*FLOATS, *INTS, "bool"))
def test_conversions(source: str, right: Right) -> None:
    # A negative float has no unsigned value: C leaves it open, we saturate.
    signed = [f"to_{to}" for to in (*FLOATS, *INTS, "bool") if source not in FLOATS or not to.startswith("u")]
    right(pair(source, *((name, lambda x, y, to=name[3:]: cast(to, x)) for name in signed)))
    if source in FLOATS:
        right(pair(source, *((f"to_{to}", lambda x, y, to=to: cast(to, x * x)) for to in ("u8", "u16", "u32", "u64"))))


def test_constants_convert_as_values_do(right: Right) -> None:
    x = placeholder((40,), "f32", "in0")
    held = compute((40,), lambda i: cast("i8", minimum(x[i], 0.0) * 0.0 + 100.0) + cast("i8", const(27.9)), "held")
    right(Schedule(ComputeDef.build([x], [held])))


def test_bool_arithmetic(right: Right) -> None:
    right(
        pair(
            "bool",
            ("sum", lambda x, y: x + y),
            ("product", lambda x, y: x * y),
            ("top", lambda x, y: maximum(x, y)),
            ("low", lambda x, y: minimum(x, y)),
            ("both", lambda x, y: x & y),
            ("either", lambda x, y: x | y),
            ("one", lambda x, y: binary("xor", x, y)),
            ("neither", lambda x, y: unary("not", x | y)),
            ("less", lambda x, y: x < y),
            ("equal", lambda x, y: binary("eq", x, y)),
        )
    )


def test_a_reducer_named_sum_that_is_none(right: Right) -> None:
    f32 = DType.f32
    farthest = Reducer(
        "sum",
        (f32,),
        (const(0.0),),
        (
            select(
                unary("abs", Reducer.left(0, f32)) < unary("abs", Reducer.right(0, f32)),
                Reducer.right(0, f32),
                Reducer.left(0, f32),
            ),
        ),
    )
    x, k = placeholder((5, 9), name="in0"), reduce_axis(9, "k")
    y = compute((5,), lambda i: reduce(farthest, (x[i, k],), k), name="y")
    right(Schedule(ComputeDef.build([x], [y])))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_nothing_to_compute(shape: tuple[int, ...], right: Right) -> None:
    x = placeholder(shape, name="in0")
    right(Schedule(ComputeDef.build([x], [compute(shape, lambda *i: x[i] + 1.0, "y")])))


def test_a_sum_of_nothing_is_zero(right: Right) -> None:
    x, k = placeholder((4, 0), name="in0"), reduce_axis(0, "k")
    right(Schedule(ComputeDef.build([x], [compute((4,), lambda i: sum_(x[i, k], k), "y")])))
