"""One file with the programs of several shapes: it gives what exact programs give, and holds each weight once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.api.session import InferenceSession
from autotune.compiler import alike
from autotune.compiler.compiled_shapes import CompiledShapes
from autotune.errors import InputError, ModelError
from autotune.runtime.executor import Array
from autotune.runtime.open_axes import OpenAxes, OpenAxis, Piece
from autotune.runtime.selection import Candidate, Selection, times_as_long
from autotune.tensor.declared import ModelInput
from autotune.tensor.shape_range import ShapeRange
from tests.compiler.test_compiler_bucketed import attention
from tests.compiler.test_compiler_staged import data, model_of

TARGET = "native -num-cores=2"


@pytest.fixture(scope="module")
def compiled() -> CompiledShapes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "GAP", math.inf)  # weights are shared whatever models expect of that on this machine
        return autotune.compile_shapes(attention(), {"batch": (1,), "length": (range(8, 17),)}, TARGET, False)


def right(x: Array) -> list[Array]:
    """What `attention` gives."""
    q = x.astype(np.float64) @ data(16, 16)
    scores = q @ q.transpose(0, 2, 1)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    y = scores / scores.sum(-1, keepdims=True) @ x
    return [y, y.max(1)]


def test_runs_of_all_shapes_give_what_exact_ones_give(compiled: CompiledShapes, tmp_path: Path) -> None:
    path = tmp_path / "several.at"
    compiled.save(path)
    session = InferenceSession(path)
    assert [arg.shape for arg in session.get_inputs()] == [["batch", "length", 16]]
    assert [arg.shape for arg in session.get_outputs()] == [["batch", "length", 16], ["batch", 16]]
    for batch, length in ((1, 8), (1, 13), (5, 16), (2, 3)):
        x = data(batch, length, 16, seed=length)
        for found, wanted in zip(session.run(None, {"x": x}), right(x), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    uses = session.shapes()
    assert len(uses) == len(compiled.models) < len(range(8, 17)) and sum(use.runs for use in uses) == 9
    assert sum(use.own_bytes for use in uses) < 1.5 * max(use.weight_bytes for use in uses)
    assert all(use.weight_bytes for use in uses) and session.segments == 1 and session.host_nodes == ()


def test_programs_are_linked_beforehand_and_others_refused(compiled: CompiledShapes, tmp_path: Path) -> None:
    path = tmp_path / "several.at"
    compiled.save(path)
    session = InferenceSession(path, on_new_shape="error")
    session.prepare(batch=1, length=16)
    session.run(None, {"x": data(1, 16, 16)})
    with pytest.raises(InputError, match="no program for batch = 3, length = 9 of exactly that shape"):
        session.run(None, {"x": data(3, 9, 16)})
    session = InferenceSession(path, shapes={"length": (20,)})
    assert session.get_inputs()[0].shape == ["batch", 20, 16]
    with pytest.raises(InputError, match="no program for batch = 1, length = 20; it was made for batch = 1, length"):
        session.run(None, {"x": data(1, 20, 16)})
    with pytest.raises(InputError, match=r"input 'x' must be f32\[batch,20,16\], got f32\[1, 9, 16\]"):
        session.run(None, {"x": data(1, 9, 16)})
    with pytest.raises(InputError, match="no extent is given for length"):
        session.prepare(batch=1)
    with pytest.raises(InputError, match="compiled files have no compiler"):
        InferenceSession(path, on_new_shape="compile")


def test_extents_that_nobody_can_pad_have_programs_of_their_own() -> None:
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [None, "n"])}, ("y",), {})
    found = autotune.compile_shapes(model, {"x": (2, range(3, 6))}, TARGET, False)
    assert set(found.models) == {(2, 3), (2, 4), (2, 5)} and found.symbols == ("x.0", "n")
    x = data(2, 4)
    np.testing.assert_allclose(found.run({"x": x})[0], x.mean(1), rtol=1e-6)
    with pytest.raises(InputError, match="no program for x.0 = 2, n = 6"):
        found.run({"x": data(2, 6)})
    with pytest.raises(ModelError, match="more than 512 programs.*n takes one for each extent"):
        autotune.compile_shapes(model, {"x": (2, range(1, 1000))}, TARGET, False)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"batch": (1,)}, "no extent is given for length: give --shape length"),
        ({"x": (1, range(2, 5), 17)}, "'x': 17 contradicts 16 for 16"),
        ({"x": (1, 2)}, "'x' has 3 dimensions"),
        ({"w": (1,)}, "there is no input 'w'; inputs: x; open: batch, length"),
        ({"x": (1, 2, 16), "length": (3,)}, "'length': 3 contradicts 2 for length"),
        ([], "no shape is given"),
    ],
)
def test_impossible_shapes_are_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises((ModelError, InputError), match=message):
        autotune.compile_shapes(attention(), shapes, TARGET, False)


def test_values_that_decide_programs_are_refused() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, ["n"])}, ("y",), {})
    with pytest.raises(ModelError, match="values of the run decide what the programs of this model are"):
        autotune.compile_shapes(model, {"n": (range(1, 9),)}, TARGET, False)


def test_weights_of_shapes_are_numbers_above_zero() -> None:
    for weight in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="a number above 0"):
            ShapeRange({"n": (1,)}, weight)
    with pytest.raises(InputError, match="begins with the smallest"):
        ShapeRange({"n": (range(5, 1),)})


def selection(*lengths: int, end: str = "") -> Selection:
    axes = OpenAxes((ModelInput("x", "f32", ("n", "k")),), (OpenAxis("n", ((0,),), True, end),))
    return Selection(axes, (0.1 if end else 1.0, 1.0), tuple(Candidate((n, 7), float(n), 0, 0, 1.0) for n in lengths))


def test_batches_are_cut_into_the_pieces_that_take_the_least_time() -> None:
    def lengths(found: Selection, batch: int) -> list[tuple[int, int]]:
        pieces = found.pieces((batch, 7))
        assert [piece.start for piece in pieces] == [sum(p.length for p in pieces[:n]) for n in range(len(pieces))]
        assert sum(piece.length for piece in pieces) == batch
        return [(piece.bucket[0], piece.length) for piece in pieces]

    assert lengths(selection(1, 4, 16), 4) == [(4, 4)]
    assert lengths(selection(1, 4, 16), 5) in ([(4, 4), (1, 1)], [(1, 1), (4, 4)])
    assert lengths(selection(1, 4, 16), 15) == [(16, 15)]  # 16 + 1 against three of 4 + 1 and three of 1 + 1
    assert lengths(selection(4, 16, end="valid"), 5) == [(16, 5)]  # what is left out costs a tenth
    assert sorted(lengths(selection(1, 4, 16), 1000))[-1] == (16, 16)
    with pytest.raises(InputError, match=r"no program for n = 2, k = 8; it was made for n = 1, k = 7: compile it"):
        selection(1).pieces((2, 8))
    with pytest.raises(InputError, match="no program for n = 0"):
        selection(1).pieces((0, 7))
    assert selection(1).exactly((1, 7)) == (Piece((1, 7), 0, 1),)


def test_padding_along_several_dimensions_is_all_elements_that_are_behind_an_end() -> None:
    assert times_as_long((8, 256), (1, 32), (0.1, 0.1)) == pytest.approx(1 + 63 * 0.1)
    assert times_as_long((8, 256), (1, 32), (1.0, 0.1)) == pytest.approx(8 * (1 + 7 * 0.1))
    assert times_as_long((8, 256), (2, 32), (1.0, 1.0)) == 32.0 and times_as_long((8,), (8,), (0.1,)) == 1.0


def test_weights_are_read_in_every_run_however_small_it_is() -> None:
    found = selection(1, 4, 16)
    light = replace(
        found, candidates=tuple(c._replace(seconds=float(c.extents[0]), reading=0.1) for c in found.candidates)
    )
    heavy = replace(
        found, candidates=tuple(c._replace(seconds=0.1 * c.extents[0], reading=9.0) for c in found.candidates)
    )
    assert [piece.bucket[0] for piece in heavy.pieces((5, 7))] == [16]
    assert sorted(piece.bucket[0] for piece in light.pieces((5, 7))) == [1, 4]
    older = found.to_json()
    older["candidates"] = [entry[:4] for entry in older["candidates"]]
    assert {c.reading for c in Selection.from_json(older).candidates} == {0.0}


def test_selections_survive_files() -> None:
    found = selection(1, 4, end="valid")
    assert Selection.from_json(found.to_json()) == found
    for damage in ({"padding": [1.0]}, {"axes": {"inputs": [], "free": found.axes.to_json()["free"]}}):
        with pytest.raises(ValueError, match="open dimension"):
            Selection.from_json({**found.to_json(), **damage})


def test_a_file_of_one_shape_is_as_before(tmp_path: Path) -> None:
    model: onnx.ModelProto = attention()
    autotune.compile(model, TARGET, False, shapes={"batch": (1,), "length": (5,)}).save(tmp_path / "one.at")
    session = InferenceSession(tmp_path / "one.at", on_new_shape="error")
    assert session.program.inputs[0].shape == (1, 5, 16) and session.shapes() == []
