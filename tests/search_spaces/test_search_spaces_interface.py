from __future__ import annotations

import pytest

from autotune.errors import ConfigError
from autotune.search_spaces.space.interface import Interface
from autotune.tensor.layout import Layout


def test_json_round_trip() -> None:
    blocked = Layout.blocked(4, [(1, 16)]).with_halo([(0, 0), (0, 0), (1, 1), (1, 1)])
    interface = Interface((Layout.row_major(4), blocked))
    assert Interface.from_json(interface.to_json()) == interface
    assert " " not in interface.to_json()


@pytest.mark.parametrize("text", ["", "null", "[1]", '[{"order":1}]'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an interface"):
        Interface.from_json(text)
