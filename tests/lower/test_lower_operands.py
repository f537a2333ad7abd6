"""Packing operands part by part gives what packing them whole does."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.lower import operands
from autotune.lower.ir import Operand
from autotune.lower.operands import fill_operand
from autotune.ops import compute_def, parse_workload
from autotune.tensor import DType, compute, placeholder
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.evaluate import evaluate
from autotune.tensor.layout import Layout

RNG = np.random.default_rng(0)


def filled(operand: Operand, inputs: dict[str, np.ndarray]) -> np.ndarray:
    memory = np.full(operand.bytes, 0xFF, np.uint8)
    fill_operand(operand, inputs, memory)
    return memory.view(operand.dtype.numpy).reshape(operand.layout.physical_shape(operand.shape))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((40, 7), Layout.row_major(2)),
        ((40, 7), Layout.blocked(2, [(0, 16)])),
        ((3, 37, 5, 5), Layout.blocked(4, [(1, 16)]).with_halo([(0, 0), (0, 0), (1, 1), (1, 1)])),
        ((33, 20, 3, 3), Layout.blocked(4, [(0, 16), (1, 8)], order=(1, 0, 2, 3))),
        ((33, 20, 3, 3), Layout.blocked(4, [(1, 8), (0, 16), (1, 2)])),
        ((5,), Layout.row_major(1).with_halo([(2, 1)])),
        ((), Layout.row_major(0)),
        ((0, 4), Layout.row_major(2)),
    ],
)
@pytest.mark.parametrize("part", [1, 50, 1 << 19])
def test_parts_make_the_whole(
    shape: tuple[int, ...], layout: Layout, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operands, "PART", part)
    array = RNG.standard_normal(shape).astype(np.float32)
    operand = Operand("in0", DType.f32, shape, layout, "input")
    np.testing.assert_array_equal(filled(operand, {"in0": array}), layout.pack(array))


@pytest.mark.parametrize("turned", [1, 90, 1 << 16])
@pytest.mark.parametrize(("rows", "columns"), [(40, 37), (7, 5), (1, 9), (9, 1)])
@pytest.mark.parametrize("lanes", [8, 16])
def test_rows_far_apart_are_made_compact(
    lanes: int, rows: int, columns: int, turned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operands, "MANY", 4)
    monkeypatch.setattr(operands, "TURNED", turned)
    array = RNG.standard_normal((rows, columns)).astype(np.float32)
    for given in (array, array.T, array[::-1], np.broadcast_to(array[:1], array.shape)):
        for dimension in (0, 1):
            layout = Layout.blocked(2, [(dimension, lanes)], order=(dimension, 1 - dimension))
            operand = Operand("in0", DType.f32, given.shape, layout, "input")
            np.testing.assert_array_equal(filled(operand, {"in0": given}), layout.pack(given))


@pytest.mark.parametrize("dtype", [DType.f32, DType.bf16, DType.i8], ids=str)
@pytest.mark.parametrize("few", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("turned", [False, True])
def test_few_elements_of_many_rows(dtype: DType, few: int, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "TURNED", 1 << 12)
    numbers = RNG.integers(-100, 100, (64, 1024))
    held = numbers.astype(dtype.numpy)
    layout = Layout.blocked(2, [(0, 32), (1, few)] if few > 1 else [(0, 32)])
    # Rows a page apart; some of other rows' elements; places no multiple of what is copied at once.
    for array in (held.T.copy().T if turned else held, held[::2, ::2], held[:, 1:1000], numbers.astype(np.int32)):
        operand = Operand("in0", dtype, array.shape, layout, "input")
        np.testing.assert_array_equal(filled(operand, {"in0": array}), layout.pack(array).astype(dtype.numpy))


@pytest.mark.parametrize("part", [1, 3000, 1 << 19])
def test_prepared_weights_in_parts(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "PART", part)
    workload = parse_workload("conv2d data=1,20,8,8 weight=24,20,3,3 pad=1")
    winograd = compute_def(workload, "winograd_f4")
    stage = next(s for s in winograd.stages if s.name == "wino_u")
    weight_tensor = next(t for t in winograd.inputs if t.name == "in1")
    prepared = ComputeDef((weight_tensor,), (stage,), ("wino_u",))
    weight = RNG.standard_normal((24, 20, 3, 3)).astype(np.float32)
    name = prepared.inputs[0].name
    operand = Operand("wino_u", DType.f32, (6, 6, 24, 20), Layout.blocked(4, [(2, 16)]), "input", prepared=prepared)
    whole = evaluate(prepared, {name: weight}, DType.f64)["wino_u"].astype(np.float32)
    np.testing.assert_allclose(filled(operand, {name: weight}), operand.layout.pack(whole), rtol=1e-6)


def test_several_stages_and_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "PART", 4)
    x = placeholder((6, 8), "f32", "in0", constant=True)
    twice = compute((6, 8), lambda i, j: x[i, j] * 2.0, "twice")
    flat = compute((48,), lambda k: twice[k // 8, k % 8] + 1.0, "flat")
    prepared = ComputeDef.build([x], [flat])
    array = RNG.standard_normal((6, 8)).astype(np.float32)
    operand = Operand("flat", DType.f32, (48,), Layout.row_major(1), "input", prepared=prepared)
    np.testing.assert_allclose(filled(operand, {"in0": array}), array.reshape(-1) * 2 + 1, rtol=1e-6)


def test_blocks_in_blocks_lie_where_they_are_read() -> None:
    """A panel of groups of four in blocks of eight: the number of the group stands before what is read together."""
    layout = Layout.blocked(2, [(1, 8), (0, 2), (1, 4)])
    values = np.arange(4 * 24, dtype=np.int8).reshape(4, 24)
    memory = layout.pack(values)
    assert memory.shape == layout.physical_shape(values.shape) == (2, 3, 2, 2, 4)
    expected = values.reshape(2, 2, 3, 2, 4).transpose(0, 2, 3, 1, 4)
    np.testing.assert_array_equal(memory, expected)
    np.testing.assert_array_equal(layout.unpack(memory, values.shape), values)
    ragged = layout.pack(values[:, :21])
    assert ragged.shape == memory.shape and not ragged[:, 2, 1, :, 1:].any()
    np.testing.assert_array_equal(layout.unpack(ragged, (4, 21)), values[:, :21])


def test_sums_of_two_floats_are_rounded_once_in_their_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in float64: there is nothing to gain from computing Strassen's sums of quarters there."""
    definition = compute_def(parse_workload("matmul a=8,64 b=64,32"), "strassen")
    (stage,) = (stage for stage in definition.stages if stage.outputs[0].name == "strassen_u")
    prepared = ComputeDef(tuple(t for t in definition.inputs if t.name == "in1"), (stage,), ("strassen_u",))
    operand = Operand("strassen_u", DType.f32, stage.outputs[0].shape, Layout.row_major(3), "input", True, prepared)
    weights = {"in1": (RNG.standard_normal((64, 32)) * 10.0 ** RNG.integers(-9, 9, (64, 32))).astype(np.float32)}
    assert operands._precision(operand) is None
    found = filled(operand, weights)
    monkeypatch.setattr(operands, "_rounds_once", lambda operand: False)
    assert operands._precision(operand) is DType.f64
    np.testing.assert_array_equal(found, filled(operand, weights))


def test_transforms_of_weights_are_computed_in_float64() -> None:
    definition = compute_def(parse_workload("conv2d data=1,8,8,8 weight=8,8,3,3 pad=1"), "winograd_f4")
    (stage,) = (stage for stage in definition.stages if stage.outputs[0].name == "wino_u")
    prepared = ComputeDef(tuple(t for t in definition.inputs if t.name == "in1"), (stage,), ("wino_u",))
    operand = Operand("wino_u", DType.f32, stage.outputs[0].shape, Layout.row_major(4), "input", True, prepared)
    assert operands._precision(operand) is DType.f64
