"""Facts about operators and algorithms stand where these are defined."""

from __future__ import annotations

import pytest

from autotune.errors import WorkloadError
from autotune.ops import operators, parse_workload
from autotune.ops.registry import (
    algorithms,
    fewer_multiplications,
    has_trait,
    known_algorithm,
    lookup,
    lookup_algorithm,
    operator,
)
from autotune.ops.traits import Trait
from autotune.tensor.dtype import DType

CONV = parse_workload("conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 + relu")
BYTES = parse_workload("conv2d data=1,64,28,28:u8 weight=64,64,3,3:i8 pad=1")
STRIDED = parse_workload("conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 stride=2")
DEPTHWISE = parse_workload("conv2d data=1,64,56,56 weight=64,1,3,3 pad=1 groups=64")


def test_what_is_absorbed_or_a_view_moves_data() -> None:
    for name in operators():
        traits = lookup(name).traits
        if traits & {Trait.ABSORBED, Trait.VIEW}:
            assert Trait.MOVES in traits, name
        if Trait.MOVES in traits:
            assert not lookup(name).elementwise, name
        if Trait.COMMUTATIVE in traits:
            assert len(lookup(name).operands) == 2, name


def test_has_trait_asks_for_any_of_several() -> None:
    assert has_trait("softmax", Trait.FOLDS)
    assert has_trait("rotary", Trait.FOLDS, Trait.REREADS)
    assert not has_trait("relu", Trait.FOLDS, Trait.MOVES)
    with pytest.raises(WorkloadError, match="unknown operator 'rleu'; did you mean relu"):
        has_trait("rleu", Trait.MOVES)


def test_an_unknown_trait_is_refused() -> None:
    with pytest.raises(ValueError, match="'movse' is not a valid Trait"):
        operator("of_the_test", traits="movse")(lookup("relu").compute)
    assert "of_the_test" not in operators()


def test_the_fewest_multiplications_are_those_of_the_best_algorithm_that_is_allowed() -> None:
    per_channel = 64 * 64 * 8 * 8  # of F(6, 3): ten tiles of 8 x 8 points on either side
    assert fewer_multiplications(CONV).get(None) == per_channel * 10 * 10
    assert fewer_multiplications(CONV, strict_fp=True).get(None) is None
    assert fewer_multiplications(DEPTHWISE).get(None) == 64 * 28 * 56 * 4 * 3
    assert fewer_multiplications(BYTES) == {DType.i16: 64 * 64 * 7 * 7 * 36}
    assert fewer_multiplications(STRIDED).get(None) == 64 * 64 * 4 * (6 + 1) ** 2 * 5 * 5


@pytest.mark.parametrize(
    "text",
    [
        "relu data=8",
        "matmul a=8,8 b=var:8,8",
        "conv2d data=1,16,8,8 weight=var:16,16,1,1",
        "conv2d data=1,16,8,8:u8 weight=16,16,3,3:i8",
        "conv2d data=1,68,14,14 weight=68,34,3,3 pad=1 groups=2",  # bands multiply with zeros
    ],
)
def test_other_work_is_done_as_the_definition_says(text: str) -> None:
    assert fewer_multiplications(parse_workload(text)).get(None) is None


def test_only_strict_algorithms_err_like_the_definition() -> None:
    found = {name: lookup_algorithm("conv2d", name) for name in algorithms("conv2d")}
    assert {name for name, entry in found.items() if not entry.strict} == {
        name for name in found if name.startswith(("winograd", "strassen", "pieces")) and "exact" not in name
    }
    assert all(entry.error == 1.0 for entry in found.values() if entry.strict)
    errors = [found[f"winograd_{tile}"].error for tile in ("f2", "f4x2", "f4", "f5", "f6")]
    assert errors == sorted(errors)
    assert errors[0] == 1.0
    assert errors[-1] == pytest.approx(6.9, abs=0.1)


def test_an_algorithm_of_a_template_s_own_is_not_known() -> None:
    assert known_algorithm(CONV, "unknown") is None
    known = known_algorithm(parse_workload("relu data=8"), "direct")
    assert known is not None and known.strict
