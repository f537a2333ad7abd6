"""A config of one size becomes the nearest point of another size's space, or none."""

from __future__ import annotations

from autotune.ops import parse_workload
from autotune.search_spaces import Choice, Config, ConfigSpace, Constraint, flag, task_space
from autotune.search_spaces.space.space import Member, TaskSpace
from tests.targets import fixed


def test_the_closest_value_is_the_value_itself_or_near_it_in_size() -> None:
    sizes, pairs = Choice("k", (1, 4, 16)), Choice("k", ((1, 12), (4, 3), (12, 1)), default=(12, 1))
    assert [sizes.closest(value) for value in (4, 5, 9, 100, 0)] == [4, 4, 16, 16, 1]
    assert pairs.closest((3, 3)) == (4, 3)
    assert flag("k").closest(True) is True
    for knob, strangers in ((sizes, (True, "a", (1, 2))), (pairs, (True, 3, (1, 2, 3))), (flag("k"), (1, "a"))):
        assert [knob.closest(stranger) for stranger in strangers] == [None] * len(strangers)
    assert Choice("k", ("a", "b")).closest("c") is None


def space_of(*tiles: int) -> TaskSpace:
    rule = Constraint("even", lambda config: config.get_int("tile") != 5, "no fives")
    space = ConfigSpace((Choice("tile", tiles), Choice("order", ("a", "b"))), (rule,))
    return TaskSpace({"here": Member(space, Config.of(tile=tiles[0], order="b"))})


def config_of(**knobs: object) -> Config:
    return Config.of({"template": "here", **knobs})


def test_a_valid_config_stays() -> None:
    config = config_of(tile=7, order="a")
    assert space_of(7, 8).nearest(config) == config


def test_values_move_missing_knobs_take_the_default_and_unknown_ones_go() -> None:
    assert space_of(7, 8).nearest(config_of(tile=6, order=3)) == config_of(tile=7, order="b")
    assert space_of(7, 8).nearest(config_of(tile=6, old=True)) == config_of(tile=7, order="b")


def test_what_breaks_a_rule_or_names_another_template_has_no_place() -> None:
    assert space_of(1, 5).nearest(config_of(tile=6, order="a")) is None
    assert space_of(1, 5).nearest(Config.of(template="gone", tile=1, order="a")) is None


def test_configs_of_a_template_move_to_another_size() -> None:
    target = fixed("x86 -mcpu=skylake-avx512 -num-cores=1")
    for small, large in (
        ("conv2d data=1,64,28,28 weight=64,64,3,3 pad=1", "conv2d data=4,64,56,56 weight=64,64,3,3 pad=1"),
        ("matmul a=128,768 b=768,768", "matmul a=384,768 b=768,3072"),
        ("conv2d data=1,64,28,28 weight=64,16,3,3 groups=4", "conv2d data=1,128,56,56 weight=128,32,3,3 groups=4"),
    ):
        theirs, ours = (task_space(parse_workload(text), target) for text in (large, small))
        moved = [ours.nearest(config) for config in theirs.defaults()]
        assert any(moved), small
        for config in filter(None, moved):
            ours.validate(config)
            member = ours.members[config.template or ""]
            assert member.space.canonical(config.without("template")) == config.without("template")
