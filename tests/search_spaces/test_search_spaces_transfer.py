"""A config of one size becomes the nearest point of another size's space, or none."""

from __future__ import annotations

from autotune.ops import parse_workload
from autotune.search_spaces import Choice, Config, ConfigSpace, Constraint, flag, task_space
from autotune.search_spaces.space.space import Member, Space, TaskSpace
from autotune.search_spaces.space.transfer import closest, nearest
from tests.targets import fixed


def test_the_closest_value_is_the_value_itself_or_near_it_in_size() -> None:
    sizes, pairs = Choice("k", (1, 4, 16)), Choice("k", ((1, 12), (4, 3), (12, 1)), default=(12, 1))
    assert [closest(sizes, value) for value in (4, 5, 9, 100, 0)] == [4, 4, 16, 16, 1]
    assert closest(pairs, (3, 3)) == (4, 3)
    assert closest(flag("k"), True) is True
    assert closest(Choice("k", ("a", "b"), default="b"), "c") == "b"
    for stranger in (True, "a", (1, 2, 3), (4,)):
        assert closest(sizes, stranger) == 1
        assert closest(pairs, stranger) == (12, 1)
    assert closest(flag("k"), 1) is False


def space_of(*tiles: int) -> TaskSpace:
    rule = Constraint("even", lambda config: config.get_int("tile") != 5, "no fives")
    space = ConfigSpace((Choice("tile", tiles), Choice("order", ("a", "b"))), (rule,))
    return TaskSpace({"here": Member(space, Config.of(tile=tiles[0], order="b"))})


def config_of(**knobs: object) -> Config:
    return Config.of({"template": "here", **knobs})


def test_a_valid_config_stays() -> None:
    config = config_of(tile=7, order="a")
    assert nearest(space_of(7, 8), config) == config


def test_values_move_missing_knobs_take_the_default_and_unknown_ones_go() -> None:
    assert nearest(space_of(7, 8), config_of(tile=6, old=True)) == config_of(tile=7, order="b")


def test_what_breaks_a_rule_or_names_another_template_has_no_place() -> None:
    assert nearest(space_of(1, 5), config_of(tile=6, order="a")) is None
    assert nearest(space_of(1, 5), Config.of(template="gone", tile=1, order="a")) is None
    plain: Space = ConfigSpace((Choice("tile", (1, 2)),))
    assert nearest(plain, Config.of(tile=3)) is None
    assert nearest(plain, Config.of(tile=2)) == Config.of(tile=2)


def test_configs_of_a_template_move_to_another_size() -> None:
    target = fixed("x86 -mcpu=skylake-avx512 -num-cores=1")
    for small, large in (
        ("conv2d data=1,64,28,28 weight=64,64,3,3 pad=1", "conv2d data=4,64,56,56 weight=64,64,3,3 pad=1"),
        ("matmul a=128,768 b=768,768", "matmul a=384,768 b=768,3072"),
        ("conv2d data=1,64,28,28 weight=64,16,3,3 groups=4", "conv2d data=1,128,56,56 weight=128,32,3,3 groups=4"),
    ):
        theirs, ours = (task_space(parse_workload(text), target) for text in (large, small))
        moved = [nearest(ours, config) for config in theirs.defaults()]
        assert any(moved), small
        for config in filter(None, moved):
            ours.validate(config)
            member = ours.members[config.template or ""]
            assert member.space.canonical(config.without("template")) == config.without("template")
