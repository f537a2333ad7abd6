"""Names and headers for C."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.aot.cpu_check import check_function
from autotune.aot.interface import Interface, identifiers, require_same
from autotune.errors import InputError, TargetError
from autotune.runtime.program import OUTPUT, Program, Ref, TensorSpec


def program(inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Program:
    results = tuple((spec, Ref(OUTPUT, n)) for n, spec in enumerate(outputs))
    return Program("{}", 1, tuple(inputs), results, (), 0, 0)


IMAGE, CLASSES = TensorSpec("data:0", "f32", (1, 3)), TensorSpec("class", "i64", (1,))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x", "y"], ["x", "y"]),
        (["gpu_0/data_0", "a.b", "a/b"], ["gpu_0_data_0", "a_b", "a_b_2"]),
        (["X", "x"], ["X", "x_2"]),
        (["", "1", "läufer", "int", "net"], ["t", "t_1", "l_ufer", "int_", "net_"]),
    ],
)
def test_names_become_identifiers(names: list[str], expected: list[str]) -> None:
    assert identifiers(names, {"net"}) == expected


@given(st.lists(st.text(), max_size=6))
def test_identifiers_are_valid_and_different(names: list[str]) -> None:
    found = identifiers(names)
    assert len({name.lower() for name in found}) == len(names)
    assert all(name.isascii() and name.isidentifier() and name[0] != "_" for name in found)


def test_the_header_declares_types_shapes_and_names() -> None:
    text = Interface.of(program([IMAGE], [CLASSES]), "net").header("a model */ of evil", 2)
    assert "int net_run(net *model, const float *data_0, int64_t *class_);" in text
    assert "#define NET_DATA_0_ELEMENTS 3" in text
    assert "float[1][3], 'data:0' of the model" in text
    assert text.startswith("/* a model * / of evil\n")


@pytest.mark.parametrize("prefix", ["", "1a", "a-b", "int", "ä", "_x"])
def test_a_prefix_is_an_identifier(prefix: str) -> None:
    with pytest.raises(InputError, match="no prefix for C symbols"):
        Interface.of(program([], [CLASSES]), prefix)


def test_variants_are_of_one_model() -> None:
    one, other = (Interface.of(program([spec], [CLASSES]), "net") for spec in (IMAGE, CLASSES))
    with pytest.raises(InputError, match="same inputs and outputs"):
        require_same([one, other])


def test_a_feature_that_nobody_can_ask_for_is_refused() -> None:
    with pytest.raises(TargetError, match="check its CPU for tomorrow"):
        check_function("f", ["avx2", "tomorrow"])
