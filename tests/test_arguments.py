"""Arguments are of the kinds that signatures name, or refused in one line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.arguments import SHOWN, checked
from autotune.errors import InputError


@checked
def call(
    many: int | None = None,
    share: float = 0.5,
    *,
    strict: bool = False,
    name: str = "",
    folder: str | Path | None = None,
    names: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Any, ...]:
    """Gives what it is given."""
    return many, share, strict, name, folder, names, shapes


@checked(hint="take two")
@dataclass(frozen=True, slots=True)
class Pair:
    first: int
    second: float = 1.0


FINE: list[dict[str, Any]] = [
    {},
    {"many": 5},
    {"many": np.int64(5)},
    {"many": np.array(5)},
    {"share": 2},
    {"share": np.float32(0.5)},
    {"strict": 1},
    {"strict": np.True_},
    {"folder": "here"},
    {"folder": Path("here")},
    {"names": ["a"]},
    {"names": {"a"}},
    {"shapes": 5},  # no kind that is known here: who uses them looks at them
]


@pytest.mark.parametrize("given", FINE)
def test_what_signatures_name_goes_through(given: dict[str, Any]) -> None:
    defaults = {name: p.default for name, p in inspect.signature(call).parameters.items()}
    assert call(**given) == tuple({**defaults, **given}.values())


ODD: list[tuple[dict[str, Any], str]] = [
    ({"many": "x"}, "call: many must be a whole number or None, not 'x'"),
    ({"many": True}, "call: many must be a whole number or None, not True"),
    ({"many": 2.5}, "call: many must be a whole number or None, not 2.5"),
    ({"many": np.zeros(2, int)}, "call: many must be a whole number or None, not array([0, 0])"),
    ({"share": "x"}, "call: share must be a number, not 'x'"),
    ({"share": None}, "call: share must be a number, not None"),
    ({"share": 1j}, "call: share must be a number, not 1j"),
    ({"strict": "yes"}, "call: strict must be True or False, not 'yes'"),
    ({"strict": 2}, "call: strict must be True or False, not 2"),
    ({"strict": [3]}, "call: strict must be True or False, not [3]"),
    ({"name": b"x"}, "call: name must be a text, not b'x'"),
    ({"folder": 3}, "call: folder must be a path or None, not 3"),
    ({"folder": b"x"}, "call: folder must be a path or None, not b'x'"),
    ({"folder": "a\0b"}, "call: folder must be a path or None, not 'a\\x00b'"),
    ({"names": 3}, "call: names must be a list of names, not 3"),
    ({"names": "abc"}, "call: names must be a list of names, not 'abc'"),
    ({"many": ["a\n" * 99]}, "call: many must be a whole number or None, not ['a"),
]


@pytest.mark.parametrize(("given", "said"), ODD)
def test_what_signatures_do_not_name_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        call(**given)
    text = str(caught.value)
    assert text.startswith(said) and "\n" not in text and len(text) < len(said) + SHOWN + 4


def test_positions_count_as_names_do() -> None:
    with pytest.raises(InputError, match="many must be a whole number"):
        call("x")  # type: ignore[arg-type]


def test_a_class_is_checked_as_it_is_called_and_says_what_to_do_instead() -> None:
    assert Pair(1, 2) == Pair(1, 2.0) and Pair(3).second == 1.0
    with pytest.raises(InputError, match="Pair: first must be a whole number, not 'x'; take two"):
        Pair("x")  # type: ignore[arg-type]


def test_calls_that_no_function_takes_are_pythons_own_errors() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        call(unknown=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        call(1, 2.0, True)  # type: ignore[call-arg]


def test_signature_and_docstring_stay() -> None:
    assert (
        list(inspect.signature(call).parameters)[:2] == ["many", "share"] and call.__doc__ == "Gives what it is given."
    )
