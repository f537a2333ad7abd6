"""Extern stages: loop IR beyond tensor expressions, scheduled, verified and stored like the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from autotune.errors import LoweringError, ScheduleError, WorkloadError
from autotune.lower import lower, print_program
from autotune.lower.extern import Row, extern_nest, store
from autotune.lower.ir import Stmt
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, DType, Layout, Output, Tensor, compute, extern, extern_value, placeholder
from autotune.tensor.evaluate import evaluate
from autotune.tensor.externs import Array
from tests.conftest import Golden, Right


def top(m: int, n: int, k: int, dtype: str = "f32") -> Schedule:
    """The k largest of the rows of twice x, less one."""
    x = placeholder((m, n), dtype, "in0")
    y = compute((m, n), lambda i, j: x[i, j] + x[i, j], "twice")
    outputs = (Output("value", (k,), DType(dtype)), Output("index", (k,), DType.i64))
    value, index = extern("top_k", [y], (m,), outputs, k=k)
    less = compute((m, k), lambda i, j: value[i, j] - 1, "less")
    return Schedule(ComputeDef.build([x], [less, index]))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u8", "i64", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), [(7, 19, 3), (1, 1, 1), (5, 8, 8), (3, 33, 1)])
def test_top_k(m: int, n: int, k: int, dtype: str, right: Right) -> None:
    right(top(m, n, k, dtype))


def test_top_k_puts_nan_last(right: Right) -> None:
    right(top(2, 40, 38), special=True)


def test_rows_are_scheduled_as_loops_are(golden: Golden, right: Right) -> None:
    s = top(13, 9, 2)
    s = s.split("value", "i0", 4).parallel("value", "i0.0").layout("index", Layout.blocked(2, [(0, 4)], [1, 0]))
    s = s.layout("twice", Layout.blocked(2, [(1, 4)])).cache_read("twice", "value")
    golden(f"{s}\n\n{print_program(lower(s))}")
    right(s)


def test_a_definition_with_an_extern_stage_is_data() -> None:
    definition = top(4, 6, 2).compute
    again = ComputeDef.from_json(definition.to_json())
    assert again == definition
    assert again.key == definition.key != top(4, 6, 3).compute.key
    assert "top_k(twice, k=2)" in str(definition)


def test_numpy_value() -> None:
    x = np.array([[1, 5, 5, -2]], np.float32)
    got = evaluate(top(1, 4, 3).compute, {"in0": x})
    np.testing.assert_array_equal(got["index"], [[1, 2, 0]])
    np.testing.assert_array_equal(got["less"], [[9, 9, 1]])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s.inline("value"), "inline value: it is an extern function"),
        (lambda s: s.inline("twice"), "inline twice: value is an extern function, which reads whole tensors"),
        (lambda s: s.compute_at("value", "less", "i"), "an extern function stays at the top level"),
        (lambda s: s.compute_at("twice", "value", "i0"), "an extern function, which reads whole rows"),
        (lambda s: s.cache_write("value"), "it has several outputs"),
        (lambda s: s.vectorize("value", "i0"), "handles one row at a time"),
        (lambda s: s.pad("value", "i0"), "needs whole rows"),
    ],
)
def test_refused(step: object, message: str) -> None:
    assert callable(step)
    with pytest.raises(ScheduleError, match=message):
        step(top(4, 6, 2))


def test_inputs_must_have_the_rows() -> None:
    with pytest.raises(WorkloadError, match="does not start with the rows"):
        extern("top_k", [placeholder((3, 4))], (5,), (Output("v", (1,), DType.f32),), k=1)
    with pytest.raises(WorkloadError, match="unknown extern function 'sort'; known: "):
        extern("sort", [placeholder((3, 4))], (3,), ())


@extern_value("tests.reverse")
def _reversed(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    return [inputs[0][..., ::-1]]


@extern_value("tests.no_nest")
def _unwritten(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    return [inputs[0]]


@extern_nest("tests.reverse")
def _reverse(row: Row) -> tuple[Stmt, ...]:
    (n,) = row.inner(row.inputs[0])
    shift = row.attrs["shift"]
    return (row.loop(n, lambda i: (store(row.output(0, (i,)), row.load(0, (i * -1 + (n - 1 + shift),))),)),)


def _mirror(shift: int, name: str = "tests.reverse") -> tuple[Tensor, Schedule]:
    x = placeholder((3, 7), name="in0")
    (y,) = extern(name, [x], (3,), (Output("y", (7,), DType.f32),), shift=shift)
    return x, Schedule(ComputeDef.build([x], [y]))


def test_a_users_own_function() -> None:
    text = print_program(lower(_mirror(0)[1]))
    assert "y[y.i0, y.x1] = in0[y.i0, -y.x1 + 6]" in text


def test_a_nest_that_leaves_its_row_is_refused() -> None:
    with pytest.raises(LoweringError, match="in0.-y.x1 . 7. may leave 0..6"):
        lower(_mirror(1)[1])


def test_a_function_without_a_nest() -> None:
    with pytest.raises(LoweringError, match="extern function 'tests.no_nest' has no nest: register one"):
        lower(_mirror(0, "tests.no_nest")[1])


def test_padding_computed_from_an_extern_stage_is_masked() -> None:
    x = placeholder((6, 9), name="in0")
    (y,) = extern("tests.reverse", [x], (6,), (Output("y", (9,), DType.f32),), shift=0)
    z = compute((6, 9), lambda i, j: y[i, j] * 2.0, "z")
    form = Layout.blocked(2, [(1, 4)])
    s = Schedule(ComputeDef.build([x], [z])).layout("y", form).layout("z", form).split("z", "j", 4).pad("z", "j")
    assert "select" in print_program(lower(s))
