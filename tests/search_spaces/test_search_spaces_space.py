from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from autotune.errors import ConfigError
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice, flag, tile
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Derived, Member, Space, TaskSpace


def fits(config: Config) -> bool:
    return config.get_int("rows") * config.get_int("cols") <= 32


PAIRS = ((12, 1), (1, 12), (2, 6), (3, 4), (4, 3), (6, 2))
RULE = Constraint("registers", fits, "rows * cols must be at most 32")
TILES = ConfigSpace(
    (tile("rows", 16), Choice("cols", (1, 2, 4, 8)), flag("unroll"), Choice("k", PAIRS), Choice("order", ("rc", "cr"))),
    (RULE,),
    (Derived("area", lambda config: config.get_int("rows") * config.get_int("cols")),),
)
SMALL = ConfigSpace((Choice("rows", (1, 2, 3)),))
TASK = TaskSpace(
    {"big": Member(TILES, TILES.default(), 1.0), "small": Member(SMALL, SMALL.default(), 3.0)},
)
SPACES: list[Space] = [TILES, TASK]


@pytest.mark.parametrize("space", SPACES)
def test_everything_the_space_returns_is_valid(space: Space) -> None:
    rng = random.Random(1)
    space.validate(space.default())
    for _ in range(200):
        a, b = space.sample(rng), space.sample(rng)
        mutant = space.mutate(a, rng)
        assert mutant != a
        for config in (a, mutant, space.crossover(a, b, rng), *space.neighbours(a, rng)):
            space.validate(config)
            vector = space.encode(config)
            assert vector.dtype == np.float32
            assert vector.shape == (len(space.feature_names),)


@pytest.mark.parametrize("space", SPACES)
def test_count_enumeration_and_size_agree(space: Space) -> None:
    listed = list(space.enumerate())
    assert len(listed) == len(set(listed)) == space.count_valid()
    assert len(listed) < space.size
    assert space.count_valid(limit=1) is None


def test_sampling_is_uniform_over_valid_configs() -> None:
    space = ConfigSpace((Choice("rows", (1, 2, 4, 8)), Choice("cols", (1, 2, 4, 8))), (RULE,))
    rng = random.Random(3)
    counts = Counter(space.sample(rng) for _ in range(15 * 400))
    assert len(counts) == space.count_valid() == 15
    assert all(300 < count < 500 for count in counts.values())


def test_the_same_seed_gives_the_same_configs() -> None:
    def draw(seed: int) -> list[Config]:
        rng = random.Random(seed)
        return [TASK.sample(rng) for _ in range(20)]

    assert draw(5) == draw(5) != draw(6)


def test_crossover_mixes_both_parents() -> None:
    free = ConfigSpace(tuple(Choice(name, (0, 1)) for name in "abcdef"))
    zeros, *_, ones = free.enumerate()
    children = {free.crossover(zeros, ones, random.Random(seed)) for seed in range(20)}
    assert any(0 < sum(int(child.get_int(name)) for name in "abcdef") < 6 for child in children)


def test_neighbours_differ_in_one_knob() -> None:
    config = TILES.sample(random.Random(0))
    for other in TILES.neighbours(config, random.Random(0)):
        assert sum(other[name] != config[name] for name in config) == 1


def test_templates_are_sampled_by_weight_not_size() -> None:
    rng = random.Random(0)
    share = sum(TASK.sample(rng).template == "small" for _ in range(2000)) / 2000
    assert 0.7 < share < 0.8


def test_first_guesses_leave_out_last_resorts_but_never_the_default() -> None:
    def names(**weights: float) -> list[str | None]:
        space = TaskSpace({name: Member(SMALL, SMALL.default(), weight) for name, weight in weights.items()})
        return [config.template for config in space.defaults()]

    assert names(a=1.0, b=0.5, plain=0.01) == ["a", "b"]
    assert names(plain=0.01, a=1.0) == ["plain", "a"]
    assert names(plain=0.01) == ["plain"]


