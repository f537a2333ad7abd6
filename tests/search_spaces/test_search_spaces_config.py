from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import ConfigError
from autotune.search_spaces.space.config import Config

values = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.text(max_size=8), st.tuples(st.integers(0, 99)))


@given(st.dictionaries(st.text(max_size=6), values))
def test_json_round_trip_keeps_value_and_key(knobs: dict[str, object]) -> None:
    config = Config.of(knobs)
    again = Config.from_json(config.to_json())
    assert again == config
    assert hash(again) == hash(config)
    assert again.key == config.key
    assert len(config.key) == 16
    assert int(config.key, 16) >= 0


def test_order_of_entries_does_not_matter_and_template_comes_first() -> None:
    config = Config.of({"b": 1, "a": 2, "template": "t"})
    assert config == Config.of(template="t", a=2, b=1)
    assert list(config) == ["template", "a", "b"]
    assert config.template == "t"
    assert config.to_json() == '{"a":2,"b":1,"template":"t"}'


def test_key_is_stable_across_versions() -> None:
    assert Config.of(tile=4, order=[0, 1]).key == "ab362c7de37ba9b2"


def test_true_and_one_are_different_configs() -> None:
    assert Config.of(a=1) != Config.of(a=True)
    assert Config.of(a=1).key != Config.of(a=True).key


def test_replace_and_without_leave_the_original() -> None:
    config = Config.of(a=1, b=2)
    assert config.replace(a=3) == Config.of(a=3, b=2)
    assert config.without("a") == Config.of(b=2)
    assert config == Config.of(a=1, b=2)


def test_typed_getters() -> None:
    config = Config.of(n=3, on=True, name="x", parts=(2, 3))
    assert (config.get_int("n"), config.get_bool("on"), config.get_str("name")) == (3, True, "x")
    assert config.get_ints("parts") == (2, 3)
    assert config.get("absent") is None
    assert "absent" not in config
    with pytest.raises(ConfigError, match="'on' must be an integer"):
        config.get_int("on")
    with pytest.raises(ConfigError, match="no knob 'absent'; it has n, name, on, parts"):
        config.get_int("absent")


@pytest.mark.parametrize("text", ["", "[1]", "3", "{", '{"a":1.5}', '{"a":null}', '{"a":[true]}', '{"a":{}}'])
def test_what_is_not_a_config_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_json(text)
    assert "\n" not in str(caught.value)


def test_lists_become_tuples_so_configs_hash() -> None:
    assert Config.of(parts=[1, 2]) == Config.of(parts=(1, 2))
    assert json.loads(Config.of(parts=(1, 2)).to_json()) == {"parts": [1, 2]}
