"""Which shapes a model is made ready for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import pytest
from onnx import TensorProto, helper

from autotune.compiler.foreseen import Foreseen, foreseen
from autotune.errors import ModelError
from autotune.graph import open_model
from autotune.tensor.shape_range import Extent, ShapeRange
from tests.compiler.test_compiler_growing import decoder
from tests.compiler.test_compiler_staged import model_of

STEPS = (32, 64, 128, 256, 512)
PROMPTS = (16, 32, 64, 128, 256)


def relu(*dims: int | str | None) -> onnx.ModelProto:
    return model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, dims)})


def of(model: onnx.ModelProto, *dims: Mapping[str, Sequence[Extent]]) -> Foreseen:
    return foreseen(open_model(model.SerializeToString()), [ShapeRange(one) for one in dims])


def run(past: int, tokens: int, batch: int = 1) -> dict[str, int]:
    return {"batch": batch, "tokens": tokens, "past + tokens": past + tokens, "past": past}


def test_a_model_without_open_dimensions_has_one_shape() -> None:
    assert of(relu(2, 3)) == Foreseen(({},))


def test_ranges_stand_for_their_ends_and_the_powers_of_two_between() -> None:
    found = of(relu("n", "m"), {"n": (range(1, 7),), "m": (5,)}, {"x": (3, 9)})
    assert found.ranged == tuple({"n": n, "m": 5} for n in (1, 2, 4, 6))
    assert found.exact == ({"n": 3, "m": 9},)
    assert of(relu(None, 3), {"x": (4, 3)}).exact == ({"x.0": 4},)


def test_a_decoder_goes_through_steps_and_prompts() -> None:
    found = of(decoder())
    assert found.exact == () and found.guessed
    assert found.ranged == (*(run(past, 1) for past in STEPS), *(run(0, tokens) for tokens in PROMPTS))


def test_batches_that_have_names_of_their_own_are_those_of_the_caches() -> None:
    """As torch.export names them: the first dimension of each input, which is no length."""
    model = decoder()
    (mask,) = [declared for declared in model.graph.input if declared.name == "mask"]
    mask.type.tensor_type.shape.dim[0].dim_param = "masks"
    assert of(model).ranged == tuple({**run, "masks": 1} for run in of(decoder()).ranged)
    (one,) = of(model, {"batch": (2,), "past": (8,), "tokens": (3,)}).exact
    assert one == {**run(8, 3, 2), "masks": 2}


def test_what_is_named_of_a_decoder_counts() -> None:
    batches = of(decoder(), {"batch": (2,), "past": (range(5),)})
    assert batches.ranged == tuple(run(past, 1, 2) for past in (0, 1, 2, 4))
    prompts = of(decoder(), {"tokens": (7,)})
    assert prompts == Foreseen((run(0, 7),), tuple(run(past, 1) for past in STEPS))
    assert of(decoder(), {"batch": (1,), "tokens": (3,), "past": (8,)}).exact == (run(8, 3),)


def test_what_is_left_open_or_too_much_is_refused() -> None:
    with pytest.raises(ModelError, match="no extent is given for n: give --shape n="):
        of(relu("n", 3))
    with pytest.raises(ModelError, match="made ready for 100 shapes, 64 at most: name fewer"):
        of(relu("n", "m"), {"n": (range(1, 513),), "m": (range(1, 513),)})