def test_a_lone_valid_config_is_found_and_an_empty_space_is_reported() -> None:
    knobs = (tile("rows", 200), Choice("cols", tuple(range(1, 200))))
    one = ConfigSpace(knobs, (Constraint("only", lambda c: (c["rows"], c["cols"]) == (200, 7), "rows 200, cols 7"),))
    assert one.sample(random.Random(0)) == Config.of(rows=200, cols=7)
    empty = ConfigSpace(knobs, (Constraint("never", lambda c: False, "nothing is ever right"),))
    with pytest.raises(ConfigError, match=r"seems empty.*'never': nothing is ever right"):
        empty.sample(random.Random(0))


def test_a_space_of_one_config_mutates_to_itself() -> None:
    single = ConfigSpace((Choice("a", (1,)),))
    assert single.mutate(single.default(), random.Random(0)) == single.default()
    assert single.neighbours(single.default(), random.Random(0)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row": 4}, "unknown knob 'row', did you mean 'rows'"),
        ({"cols": 3}, "knob 'cols' cannot be 3; its values are 1, 2, 4, 8"),
        ({"rows": 16, "cols": 8}, "breaks the rule 'registers': rows \\* cols must be at most 32"),
        ({"template": "bog"}, "unknown template 'bog', did you mean 'big'"),
    ],
)
def test_validate_says_what_is_wrong(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TASK.validate(TASK.default().replace(**change))


def test_validate_wants_every_knob_and_a_template() -> None:
    with pytest.raises(ConfigError, match="lacks the knob 'cols'"):
        TILES.validate(TILES.default().without("cols"))
    with pytest.raises(ConfigError, match="does not name its template"):
        TASK.validate(TILES.default())


def test_encoding_marks_the_other_templates_as_missing() -> None:
    vector = TASK.encode(Config.of(template="small", rows=2))
    named = dict(zip(TASK.feature_names, vector, strict=True))
    assert named["template=small"] == 1
    assert named["template=big"] == 0
    assert named["rows"] == 2  # one column, for what both templates call so
    assert np.isnan(named["cols"]) and np.isnan(named["area"])
    assert len(set(TASK.feature_names)) == len(TASK.feature_names)


def test_templates_with_the_same_knobs_are_steps_from_one_another() -> None:
    first = ConfigSpace((Choice("rows", (1, 2, 4, 8)), Choice("order", ("rc", "cr"))))
    second = ConfigSpace(
        (Choice("rows", (1, 3, 6)), Choice("order", ("rc", "cr"))),
        (Constraint("odd", lambda c: c["order"] == "rc" or c["rows"] != 1, "no single row in order cr"),),
    )
    third = ConfigSpace((Choice("rows", (1, 2)), Choice("order", ("rc",))))
    spaces = {"first": first, "second": second, "third": third, "small": SMALL}
    task = TaskSpace({name: Member(space, space.default()) for name, space in spaces.items()})
    rng = random.Random(0)

    def elsewhere(**knobs: object) -> set[Config]:
        config = Config.of(template="first", **knobs)
        return {other for other in task.neighbours(config, rng) if other.template != "first"}

    assert elsewhere(rows=8, order="rc") == {
        Config.of(template="second", rows=6, order="rc"),  # the nearest number
        Config.of(template="third", rows=2, order="rc"),
    }
    assert elsewhere(rows=1, order="cr") == set()  # a rule forbids one, and the other has no such order
    mother, father = Config.of(template="first", rows=1, order="cr"), Config.of(template="second", rows=3, order="rc")
    children = {task.crossover(mother, father, rng) for _ in range(60)}
    assert children == {
        Config.of(template="first", rows=rows, order=order) for rows in (1, 4) for order in ("rc", "cr")
    }
    moved = Counter(task.mutate(Config.of(template="first", rows=4, order="rc"), rng).template for _ in range(500))
    assert 20 < moved["second"] + moved["third"] < 90
    assert moved["small"] == 0


def test_derived_numbers_are_features() -> None:
    config = TILES.default().replace(rows=4, cols=8)
    assert dict(zip(TILES.feature_names, TILES.encode(config), strict=True))["area"] == 32


def test_bad_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="two knobs or derived numbers named 'a'"):
        ConfigSpace((flag("a"), flag("a")))
    with pytest.raises(ConfigError, match="at least one template"):
        TaskSpace({})
    with pytest.raises(ConfigError, match="it must be positive"):
        TaskSpace({"a": Member(SMALL, SMALL.default(), 0.0)})
