"""ConfigSpace: the product of some knobs, minus what named constraints exclude. TaskSpace: a union of those.

Both have one interface, `Space`, so a search strategy does not care how many templates a task has.
Random numbers come from the caller's `random.Random`; the same seed gives the same configs everywhere.
"""

from __future__ import annotations

import difflib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ConfigError
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice

SAMPLE_TRIES = 2_000
ENUMERABLE = 50_000
LAST_RESORT = 0.1
FURTHER, NEARBY = 0.3, 0.6
"""Share of mutations that change one knob more, and of changes that go to a neighbouring value: mostly a small step."""
CHANGE_OF_TEMPLATE = 0.1
"""Share of mutations that keep the knobs and change the template, where another has the same ones."""


class Space(Protocol):
    """What a search strategy may ask of a set of configs."""

    @property
    def size(self) -> int:
        """How many configs there are before constraints."""

    def count_valid(self, limit: int = ENUMERABLE) -> int | None:
        """How many configs are valid; None when the space is larger than `limit`."""

    def default(self) -> Config:
        """The config of an untuned kernel."""

    def defaults(self) -> list[Config]:
        """Good first guesses, the default first: one per template that is not a last resort."""

    def promising(self, count: int) -> list[Config]:
        """So many configs at most of which models expect the most before any trial, best first of each template; none
        where models know nothing."""

    def sample(self, rng: random.Random) -> Config:
        """A valid config at random; ConfigError when there seems to be none."""

    def neighbours(self, config: Config, rng: random.Random) -> list[Config]:
        """All valid configs one small step away, in random order."""

    def mutate(self, config: Config, rng: random.Random) -> Config:
        """A valid config near `config` and different from it, unless the space has only one."""

    def crossover(self, mother: Config, father: Config, rng: random.Random) -> Config:
        """A valid config whose knobs come from one parent or the other; the mother when none is found."""

    def enumerate(self) -> Iterator[Config]:
        """All valid configs, in the order of templates, and of the values of their knobs."""

    def validate(self, config: Config) -> None:
        """Raises ConfigError, saying what to change, when the config is not a valid point of the space."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the numbers that `encode` returns."""

    def encode(self, config: Config) -> NDArray[np.float32]:
        """float32 vector for the cost model; NaN where a knob does not apply."""

    def encode_all(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """(len(configs), features): `encode` of many, where they share work."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named rule over the whole assignment; `message` says what it wants, for the person who broke it."""

    name: str
    holds: Callable[[Config], bool]
    message: str


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that follows from the whole assignment and that the cost model should see.

    Trees cut one feature at a time, so they are slow to learn a product: live registers, the share of
    work wasted in tails, bytes of a tile. Such numbers are worth more than the knobs they come from.
    """

    name: str
    of: Callable[[Config], float]


@dataclass(frozen=True, slots=True)
class ConfigSpace:
    """All assignments of the knobs that satisfy every constraint (see `Space` for the methods)."""

    knobs: tuple[Choice, ...]
    constraints: tuple[Constraint, ...] = ()
    derived: tuple[Derived, ...] = ()

    def __post_init__(self) -> None:
        names = [knob.name for knob in self.knobs] + [number.name for number in self.derived]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"the space has two knobs or derived numbers named {name!r}; their names must differ")

    def knob(self, name: str) -> Choice:
        for knob in self.knobs:
            if knob.name == name:
                return knob
        names = [knob.name for knob in self.knobs]
        raise ConfigError(f"unknown knob {name!r}{suggest(name, names)}; the knobs are {', '.join(names) or 'none'}")

    @property
    def size(self) -> int:
        return math.prod(len(knob.values) for knob in self.knobs)

    def count_valid(self, limit: int = ENUMERABLE) -> int | None:
        if not self.constraints:
            return self.size
        return sum(1 for _ in self.enumerate()) if self.size <= limit else None

    def default(self) -> Config:
        config = Config.of((knob.name, knob.default) for knob in self.knobs)
        self.validate(config)
        return config

    def defaults(self) -> list[Config]:
        return [self.default()]

    def promising(self, count: int) -> list[Config]:
        return []

    def canonical(self, config: Config) -> Config:
        """The one of all configs of the same schedule, in spaces that have several."""
        return config

    def alike(self, other: Config, gap: float, default: Config) -> Config | None:
        """The best among configs in whose schedules constants lie as in that of `other`, perhaps the default of the
        whole space; see `registry.alike`."""
        return None

    def sample(self, rng: random.Random) -> Config:
        for _ in range(SAMPLE_TRIES):
            config = Config.of((knob.name, rng.choice(knob.values)) for knob in self.knobs)
            if self.satisfies(config):
                return config
        # Few or none are valid. A small space can be searched exactly, which keeps the choice uniform.
        valid = list(self.enumerate()) if self.size <= ENUMERABLE else []
        if valid:
            return rng.choice(valid)
        broken = max(self.constraints, key=lambda rule: not rule.holds(config))
        raise ConfigError(
            f"no valid config found among {self.size} after {SAMPLE_TRIES} tries, the space seems empty; "
            f"for example {config.to_json()} breaks {broken.name!r}: {broken.message}"
        )

    def neighbours(self, config: Config, rng: random.Random) -> list[Config]:
        moved = [config.replace(**{knob.name: value}) for knob in self.knobs for value in knob.near(config[knob.name])]
        valid = [other for other in moved if self.satisfies(other)]
        rng.shuffle(valid)
        return valid

    def mutate(self, config: Config, rng: random.Random) -> Config:
        movable = [knob for knob in self.knobs if len(knob.values) > 1]
        if not movable:
            return config
        for attempt in range(100):
            # Mostly one small step; sometimes further, so that a ridge of invalid configs can be jumped.
            changed = config
            for knob in rng.sample(movable, k=min(len(movable), 1 + attempt // 25 + (rng.random() < FURTHER))):
                near = knob.near(changed[knob.name])
                changed = changed.replace(**{knob.name: rng.choice(near if rng.random() < NEARBY else knob.values)})
            if changed != config and self.satisfies(changed):
                return changed
        return self.sample(rng)

    def crossover(self, mother: Config, father: Config, rng: random.Random) -> Config:
        for _ in range(50):
            child = mother.replace(**{knob.name: rng.choice((mother, father))[knob.name] for knob in self.knobs})
            if self.satisfies(child):
                return child
        return mother

    def like(self, config: Config, default: Callable[[], Config] | None = None) -> Config | None:
        """The config with the values of this space that are nearest to its own; None where that is not valid.

        Args:
            default: gives the values of knobs that have nothing like it; without one, both must have the same knobs.
        """
        found = {k.name: k.closest(config[k.name]) if k.name in config else None for k in self.knobs}
        lacking = [name for name, value in found.items() if value is None]
        if default is None and (lacking or len(config) > len(found)):
            return None
        known = default() if default is not None and lacking else config
        adopted = Config.of({**found, **{name: known[name] for name in lacking}})
        return adopted if self.satisfies(adopted) else None

    def enumerate(self) -> Iterator[Config]:
        names = [knob.name for knob in self.knobs]
        values = itertools.product(*(knob.values for knob in self.knobs))
        return (config for each in values if self.satisfies(config := Config.of(zip(names, each, strict=True))))

    def satisfies(self, config: Config) -> bool:
        """Whether every constraint holds."""
        return all(rule.holds(config) for rule in self.constraints)

    def validate(self, config: Config) -> None:
        for name in config:
            self.knob(name).index(config[name])
        missing = [knob.name for knob in self.knobs if knob.name not in config]
        if missing:
            raise ConfigError(f"the config lacks the knob {missing[0]!r}: {config.to_json()}")
        for rule in self.constraints:
            if not rule.holds(config):
                raise ConfigError(f"the config breaks the rule {rule.name!r}: {rule.message}: {config.to_json()}")

    @property
    def feature_names(self) -> tuple[str, ...]:
        knobs = (name for knob in self.knobs for name in knob.feature_names)
        return (*knobs, *(number.name for number in self.derived))

    def encode(self, config: Config) -> NDArray[np.float32]:
        knobs = [part for knob in self.knobs for part in knob.encode(config[knob.name])]
        return np.array([*knobs, *(number.of(config) for number in self.derived)], np.float32)

    @property
    def portable(self) -> bool:
        """Whether features mean the same in the spaces of other tasks: numbers of nests do, knobs do not."""
        return False

    def encode_all(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        return stacked([self.encode(config) for config in configs], len(self.feature_names))


def stacked(rows: Sequence[NDArray[np.float32]], width: int) -> NDArray[np.float32]:
    """The rows as a matrix of `width` columns, also when there are none."""
    return np.stack(rows) if rows else np.empty((0, width), np.float32)


def suggest(name: str, known: list[str]) -> str:
    """`, did you mean 'x'?` when a known name is close, else nothing."""
    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True, slots=True)
class Member:
    """One template's part of a task space.

    Attributes:
        guess: its default, or what finds it: of a sketch that takes a tenth of a second, and may never be asked for.
        promising: see `Space.promising`.
    """

    space: ConfigSpace
    guess: Config | Callable[[], Config]
    weight: float = 1.0
    promising: Callable[[int], list[Config]] = lambda count: []

    @property
    def default(self) -> Config:
        return self.guess() if callable(self.guess) else self.guess


@dataclass(frozen=True, slots=True)
class TaskSpace:
    """The union of several templates' spaces; each config says which one it is from (see `Space`).

    A template is sampled in proportion to its weight, not to its size: a template with a thousand times
    more knob values is not a thousand times more likely to be the right one.

    Args:
        members: template name to its space; the first one holds the default of the task.
    """

    members: Mapping[str, Member]
    _features: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _places: dict[str, list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = {name: member.space.feature_names for name, member in self.members.items()}
        templates = [f"template={name}" for name in self.members]
        features = tuple(dict.fromkeys([*templates, *(feature for names in own.values() for feature in names)]))
        object.__setattr__(self, "_features", features)
        places = {feature: place for place, feature in enumerate(features)}
        object.__setattr__(self, "_places", {name: [places[f] for f in names] for name, names in own.items()})
        if not self.members:
            raise ConfigError("a task space needs at least one template")
        for name, member in self.members.items():
            if not member.weight > 0:
                raise ConfigError(f"template {name!r} has the weight {member.weight}; it must be positive")

    def _named(self, config: Config) -> tuple[str, Member]:
        name = config.template
        if name is None:
            raise ConfigError(f"the config does not name its template: {config.to_json()}")
        if name not in self.members:
            known = list(self.members)
            raise ConfigError(
                f"unknown template {name!r}{suggest(name, known)}; the templates of this task are {', '.join(known)}"
            )
        return name, self.members[name]

    @property
    def size(self) -> int:
        return sum(member.space.size for member in self.members.values())

    def count_valid(self, limit: int = ENUMERABLE) -> int | None:
        counts = [member.space.count_valid(limit) for member in self.members.values()]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def default(self) -> Config:
        name, member = next(iter(self.members.items()))
        return member.default.replace(template=name)

    def defaults(self) -> list[Config]:
        guesses = [member.default.replace(template=name) for name, member in self._usual()]
        return list(dict.fromkeys([self.default(), *guesses]))

    def promising(self, count: int) -> list[Config]:
        usual = self._usual()
        each = -(-count // len(usual))
        return [config.replace(template=name) for name, member in usual for config in member.promising(each)]

    def _usual(self) -> list[tuple[str, Member]]:
        """All but the last resorts, templates of little weight: measuring those first would waste slow trials."""
        least = LAST_RESORT * max(member.weight for member in self.members.values())
        return [(name, member) for name, member in self.members.items() if member.weight > least]

    def sample(self, rng: random.Random) -> Config:
        weights = [member.weight for member in self.members.values()]
        name = rng.choices(list(self.members), weights)[0]
        return self.members[name].space.sample(rng).replace(template=name)

    def neighbours(self, config: Config, rng: random.Random) -> list[Config]:
        name, member = self._named(config)
        own = [other.replace(template=name) for other in member.space.neighbours(config.without("template"), rng)]
        found = own + self._relatives(config)
        rng.shuffle(found)
        return found

    def mutate(self, config: Config, rng: random.Random) -> Config:
        name, member = self._named(config)
        relatives = self._relatives(config) if rng.random() < CHANGE_OF_TEMPLATE else []
        if relatives:
            return rng.choice(relatives)
        if member.space.size == 1:
            return self.sample(rng)
        return member.space.mutate(config.without("template"), rng).replace(template=name)

    def crossover(self, mother: Config, father: Config, rng: random.Random) -> Config:
        name, member = self._named(mother)
        own = father.without("template")
        values = own if father.template == name else member.space.like(own)
        if values is None:
            return mother
        return member.space.crossover(mother.without("template"), values, rng).replace(template=name)

    def nearest(self, config: Config) -> Config | None:
        """The config itself where it is valid, else with the closest values that its knobs have here; canonical.

        None when the task has no such template, or when the closest values break a rule of the space together.
        """
        member = self.members.get(config.template or "")
        moved = None if member is None else member.space.like(config.without("template"), lambda: member.default)
        if member is None or moved is None:
            return None
        return member.space.canonical(moved).replace(template=config.template)

    def _relatives(self, config: Config) -> list[Config]:
        """The config in the other templates that have its knobs, such as those of Winograd's other tiles: what is good
        in one is a good guess in the next."""
        values = config.without("template")
        others = [(name, member.space.like(values)) for name, member in self.members.items() if name != config.template]
        return [other.replace(template=name) for name, other in others if other is not None]

    def enumerate(self) -> Iterator[Config]:
        for name, member in self.members.items():
            for config in member.space.enumerate():
                yield config.replace(template=name)

    def validate(self, config: Config) -> None:
        self._named(config)[1].space.validate(config.without("template"))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`template=NAME` for each template, then the knobs; those of one name in several templates are one column, so
        that what is learned of it in one template serves the others."""
        return self._features

    def encode(self, config: Config) -> NDArray[np.float32]:
        name, member = self._named(config)
        vector = np.full(len(self._features), np.nan, np.float32)
        vector[: len(self.members)] = [other == name for other in self.members]
        vector[self._places[name]] = member.space.encode(config)
        return vector

    def encode_all(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        matrix = np.full((len(configs), len(self._features)), np.nan, np.float32)
        named = np.array([self._named(config)[0] for config in configs])
        matrix[:, : len(self.members)] = named[:, None] == np.array(list(self.members))[None, :]
        for name, member in self.members.items():
            rows = np.flatnonzero(named == name)
            if len(rows):
                values = member.space.encode_all([configs[int(n)] for n in rows])
                matrix[rows[:, None], self._places[name]] = values
        return matrix
